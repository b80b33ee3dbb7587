-- The first schema. Every table is created where it is missing and then brought up to date, so that tables which
-- predate a column are repaired by the same statements that make new ones.
--
-- The width of the vectors and where PostgreSQL keeps them are filled in (see README.md, "Vectors").

CREATE EXTENSION IF NOT EXISTS vector;

CREATE SCHEMA IF NOT EXISTS chunkstore;

CREATE TABLE IF NOT EXISTS chunkstore.schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- What the stored rows were made with. The last three columns are the place of an unfinished lexical backfill.
CREATE TABLE IF NOT EXISTS chunkstore.settings (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    dimension integer NOT NULL,
    analyzer_name text NOT NULL,
    analyzer_version integer NOT NULL,
    embedding_model text,
    backfill_analyzer_name text,
    backfill_analyzer_version integer,
    backfill_tenant_id text,
    backfill_id bytea
);

CREATE TABLE IF NOT EXISTS chunkstore.corpora (
    tenant_id text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL DEFAULT 0,
    chunk_count bigint NOT NULL DEFAULT 0,
    embedded_count bigint NOT NULL DEFAULT 0,
    total_length bigint NOT NULL DEFAULT 0,
    source_count bigint NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS chunkstore.sources (
    tenant_id text COLLATE "C" NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    chunk_count bigint NOT NULL,
    PRIMARY KEY (tenant_id, source_id)
);

CREATE TABLE IF NOT EXISTS chunkstore.chunks (
    tenant_id text COLLATE "C" NOT NULL,
    id bytea NOT NULL CHECK (octet_length(id) = 32),
    source_id text COLLATE "C" NOT NULL,
    text text NOT NULL,
    chunk_index integer NOT NULL,
    start_char integer NOT NULL,
    end_char integer NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

-- other_occurrences holds triples of chunk_index, start_char and end_char, one after the other. term_keys ascend, with
-- term_frequencies beside them.
ALTER TABLE chunkstore.chunks
    ADD COLUMN IF NOT EXISTS entity_ids text[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS entity_keys bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS metadata jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS other_occurrences integer[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS doc_length integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS term_keys bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS term_frequencies integer[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS embedding vector(${dimension}),
    ADD COLUMN IF NOT EXISTS revision bigint NOT NULL DEFAULT 0;

-- Ids are ordered by their bytes, also in tables that were made with another order; where it is this one, that is free.
ALTER TABLE chunkstore.chunks
    ALTER COLUMN tenant_id TYPE text COLLATE "C",
    ALTER COLUMN source_id TYPE text COLLATE "C";

-- What a ranking reads stays in the row as long as it fits a page at all: MAIN is moved out last, and nothing is moved
-- out of a row of up to 8,160 bytes.
ALTER TABLE chunkstore.chunks
    ALTER COLUMN tenant_id SET STORAGE MAIN,
    ALTER COLUMN id SET STORAGE MAIN,
    ALTER COLUMN source_id SET STORAGE MAIN,
    ALTER COLUMN term_keys SET STORAGE MAIN,
    ALTER COLUMN term_frequencies SET STORAGE MAIN,
    ALTER COLUMN embedding SET STORAGE ${storage},
    SET (toast_tuple_target = 8160);

CREATE INDEX IF NOT EXISTS chunks_by_source ON chunkstore.chunks (tenant_id, source_id, chunk_index, id);

-- Every query reads the list of entries that are not in the tree yet, so it is kept short, in kB.
CREATE INDEX IF NOT EXISTS chunks_by_term ON chunkstore.chunks USING gin (term_keys)
    WITH (gin_pending_list_limit = 1024);
CREATE INDEX IF NOT EXISTS chunks_by_entity ON chunkstore.chunks USING gin (entity_keys)
    WITH (gin_pending_list_limit = 1024);
