"""RetrievalService."""

from __future__ import annotations

from chunkstore.composition.retriever import DEFAULT_K, ChunkRetriever
from chunkstore.service.convert import channel_report_to, mode_from, scored_chunk_to, vector_from
from chunkstore.service.filters import filter_from
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
        vector = None
        if request.HasField("query_vector"):
            vector = vector_from(request.query_vector, "query_vector", self._dimension)
        result = await self._retriever.retrieve_chunks(
            request.query,
            current_tenant(),
            k=request.k if request.HasField("k") else DEFAULT_K,
            mode=mode_from(request.mode),
            with_embeddings=request.include_embeddings,
            query_vector=vector,
            where=filter_from(request.filter) if request.HasField("filter") else None,
        )
        return pb.RetrieveChunksResponse(
            chunks=map(scored_chunk_to, result.chunks),
            channels=map(channel_report_to, result.channels),
            partial=result.partial,
            revision=result.corpus.revision,
            chunk_count=result.corpus.chunk_count,
            embedded_count=result.corpus.embedded_count,
        )
