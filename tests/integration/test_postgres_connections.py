"""Connections that are taken, killed, cut, pooled by somebody else, or not there at all."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import numpy as np
import pytest
from tests.databases import TransactionPooler, Wire, connected

from chunkstore.adapters.postgres.dsn import parse_dsn
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, InvalidFieldError, NoFreeConnectionError, StoreUnavailableError
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import SourceReplacement

TENANT = TenantId("acme")
KILL = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'chunkstore'
"""
NORTH = np.array([0, 1, 0, 0], dtype=np.float32)


@asynccontextmanager
async def opened(dsn: str, **options: Any) -> AsyncIterator[PostgresChunkStore]:
    arguments: dict[str, Any] = {"dimension": 4, "analyzer": analyzer("english"), "pool_size": 2} | options
    store = await PostgresChunkStore.open(dsn, **arguments)
    try:
        yield store
    finally:
        await store.aclose()


def a_chunk(source_id: str, text: str) -> StoredChunk:
    return StoredChunk(source_id, text, 0, 0, len(text), embedding=NORTH)


async def eventually(condition: Callable[[], Awaitable[bool]], *, within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def activity(connection: asyncpg.Connection, condition: str) -> int:
    """How many connections of the store are in that condition."""
    count = await connection.fetchval(f"""
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'chunkstore' AND {condition}
    """)
    return int(count)


@asynccontextmanager
async def a_write_that_waits(store: PostgresChunkStore, dsn: str) -> AsyncIterator[asyncio.Task[Any]]:
    """A write held up in the database by a lock that somebody else has on the tenant's corpus."""
    await store.upsert_many(TENANT, [a_chunk("s", "before")])
    async with connected(dsn) as connection, connected(dsn) as observer:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM chunkstore.corpora FOR UPDATE")
        task = asyncio.create_task(store.upsert_many(TENANT, [a_chunk("s", "waits")]))

        async def waits() -> bool:
            return await activity(observer, "wait_event_type = 'Lock'") == 1

        await eventually(waits)
        yield task
        await transaction.rollback()


async def test_waiting_for_a_connection_ends_in_an_error_and_leaks_none(dsn: str) -> None:
    async with opened(dsn, acquire_timeout=0.2) as store:

        async def query() -> None:
            async with store.snapshot(TENANT):
                await asyncio.sleep(0.6)

        outcomes = await asyncio.gather(*(query() for _ in range(10)), return_exceptions=True)
        refused = [outcome for outcome in outcomes if outcome is not None]
        assert len(refused) == 8
        assert all(isinstance(error, NoFreeConnectionError) and error.timeout == 0.2 for error in refused)
        async with store.snapshot(TENANT), store.snapshot(TENANT):
            pass


async def test_giving_up_while_waiting_for_a_connection_leaks_none(dsn: str) -> None:
    async with opened(dsn, pool_size=1, acquire_timeout=5.0) as store:
        for _ in range(20):
            async with store.snapshot(TENANT):
                waiting = [asyncio.create_task(store.ping()) for _ in range(3)]
                await asyncio.sleep(0)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.wait_for(store.ping(), 1)


async def test_killed_connections_are_replaced(dsn: str) -> None:
    async with opened(dsn, pool_size=4, acquire_timeout=1.0) as store, connected(dsn) as connection:
        for round_number in range(20):
            await connection.fetch(KILL)
            started = time.monotonic()
            result = await store.upsert_many(TENANT, [a_chunk("s", f"round {round_number}")])
            assert result.revision == round_number + 1
            async with store.snapshot(TENANT), store.snapshot(TENANT), store.snapshot(TENANT), store.snapshot(TENANT):
                assert await activity(connection, "state = 'idle in transaction'") == 4
            assert time.monotonic() - started < 5


async def test_a_connection_killed_under_a_call_is_the_callers_to_know(dsn: str) -> None:
    async with opened(dsn) as store, connected(dsn) as connection:
        async with a_write_that_waits(store, dsn) as task:
            await connection.fetch(f"{KILL} AND wait_event_type = 'Lock'")
            with pytest.raises(StoreUnavailableError) as caught:
                await task
        assert str(caught.value) == "the database cannot be reached"
        assert (await store.counts(TENANT)).chunk_count == 1


async def test_a_connection_killed_under_a_snapshot(dsn: str) -> None:
    async with opened(dsn, pool_size=1) as store, connected(dsn) as connection:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha")])

        async def ask_after_a_kill() -> None:
            async with store.snapshot(TENANT) as corpus:
                await connection.fetch(KILL)
                await asyncio.gather(corpus.lexical_candidates(["alpha"], 5), corpus.semantic_candidates(NORTH, 5))

        with pytest.raises(StoreUnavailableError):
            await ask_after_a_kill()
        async with store.snapshot(TENANT) as corpus:
            assert len((await corpus.lexical_candidates(["alpha"], 5)).ranking) == 1


async def test_an_error_of_the_caller_within_a_snapshot_is_not_the_databases(dsn: str) -> None:
    async with opened(dsn, pool_size=1) as store:
        with pytest.raises(ConnectionResetError):
            async with store.snapshot(TENANT):
                raise ConnectionResetError
        await store.ping()


async def test_cancelling_a_call_cancels_its_statement(dsn: str) -> None:
    async with opened(dsn, pool_size=1) as store, connected(dsn) as observer:
        async with a_write_that_waits(store, dsn) as task:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await activity(observer, "state <> 'idle'") == 0
            await asyncio.wait_for(store.ping(), 1)
        assert (await store.counts(TENANT)).chunk_count == 1


async def test_cancelling_one_channel_leaves_the_snapshot_to_the_other(dsn: str) -> None:
    async with opened(dsn, pool_size=1) as store, connected(dsn) as other, connected(dsn) as observer:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha")])
        async with store.snapshot(TENANT) as corpus:
            assert corpus.counts.chunk_count == 1
            transaction = other.transaction()
            await transaction.start()
            await other.execute("LOCK TABLE chunkstore.chunks IN ACCESS EXCLUSIVE MODE")
            semantic = asyncio.create_task(corpus.semantic_candidates(NORTH, 5))
            lexical = asyncio.create_task(corpus.lexical_candidates(["alpha"], 5))

            async def waits() -> bool:
                return await activity(observer, "wait_event_type = 'Lock'") == 1

            await eventually(waits)
            semantic.cancel()
            await asyncio.gather(semantic, return_exceptions=True)
            await transaction.rollback()
            assert semantic.cancelled()
            found = await lexical
            assert len(found.ranking) == 1
            assert len(await corpus.chunks(found.ranking.ids)) == 1


async def test_a_channel_that_outlives_its_snapshot_does_not_touch_the_connection(dsn: str) -> None:
    async with opened(dsn, pool_size=1) as store:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha")])
        async with store.snapshot(TENANT) as corpus:
            late = asyncio.create_task(corpus.lexical_candidates(["alpha"], 5))
        with pytest.raises(RuntimeError, match="snapshot is closed"):
            await corpus.semantic_candidates(NORTH, 5)
        await asyncio.gather(late, return_exceptions=True)
        assert (await store.counts(TENANT)).chunk_count == 1


async def test_an_unreachable_database_is_an_error_and_then_no_more(dsn: str) -> None:
    async with Wire(dsn) as wire, opened(wire.dsn) as store:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha")])
        for _ in range(2):
            await wire.cut()
            chunks = [a_chunk("s", "beta")]
            for call in (store.ping, partial(store.counts, TENANT), partial(store.upsert_many, TENANT, chunks)):
                with pytest.raises(StoreUnavailableError) as caught:
                    await call()
                assert str(caught.value) == "the database cannot be reached"
            with pytest.raises(StoreUnavailableError):
                async with store.snapshot(TENANT):
                    pass
            await wire.mend()
            await store.ping()
            assert (await store.counts(TENANT)).chunk_count == 1


async def test_opening_an_unreachable_database_is_the_same_error(dsn: str) -> None:
    async with Wire(dsn) as wire:
        await wire.cut()
        with pytest.raises(StoreUnavailableError) as caught:
            await PostgresChunkStore.open(wire.dsn, dimension=4, analyzer=analyzer("english"))
        assert "chunkstore-wire" not in str(caught.value)
    missing = dsn.replace("/test_", "/missing_")
    with pytest.raises(StoreUnavailableError) as caught:
        await PostgresChunkStore.open(missing, dimension=4, analyzer=analyzer("english"))
    assert "missing_" not in str(caught.value)


async def mixed_calls(store: PostgresChunkStore, number: int, seed: int) -> None:
    rng = random.Random(seed)
    for n in range(number):
        chunk = a_chunk(f"s{rng.randrange(5)}", f"alpha word{rng.randrange(50)} number {n} of {seed}")
        match n % 5:
            case 0:
                await store.upsert_many(TENANT, [chunk])
            case 1:
                await store.replace_sources(TENANT, [SourceReplacement(chunk.source_id, [chunk])])
            case 2:
                async with store.snapshot(TENANT) as corpus:
                    lexical, semantic = await asyncio.gather(
                        corpus.lexical_candidates(["alpha", f"word{n}"], 5), corpus.semantic_candidates(NORTH, 5)
                    )
                    assert len(semantic) == min(5, corpus.counts.chunk_count)
                    await corpus.chunks(lexical.ranking.ids)
            case 3:
                await store.get_by_source(TENANT, chunk.source_id, limit=3, with_embeddings=True)
                await store.list_sources(TENANT, limit=3)
            case 4:
                with pytest.raises(ChunkNotFoundError):
                    await store.get(TENANT, chunk.id)
                await store.purge_source(TENANT, chunk.source_id)


async def test_works_behind_a_pooler_that_gives_each_transaction_another_connection(dsn: str) -> None:
    async with TransactionPooler(dsn, size=3) as pooler:
        url = f"{pooler.dsn}&statement_cache_size=0"
        async with opened(url, pool_size=4) as store:
            await asyncio.gather(*(mixed_calls(store, 50, seed) for seed in range(4)))
            counts = await store.counts(TENANT)
            assert counts.revision > 50
            await store.backfill_lexical_index()
        connection = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
        for _ in range(3):
            async with connection.transaction():
                assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0
                assert await connection.fetchval("SELECT current_setting('enable_seqscan')") == "on"
                assert await connection.fetchval("SELECT current_setting('jit')") != ""
                locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
                assert await connection.fetchval(locks) == 0
        await connection.close()


async def test_the_pooler_of_these_tests_does_break_what_relies_on_a_connection(dsn: str) -> None:
    async with TransactionPooler(dsn, size=3) as pooler:
        connection = await asyncpg.connect(pooler.dsn)
        outcomes = [await asyncio.gather(connection.fetchval("SELECT 1"), return_exceptions=True) for _ in range(4)]
        assert any(isinstance(outcome[0], asyncpg.InvalidSQLStatementNameError) for outcome in outcomes)
        connection.terminate()


async def test_holds_no_transaction_while_idle(dsn: str) -> None:
    async with opened(dsn, pool_size=3) as store, connected(dsn) as observer:
        await mixed_calls(store, 20, 0)
        await store.upsert_many(TENANT, [StoredChunk("s", "no vector", 0, 0, 9)])
        async for _ in store.unembedded():
            assert await activity(observer, "xact_start IS NOT NULL") == 0
        assert await activity(observer, "state = 'idle'") >= 1
        assert await activity(observer, "xact_start IS NOT NULL") == 0


def test_takes_the_drivers_own_setting_out_of_the_dsn() -> None:
    plain = parse_dsn("postgresql://u:p%40ss@host:5433/db?sslmode=require")
    assert plain.dsn == "postgresql://u:p%40ss@host:5433/db?sslmode=require&application_name=chunkstore"
    assert plain.statement_cache_size is None
    pooled = parse_dsn("postgres://u@/db?host=%2Ftmp%2Fx&statement_cache_size=0&application_name=mine")
    assert pooled.dsn == "postgres://u@/db?host=%2Ftmp%2Fx&application_name=mine"
    assert pooled.statement_cache_size == 0


@pytest.mark.parametrize(
    "dsn", ["", "mysql://secret@h/d", "host=h password=secret", "postgresql:///d?statement_cache_size=x"]
)
def test_refuses_a_bad_dsn_without_repeating_it(dsn: str) -> None:
    with pytest.raises(InvalidFieldError, match="dsn") as caught:
        parse_dsn(dsn)
    assert "secret" not in str(caught.value)
