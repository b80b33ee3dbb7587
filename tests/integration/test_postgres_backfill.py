"""Changing the analyzer or the embedding model of a store that holds chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from tests.databases import connected

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.adapters.postgres.schema import migration_sql
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError, StoreMismatchError
from chunkstore.domain.results import CorpusCounts, LexicalCandidates
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore

ENGLISH, STANDARD, GERMAN = analyzer("english"), analyzer("standard"), analyzer("german")
TENANTS = [TenantId("a"), TenantId("b"), TenantId("c")]
NORTH = np.array([0, 1, 0, 0], dtype=np.float32)
CHUNKS = [
    StoredChunk(f"s{n}", text, 0, 0, len(text), ("e",))
    for n, text in enumerate(
        ["running runners run", "he runs", "laufende Läufer", "häuser und haus", "nothing", "run running", "the runner"]
    )
]


@asynccontextmanager
async def opened(dsn: str, **options: Any) -> AsyncIterator[PostgresChunkStore]:
    arguments: dict[str, Any] = {"dimension": 4, "analyzer": ENGLISH, "pool_size": 2} | options
    store = await PostgresChunkStore.open(dsn, **arguments)
    try:
        yield store
    finally:
        await store.aclose()


async def lexical(store: ChunkStore, tenant: TenantId, query: str) -> LexicalCandidates:
    async with store.snapshot(tenant) as corpus:
        return await corpus.lexical_candidates(store.analyzer.query_terms(query), 10)


async def agrees_with_a_new_store(store: PostgresChunkStore, tenants: list[TenantId]) -> None:
    twin = InMemoryChunkStore(dimension=4, analyzer=store.analyzer)
    for tenant in tenants:
        await twin.upsert_many(tenant, CHUNKS)
        for query in ("run", "running", "Haus", "the"):
            assert await lexical(store, tenant, query) == await lexical(twin, tenant, query)
        assert await store.get_by_entity(tenant, "e", limit=99) == await twin.get_by_entity(tenant, "e", limit=99)


class StopError(Exception):
    """Stands for the end of the process between two batches."""


async def test_a_change_of_the_analyzer_that_is_killed_goes_on_where_it_was(any_dsn: str) -> None:
    async with opened(any_dsn) as store:
        for tenant in TENANTS:
            await store.upsert_many(tenant, CHUNKS)

        def stop_at_nine(done: int, total: int) -> None:
            assert total == 21
            if done >= 9:
                raise StopError

        async with opened(any_dsn, analyzer=STANDARD, maintenance=True) as changing:
            with pytest.raises(StopError):
                await changing.backfill_lexical_index(batch_size=3, progress=stop_at_nine)

        # Neither the old analyzer nor the new one may serve, nor may a server that has been running all along.
        for name in ("english", "standard"):
            with pytest.raises(StoreMismatchError) as caught:
                await PostgresChunkStore.open(any_dsn, dimension=4, analyzer=analyzer(name))
            line = str(caught.value)
            assert "\n" not in line
            assert "english version 1 to standard version 1 is not finished" in line
            assert "`chunkstore backfill lexical --analyzer standard`" in line
        with pytest.raises(StoreMismatchError):
            await store.upsert_many(TENANTS[0], CHUNKS)
        with pytest.raises(StoreMismatchError):
            await lexical(store, TENANTS[0], "run")

    seen: list[tuple[int, int]] = []
    async with opened(any_dsn, analyzer=STANDARD, maintenance=True, dimension=None) as changing:
        await changing.backfill_lexical_index(batch_size=5, progress=lambda *counts: seen.append(counts))
        assert seen[-1] == (11, 11)
    async with opened(any_dsn, analyzer=STANDARD) as store:
        await agrees_with_a_new_store(store, TENANTS)
        counts = [await store.counts(tenant) for tenant in TENANTS]
        assert await store.backfill_lexical_index() == 0
        assert [await store.counts(tenant) for tenant in TENANTS] == counts
        assert all(count.revision > 1 and count.chunk_count == 7 for count in counts)


async def test_a_change_of_mind_starts_from_the_beginning(dsn: str) -> None:
    def stop(done: int, total: int) -> None:
        raise StopError

    async with opened(dsn) as store:
        await store.upsert_many(TENANTS[0], CHUNKS)
        with pytest.raises(StopError):
            await store.backfill_lexical_index(analyzer=STANDARD, batch_size=3, progress=stop)
    async with opened(dsn, analyzer=GERMAN, maintenance=True) as store:
        await store.backfill_lexical_index(batch_size=2)
        await agrees_with_a_new_store(store, TENANTS[:1])


async def test_of_two_changes_at_once_one_is_carried_out_whole(dsn: str) -> None:
    async with opened(dsn) as store:
        for tenant in TENANTS:
            await store.upsert_many(tenant, CHUNKS)
    async with (
        opened(dsn, analyzer=STANDARD, maintenance=True) as one,
        opened(dsn, analyzer=GERMAN, maintenance=True) as other,
    ):
        outcomes = await asyncio.gather(
            one.backfill_lexical_index(batch_size=1), other.backfill_lexical_index(batch_size=1), return_exceptions=True
        )
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(error, StoreMismatchError) for error in failed)
        assert len(failed) < 2
        async with connected(dsn) as connection:
            name = await connection.fetchval("SELECT analyzer_name FROM chunkstore.settings")
        await agrees_with_a_new_store(one if name == "standard" else other, TENANTS)


async def test_repairs_without_anything_recorded(dsn: str) -> None:
    """Tables from a migration repository and rows from elsewhere, before any server has been there."""
    async with connected(dsn) as connection:
        await connection.execute(migration_sql(4))
        await connection.executemany(
            """
            INSERT INTO chunkstore.chunks
                (tenant_id, id, source_id, text, chunk_index, start_char, end_char, entity_ids)
            VALUES ('a', $1, $2, $3, 0, 0, $4, '{e}')
            """,
            [(bytes.fromhex(chunk.id), chunk.source_id, chunk.text, chunk.end_char) for chunk in CHUNKS],
        )
    async with opened(dsn, dimension=None, maintenance=True) as store:
        assert await store.backfill_lexical_index() == 7
    async with opened(dsn) as store:
        await agrees_with_a_new_store(store, TENANTS[:1])
        assert await store.counts(TENANTS[0]) == CorpusCounts(2, 7, 0, 7)


@pytest.mark.parametrize("dimension", [4, 8])
async def test_a_change_of_the_model_forgets_vectors_and_the_backfill_makes_new_ones(
    any_dsn: str, dimension: int
) -> None:
    async with opened(any_dsn, embedding_model="old") as store:
        for tenant in TENANTS[:2]:
            await store.upsert_many(tenant, [chunk.with_embedding(NORTH) for chunk in CHUNKS])
        await store.upsert_many(TENANTS[2], CHUNKS)
        assert await store.count_unembedded() == 7

        async with opened(any_dsn, dimension=None, maintenance=True) as changing:
            await changing.clear_embeddings(dimension=dimension, embedding_model="new")
            assert (changing.dimension, changing.embedding_model) == (dimension, "new")

        with pytest.raises(StoreMismatchError, match="not of old"):
            await store.upsert_many(TENANTS[0], CHUNKS)
        with pytest.raises(StoreMismatchError, match="not of old"):
            await lexical(store, TENANTS[0], "run")

    east = np.eye(dimension, dtype=np.float32)[0]
    async with opened(any_dsn, dimension=dimension, embedding_model="new") as store:
        assert await store.counts(TENANTS[0]) == CorpusCounts(2, 7, 0, 7)
        assert await store.counts(TENANTS[2]) == CorpusCounts(1, 7, 0, 7)
        assert await store.count_unembedded() == 21
        seen = []
        async for tenant, batch in store.unembedded(batch_size=4):
            seen.append((tenant, len(batch)))
            if len(seen) == 1:
                await store.purge_source(tenant, batch[0].source_id)
            filled = await store.fill_embeddings(tenant, {chunk.id: east for chunk in batch})
            assert filled == len(batch) - (len(seen) == 1)
        assert seen == [(tenant, size) for tenant in TENANTS for size in (4, 3)]
        assert await store.count_unembedded() == 0
        assert await store.counts(TENANTS[0]) == CorpusCounts(5, 6, 6, 6)
        assert {source.revision for source in await store.list_sources(TENANTS[0], limit=9)} == {4, 5}
        async with store.snapshot(TENANTS[1]) as corpus:
            found = await corpus.semantic_candidates(east, 99)
            assert found.scores == [1.0] * 7
        assert await store.fill_embeddings(TENANTS[0], {CHUNKS[0].id: east}) == 0
        assert await store.fill_embeddings(TENANTS[0], {}) == 0
        assert (await store.counts(TENANTS[0])).revision == 5
        with pytest.raises(DimensionMismatchError):
            await store.fill_embeddings(TENANTS[0], {CHUNKS[0].id: np.ones(3, dtype=np.float32)})
        with pytest.raises(InvalidFieldError):
            await store.clear_embeddings(dimension=0, embedding_model="new")
    async with connected(any_dsn) as connection:
        storage = "SELECT attstorage FROM pg_attribute WHERE attrelid = 'chunkstore.chunks'::regclass AND attname = $1"
        assert await connection.fetchval(storage, "embedding") == b"p"
