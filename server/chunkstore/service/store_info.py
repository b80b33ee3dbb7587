"""StoreService."""

from __future__ import annotations

from chunkstore.domain.results import FusionMethod
from chunkstore.ports.chunk_store import ChunkStore
from chunkstore.service.convert import corpus_counts_to, fusion_method_to, mirror_info_to
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import store_service_pb2 as pb
from chunkstore.v1.store_service_pb2_grpc import StoreServiceServicer


class StoreServicer(StoreServiceServicer):
    """Describes the store as a tenant sees it."""

    def __init__(self, chunks: ChunkStore, limits: pb.Limits, fusion: FusionMethod, version: str) -> None:
        self._chunks = chunks
        self._limits = limits
        self._fusion = fusion
        self._version = version

    async def GetStoreInfo(self, request: pb.GetStoreInfoRequest, context: Context) -> pb.GetStoreInfoResponse:
        """See the contract."""
        tenant_id = current_tenant()
        counts = await self._chunks.counts(tenant_id)
        mirror = self._chunks.mirror_info(tenant_id)
        analyzer = self._chunks.analyzer
        return pb.GetStoreInfoResponse(
            adapter=self._chunks.adapter,
            dimension=self._chunks.dimension,
            embedding_model=self._chunks.embedding_model or "",
            analyzer=pb.Analyzer(name=analyzer.name, version=analyzer.version),
            limits=self._limits,
            corpus=corpus_counts_to(counts),
            server_version=self._version,
            fusion_method=fusion_method_to(self._fusion),
            mirror=mirror_info_to(mirror) if mirror is not None else None,
        )
