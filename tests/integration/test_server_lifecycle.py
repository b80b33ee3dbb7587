"""How many calls a server takes, how it ends, and what idle or flooding streams do to it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import psutil
import pytest
from tests.inprocess import DIMENSION, TENANT, GatedProvider, running, status_of
from tests.serving import serving

from chunkstore.adapters.chunking.splitter import TextChunker
from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.composition.indexer import Document, DocumentIndexer
from chunkstore.composition.indexing_session import MAX_DOCUMENTS_IN_FLIGHT, IndexingSession
from chunkstore.composition.settings import Settings, StoreKind
from chunkstore.composition.wiring import opened
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.text import TenantId
from chunkstore.service.server import ChunkstoreServer
from chunkstore.v1 import chunk_reader_service_pb2 as reader_pb
from chunkstore.v1 import indexing_service_pb2 as indexing_pb
from chunkstore.v1 import retrieval_service_pb2 as retrieval_pb
from chunkstore.v1.chunk_reader_service_pb2_grpc import ChunkReaderServiceStub
from chunkstore.v1.indexing_service_pb2_grpc import IndexingServiceStub
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub

CHUNK = reader_pb.GetChunkRequest(id="0" * 64)


def _document(source_id: str, text: str = "some words") -> indexing_pb.IndexDocumentsRequest:
    return indexing_pb.IndexDocumentsRequest(document=indexing_pb.Document(source_id=source_id, text=text))


async def _outcome(stream: Any) -> indexing_pb.DocumentOutcome:
    response: indexing_pb.IndexDocumentsResponse = await stream.read()
    return response.outcome


class SlowlyRefusingStore(InMemoryChunkStore):
    """A store whose `get` takes its time to find the request invalid."""

    def __init__(self) -> None:
        super().__init__(dimension=DIMENSION, analyzer=analyzer("english"))
        self.entered = asyncio.Event()

    async def get(self, tenant_id: TenantId, chunk_id: ChunkId, *, with_embedding: bool = False) -> StoredChunk:
        self.entered.set()
        await asyncio.sleep(0.3)
        raise InvalidFieldError("id", "is refused")


async def test_never_more_calls_run_than_the_limit_and_the_rest_are_told() -> None:
    provider = GatedProvider()
    async with running(provider, max_concurrent_calls=2) as run:
        stub = RetrievalServiceStub(run.channel)
        request = retrieval_pb.RetrieveChunksRequest(query="words")
        for _ in range(3):
            provider.gate.clear()
            calls = [stub.RetrieveChunks(request, metadata=TENANT) for _ in range(20)]
            refused = [call for call in calls if await _refused_or_held(call, provider)]
            assert len(refused) == 18
            assert {(await status_of(call)) for call in refused} == {
                (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
            }
            provider.gate.set()
            served = [await call for call in calls if call not in refused]
            assert len(served) == 2
        assert provider.most_running == 2
        assert run.server._admission.active == 0


async def _refused_or_held(call: Any, provider: GatedProvider) -> bool:
    done, _ = await asyncio.wait([asyncio.ensure_future(call.code())], timeout=0.5 if provider.running == 2 else 0.2)
    return bool(done)


async def test_a_refused_call_stays_what_it_is_while_the_server_stops() -> None:
    store = SlowlyRefusingStore()
    async with running(None, store) as run:
        call = ChunkReaderServiceStub(run.channel).GetChunk(CHUNK, metadata=TENANT)
        await store.entered.wait()
        await run.server.stop()
        assert await status_of(call) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_idle_streams_are_told_of_the_drain_and_do_not_hold_it_up() -> None:
    async with running(None, shutdown_grace=5.0) as run:
        streams = [IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT) for _ in range(3)]
        for number, stream in enumerate(streams):
            await stream.write(_document(f"s{number}"))
            assert (await _outcome(stream)).WhichOneof("result") == "indexed"
        started = time.monotonic()
        await run.server.stop()
        assert time.monotonic() - started < 6.0
        for stream in streams:
            assert await status_of(stream.read()) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")


async def test_what_a_stream_has_sent_is_stored_and_answered_before_the_server_ends() -> None:
    provider = GatedProvider()
    async with running(provider, shutdown_grace=10.0) as run:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await stream.write(_document("sent"))
        await provider.waiting.wait()
        stopping = asyncio.create_task(run.server.stop())
        await run.server._admission.draining.wait()
        provider.gate.set()
        assert (await _outcome(stream)).source_id == "sent"
        assert await status_of(stream.read()) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        await stopping
        assert (await run.chunks.counts(TenantId("t"))).chunk_count == 1


async def test_a_draining_server_takes_no_further_call() -> None:
    provider = GatedProvider()
    async with running(provider, shutdown_grace=10.0) as run:
        stub = RetrievalServiceStub(run.channel)
        held = stub.RetrieveChunks(retrieval_pb.RetrieveChunksRequest(query="words"), metadata=TENANT)
        await provider.waiting.wait()
        stopping = asyncio.create_task(run.server.stop())
        await run.server._admission.draining.wait()
        late = ChunkReaderServiceStub(run.channel).GetChunk(CHUNK, metadata=TENANT)
        assert await status_of(late) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        provider.gate.set()
        assert (await held).chunk_count == 0
        await stopping


async def test_a_stream_on_which_nothing_moves_ends_with_its_outcomes_kept() -> None:
    async with running(None, idle_timeout=0.3) as run:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await stream.write(_document("kept"))
        assert (await _outcome(stream)).source_id == "kept"
        assert await status_of(stream.read()) == (grpc.StatusCode.DEADLINE_EXCEEDED, "STREAM_IDLE")
        assert (await run.chunks.counts(TenantId("t"))).source_count == 1


async def test_a_slow_provider_is_no_idle_stream() -> None:
    provider = GatedProvider()
    async with running(provider, idle_timeout=0.2) as run:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await stream.write(_document("slow"))
        await provider.waiting.wait()
        asyncio.get_running_loop().call_later(0.7, provider.gate.set)
        assert (await _outcome(stream)).source_id == "slow"


def _listening_at(address: str) -> psutil.Process:
    port = int(address.rpartition(":")[2])
    [process] = [
        child
        for child in psutil.Process().children(recursive=True)
        if any(connection.laddr and connection.laddr.port == port for connection in child.net_connections())
    ]
    return process


def test_a_client_that_sends_without_reading_is_held_back_and_ended() -> None:
    """Memory stays bounded although 18 MB are offered, and the stream ends by the idle timeout."""
    with serving("--store", "memory", "--embeddings", "none", "--dimension", "8", "--idle-timeout", "2") as address:
        process = _listening_at(address)
        before = peak = process.memory_info().rss
        # A small window: the client's library takes few outcomes before the client asks for them.
        options = (("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0))
        with grpc.insecure_channel(address, options=options) as channel:
            documents = (_document(f"s{n}", f"{n} " + "word " * 7200) for n in range(500))
            call = IndexingServiceStub(channel).IndexDocuments(documents, metadata=TENANT)
            until = time.monotonic() + 5.0
            while time.monotonic() < until:
                peak = max(peak, process.memory_info().rss)
                time.sleep(0.02)
            taken: list[indexing_pb.IndexDocumentsResponse] = []
            with pytest.raises(grpc.RpcError):
                taken.extend(call)
            assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert peak - before < 100 * 1024 * 1024


async def test_documents_in_flight_are_bounded_while_outcomes_are_not_taken() -> None:
    """The session stops taking documents, whatever the transport would still deliver."""
    store = InMemoryChunkStore(dimension=DIMENSION, analyzer=analyzer("english"))
    indexer = DocumentIndexer(chunks=store, chunker=TextChunker(800, 100), embeddings=None)
    session = IndexingSession(indexer, TenantId("t"))

    async def offer() -> None:
        for number in range(1000):
            await session.offer(Document(f"s{number}", "words"), 100)
        await session.finish()

    offering = asyncio.create_task(offer())
    outcomes = session.outcomes()
    seen = len(await anext(outcomes))
    await asyncio.wait([offering], timeout=0.5)
    assert not offering.done()
    assert session.in_flight <= MAX_DOCUMENTS_IN_FLIGHT
    async for batch in outcomes:
        seen += len(batch)
    assert seen == 1000
    await offering


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.0.0.1:0", "example.org:0", "127.0.0.1", "127.0.0.1:99999"])
async def test_only_loopback_addresses_are_served_without_authentication(address: str) -> None:
    settings = Settings(store=StoreKind.MEMORY, embeddings="none", dimension=8, address=address)
    async with opened(settings) as collaborators:
        with pytest.raises(InvalidFieldError, match=r"^address must be"):
            await ChunkstoreServer(settings, collaborators).start()
