"""RetrievalService."""

from __future__ import annotations

from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.service.convert import channel_report_to, context_to, query_from, scored_chunk_to, selection_from
from chunkstore.service.interceptors.around import Context
from chunkstore.service.ranked_pages import RankedPages
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
        tenant = current_tenant()
        query = query_from(request, self._dimension, request.require)
        pages = RankedPages(request, tenant, self._retriever.depth, self._retriever.fusion)
        selection = selection_from(request, pages.start(request.page_token))
        result = await self._retriever.retrieve_chunks(query, tenant, selection)
        return pb.RetrieveChunksResponse(
            chunks=map(scored_chunk_to, result.chunks),
            channels=[channel_report_to(report, result.corpus) for report in result.channels],
            partial=result.partial,
            revision=result.corpus.revision,
            chunk_count=result.corpus.chunk_count,
            embedded_count=result.corpus.embedded_count,
            contexts=map(context_to, result.contexts),
            next_page_token=pages.token(result.next_page),
        )
