-- What an in-memory mirror of a tenant needs to catch up by changes alone: which chunks have been written since a
-- revision, which have been removed, and since when that is known.

ALTER TABLE chunkstore.corpora
    ADD COLUMN IF NOT EXISTS known_from bigint NOT NULL DEFAULT 0;

CREATE INDEX IF NOT EXISTS chunks_by_revision ON chunkstore.chunks (tenant_id, revision);

CREATE TABLE IF NOT EXISTS chunkstore.removals (
    tenant_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    id bytea NOT NULL,
    PRIMARY KEY (tenant_id, revision, id)
);

-- Removals before now have not been noted.
UPDATE chunkstore.corpora SET known_from = revision;
