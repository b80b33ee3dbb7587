"""ChunkPurgeService."""

from __future__ import annotations

from chunkstore.domain.text import checked_source_id
from chunkstore.ports.chunk_store import ChunkPurge
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import chunk_purge_service_pb2 as pb
from chunkstore.v1.chunk_purge_service_pb2_grpc import ChunkPurgeServiceServicer


class ChunkPurgeServicer(ChunkPurgeServiceServicer):
    """Removes for good."""

    def __init__(self, chunks: ChunkPurge) -> None:
        self._chunks = chunks

    async def PurgeSource(self, request: pb.PurgeSourceRequest, context: Context) -> pb.PurgeSourceResponse:
        """See the contract."""
        source_id = checked_source_id(request.source_id)
        return pb.PurgeSourceResponse(removed=await self._chunks.purge_source(current_tenant(), source_id))

    async def PurgeTenant(self, request: pb.PurgeTenantRequest, context: Context) -> pb.PurgeTenantResponse:
        """See the contract."""
        return pb.PurgeTenantResponse(removed=await self._chunks.purge_tenant(current_tenant()))
