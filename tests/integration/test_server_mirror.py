"""Servers that rank in memory, over one database: what they tell of it, and what they answer when something breaks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from tests.databases import Wire, connected, fresh_database
from tests.inprocess import DIMENSION, TENANT, Running, running, status_of
from tests.serving import server_process, serving

from chunkstore.adapters.embedding.hashing import HashingProvider
from chunkstore.adapters.postgres.mirror import MirroredChunkStore
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.client import ChunkstoreClient, Document
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.results import MirrorState
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore
from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.chunk_writer_service_pb2_grpc import ChunkWriterServiceStub
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest, RetrieveChunksResponse
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from chunkstore.v1.store_service_pb2 import (
    MIRROR_STATE_MIRRORED,
    MIRROR_STATE_NOT_LOADED,
    MIRROR_STATE_TOO_LARGE,
    GetStoreInfoRequest,
    MirrorInfo,
)
from chunkstore.v1.store_service_pb2_grpc import StoreServiceStub

OPTIONS = ("--embeddings", "hashing", "--dimension", "8", "--dsn")


@pytest.fixture
async def dsn(newest_server: str) -> AsyncIterator[str]:
    async with fresh_database(newest_server) as database:
        yield database


def _documents(count: int, word: str = "alpha") -> Iterable[Document]:
    return [Document(f"s{n}", f"{word} passage {n} of {n % 7}") for n in range(count)]


def _answer(client: ChunkstoreClient) -> RetrieveChunksResponse:
    return _timeless(client.retrieve_chunks("alpha passage 3", k=50, include_embeddings=True))


def _timeless(answer: RetrieveChunksResponse) -> RetrieveChunksResponse:
    """An answer without the times that it took."""
    for report in answer.channels:
        report.ClearField("elapsed")
    return answer


def test_a_server_tells_what_its_mirrors_take_and_how_a_tenant_is_ranked(dsn: str) -> None:
    """One of room for both tenants, one of room for either, and one of room for neither: the answers are the same."""
    with serving(*OPTIONS, dsn) as address, ChunkstoreClient(address, "a") as a, ChunkstoreClient(address, "b") as b:
        a.index_documents(_documents(60))
        b.index_documents(_documents(50))
        answers = _answer(a), _answer(b)
        sizes = a.store_info().mirror.size_bytes, b.store_info().mirror.size_bytes
        assert a.store_info().mirror.mirrored_tenant_count == 2
        assert a.store_info().mirror.memory_used_bytes == sum(sizes)
    budget = sum(sizes) * 3 // 4
    options = (*OPTIONS, dsn, "--mirror-memory")
    with (
        serving(*options, str(budget)) as address,
        ChunkstoreClient(address, "a") as a,
        ChunkstoreClient(address, "b") as b,
    ):
        for client, other, size, answer in ((a, b, sizes[0], answers[0]), (b, a, sizes[1], answers[1])):
            assert _answer(client) == answer
            info = client.store_info()
            expected = MirrorInfo(
                memory_budget_bytes=budget,
                memory_used_bytes=size,
                mirrored_tenant_count=1,
                state=MIRROR_STATE_MIRRORED,
                revision=info.corpus.revision,
                size_bytes=size,
            )
            assert info.mirror == expected
            expected.state = MIRROR_STATE_NOT_LOADED
            expected.ClearField("revision")
            expected.ClearField("size_bytes")
            assert other.store_info().mirror == expected
        command = [sys.executable, "-m", "chunkstore.cli.main", "info", "--address", address, "--tenant", "b"]
        shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(shown.stdout)["mirror"]["state"] == "MIRROR_STATE_MIRRORED"
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert ["mirror.memory_budget_bytes", str(budget)] in [line.split() for line in shown.stdout.splitlines()]
    with (
        serving(*options, "100") as address,
        ChunkstoreClient(address, "a") as a,
        ChunkstoreClient(address, "b") as b,
    ):
        for client, answer in ((a, answers[0]), (b, answers[1])):
            assert _answer(client) == answer
            assert client.store_info().mirror == MirrorInfo(memory_budget_bytes=100, state=MIRROR_STATE_TOO_LARGE)


SOURCES, PARTS = 3, 3


def _replacement(version: int) -> ReplaceSourceRequest:
    """The write of a version: all chunks of one source, in turn."""
    texts = _texts(version)
    vectors = [Vector(values=[1.0 + (version + part) % 5, *[1.0] * (DIMENSION - 1)]) for part in range(PARTS)]
    chunks = [Chunk(text=text, chunk_index=part, embedding=vectors[part]) for part, text in enumerate(texts)]
    return ReplaceSourceRequest(source_id=f"s{version % SOURCES}", chunks=chunks)


def _texts(version: int) -> list[str]:
    return [f"alpha part {part} of version {version}" for part in range(PARTS)]


def _committed(revision: int) -> list[str]:
    """Every text that is stored at a revision, where version n was the nth write: the latest of each source."""
    latest = range(max(1, revision - SOURCES + 1), revision + 1)
    return sorted(text for version in latest for text in _texts(version))


def _is_as_committed(answer: RetrieveChunksResponse) -> bool:
    """Whether an answer is the whole state at the revision that it names."""
    texts = sorted(hit.chunk.text for hit in answer.chunks)
    counts = (answer.chunk_count, answer.embedded_count)
    return texts == _committed(answer.revision) and counts == (len(texts), len(texts)) and not answer.partial


async def test_a_commit_that_was_not_acknowledged_is_seen_by_every_mirror(dsn: str) -> None:
    """The answer to COMMIT is kept back; then the caller, the connection or the process of the writer goes away."""
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire(dsn))
        process, writing = await asyncio.to_thread(stack.enter_context, server_process(*OPTIONS, wire.dsn))
        reading = await asyncio.to_thread(stack.enter_context, serving(*OPTIONS, dsn))
        writer = await stack.enter_async_context(grpc.aio.insecure_channel(writing))
        reader = await stack.enter_async_context(grpc.aio.insecure_channel(reading))
        outside = await stack.enter_async_context(connected(dsn))

        async def must_see(channel: grpc.aio.Channel, version: int) -> None:
            answer = await _query(channel)
            assert answer.revision == version
            assert _is_as_committed(answer)

        async def unacknowledged(version: int) -> Any:
            """Write a version, up to where it is committed and the writer does not know."""
            info = await StoreServiceStub(reader).GetStoreInfo(GetStoreInfoRequest(), metadata=TENANT)
            assert (info.mirror.state, info.mirror.revision) == (MIRROR_STATE_MIRRORED, version - 1)
            hold = wire.hold(b"READ WRITE", lambda answers: b"COMMIT\0" in answers)
            call = ChunkWriterServiceStub(writer).ReplaceSource(_replacement(version), metadata=TENANT)
            async with asyncio.timeout(30.0):
                await hold.reached.wait()
            assert await outside.fetchval("SELECT revision FROM chunkstore.corpora") == version
            assert not call.done()
            return hold, call

        await ChunkWriterServiceStub(writer).ReplaceSource(_replacement(1), metadata=TENANT)
        for channel in (reader, writer):
            await must_see(channel, 1)

        hold, call = await unacknowledged(2)
        call.cancel()
        for channel in (reader, writer):
            await must_see(channel, 2)
        hold.released.set()

        _, call = await unacknowledged(3)
        await wire.cut()
        await must_see(reader, 3)
        assert await status_of(call) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        await wire.mend()
        await must_see(writer, 3)

        _, call = await unacknowledged(4)
        process.kill()
        await must_see(reader, 4)
        assert (await status_of(call))[0] is grpc.StatusCode.UNAVAILABLE


async def _query(channel: grpc.aio.Channel, tenant: Sequence[tuple[str, str]] = TENANT) -> RetrieveChunksResponse:
    request = RetrieveChunksRequest(query="alpha part", k=50)
    answer: RetrieveChunksResponse = await RetrievalServiceStub(channel).RetrieveChunks(
        request, metadata=tenant, timeout=60.0
    )
    return answer


VERSIONS = 2000


def test_every_read_is_a_committed_state_no_older_than_the_last_acknowledged_write_of_another_server(dsn: str) -> None:
    acknowledged = 0

    def write(channel: grpc.Channel) -> None:
        nonlocal acknowledged
        writer = ChunkWriterServiceStub(channel)
        for version in range(1, VERSIONS + 1):
            assert writer.ReplaceSource(_replacement(version), metadata=TENANT, timeout=60.0).revision == version
            acknowledged = version

    def read(channel: grpc.Channel, writing: Future[None]) -> int:
        retrieval, last, reads = RetrievalServiceStub(channel), 0, 0
        request = RetrieveChunksRequest(query="alpha part", k=50)
        while not writing.done():
            floor = max(last, acknowledged)
            answer = retrieval.RetrieveChunks(request, metadata=TENANT, timeout=60.0)
            assert answer.revision >= floor
            assert _is_as_committed(answer) or not answer.revision
            last, reads = answer.revision, reads + 1
        return reads

    with (
        serving(*OPTIONS, dsn) as reading,
        serving(*OPTIONS, dsn) as writing_address,
        grpc.insecure_channel(reading) as reader,
        grpc.insecure_channel(writing_address) as writer,
        ThreadPoolExecutor(max_workers=2) as threads,
    ):
        writing = threads.submit(write, writer)
        reads = threads.submit(read, reader, writing).result()
        writing.result()
        assert acknowledged == VERSIONS
        assert reads > VERSIONS // 20


OTHER = (("x-tenant-id", "u"),)
MANY = 3000
LOADING = b"array_send(term_keys)"


@asynccontextmanager
async def _served(kind: type[PostgresChunkStore], dsn: str) -> AsyncIterator[Running]:
    """A server whose three connections prepare nothing, so that every statement's text is on the wire."""
    provider = HashingProvider(DIMENSION)
    store = await kind.open(
        f"{dsn}&statement_cache_size=0",
        dimension=DIMENSION,
        analyzer=analyzer("english"),
        embedding_model=provider.model,
        pool_size=3,
    )
    try:
        async with running(provider, store) as run:
            yield run
    finally:
        await store.aclose()


async def _fill(store: ChunkStore, tenant: str, count: int, word: str) -> None:
    vector = np.ones(DIMENSION, dtype=np.float32)
    texts = [f"alpha part {n} of {word}" for n in range(count)]
    chunks = [StoredChunk("s", text, n, 0, len(text), embedding=vector) for n, text in enumerate(texts)]
    await store.upsert_many(TenantId(tenant), chunks)


def _in_the_middle(answers: bytes) -> bool:
    return len(answers) > 100_000


@pytest.mark.parametrize("mirrored_before", [False, True])
async def test_a_database_lost_in_the_middle_of_a_load_is_unavailable_and_then_answers_as_of_now(
    dsn: str, mirrored_before: bool
) -> None:
    """Of what was read until then nothing is kept, and of what was mirrored before nothing is answered."""
    async with Wire(dsn) as wire, _served(MirroredChunkStore, wire.dsn) as run, _served(PostgresChunkStore, dsn) as sql:
        tenant = TenantId("t")
        await _fill(sql.chunks, "t", 1, "old")
        if mirrored_before:
            assert (await _query(run.channel)).revision == 1
        before = run.chunks.mirror_info(tenant)
        await _fill(sql.chunks, "t", MANY, "new")
        hold = wire.hold(LOADING, _in_the_middle)
        call = asyncio.create_task(_query(run.channel))
        async with asyncio.timeout(30.0):
            await hold.reached.wait()
        await wire.cut()
        unavailable = (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert await status_of(call) == unavailable
        assert await status_of(_query(run.channel)) == unavailable
        assert run.chunks.mirror_info(tenant) == before
        await wire.mend()
        answer = _timeless(await _query(run.channel))
        assert (answer.revision, answer.chunk_count) == (2, MANY + 1)
        assert answer == _timeless(await _query(sql.channel))
        after = run.chunks.mirror_info(tenant)
        assert after is not None
        assert (after.state, after.revision) == (MirrorState.MIRRORED, 2)


async def test_a_slow_load_holds_up_its_own_tenant_alone_and_answers_as_of_when_it_was_asked(dsn: str) -> None:
    """More queries wait for it than there are connections; another tenant is loaded and answered meanwhile."""
    async with Wire(dsn) as wire, _served(MirroredChunkStore, wire.dsn) as run, _served(PostgresChunkStore, dsn) as sql:
        await _fill(sql.chunks, "t", MANY, "old")
        await _fill(sql.chunks, "u", 10, "other")
        hold = wire.hold(LOADING, _in_the_middle)
        waiting = [asyncio.create_task(_query(run.channel)) for _ in range(10)]
        async with asyncio.timeout(30.0):
            await hold.reached.wait()
        expected = _timeless(await _query(sql.channel, OTHER))
        for _ in range(5):
            assert _timeless(await _query(run.channel, OTHER)) == expected
        await _fill(sql.chunks, "t", 1, "new")
        late = asyncio.create_task(_query(run.channel))
        states = [(await _state(run, tenant)) for tenant in (TENANT, OTHER)]
        assert states == [MIRROR_STATE_NOT_LOADED, MIRROR_STATE_MIRRORED]
        assert not any(call.done() for call in (*waiting, late))
        hold.released.set()
        answers = await asyncio.gather(*waiting, late)
        assert {(answer.revision, answer.chunk_count) for answer in answers} <= {(1, MANY), (2, MANY + 1)}
        assert _timeless(answers[-1]) == _timeless(await _query(sql.channel))


async def _state(run: Running, tenant: Sequence[tuple[str, str]]) -> Any:
    info = await StoreServiceStub(run.channel).GetStoreInfo(GetStoreInfoRequest(), metadata=tenant)
    return info.mirror.state
