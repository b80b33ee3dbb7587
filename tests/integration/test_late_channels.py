"""A channel that is late, over the wire: the answer does without it and says so, and its work is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.databases import connected
from tests.inprocess import DIMENSION, TENANT, GatedProvider, Running, error_info_of, running

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.mirror import MirroredChunkStore
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.results import LexicalCandidates, Ranking
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore
from chunkstore.ranking.preparing import prepare
from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub

StoreT = TypeVar("StoreT", bound=ChunkStore)

QUERY = "invoice BX-7741"
CHANNELS = {
    "semantic": pb.CHANNEL_SEMANTIC,
    "lexical": pb.CHANNEL_LEXICAL,
    "identifier": pb.CHANNEL_IDENTIFIER,
}
STILL_ASLEEP = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'chunkstore' AND wait_event = 'PgSleep'
"""
# What sleeps, and the reason of the channel that waits for it.
ASLEEP = [
    ({"embedding"}, {"semantic": "EMBEDDING_TIMED_OUT"}),
    ({"semantic"}, {"semantic": "RANKING_TIMED_OUT"}),
    ({"lexical"}, {"lexical": "RANKING_TIMED_OUT"}),
    ({"identifier"}, {"identifier": "RANKING_TIMED_OUT"}),
    ({"semantic", "lexical"}, {"semantic": "RANKING_TIMED_OUT", "lexical": "RANKING_TIMED_OUT"}),
    ({"embedding", "lexical"}, {"semantic": "EMBEDDING_TIMED_OUT", "lexical": "RANKING_TIMED_OUT"}),
]


@dataclass
class Sleep:
    """Holds up for good what is named in `asleep`, and notes of what it held up how often it was cancelled."""

    asleep: set[str] = field(default_factory=set)
    entered: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    # What is waited for before a query is embedded.
    until_asked: str | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def of(self, work: str) -> None:
        if work == self.until_asked:
            self.asked.set()
        if work in self.asleep:
            self.entered.append(work)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(work)
                raise


class SleepyProvider(GatedProvider):
    """An open provider that may fall asleep."""

    def __init__(self, sleep: Sleep) -> None:
        super().__init__()
        self.gate.set()
        self._sleep = sleep

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        await self._sleep.of("embedding")
        if self._sleep.until_asked:
            await self._sleep.asked.wait()
        return await super().embed(texts)


@dataclass
class SleepySnapshot:
    """A snapshot whose rankings may fall asleep, each for itself."""

    inner: Any
    sleep: Sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def lexical_candidates(self, terms: Iterable[str], limit: int, **options: Any) -> LexicalCandidates:
        asked = list(terms)
        await self.sleep.of("lexical" if len(asked) > 1 else "identifier")
        found: LexicalCandidates = await self.inner.lexical_candidates(asked, limit, **options)
        return found

    async def semantic_candidates(self, vector: Vector, limit: int, **options: Any) -> Ranking:
        await self.sleep.of("semantic")
        found: Ranking = await self.inner.semantic_candidates(vector, limit, **options)
        return found


class SleepyStore(InMemoryChunkStore):
    """A memory store whose rankings may fall asleep."""

    def __init__(self, sleep: Sleep) -> None:
        super().__init__(dimension=DIMENSION, analyzer=analyzer("english"))
        self._sleep = sleep

    @asynccontextmanager
    async def snapshot(self, tenant_id: TenantId, **options: Any) -> AsyncIterator[Any]:
        async with super().snapshot(tenant_id, **options) as snapshot:
            yield SleepySnapshot(snapshot, self._sleep)


@pytest.fixture
def sleep() -> Sleep:
    return Sleep()


@pytest.fixture
async def run(sleep: Sleep) -> AsyncIterator[Running]:
    """A server of the chunks of `_stored`."""
    # As a server does before it listens: compiling takes longer than a channel may here.
    await asyncio.to_thread(prepare)
    async with running(SleepyProvider(sleep), await _stored(SleepyStore(sleep))) as run:
        yield run


async def _stored(store: StoreT) -> StoreT:
    """The store with three chunks of one tenant: of the word, of the identifier, and of neither."""
    texts = {"word": "An invoice was paid.", "identifier": "Order BX-7741 was sent.", "neither": "Gates open at noon."}
    chunks = [
        StoredChunk(source_id, text, 0, 0, len(text), embedding=np.eye(DIMENSION, dtype=np.float32)[place])
        for place, (source_id, text) in enumerate(texts.items())
    ]
    await store.upsert_many(TenantId("t"), chunks)
    return store


def _asked(run: Running, *require: str) -> Any:
    request = pb.RetrieveChunksRequest(
        query=QUERY, channel_timeout=Duration(nanos=300_000_000), require=[CHANNELS[name] for name in require]
    )
    return RetrievalServiceStub(run.channel).RetrieveChunks(request, metadata=TENANT, timeout=5.0)


@pytest.mark.parametrize(("asleep", "reasons"), ASLEEP)
async def test_the_answer_does_without_a_late_channel_and_says_so(
    run: Running, sleep: Sleep, asleep: set[str], reasons: dict[str, str]
) -> None:
    sleep.asleep = asleep
    answer = await _asked(run)
    assert answer.partial
    assert [(report.channel, report.status, report.reason) for report in answer.channels] == [
        (
            channel,
            pb.CHANNEL_STATUS_TIMED_OUT if name in reasons else pb.CHANNEL_STATUS_ANSWERED,
            reasons.get(name, ""),
        )
        for name, channel in CHANNELS.items()
    ]
    for name, report in zip(CHANNELS, answer.channels, strict=True):
        ranked = sum(hit.HasField(f"{name}_rank") for hit in answer.chunks)
        assert ranked == report.candidates
        assert (ranked == 0) == (name in reasons)
        assert report.HasField("rankable_count") == (name not in reasons)
    assert sorted(sleep.cancelled) == sorted(sleep.entered) == sorted(asleep)


@pytest.mark.parametrize(("asleep", "reasons"), ASLEEP)
@pytest.mark.parametrize("required", CHANNELS)
async def test_a_required_channel_that_is_late_is_an_error_and_another_is_not(
    run: Running, sleep: Sleep, asleep: set[str], reasons: dict[str, str], required: str
) -> None:
    sleep.asleep = asleep
    call = _asked(run, required)
    if required in reasons:
        code, info = await error_info_of(call)
        assert (code, info.reason) == (grpc.StatusCode.UNAVAILABLE, "RETRIEVAL_DEGRADED")
        assert dict(info.metadata) == {
            "missing": ",".join(name for name in CHANNELS if name in reasons),
            "answered": ",".join(name for name in CHANNELS if name not in reasons),
        }
    else:
        assert (await call).partial
    assert sorted(sleep.cancelled) == sorted(sleep.entered) == sorted(asleep)


@pytest.mark.parametrize("semantic", ["embedding", "semantic"])
async def test_where_every_channel_is_late_it_is_an_error(run: Running, sleep: Sleep, semantic: str) -> None:
    sleep.asleep = {semantic, "lexical", "identifier"}
    code, info = await error_info_of(_asked(run))
    assert (code, info.reason) == (grpc.StatusCode.UNAVAILABLE, "RETRIEVAL_DEGRADED")
    assert dict(info.metadata) == {"missing": "semantic,lexical,identifier", "answered": ""}
    assert sorted(sleep.cancelled) == sorted(sleep.entered) == sorted(sleep.asleep)


async def test_the_words_are_ranked_while_the_query_is_embedded(run: Running, sleep: Sleep) -> None:
    """Excludes channels that are late one after the other: this embedder waits until the words have been asked for."""
    sleep.until_asked = "lexical"
    answer = await _asked(run, *CHANNELS)
    assert not answer.partial


@pytest.mark.parametrize("kind", [PostgresChunkStore, MirroredChunkStore])
async def test_no_connection_waits_for_an_embedding(dsn: str, kind: type[PostgresChunkStore]) -> None:
    """Excludes embedders that, when they hang, take all connections: this store has one, and it is free meanwhile."""
    options: Any = {"dimension": DIMENSION, "analyzer": analyzer("english"), "pool_size": 1, "acquire_timeout": 1.0}
    store = await _stored(await kind.open(dsn, **options))
    async with contextlib.aclosing(store):
        # A mirror is cold the first time, and is loaded over a connection.
        for _ in range(2):
            provider = GatedProvider()
            async with running(provider, store) as run:
                call = _asked(run, "semantic")
                await provider.waiting.wait()
                assert (await store.counts(TenantId("t"))).chunk_count == 3
                provider.gate.set()
                assert not (await call).partial


async def test_a_channel_that_wakes_up_answers_the_next_query(run: Running, sleep: Sleep) -> None:
    sleep.asleep = {"embedding", "lexical"}
    assert (await _asked(run)).partial
    sleep.asleep = set()
    answer = await _asked(run, *CHANNELS)
    assert not answer.partial
    assert {report.status for report in answer.channels} == {pb.CHANNEL_STATUS_ANSWERED}


async def test_a_scan_in_sql_that_is_late_leaves_the_words_their_turn_and_is_cancelled(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes channels that wait behind the scan of all vectors, on the one connection, until they are late too."""
    nearest = queries.nearest_chunks
    monkeypatch.setattr(queries, "nearest_chunks", lambda condition: f"SELECT ({nearest(condition)}) FROM pg_sleep(60)")
    store = await PostgresChunkStore.open(dsn, dimension=DIMENSION, analyzer=analyzer("english"))
    async with contextlib.aclosing(await _stored(store)), running(SleepyProvider(Sleep()), store) as run:
        answer = await _asked(run)
        assert answer.partial
        assert [(report.status, report.reason) for report in answer.channels] == [
            (pb.CHANNEL_STATUS_TIMED_OUT, "RANKING_TIMED_OUT"),
            (pb.CHANNEL_STATUS_ANSWERED, ""),
            (pb.CHANNEL_STATUS_ANSWERED, ""),
        ]
        assert {hit.chunk.source_id for hit in answer.chunks} == {"word", "identifier"}
        code, info = await error_info_of(_asked(run, "semantic"))
        assert (code, info.reason) == (grpc.StatusCode.UNAVAILABLE, "RETRIEVAL_DEGRADED")
        assert dict(info.metadata) == {"missing": "semantic", "answered": "lexical,identifier"}
        async with connected(dsn) as observer:
            assert await observer.fetchval(STILL_ASLEEP) == 0


@pytest.mark.parametrize("pool_size", [2, 1])
async def test_words_in_sql_that_are_late_leave_the_scan_a_connection_where_one_is_free(
    dsn: str, monkeypatch: pytest.MonkeyPatch, pool_size: int
) -> None:
    """Excludes a scan that always waits behind the words; over the only connection it must, and all are named."""
    matching = queries.matching_chunks
    monkeypatch.setattr(
        queries, "matching_chunks", lambda count, meets: f"SELECT ({matching(count, meets)}) FROM pg_sleep(60)"
    )
    options: Any = {"dimension": DIMENSION, "analyzer": analyzer("english"), "pool_size": pool_size}
    store = await _stored(await PostgresChunkStore.open(dsn, **options))
    late = {"lexical": "RANKING_TIMED_OUT", "identifier": "RANKING_TIMED_OUT"}
    async with contextlib.aclosing(store), running(SleepyProvider(Sleep()), store) as run:
        if pool_size == 1:
            code, info = await error_info_of(_asked(run))
            assert (code, info.reason) == (grpc.StatusCode.UNAVAILABLE, "RETRIEVAL_DEGRADED")
            assert dict(info.metadata) == {"missing": "semantic,lexical,identifier", "answered": ""}
        else:
            answer = await _asked(run, "semantic")
            assert answer.partial
            assert [report.reason for report in answer.channels] == [late.get(name, "") for name in CHANNELS]
            assert {hit.chunk.source_id for hit in answer.chunks} == {"word", "identifier", "neither"}
        async with connected(dsn) as observer:
            assert await observer.fetchval(STILL_ASLEEP) == 0
