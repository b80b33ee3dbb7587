"""The generated client, bound to a tenant; raw calls beside it; and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.compliance.contract import is_stream, path_of, response_class

from chunkstore.v1 import (
    chunk_purge_service_pb2_grpc,
    chunk_reader_service_pb2_grpc,
    chunk_writer_service_pb2_grpc,
    error_reason_pb2,
    explanation_service_pb2_grpc,
    indexing_service_pb2,
    lexical_candidate_service_pb2_grpc,
    retrieval_service_pb2_grpc,
    semantic_candidate_service_pb2_grpc,
    store_service_pb2,
    store_service_pb2_grpc,
)
from chunkstore.v1.chunk_pb2 import Chunk
from chunkstore.v1.chunk_purge_service_pb2_grpc import ChunkPurgeServiceStub
from chunkstore.v1.chunk_reader_service_pb2 import GetChunkRequest, ListSourceChunksRequest
from chunkstore.v1.chunk_reader_service_pb2_grpc import ChunkReaderServiceStub
from chunkstore.v1.chunk_writer_service_pb2 import UpsertChunksRequest, UpsertChunksResponse
from chunkstore.v1.chunk_writer_service_pb2_grpc import ChunkWriterServiceStub
from chunkstore.v1.explanation_service_pb2 import (
    AnalyzeRequest,
    AnalyzeResponse,
    ExplainChunkRequest,
    ExplainChunkResponse,
)
from chunkstore.v1.explanation_service_pb2_grpc import ExplanationServiceStub
from chunkstore.v1.indexing_service_pb2 import DocumentOutcome, IndexDocumentsRequest, IndexSummary
from chunkstore.v1.lexical_candidate_service_pb2_grpc import LexicalCandidateServiceStub
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from chunkstore.v1.semantic_candidate_service_pb2_grpc import SemanticCandidateServiceStub
from chunkstore.v1.store_service_pb2 import CorpusCounts, Limits
from chunkstore.v1.store_service_pb2_grpc import StoreServiceStub

TENANT_KEY = "x-tenant-id"
TIMEOUT_S = 30.0
INDEX_DOCUMENTS = "IndexingService/IndexDocuments"

Metadata = tuple[tuple[str, str | bytes], ...]
Payload = bytes | Message


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Metadata
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _AsTenant(grpc.UnaryUnaryClientInterceptor):
    """Adds the tenant, and a time-out so that no test hangs."""

    def __init__(self, tenant: str) -> None:
        self._metadata: Metadata = ((TENANT_KEY, tenant),)

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        details = _Details(client_call_details.method, TIMEOUT_S, self._metadata, None, None, None)
        return continuation(details, request)


@dataclass(frozen=True)
class Indexed:
    """What a stream of documents answered."""

    outcomes: list[DocumentOutcome]
    summary: IndexSummary


@dataclass(frozen=True)
class Api:
    """The generated stubs as one tenant."""

    channel: grpc.Channel
    tenant: str
    writer: ChunkWriterServiceStub = field(init=False)
    reader: ChunkReaderServiceStub = field(init=False)
    lexical: LexicalCandidateServiceStub = field(init=False)
    semantic: SemanticCandidateServiceStub = field(init=False)
    purge: ChunkPurgeServiceStub = field(init=False)
    retrieval: RetrievalServiceStub = field(init=False)
    explanation: ExplanationServiceStub = field(init=False)
    store: StoreServiceStub = field(init=False)

    def __post_init__(self) -> None:
        bound = grpc.intercept_channel(self.channel, _AsTenant(self.tenant))
        for name, stub in (
            ("writer", chunk_writer_service_pb2_grpc.ChunkWriterServiceStub),
            ("reader", chunk_reader_service_pb2_grpc.ChunkReaderServiceStub),
            ("lexical", lexical_candidate_service_pb2_grpc.LexicalCandidateServiceStub),
            ("semantic", semantic_candidate_service_pb2_grpc.SemanticCandidateServiceStub),
            ("purge", chunk_purge_service_pb2_grpc.ChunkPurgeServiceStub),
            ("retrieval", retrieval_service_pb2_grpc.RetrievalServiceStub),
            ("explanation", explanation_service_pb2_grpc.ExplanationServiceStub),
            ("store", store_service_pb2_grpc.StoreServiceStub),
        ):
            object.__setattr__(self, name, stub(bound))

    @property
    def metadata(self) -> Metadata:
        """The tenant's call metadata."""
        return ((TENANT_KEY, self.tenant),)

    def upsert(self, *chunks: Chunk) -> UpsertChunksResponse:
        """UpsertChunks."""
        return self.writer.UpsertChunks(UpsertChunksRequest(chunks=chunks))

    def get(self, chunk_id: str) -> Chunk:
        """The stored chunk with its vector."""
        return self.reader.GetChunk(GetChunkRequest(id=chunk_id, include_embedding=True)).chunk

    def chunks_of(self, source_id: str) -> list[Chunk]:
        """The first page of a source's chunks, with vectors."""
        request = ListSourceChunksRequest(source_id=source_id, page_size=1000, include_embeddings=True)
        return list(self.reader.ListSourceChunks(request).chunks)

    def analyze(self, text: str) -> AnalyzeResponse:
        """Analyze."""
        return self.explanation.Analyze(AnalyzeRequest(text=text))

    def explain(self, query: str, chunk_id: str, **fields: Any) -> ExplainChunkResponse:
        """ExplainChunk."""
        return self.explanation.ExplainChunk(ExplainChunkRequest(query=query, chunk_id=chunk_id, **fields))

    def corpus(self) -> CorpusCounts:
        """The tenant's counts."""
        return self.store.GetStoreInfo(store_service_pb2.GetStoreInfoRequest()).corpus

    def limits(self) -> Limits:
        """The server's limits."""
        return self.store.GetStoreInfo(store_service_pb2.GetStoreInfoRequest()).limits

    def index(self, *requests: IndexDocumentsRequest | bytes) -> Indexed:
        """Stream documents in, raw messages among them, and take all outcomes and the summary."""
        responses = list(self.index_stream(requests))
        assert [response.WhichOneof("event") for response in responses[:-1]] == ["outcome"] * (len(responses) - 1)
        assert responses[-1].WhichOneof("event") == "summary"
        return Indexed([response.outcome for response in responses[:-1]], responses[-1].summary)

    def index_stream(
        self, requests: Iterable[IndexDocumentsRequest | bytes]
    ) -> Iterator[indexing_service_pb2.IndexDocumentsResponse]:
        """Open a stream of documents and give its answers as they come."""
        yield from _stream(self.channel, iter(requests), self.metadata)

    def send(self, method: str, payload: Payload, metadata: Metadata | None = None) -> Any:
        """Call any method with a message, or with bytes that may be none; a stream gets this one message."""
        return send(self.channel, method, payload, self.metadata if metadata is None else metadata)


@dataclass(frozen=True)
class Refusal:
    """What a failed call, or a refused document, says. `everything` is all of its text, for finding echoes."""

    code: grpc.StatusCode
    reason: str
    domain: str
    metadata: dict[str, str]
    field: str
    message: str
    everything: bytes


def send(channel: grpc.Channel, method: str, payload: Payload, metadata: Metadata) -> Any:
    """Call `method`; the response of a stream is its list of responses."""
    if is_stream(method):
        return list(_stream(channel, iter((payload,)), metadata))
    call = channel.unary_unary(
        path_of(method), request_serializer=_serialized, response_deserializer=response_class(method).FromString
    )
    return call(payload, metadata=metadata, timeout=TIMEOUT_S)


def status_of(call: Callable[[], object]) -> grpc.StatusCode:
    """The status that `call` ends with."""
    try:
        call()
    except grpc.RpcError as error:
        return _code(error)
    return grpc.StatusCode.OK


def refusal(call: Callable[[], object]) -> Refusal:
    """The refusal that `call` must end with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return _refusal_of(caught.value)


def refusal_of_request(api: Api, method: str, payload: Payload) -> Refusal:
    """The refusal of a request by a method; of a document, that of its outcome, in a stream that goes on."""
    if not is_stream(method):
        return refusal(lambda: api.send(method, payload))
    outcome, summary = api.send(method, payload)
    assert (summary.summary.documents, summary.summary.failed) == (1, 1)
    return refused_document(outcome.outcome)


def refused_document(outcome: DocumentOutcome) -> Refusal:
    """What an outcome says of a document that was not stored."""
    assert outcome.WhichOneof("result") == "error"
    error = outcome.error
    [code] = [code for code in grpc.StatusCode if code.value[0] == error.code]
    reason = error_reason_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
    everything = outcome.SerializeToString()
    return Refusal(code, reason, "chunkstore", {}, error.field, error.message, everything)


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    assert isinstance(error, grpc.Call)
    return error.code()


def _refusal_of(error: grpc.RpcError) -> Refusal:
    assert isinstance(error, grpc.Call)
    status = rpc_status.from_call(error)
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details if status else ():
        for message in (info, bad_request):
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    fields = [violation.field for violation in bad_request.field_violations]
    assert len(fields) <= 1
    trailers = b"".join(_bytes_of(value) for _, value in error.trailing_metadata() or ())
    everything = (error.details() or "").encode() + trailers
    return Refusal(
        error.code(),
        info.reason,
        info.domain,
        dict(info.metadata),
        fields[0] if fields else "",
        error.details() or "",
        everything,
    )


def _stream(
    channel: grpc.Channel, requests: Iterator[Payload], metadata: Metadata
) -> Iterator[indexing_service_pb2.IndexDocumentsResponse]:
    call = channel.stream_stream(
        path_of(INDEX_DOCUMENTS),
        request_serializer=_serialized,
        response_deserializer=indexing_service_pb2.IndexDocumentsResponse.FromString,
    )
    yield from call(requests, metadata=metadata, timeout=TIMEOUT_S)


def _serialized(payload: Payload) -> bytes:
    return payload if isinstance(payload, bytes) else payload.SerializeToString()


def _bytes_of(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
