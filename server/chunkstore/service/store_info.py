"""StoreService."""

from __future__ import annotations

from chunkstore.ports.chunk_store import ChunkStore
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import store_service_pb2 as pb
from chunkstore.v1.store_service_pb2_grpc import StoreServiceServicer


class StoreServicer(StoreServiceServicer):
    """Describes the store as a tenant sees it."""

    def __init__(self, chunks: ChunkStore, limits: pb.Limits, version: str) -> None:
        self._chunks = chunks
        self._limits = limits
        self._version = version

    async def GetStoreInfo(self, request: pb.GetStoreInfoRequest, context: Context) -> pb.GetStoreInfoResponse:
        """See the contract."""
        counts = await self._chunks.counts(current_tenant())
        analyzer = self._chunks.analyzer
        return pb.GetStoreInfoResponse(
            adapter=self._chunks.adapter,
            dimension=self._chunks.dimension,
            embedding_model=self._chunks.embedding_model or "",
            analyzer=pb.Analyzer(name=analyzer.name, version=analyzer.version),
            limits=self._limits,
            corpus=pb.CorpusCounts(
                revision=counts.revision,
                chunk_count=counts.chunk_count,
                embedded_count=counts.embedded_count,
                source_count=counts.source_count,
            ),
            server_version=self._version,
        )
