"""From settings to collaborators: the one place that chooses adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from chunkstore.adapters.chunking.splitter import TextChunker
from chunkstore.adapters.embedding.hashing import HashingProvider
from chunkstore.adapters.embedding.openai import OpenAICompatibleProvider
from chunkstore.adapters.embedding.wordllama import WordLlamaProvider
from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.adapters.postgres.embedded import EmbeddedPostgres
from chunkstore.adapters.postgres.mirror import MirroredChunkStore
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.composition.explainer import ChunkExplainer
from chunkstore.composition.indexer import DocumentIndexer
from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.composition.settings import Ranking, Settings, StoreKind
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError
from chunkstore.ports.chunk_store import ChunkStore
from chunkstore.ports.embedding_provider import EmbeddingProvider
from chunkstore.ranking.preparing import prepare

DEFAULT_HASHING_DIMENSION = 256


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What a server serves with."""

    chunks: ChunkStore
    retriever: ChunkRetriever
    explainer: ChunkExplainer
    indexer: DocumentIndexer


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Collaborators]:
    """Open everything that `settings` names, and close it on leaving.

    Raises InvalidFieldError for an unknown analyzer or provider, DimensionMismatchError where the dimension asked for
    is not the provider's, StoreMismatchError where an existing store was made otherwise, StoreUnavailableError.
    """
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(prepare)
        embeddings = open_provider(settings)
        if embeddings is not None:
            stack.push_async_callback(embeddings.aclose)
        dimension = vector_dimension(settings, embeddings)
        chunks: ChunkStore = await _open_store(settings, embeddings, dimension, stack)
        stack.push_async_callback(chunks.aclose)
        retriever = ChunkRetriever(
            chunks=chunks,
            embeddings=embeddings,
            overfetch=settings.overfetch,
            max_k=settings.max_k,
            fusion=settings.fusion,
            channel_timeout=settings.channel_timeout,
        )
        yield Collaborators(
            chunks=chunks,
            retriever=retriever,
            explainer=ChunkExplainer(chunks=chunks, retriever=retriever),
            indexer=DocumentIndexer(
                chunks=chunks,
                chunker=TextChunker(settings.chunk_size, settings.chunk_overlap),
                embeddings=embeddings,
            ),
        )


def open_provider(settings: Settings) -> EmbeddingProvider | None:
    """The embedding provider that `settings` names; None for none. Raises InvalidFieldError for an unknown name."""
    kind, _, model = settings.embeddings.partition(":")
    match kind:
        case "none":
            return None
        case "wordllama":
            return WordLlamaProvider()
        case "hashing":
            return HashingProvider(settings.dimension or DEFAULT_HASHING_DIMENSION)
        case "openai" if model and settings.embeddings_url and settings.dimension:
            key = settings.embeddings_api_key
            return OpenAICompatibleProvider(
                base_url=settings.embeddings_url,
                model=model,
                dimension=settings.dimension,
                api_key=key.get_secret_value() if key else None,
            )
        case _:
            raise InvalidFieldError("embeddings", "must be wordllama, hashing, none, or openai:MODEL")


def vector_dimension(settings: Settings, embeddings: EmbeddingProvider | None) -> int:
    """Width of the store's vectors. Raises DimensionMismatchError where settings and provider disagree."""
    if embeddings is None:
        assert settings.dimension is not None, "settings without provider name a dimension"
        return settings.dimension
    if settings.dimension not in (None, embeddings.dimension):
        raise DimensionMismatchError(expected=settings.dimension or 0, actual=embeddings.dimension)
    return embeddings.dimension


@asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[str]:
    """The DSN to use: the one given, or that of a private PostgreSQL which runs meanwhile."""
    if settings.dsn is not None:
        yield settings.dsn.get_secret_value()
        return
    private = EmbeddedPostgres(settings.data_dir)
    dsn = await asyncio.to_thread(private.start)
    try:
        yield dsn
    finally:
        await asyncio.to_thread(private.stop)


async def _open_store(
    settings: Settings, embeddings: EmbeddingProvider | None, dimension: int, stack: AsyncExitStack
) -> ChunkStore:
    model = embeddings.model if embeddings else None
    if settings.store is StoreKind.MEMORY:
        return InMemoryChunkStore(dimension=dimension, analyzer=analyzer(settings.analyzer), embedding_model=model)
    kind = MirroredChunkStore if settings.ranking is Ranking.MIRROR else PostgresChunkStore
    store = await kind.open(
        await stack.enter_async_context(database(settings)),
        dimension=dimension,
        analyzer=analyzer(settings.analyzer),
        embedding_model=model,
        pool_size=settings.pool_size,
        acquire_timeout=settings.acquire_timeout,
    )
    if isinstance(store, MirroredChunkStore):
        store.mirror_memory = settings.mirror_memory
    return store
