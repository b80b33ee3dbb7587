"""RetrievalService."""

from __future__ import annotations

from chunkstore.composition.retriever import DEFAULT_K, ChunkRetriever
from chunkstore.service.convert import channel_report_to, query_from, scored_chunk_to
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceServicer


class RetrievalServicer(RetrievalServiceServicer):
    """Answers queries."""

    def __init__(self, retriever: ChunkRetriever, dimension: int) -> None:
        self._retriever = retriever
        self._dimension = dimension

    async def RetrieveChunks(self, request: pb.RetrieveChunksRequest, context: Context) -> pb.RetrieveChunksResponse:
        """See the contract."""
        result = await self._retriever.retrieve_chunks(
            query_from(request, self._dimension),
            current_tenant(),
            k=request.k if request.HasField("k") else DEFAULT_K,
            with_embeddings=request.include_embeddings,
        )
        return pb.RetrieveChunksResponse(
            chunks=map(scored_chunk_to, result.chunks),
            channels=[channel_report_to(report, result.corpus) for report in result.channels],
            partial=result.partial,
            revision=result.corpus.revision,
            chunk_count=result.corpus.chunk_count,
            embedded_count=result.corpus.embedded_count,
        )
