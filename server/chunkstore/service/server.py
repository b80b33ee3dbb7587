"""The gRPC server: servicers, interceptors, health, reflection, and a clean end."""

from __future__ import annotations

import asyncio
from importlib import metadata
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from chunkstore.composition.query import MAX_QUERY_BYTES
from chunkstore.composition.settings import Settings
from chunkstore.composition.wiring import Collaborators
from chunkstore.domain.chunk import MAX_CHUNK_BYTES
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.metadata import MAX_METADATA_BYTES
from chunkstore.service.addresses import checked_address
from chunkstore.service.candidates import LexicalCandidateServicer, SemanticCandidateServicer
from chunkstore.service.chunk_purge import ChunkPurgeServicer
from chunkstore.service.chunk_reader import ChunkReaderServicer
from chunkstore.service.chunk_writer import ChunkWriterServicer
from chunkstore.service.convert import duration_to
from chunkstore.service.explanation import ExplanationServicer
from chunkstore.service.health import HealthMonitor
from chunkstore.service.indexing import IndexingServicer
from chunkstore.service.interceptors.admission import Admission, AdmissionInterceptor
from chunkstore.service.interceptors.decoding import DecodingInterceptor
from chunkstore.service.interceptors.errors import ErrorInterceptor
from chunkstore.service.interceptors.once import OncePerMethodInterceptor
from chunkstore.service.interceptors.response_size import ResponseSizeInterceptor
from chunkstore.service.interceptors.tenancy import DevelopmentTenancyInterceptor
from chunkstore.service.retrieval import RetrievalServicer
from chunkstore.service.store_info import StoreServicer
from chunkstore.v1 import (
    chunk_purge_service_pb2,
    chunk_purge_service_pb2_grpc,
    chunk_reader_service_pb2,
    chunk_reader_service_pb2_grpc,
    chunk_writer_service_pb2,
    chunk_writer_service_pb2_grpc,
    explanation_service_pb2,
    explanation_service_pb2_grpc,
    indexing_service_pb2,
    indexing_service_pb2_grpc,
    lexical_candidate_service_pb2,
    lexical_candidate_service_pb2_grpc,
    retrieval_service_pb2,
    retrieval_service_pb2_grpc,
    semantic_candidate_service_pb2,
    semantic_candidate_service_pb2_grpc,
    store_service_pb2,
    store_service_pb2_grpc,
)

SERVICES: Final = tuple(
    service.full_name
    for module in (
        chunk_writer_service_pb2,
        chunk_reader_service_pb2,
        lexical_candidate_service_pb2,
        semantic_candidate_service_pb2,
        chunk_purge_service_pb2,
        retrieval_service_pb2,
        explanation_service_pb2,
        indexing_service_pb2,
        store_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)

# Clients may ping an idle connection as often as every 10 seconds, which is grpc-go's floor.
_OPTIONS: Final = (
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)


class ChunkstoreServer:
    """The server of one store. `start` binds and serves, `stop` drains; both once."""

    def __init__(self, settings: Settings, collaborators: Collaborators) -> None:
        self._settings = settings
        self._admission = Admission(settings.max_concurrent_calls)
        self._health = HealthMonitor(collaborators.chunks, SERVICES)
        self._watching: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(
            interceptors=(
                OncePerMethodInterceptor(),
                ErrorInterceptor(),
                DecodingInterceptor(),
                AdmissionInterceptor(self._admission),
                DevelopmentTenancyInterceptor(),
                ResponseSizeInterceptor(settings.max_response_bytes),
            ),
            options=(*_OPTIONS, ("grpc.max_receive_message_length", settings.max_request_bytes)),
        )
        self._register(collaborators)

    async def start(self) -> str:
        """Bind and serve; the address bound to, `host:port`, with the real port where 0 was asked for.

        Raises InvalidFieldError for an address that is not loopback, as development tenancy trusts every caller, or
        that cannot be bound.
        """
        host, _ = checked_address(self._settings.address, "address")
        try:
            port = self._server.add_insecure_port(self._settings.address)
        except RuntimeError:
            raise InvalidFieldError("address", "cannot be bound") from None
        await self._health.check()
        await self._server.start()
        self._watching = asyncio.create_task(self._health.run())
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Take no more calls, let running ones end within the grace period, then end those that have not.

        Open document streams are told; what they have sent is stored and answered.
        """
        await self._health.drain()
        if self._watching is not None:
            self._watching.cancel()
        await self._admission.drain(self._settings.shutdown_grace)
        await self._server.stop(0.5)

    def _register(self, collaborators: Collaborators) -> None:
        server, settings, chunks = self._server, self._settings, collaborators.chunks
        retriever = collaborators.retriever
        indexing = IndexingServicer(collaborators.indexer, settings.idle_timeout, self._admission.draining)
        chunk_writer_service_pb2_grpc.add_ChunkWriterServiceServicer_to_server(ChunkWriterServicer(chunks), server)
        chunk_reader_service_pb2_grpc.add_ChunkReaderServiceServicer_to_server(
            ChunkReaderServicer(chunks, settings.max_response_bytes), server
        )
        lexical_candidate_service_pb2_grpc.add_LexicalCandidateServiceServicer_to_server(
            LexicalCandidateServicer(chunks, retriever.depth), server
        )
        semantic_candidate_service_pb2_grpc.add_SemanticCandidateServiceServicer_to_server(
            SemanticCandidateServicer(chunks, retriever.depth), server
        )
        chunk_purge_service_pb2_grpc.add_ChunkPurgeServiceServicer_to_server(ChunkPurgeServicer(chunks), server)
        retrieval_service_pb2_grpc.add_RetrievalServiceServicer_to_server(
            RetrievalServicer(retriever, chunks.dimension), server
        )
        explanation_service_pb2_grpc.add_ExplanationServiceServicer_to_server(
            ExplanationServicer(collaborators.explainer, chunks.dimension), server
        )
        indexing_service_pb2_grpc.add_IndexingServiceServicer_to_server(indexing, server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(
            StoreServicer(chunks, self._limits(retriever.depth), retriever.fusion, metadata.version("chunkstore")),
            server,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, server)
        health = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection((*SERVICES, health, reflection.SERVICE_NAME), server)

    def _limits(self, depth: int) -> store_service_pb2.Limits:
        return store_service_pb2.Limits(
            max_k=self._settings.max_k,
            max_candidates=depth,
            channel_depth=depth,
            max_chunk_bytes=MAX_CHUNK_BYTES,
            max_metadata_bytes=MAX_METADATA_BYTES,
            max_request_bytes=self._settings.max_request_bytes,
            max_response_bytes=self._settings.max_response_bytes,
            max_concurrent_calls=self._settings.max_concurrent_calls,
            max_query_bytes=MAX_QUERY_BYTES,
            channel_timeout=duration_to(self._settings.channel_timeout),
        )
