"""The SQL. Every statement on a tenant's rows leads with tenant_id, and so runs on one node of a distributed schema.

Rows that a ranking needs by the ten thousand come back packed: one value per statement, the rows' fixed-width fields
one after the other, for numpy to read where a driver would make an object per field.
"""

from __future__ import annotations

from functools import cache
from typing import Final

# Keys of the advisory locks, held to the end of a transaction: migrations exclude each other; writers share the second
# lock, which changing the settings takes alone, so that a writer's view of them holds until its commit.
_MIGRATION_LOCK: Final = 7_310_579_621
_SETTINGS_LOCK: Final = 7_310_579_622

BEGIN_READ: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
BEGIN_WRITE: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_advisory_xact_lock_shared({_SETTINGS_LOCK})"
)
BEGIN_EXCLUSIVE: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_advisory_xact_lock({_SETTINGS_LOCK})"
)
BEGIN_MIGRATION: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"
)
# Compiling a ranking costs more than running it; a plan for unknown terms or tenants suits few of them.
BEGIN_SNAPSHOT: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
    "SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_custom_plan"
)
EXPORT_SNAPSHOT: Final = "SELECT pg_export_snapshot()"


def begin_with_snapshot(exported: str) -> str:
    """Begin as BEGIN_SNAPSHOT does, on the snapshot that another transaction, which still runs, has exported."""
    return f"{BEGIN_SNAPSHOT}; SET TRANSACTION SNAPSHOT '{exported}'"


# A statement that is cancelled or fails takes back to its savepoint, not the whole snapshot with it. Ids and keys are
# of one tenant, so an index over them is the way to its rows; to compare all of its vectors, the planner may scan.
SAVEPOINT: Final = "SAVEPOINT reading; SET LOCAL enable_seqscan = off"
SAVEPOINT_TO_SCAN: Final = "SAVEPOINT reading; SET LOCAL enable_seqscan = on"
TO_SAVEPOINT: Final = "ROLLBACK TO SAVEPOINT reading"

MIGRATIONS_TABLE: Final = "SELECT to_regclass('chunkstore.schema_migrations')::text"
SETTINGS_TABLE: Final = "SELECT to_regclass('chunkstore.settings')::text"
APPLIED_MIGRATIONS: Final = "SELECT number FROM chunkstore.schema_migrations"

VECTOR_WIDTH: Final = """
SELECT atttypmod FROM pg_attribute
WHERE attrelid = to_regclass('chunkstore.chunks') AND attname = 'embedding' AND NOT attisdropped
"""

READ_SETTINGS: Final = """
SELECT dimension, analyzer_name, analyzer_version, embedding_model, backfill_analyzer_name, backfill_analyzer_version,
    backfill_tenant_id, backfill_id
FROM chunkstore.settings
"""

RECORD_SETTINGS: Final = """
INSERT INTO chunkstore.settings (dimension, analyzer_name, analyzer_version, embedding_model)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""

ADOPT_MODEL: Final = """
UPDATE chunkstore.settings SET embedding_model = $1
WHERE embedding_model IS NULL AND dimension = $2
    AND NOT EXISTS (SELECT FROM chunkstore.corpora WHERE embedded_count > 0)
    AND NOT EXISTS (SELECT FROM chunkstore.chunks WHERE embedding IS NOT NULL)
"""

# --- reading


def _chunks(condition: str) -> str:
    """Read a tenant's ($1) chunks as rows.chunk_from takes them, their vectors where $2 is true."""
    return f"""
SELECT c.id, c.source_id, c.text, c.chunk_index, c.start_char, c.end_char, c.entity_ids, c.metadata,
    c.other_occurrences, CASE WHEN $2::boolean THEN vector_send(c.embedding) END AS embedding
FROM chunkstore.chunks AS c
WHERE c.tenant_id = $1 AND {condition}
"""  # noqa: S608 - of this module's constants alone


CHUNKS_BY_ID: Final = _chunks("c.id = ANY ($3::bytea[])")
CHUNKS_AS_OF: Final = _chunks("c.id = ANY ($3::bytea[]) AND c.revision <= $4")
CHUNKS_OF_SOURCES: Final = _chunks("c.source_id = ANY ($3::text[])")
PAGE_OF_SOURCE: Final = _chunks(
    "c.source_id = $3 AND (c.chunk_index, c.id) > ($4::integer, $5::bytea) ORDER BY c.chunk_index, c.id LIMIT $6"
)
PAGE_OF_ENTITY: Final = _chunks(
    "c.entity_keys @> ARRAY[$3::bigint] AND c.entity_ids @> ARRAY[$4::text]"
    " AND (c.source_id, c.chunk_index, c.id) > ($5::text, $6::integer, $7::bytea)"
    " ORDER BY c.source_id, c.chunk_index, c.id LIMIT $8"
)
SOURCES_OF_CHUNKS: Final = """
SELECT id, source_id FROM chunkstore.chunks WHERE tenant_id = $1 AND id = ANY ($2::bytea[])
"""

# The nearest first. The revision is that of the rows, being read by the same statement.
NEIGHBORS: Final = """
SELECT h.id,
    ARRAY(
        SELECT c.id FROM chunkstore.chunks AS c
        WHERE c.tenant_id = $1 AND c.source_id = h.source_id AND (c.chunk_index, c.id) < (h.chunk_index, h.id)
        ORDER BY c.chunk_index DESC, c.id DESC LIMIT $3::integer
    ) AS before,
    ARRAY(
        SELECT c.id FROM chunkstore.chunks AS c
        WHERE c.tenant_id = $1 AND c.source_id = h.source_id AND (c.chunk_index, c.id) > (h.chunk_index, h.id)
        ORDER BY c.chunk_index, c.id LIMIT $4::integer
    ) AS after,
    (SELECT revision FROM chunkstore.corpora WHERE tenant_id = $1) AS revision
FROM chunkstore.chunks AS h
WHERE h.tenant_id = $1 AND h.id = ANY ($2::bytea[])
"""

PAGE_OF_UNEMBEDDED: Final = _chunks("c.embedding IS NULL AND c.id > $3::bytea ORDER BY c.id LIMIT $4")

PAGE_OF_SOURCES: Final = """
SELECT source_id, revision, chunk_count FROM chunkstore.sources
WHERE tenant_id = $1 AND source_id > $2
ORDER BY source_id LIMIT $3
"""

SOURCE_REVISIONS: Final = """
SELECT source_id, revision FROM chunkstore.sources WHERE tenant_id = $1 AND source_id = ANY ($2::text[])
"""

EMBEDDED_IDS: Final = """
SELECT id FROM chunkstore.chunks WHERE tenant_id = $1 AND id = ANY ($2::bytea[]) AND embedding IS NOT NULL
"""

CORPUS: Final = """
SELECT revision, chunk_count, embedded_count, total_length, source_count
FROM chunkstore.corpora WHERE tenant_id = $1
"""

# --- ranking; conditions are those of `conditions.condition`, true where there is no filter

CORPUS_AND_SETTINGS: Final = """
SELECT c.revision, c.chunk_count, c.embedded_count, c.total_length, c.source_count, c.known_from,
    s.dimension, s.analyzer_name, s.analyzer_version, s.embedding_model, s.backfill_analyzer_name,
    s.backfill_analyzer_version
FROM chunkstore.corpora AS c CROSS JOIN chunkstore.settings AS s
WHERE c.tenant_id = $1
"""

# Whether the planner's statistics, if any, lack a tenant ($1) of so many chunks ($2) that new ones would list it.
IS_UNKNOWN_TO_PLANNER: Final = """
SELECT NOT pg_is_in_recovery() AND $2::integer >= greatest(1000, t.reltuples / 100)
    AND NOT $1::text = ANY (coalesce(s.most_common_vals::text::text[], '{}')) AS unknown
FROM pg_class AS t
LEFT JOIN pg_stats AS s ON s.schemaname = 'chunkstore' AND s.tablename = 'chunks' AND s.attname = 'tenant_id'
WHERE t.oid = 'chunkstore.chunks'::regclass
"""
INTRODUCE_TENANTS: Final = "ANALYZE (SKIP_LOCKED) chunkstore.chunks (tenant_id, id, source_id, revision)"


def matching_chunks(term_count: int, condition: str) -> str:
    """Chunks that hold any of `term_count` keys ($2), packed: id, length, whether they meet `condition`, frequencies.

    The condition's parameters are from $3 on.
    """
    return f"""
SELECT string_agg(
    id || int4send(doc_length) || CASE WHEN {condition} THEN '\\x01'::bytea ELSE '\\x00'::bytea END
        || {_frequencies(term_count)}, '')
FROM chunkstore.chunks
WHERE tenant_id = $1 AND term_keys && $2::bigint[]
"""  # noqa: S608 - of integers and of what `conditions` writes


@cache
def _frequencies(term_count: int) -> str:
    # The keys of a row ascend, so that width_bucket finds one by binary search.
    return " || ".join(
        f"int4send(CASE WHEN term_keys[width_bucket(($2::bigint[])[{n}], term_keys)] = ($2::bigint[])[{n}]"
        f" THEN term_frequencies[width_bucket(($2::bigint[])[{n}], term_keys)] ELSE 0 END)"
        for n in range(1, term_count + 1)
    )


def nearest_chunks(condition: str) -> str:
    """The $3 chunks nearest to a vector ($2) that meet `condition`, whose parameters are from $4 on.

    Packed: id and distance. Adding 0 keeps the order from being taken from an index of approximate neighbours that
    somebody may have made.
    """
    return f"""
SELECT string_agg(id || float8send(distance), '')
FROM (
    SELECT id, (embedding <=> $2::real[]::vector) + 0 AS distance FROM chunkstore.chunks
    WHERE tenant_id = $1 AND embedding IS NOT NULL AND {condition}
    ORDER BY distance LIMIT $3
) AS nearest
"""  # noqa: S608 - of what `conditions` writes


def chunks_within(condition: str) -> str:
    """As nearest_chunks, but all of a distance of at most $3."""
    return f"""
SELECT string_agg(id || float8send((embedding <=> $2::real[]::vector) + 0), '') FROM chunkstore.chunks
WHERE tenant_id = $1 AND embedding IS NOT NULL AND (embedding <=> $2::real[]::vector) + 0 <= $3
    AND {condition}
"""  # noqa: S608 - of what `conditions` writes


# Packed: id and vector.
VECTORS: Final = """
SELECT string_agg(id || vector_send(embedding), '') FROM chunkstore.chunks
WHERE tenant_id = $1 AND id = ANY ($2::bytea[])
"""

# --- mirroring


def chunks_meeting(condition: str) -> str:
    """The tenant's revision, and the ids, packed, of its chunks that meet `condition` (parameters from $2 on)."""
    return f"""
SELECT revision, (SELECT string_agg(id, '') FROM chunkstore.chunks WHERE tenant_id = $1 AND {condition}) AS ids
FROM chunkstore.corpora WHERE tenant_id = $1
"""  # noqa: S608 - of what `conditions` writes


# Rows of mirror_rows.ChunkColumns: of all chunks ($2 = 0 being before any), or of the ones written since a revision.
INDEXED_CHUNKS: Final = """
SELECT id, doc_length, array_send(term_keys) AS keys, array_send(term_frequencies) AS frequencies,
    vector_send(embedding) AS embedding
FROM chunkstore.chunks WHERE tenant_id = $1 AND revision > $2
"""

REMOVED_SINCE: Final = "SELECT id FROM chunkstore.removals WHERE tenant_id = $1 AND revision > $2"

# --- writing, under the lock on the tenant's row of corpora

CREATE_CORPUS: Final = "INSERT INTO chunkstore.corpora (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING"

LOCK_CORPUS: Final = """
SELECT c.revision,
    s.dimension, s.analyzer_name, s.analyzer_version, s.embedding_model, s.backfill_analyzer_name,
    s.backfill_analyzer_version
FROM chunkstore.corpora AS c CROSS JOIN chunkstore.settings AS s
WHERE c.tenant_id = $1
FOR UPDATE OF c
"""

DELETE_CHUNKS: Final = """
WITH gone AS (
    DELETE FROM chunkstore.chunks WHERE tenant_id = $1 AND id = ANY ($2::bytea[]) RETURNING id, doc_length, embedding
), noted AS (
    INSERT INTO chunkstore.removals (tenant_id, revision, id) SELECT $1, $3, id FROM gone
)
SELECT count(*) AS chunk_count, count(embedding) AS embedded_count, coalesce(sum(doc_length), 0)::bigint AS total_length
FROM gone
"""

DELETE_SOURCE_CHUNKS: Final = """
WITH gone AS (
    DELETE FROM chunkstore.chunks WHERE tenant_id = $1 AND source_id = $2 RETURNING id, doc_length, embedding
), noted AS (
    INSERT INTO chunkstore.removals (tenant_id, revision, id) SELECT $1, $3, id FROM gone
)
SELECT count(*) AS chunk_count, count(embedding) AS embedded_count, coalesce(sum(doc_length), 0)::bigint AS total_length
FROM gone
"""

DELETE_SOURCE: Final = """
WITH gone AS (DELETE FROM chunkstore.sources WHERE tenant_id = $1 AND source_id = $2 RETURNING source_id)
SELECT count(*) FROM gone
"""

DELETE_ALL_CHUNKS: Final = """
WITH gone AS (DELETE FROM chunkstore.chunks WHERE tenant_id = $1 RETURNING id)
SELECT count(*) FROM gone
"""

DELETE_ALL_SOURCES: Final = """
WITH gone AS (DELETE FROM chunkstore.sources WHERE tenant_id = $1 RETURNING source_id)
SELECT count(*) FROM gone
"""

# Nothing is noted chunk by chunk: a mirror starts anew.
EMPTY_CORPUS: Final = """
WITH forgotten AS (DELETE FROM chunkstore.removals WHERE tenant_id = $1)
UPDATE chunkstore.corpora
SET revision = revision + 1, known_from = revision + 1, chunk_count = 0, embedded_count = 0, total_length = 0,
    source_count = 0
WHERE tenant_id = $1
"""

# $2 is the revision up to which removals are forgotten.
FORGET_REMOVALS: Final = """
WITH forgotten AS (DELETE FROM chunkstore.removals WHERE tenant_id = $1 AND revision <= $2)
UPDATE chunkstore.corpora SET known_from = $2 WHERE tenant_id = $1 AND known_from < $2
"""

# All parts of a statement see the rows as they were before it: `known` counts the sources that existed.
CHANGE_SOURCES: Final = """
WITH changes AS (
    SELECT source_id, added FROM unnest($2::text[], $3::bigint[]) AS c (source_id, added)
), known AS (
    SELECT s.source_id FROM chunkstore.sources AS s JOIN changes USING (source_id) WHERE s.tenant_id = $1
), written AS (
    INSERT INTO chunkstore.sources AS s (tenant_id, source_id, revision, chunk_count)
    SELECT $1, source_id, $4, added FROM changes
    ON CONFLICT (tenant_id, source_id)
    DO UPDATE SET revision = EXCLUDED.revision, chunk_count = s.chunk_count + EXCLUDED.chunk_count
)
SELECT (SELECT count(*) FROM changes) - (SELECT count(*) FROM known)
"""

CHANGE_CORPUS: Final = """
UPDATE chunkstore.corpora
SET revision = $2, chunk_count = chunk_count + $3, embedded_count = embedded_count + $4,
    total_length = total_length + $5, source_count = source_count + $6
WHERE tenant_id = $1
"""

# --- lexical backfill

# $1 and $2 are the target's name and version; a backfill of another target starts from the beginning.
BEGIN_BACKFILL: Final = """
UPDATE chunkstore.settings
SET backfill_analyzer_name = $1, backfill_analyzer_version = $2, backfill_tenant_id = NULL, backfill_id = NULL
WHERE (backfill_analyzer_name, backfill_analyzer_version) IS DISTINCT FROM ($1, $2::integer)
"""

LOCK_SETTINGS: Final = "SELECT backfill_analyzer_name, backfill_analyzer_version FROM chunkstore.settings FOR UPDATE"

SAVE_PLACE: Final = "UPDATE chunkstore.settings SET backfill_tenant_id = $1, backfill_id = $2"

FINISH_BACKFILL: Final = """
UPDATE chunkstore.settings
SET analyzer_name = $1, analyzer_version = $2, backfill_analyzer_name = NULL, backfill_analyzer_version = NULL,
    backfill_tenant_id = NULL, backfill_id = NULL
WHERE (backfill_analyzer_name, backfill_analyzer_version) = ($1, $2::integer)
"""

CHUNKS_LEFT: Final = "SELECT count(*) FROM chunkstore.chunks WHERE (tenant_id, id) > ($1, $2::bytea)"

NEXT_TENANT: Final = """
SELECT min(tenant_id) FROM (
    (SELECT tenant_id FROM chunkstore.corpora WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1)
    UNION ALL
    (SELECT tenant_id FROM chunkstore.chunks WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1)
) AS next
"""

TEXTS: Final = """
SELECT id, text, entity_ids FROM chunkstore.chunks WHERE tenant_id = $1 AND id > $2::bytea ORDER BY id LIMIT $3
"""

# The arrays of all chunks come joined, with where each chunk's part of them starts and ends.
UPDATE_POSTINGS: Final = """
WITH batch AS (
    SELECT id, doc_length,
        ($6::bigint[])[first_term : last_term] AS term_keys,
        ($7::integer[])[first_term : last_term] AS term_frequencies,
        ($10::bigint[])[first_entity : last_entity] AS entity_keys
    FROM unnest($2::bytea[], $3::integer[], $4::integer[], $5::integer[], $8::integer[], $9::integer[])
        AS b (id, doc_length, first_term, last_term, first_entity, last_entity)
), stale AS (
    SELECT b.*, b.doc_length - c.doc_length AS grown
    FROM batch AS b JOIN chunkstore.chunks AS c ON c.tenant_id = $1 AND c.id = b.id
    WHERE (c.doc_length, c.term_keys, c.term_frequencies, c.entity_keys)
        IS DISTINCT FROM (b.doc_length, b.term_keys, b.term_frequencies, b.entity_keys)
), changed AS (
    UPDATE chunkstore.chunks AS c
    SET doc_length = s.doc_length, term_keys = s.term_keys, term_frequencies = s.term_frequencies,
        entity_keys = s.entity_keys, revision = $11
    FROM stale AS s
    WHERE c.tenant_id = $1 AND c.id = s.id
    RETURNING s.grown
)
SELECT count(*) AS chunk_count, coalesce(sum(grown), 0)::bigint AS grown FROM changed
"""

RECOUNT_SOURCES: Final = """
WITH counted AS (
    SELECT source_id, count(*) AS chunk_count FROM chunkstore.chunks WHERE tenant_id = $1 GROUP BY source_id
), made AS (
    INSERT INTO chunkstore.sources AS s (tenant_id, source_id, revision, chunk_count)
    SELECT $1, source_id, $2, chunk_count FROM counted
    ON CONFLICT (tenant_id, source_id) DO UPDATE SET chunk_count = EXCLUDED.chunk_count
    WHERE s.chunk_count <> EXCLUDED.chunk_count
    RETURNING 1
), emptied AS (
    UPDATE chunkstore.sources AS s SET chunk_count = 0
    WHERE s.tenant_id = $1 AND s.chunk_count <> 0
        AND NOT EXISTS (SELECT FROM counted WHERE counted.source_id = s.source_id)
    RETURNING 1
)
SELECT (SELECT count(*) FROM made) + (SELECT count(*) FROM emptied)
"""

# $3 is whether the revision must move whatever the counts are.
RECOUNT_CORPUS: Final = """
WITH counted AS (
    SELECT count(*) AS chunk_count, count(embedding) AS embedded_count, coalesce(sum(doc_length), 0) AS total_length,
        (SELECT count(*) FROM chunkstore.sources WHERE tenant_id = $1) AS source_count
    FROM chunkstore.chunks WHERE tenant_id = $1
)
UPDATE chunkstore.corpora AS c
SET revision = $2, chunk_count = n.chunk_count, embedded_count = n.embedded_count, total_length = n.total_length,
    source_count = n.source_count
FROM counted AS n
WHERE c.tenant_id = $1 AND ($3::boolean OR (c.chunk_count, c.embedded_count, c.total_length, c.source_count)
    IS DISTINCT FROM (n.chunk_count, n.embedded_count, n.total_length, n.source_count))
"""

# --- embeddings

COUNT_UNEMBEDDED: Final = "SELECT coalesce(sum(chunk_count - embedded_count), 0)::bigint FROM chunkstore.corpora"

NEXT_UNEMBEDDED_TENANT: Final = """
SELECT tenant_id FROM chunkstore.corpora
WHERE tenant_id > $1 AND embedded_count < chunk_count
ORDER BY tenant_id LIMIT 1
"""

FILL_EMBEDDINGS: Final = """
WITH changed AS (
    UPDATE chunkstore.chunks AS c
    SET embedding = ($3::real[])[(v.place::integer - 1) * $4 + 1 : v.place::integer * $4]::vector, revision = $5
    FROM unnest($2::bytea[]) WITH ORDINALITY AS v (id, place)
    WHERE c.tenant_id = $1 AND c.id = v.id AND c.embedding IS NULL
    RETURNING c.source_id
), moved AS (
    UPDATE chunkstore.sources AS s SET revision = $5
    WHERE s.tenant_id = $1 AND s.source_id IN (SELECT source_id FROM changed)
)
SELECT count(*) FROM changed
"""

DROP_EMBEDDINGS: Final = "ALTER TABLE chunkstore.chunks DROP COLUMN IF EXISTS embedding"

FORGET_EMBEDDINGS: Final = """
UPDATE chunkstore.corpora SET embedded_count = 0, revision = revision + 1, known_from = revision + 1
WHERE embedded_count > 0
"""

RECORD_MODEL: Final = "UPDATE chunkstore.settings SET dimension = $1, embedding_model = $2"


def add_embeddings(dimension: int, storage: str) -> str:
    """The empty column of vectors of a width."""
    return (
        f"ALTER TABLE chunkstore.chunks ADD COLUMN embedding vector({dimension:d}), "
        f"ALTER COLUMN embedding SET STORAGE {storage}"
    )
