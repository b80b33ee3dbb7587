"""Embedding what is stored unembedded, over PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import DimensionMismatchError
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.embedding_provider import EmbeddingProvider


class UnembeddedChunks(Protocol):
    """A store that knows which chunks of all tenants have no vector."""

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        ...

    async def count_unembedded(self) -> int:
        """How many chunks have none."""
        ...

    def unembedded(self, batch_size: int = 256) -> AsyncIterator[tuple[TenantId, list[StoredChunk]]]:
        """Those chunks, by tenant, in batches of one tenant."""
        ...

    async def fill_embeddings(self, tenant_id: TenantId, vectors: Mapping[ChunkId, Vector]) -> int:
        """Set the vectors of those chunks that still have none; how many."""
        ...


async def backfill_embeddings(
    chunks: UnembeddedChunks, embeddings: EmbeddingProvider, progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Embed every chunk of every tenant that has no vector; how many were given one.

    Each batch is committed by itself, so one that is interrupted goes on where it was. `progress` is told the chunks
    seen and their total. Raises DimensionMismatchError where provider and store differ in width, EmbeddingFailedError.
    """
    if embeddings.dimension != chunks.dimension:
        raise DimensionMismatchError(expected=chunks.dimension, actual=embeddings.dimension)
    total = await chunks.count_unembedded()
    seen = filled = 0
    async for tenant_id, batch in chunks.unembedded():
        rows = await embeddings.embed([chunk.text for chunk in batch])
        vectors = {
            chunk.id: checked_vector(row, "embedding", chunks.dimension) for chunk, row in zip(batch, rows, strict=True)
        }
        filled += await chunks.fill_embeddings(tenant_id, vectors)
        seen += len(batch)
        progress(seen, max(seen, total))
    return filled
