"""ChunkReaderService."""

from __future__ import annotations

from chunkstore.domain.chunk import StoredChunk, checked_chunk_id
from chunkstore.domain.results import Source
from chunkstore.domain.text import checked_entity_id, checked_source_id
from chunkstore.ports.chunk_store import ChunkReader
from chunkstore.service.convert import chunk_to, source_to
from chunkstore.service.interceptors.around import Context
from chunkstore.service.paging import filled_page, index_part, page_key, page_size, page_token
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import chunk_reader_service_pb2 as pb
from chunkstore.v1.chunk_reader_service_pb2_grpc import ChunkReaderServiceServicer


class ChunkReaderServicer(ChunkReaderServiceServicer):
    """Reads what is stored."""

    def __init__(self, chunks: ChunkReader, max_response_bytes: int) -> None:
        self._chunks = chunks
        # Room for the page token beside the chunks.
        self._page_bytes = max_response_bytes - 4096

    async def GetChunk(self, request: pb.GetChunkRequest, context: Context) -> pb.GetChunkResponse:
        """See the contract."""
        identifier = checked_chunk_id(request.id)
        chunk = await self._chunks.get(current_tenant(), identifier, with_embedding=request.include_embedding)
        return pb.GetChunkResponse(chunk=chunk_to(chunk))

    async def ListSourceChunks(
        self, request: pb.ListSourceChunksRequest, context: Context
    ) -> pb.ListSourceChunksResponse:
        """See the contract."""
        scope = ("source chunks", checked_source_id(request.source_id))
        size, key = page_size(request.page_size), page_key(scope, request.page_token, (index_part, checked_chunk_id))
        after = (key[0], key[1]) if key else None
        chunks = await self._chunks.get_by_source(
            current_tenant(),
            request.source_id,
            after=after,
            limit=size + 1,
            with_embeddings=request.include_embeddings,
        )
        page = filled_page(chunks[:size], chunk_to, self._page_bytes)
        last = page[-1][0] if len(page) < len(chunks) else None
        return pb.ListSourceChunksResponse(
            chunks=[message for _, message in page],
            next_page_token=page_token(scope, (last.chunk_index, last.id)) if last else "",
        )

    async def ListEntityChunks(
        self, request: pb.ListEntityChunksRequest, context: Context
    ) -> pb.ListEntityChunksResponse:
        """See the contract."""
        scope = ("entity chunks", checked_entity_id(request.entity_id))
        size, key = (
            page_size(request.page_size),
            page_key(scope, request.page_token, (checked_source_id, index_part, checked_chunk_id)),
        )
        after = (key[0], key[1], key[2]) if key else None
        chunks = await self._chunks.get_by_entity(
            current_tenant(),
            request.entity_id,
            after=after,
            limit=size + 1,
            with_embeddings=request.include_embeddings,
        )
        page = filled_page(chunks[:size], chunk_to, self._page_bytes)
        last: StoredChunk | None = page[-1][0] if len(page) < len(chunks) else None
        return pb.ListEntityChunksResponse(
            chunks=[message for _, message in page],
            next_page_token=page_token(scope, (last.source_id, last.chunk_index, last.id)) if last else "",
        )

    async def ListSources(self, request: pb.ListSourcesRequest, context: Context) -> pb.ListSourcesResponse:
        """See the contract."""
        scope = ("sources",)
        size, key = page_size(request.page_size), page_key(scope, request.page_token, (checked_source_id,))
        sources = await self._chunks.list_sources(current_tenant(), after=key[0] if key else None, limit=size + 1)
        page = filled_page(sources[:size], source_to, self._page_bytes)
        last: Source | None = page[-1][0] if len(page) < len(sources) else None
        return pb.ListSourcesResponse(
            sources=[message for _, message in page],
            next_page_token=page_token(scope, (last.source_id,)) if last else "",
        )
