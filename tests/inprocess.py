"""A server in the test's own process, over collaborators that the test can hold up and look into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from google.rpc import error_details_pb2, status_pb2

from chunkstore.adapters.chunking.splitter import TextChunker
from chunkstore.adapters.embedding.hashing import HashingProvider
from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.composition.explainer import ChunkExplainer
from chunkstore.composition.indexer import DocumentIndexer
from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.composition.settings import Settings
from chunkstore.composition.wiring import Collaborators
from chunkstore.domain.analysis import analyzer
from chunkstore.ports.chunk_store import ChunkStore
from chunkstore.ports.embedding_provider import EmbeddingProvider
from chunkstore.service.server import ChunkstoreServer

DIMENSION = 8
TENANT = (("x-tenant-id", "t"),)


class GatedProvider:
    """Hashed vectors, given out only while `gate` is open, for texts holding `word`; others pass at once."""

    def __init__(self, word: str = "") -> None:
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()
        self.running = self.most_running = 0
        self._word = word
        self._inner = HashingProvider(DIMENSION)

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def dimension(self) -> int:
        return DIMENSION

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if any(self._word in text for text in texts):
                self.waiting.set()
                await self.gate.wait()
            return await self._inner.embed(texts)
        finally:
            self.running -= 1

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass(frozen=True, slots=True)
class Running:
    """A running server and a channel to it."""

    server: ChunkstoreServer
    channel: grpc.aio.Channel
    chunks: ChunkStore


@asynccontextmanager
async def running(
    provider: EmbeddingProvider | None, chunks: ChunkStore | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """Serve `chunks` (default: an empty memory store) with `provider`; stops the server unless the test did."""
    chosen = Settings(address="127.0.0.1:0", embeddings="none", dimension=DIMENSION, **settings)
    store = chunks or InMemoryChunkStore(dimension=DIMENSION, analyzer=analyzer("english"))
    retriever = ChunkRetriever(chunks=store, embeddings=provider, max_k=chosen.max_k)
    collaborators = Collaborators(
        chunks=store,
        retriever=retriever,
        explainer=ChunkExplainer(chunks=store, retriever=retriever),
        indexer=DocumentIndexer(chunks=store, chunker=TextChunker(800, 100), embeddings=provider),
    )
    server = ChunkstoreServer(chosen, collaborators)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        try:
            yield Running(server, channel, store)
        finally:
            await server.stop()


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """The code and the ErrorInfo reason of a call that must fail."""
    code, info = await error_info_of(call)
    return code, info.reason


async def error_info_of(call: Any) -> tuple[grpc.StatusCode, error_details_pb2.ErrorInfo]:
    """The code and the ErrorInfo, empty where there is none, of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        info = error_details_pb2.ErrorInfo()
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for detail in status_pb2.Status.FromString(value).details:
                    detail.Unpack(info)
        return error.code(), info
    raise AssertionError("the call did not fail")
