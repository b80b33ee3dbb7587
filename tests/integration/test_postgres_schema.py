"""The schema, made and repaired, and the refusal to open a store that was made with something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import numpy as np
import pytest
from tests.databases import connected, fresh_database

from chunkstore.adapters.postgres.schema import migration_sql, migrations, vector_storage
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import (
    DimensionMismatchError,
    InvalidFieldError,
    StoreMismatchError,
)
from chunkstore.domain.text import TenantId

ENGLISH = analyzer("english")
TENANT = TenantId("acme")


@asynccontextmanager
async def opened(dsn: str, **options: Any) -> AsyncIterator[PostgresChunkStore]:
    arguments: dict[str, Any] = {"dimension": 4, "analyzer": ENGLISH, "pool_size": 2} | options
    store = await PostgresChunkStore.open(dsn, **arguments)
    try:
        yield store
    finally:
        await store.aclose()


def a_chunk(source_id: str, text: str, vector: list[float] | None = None) -> StoredChunk:
    embedding = None if vector is None else np.array(vector, dtype=np.float32)
    return StoredChunk(source_id, text, 0, 0, len(text), embedding=embedding)


async def columns(connection: asyncpg.Connection) -> dict[str, str]:
    """Every column's type, collation, NOT NULL and storage."""
    rows = await connection.fetch("""
        SELECT c.relname || '.' || a.attname AS name, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
            nullif(l.collname, 'default'), CASE WHEN a.attnotnull THEN 'NOT NULL' END, a.attstorage) AS type
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE n.nspname = 'chunkstore' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    """)
    return {row["name"]: row["type"] for row in rows}


async def test_makes_the_schema_from_nothing(any_dsn: str) -> None:
    async with opened(any_dsn) as store:
        assert (await store.upsert_many(TENANT, [a_chunk("s", "alpha", [1, 0, 0, 0])])).revision == 1
    async with connected(any_dsn) as connection:
        found = await columns(connection)
        assert found["chunks.embedding"] == "vector(4) p"
        assert found["chunks.term_keys"] == "bigint[] NOT NULL m"
        assert found["chunks.source_id"] == "text C NOT NULL m"
        tables = {name.split(".")[0] for name in found}
        assert tables >= {"chunks", "corpora", "schema_migrations", "settings", "sources"}
        assert await connection.fetchval("SELECT count(*) FROM chunkstore.schema_migrations") == len(migrations())


async def test_opening_again_changes_nothing(dsn: str) -> None:
    async with opened(dsn) as store:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha")])
    async with connected(dsn) as connection:
        before = await columns(connection), await connection.fetch("SELECT * FROM chunkstore.schema_migrations")
        async with opened(dsn) as store:
            assert (await store.counts(TENANT)).chunk_count == 1
        assert (
            await columns(connection),
            await connection.fetch("SELECT * FROM chunkstore.schema_migrations"),
        ) == before


async def test_processes_that_make_it_at_once_do_not_disturb_each_other(any_dsn: str) -> None:
    stores = await asyncio.gather(
        *(PostgresChunkStore.open(any_dsn, dimension=4, analyzer=ENGLISH, pool_size=1) for _ in range(6))
    )
    try:
        await asyncio.gather(*(store.upsert_many(TENANT, [a_chunk("s", f"word{n}")]) for n, store in enumerate(stores)))
        counts = await stores[0].counts(TENANT)
        assert (counts.revision, counts.chunk_count) == (6, 6)
    finally:
        await asyncio.gather(*(store.aclose() for store in stores))


async def test_the_script_for_a_migration_repository_is_all_it_takes(any_dsn: str) -> None:
    async with connected(any_dsn) as connection:
        async with connection.transaction():
            await connection.execute(migration_sql(4))
        made = await columns(connection)
        async with opened(any_dsn, migrate=False) as store:
            await store.upsert_many(TENANT, [a_chunk("s", "alpha")])
        async with opened(any_dsn):
            assert await columns(connection) == made


async def test_without_the_schema_and_without_leave_to_make_it_says_what_to_run(dsn: str) -> None:
    with pytest.raises(StoreMismatchError, match="run `chunkstore migrate`") as caught:
        await PostgresChunkStore.open(dsn, dimension=4, analyzer=ENGLISH, migrate=False)
    assert "relation" not in str(caught.value)


@pytest.mark.parametrize("dimension", [0, -1, 16_001])
async def test_refuses_a_dimension_that_pgvector_does_not_have(dsn: str, dimension: int) -> None:
    with pytest.raises(InvalidFieldError, match="dimension"):
        migration_sql(dimension)


async def test_refuses_a_database_that_does_not_store_utf8(newest_server: str) -> None:
    async with fresh_database(newest_server, "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0") as dsn:
        with pytest.raises(StoreMismatchError, match="UTF-8"):
            await PostgresChunkStore.open(dsn, dimension=4, analyzer=ENGLISH)


OLD_TABLE = """
CREATE SCHEMA chunkstore;
CREATE TABLE chunkstore.chunks (
    tenant_id text NOT NULL,
    id bytea NOT NULL,
    source_id text NOT NULL,
    text text NOT NULL,
    chunk_index integer NOT NULL,
    start_char integer NOT NULL,
    end_char integer NOT NULL,
    entity_ids text[] NOT NULL DEFAULT '{}',
    metadata jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, id)
)
"""


async def ranked(store: PostgresChunkStore, *terms: str) -> list[str]:
    async with store.snapshot(TENANT) as corpus:
        found = await corpus.lexical_candidates(terms, 10)
        return [chunk.text for chunk in await corpus.chunks(found.ranking.ids)]


async def test_repairs_a_table_that_predates_the_columns(any_dsn: str) -> None:
    """A table as an early version may have made it, with rows: opening repairs it, the backfill its ranking."""
    texts = ["river bank", "bank bank bank", "river delta and a long tail of other words", "unrelated"]
    chunks = [StoredChunk(f"s{n}", text, 0, 0, len(text), ("e", "f")) for n, text in enumerate(texts)]
    async with connected(any_dsn) as connection:
        await connection.execute(OLD_TABLE)
        await connection.executemany(
            "INSERT INTO chunkstore.chunks VALUES ($1, $2, $3, $4, 0, 0, $5, $6)",
            [(TENANT, bytes.fromhex(c.id), c.source_id, c.text, c.end_char, list(c.entity_ids)) for c in chunks],
        )
    async with opened(any_dsn) as store:
        assert await store.get(TENANT, chunks[0].id) == chunks[0]
        assert await store.get_by_source(TENANT, "s1", limit=9) == [chunks[1]]
        # Written after the repair, so the only one that the new columns know of.
        await store.upsert_many(TENANT, [a_chunk("late", "river and bank far from each other, at length")])
        assert await ranked(store, "bank", "river") == ["river and bank far from each other, at length"]
        assert await store.get_by_entity(TENANT, "e", limit=9) == []

        assert await store.backfill_lexical_index(batch_size=3) == 4

        assert (await ranked(store, "bank", "river"))[:2] == ["river bank", "bank bank bank"]
        assert len(await ranked(store, "bank", "river")) == 4
        assert await store.get_by_entity(TENANT, "e", limit=9) == chunks
        counts = await store.counts(TENANT)
        assert (counts.chunk_count, counts.source_count, counts.embedded_count) == (5, 5, 0)
        assert [source.source_id for source in await store.list_sources(TENANT, limit=9)] == [
            "late",
            "s0",
            "s1",
            "s2",
            "s3",
        ]
        assert all(source.revision > 0 for source in await store.list_sources(TENANT, limit=9))
        assert await store.backfill_lexical_index() == 0
        assert await store.counts(TENANT) == counts
        assert (await store.upsert_many(TENANT, [chunks[0].with_embedding(np.ones(4, np.float32))])).counts.written == 1


async def test_a_repaired_table_gets_the_same_columns_as_a_new_one(dsn: str, newest_server: str) -> None:
    async with fresh_database(newest_server) as other, connected(other) as connection:
        await connection.execute(OLD_TABLE)
        async with opened(other), opened(dsn), connected(dsn) as new:
            assert await columns(connection) == await columns(new)


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


async def test_refuses_another_analyzer(dsn: str) -> None:
    async with opened(dsn):
        pass
    with pytest.raises(StoreMismatchError) as caught:
        await PostgresChunkStore.open(dsn, dimension=4, analyzer=analyzer("german"))
    line = one_line(caught.value)
    assert "english version 1" in line
    assert "german version 1" in line
    assert "`chunkstore backfill lexical --analyzer german`" in line


@pytest.mark.parametrize(
    ("dimension", "model", "command"),
    [
        (4, "new model", "`chunkstore migrate --embeddings 'new model' --dimension 4`"),
        (8, "old", "`chunkstore migrate --embeddings old --dimension 8`"),
        (8, "new", "`chunkstore migrate --embeddings new --dimension 8`"),
    ],
)
async def test_refuses_another_model_or_dimension(dsn: str, dimension: int, model: str, command: str) -> None:
    async with opened(dsn, embedding_model="old"):
        pass
    with pytest.raises(StoreMismatchError) as caught:
        await PostgresChunkStore.open(dsn, dimension=dimension, analyzer=ENGLISH, embedding_model=model)
    line = one_line(caught.value)
    assert "old (4 dimensions)" in line
    assert f"{model} ({dimension} dimensions)" in line
    assert command in line
    assert "`chunkstore backfill embeddings`" in line


async def test_without_a_model_any_store_opens_and_keeps_its_model(dsn: str) -> None:
    async with opened(dsn, embedding_model="old"):
        pass
    async with opened(dsn, dimension=None) as store:
        assert (store.embedding_model, store.dimension) == ("old", 4)
    async with opened(dsn, embedding_model="old") as store:
        assert store.embedding_model == "old"


async def test_a_new_store_needs_a_dimension(dsn: str) -> None:
    with pytest.raises(InvalidFieldError, match="dimension"):
        await PostgresChunkStore.open(dsn, dimension=None, analyzer=ENGLISH)


async def test_a_store_without_a_model_adopts_one_while_nothing_is_embedded(dsn: str) -> None:
    async with opened(dsn) as store:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha")])
        assert store.embedding_model is None
    async with opened(dsn, embedding_model="first") as store:
        assert store.embedding_model == "first"
    with pytest.raises(StoreMismatchError, match="first"):
        await PostgresChunkStore.open(dsn, dimension=4, analyzer=ENGLISH, embedding_model="second")


async def test_a_store_of_vectors_of_an_unrecorded_model_adopts_none(dsn: str) -> None:
    async with opened(dsn) as store:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha", [1, 0, 0, 0])])
    with pytest.raises(StoreMismatchError) as caught:
        await PostgresChunkStore.open(dsn, dimension=4, analyzer=ENGLISH, embedding_model="first")
    line = one_line(caught.value)
    assert "an unrecorded model (4 dimensions)" in line
    assert "`chunkstore migrate --embeddings first --dimension 4`" in line


async def test_refuses_a_table_of_another_width(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(migration_sql(8))
    with pytest.raises(DimensionMismatchError) as caught:
        await PostgresChunkStore.open(dsn, dimension=4, analyzer=ENGLISH, embedding_model="m")
    assert (caught.value.expected, caught.value.actual) == (4, 8)
    line = str(caught.value)
    assert "\n" not in line
    assert "8 dimensions, not 4" in line
    assert "`chunkstore migrate --embeddings m --dimension 4`" in line


@pytest.mark.parametrize("dimension", [1_700, 1_701, 3_072])
async def test_a_row_fits_whatever_else_is_in_it(dsn: str, dimension: int) -> None:
    """The widest vector that is kept in the row, beside the longest of everything else."""
    assert vector_storage(dimension) == ("PLAIN" if dimension <= 1_700 else "EXTERNAL")
    tenant = TenantId("t" * 128)
    text = " ".join(f"{n:x}" for n in range(40_000, 60_000))
    chunk = StoredChunk(
        source_id="é" * 256,
        text=text,
        chunk_index=2**31 - 1,
        start_char=0,
        end_char=len(text),
        entity_ids=tuple(f"{n:03}{'x' * 253}" for n in range(256)),
        metadata={f"key{n}": "v" * 50 for n in range(900)},
        embedding=np.random.default_rng(0).normal(size=dimension).astype(np.float32),
    )
    async with opened(dsn, dimension=dimension) as store:
        await store.upsert_many(tenant, [chunk])
        assert await store.get(tenant, chunk.id, with_embedding=True) == chunk
        assert await store.get_by_entity(tenant, chunk.entity_ids[0], limit=1) == [chunk.with_embedding(None)]
        assert [source.source_id for source in await store.list_sources(tenant, limit=1)] == ["é" * 256]


async def test_three_chunks_of_100_words_share_a_page(dsn: str) -> None:
    """Beside 384 dimensions and their postings, the text moves out; what a ranking reads stays in the row."""
    choice = np.random.default_rng(5)
    vocabulary = ["".join(letters) for letters in choice.choice(list("bcdfgklmnp"), size=(300, 6))]
    chunks = []
    for n in range(90):
        text = " ".join(choice.choice(vocabulary, size=100))
        vector = choice.normal(size=384).astype(np.float32)
        chunks.append(StoredChunk(f"s{n}", text, 0, 0, len(text), embedding=vector))
    async with opened(dsn, dimension=384) as store, connected(dsn) as connection:
        await store.upsert_many(TENANT, chunks)
        assert await connection.fetchval("SELECT pg_relation_size('chunkstore.chunks') / 8192") == 30
        assert await store.get(TENANT, chunks[0].id, with_embedding=True) == chunks[0]


async def test_a_row_that_was_written_before_a_page_held_three_is_read_and_replaced(dsn: str) -> None:
    """Rows of the first two migrations stay as they are; those written after the third are short."""
    text = " ".join(f"word{n}" for n in range(100))
    chunk = StoredChunk("s", text, 0, 0, len(text), embedding=np.ones(384, np.float32))
    in_row = "SELECT pg_column_size(text) FROM chunkstore.chunks"
    async with opened(dsn, dimension=384) as store, connected(dsn) as connection:
        await connection.execute("ALTER TABLE chunkstore.chunks SET (toast_tuple_target = 8160)")
        await connection.execute("DELETE FROM chunkstore.schema_migrations WHERE number >= 3")
        await store.upsert_many(TENANT, [chunk])
        assert await connection.fetchval(in_row) > len(text)
        async with opened(dsn, dimension=384) as newer:
            assert await newer.get(TENANT, chunk.id, with_embedding=True) == chunk
            changed = StoredChunk("s", text, 1, 0, len(text), embedding=chunk.embedding)
            await newer.upsert_many(TENANT, [changed])
            assert await newer.get(TENANT, chunk.id, with_embedding=True) == changed
            assert await connection.fetchval(in_row) < len(text)


async def test_statistics_follow_when_a_hundredth_of_the_chunks_has_changed(dsn: str) -> None:
    """Excludes a tenant of ten thousand that the planner does not know of, because others have a hundred thousand."""
    async with opened(dsn), connected(dsn) as connection:
        options = await connection.fetchval("SELECT reloptions FROM pg_class WHERE oid = 'chunkstore.chunks'::regclass")
    assert {"autovacuum_analyze_scale_factor=0.01", "autovacuum_analyze_threshold=1000"} <= set(options)
