"""ChunkWriterService."""

from __future__ import annotations

import asyncio

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.results import WriteResult
from chunkstore.domain.text import checked_source_id
from chunkstore.ports.chunk_store import ChunkStore, SourceReplacement
from chunkstore.service.convert import chunks_from, write_counts_to
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import chunk_writer_service_pb2 as pb
from chunkstore.v1.chunk_writer_service_pb2_grpc import ChunkWriterServiceServicer


class ChunkWriterServicer(ChunkWriterServiceServicer):
    """Writes chunks that the caller has made; thousands of them are checked in a thread, beside other calls."""

    def __init__(self, chunks: ChunkStore) -> None:
        self._chunks = chunks

    async def UpsertChunks(self, request: pb.UpsertChunksRequest, context: Context) -> pb.UpsertChunksResponse:
        """See the contract."""
        chunks = await asyncio.to_thread(chunks_from, request.chunks, self._chunks.dimension)
        result = await self._chunks.upsert_many(current_tenant(), chunks)
        return pb.UpsertChunksResponse(counts=write_counts_to(result.counts), revision=result.revision)

    async def ReplaceSource(self, request: pb.ReplaceSourceRequest, context: Context) -> pb.ReplaceSourceResponse:
        """See the contract."""
        source_id = checked_source_id(request.source_id)
        expected = request.expected_revision if request.HasField("expected_revision") else None
        if expected is not None and expected < 0:
            raise InvalidFieldError("expected_revision", "must not be negative")
        chunks = await asyncio.to_thread(chunks_from, request.chunks, self._chunks.dimension, source_id)
        replacement = SourceReplacement(source_id, chunks, expected)
        [result] = await self._chunks.replace_sources(current_tenant(), [replacement])
        if not isinstance(result, WriteResult):
            raise result
        return pb.ReplaceSourceResponse(counts=write_counts_to(result.counts), revision=result.revision)
