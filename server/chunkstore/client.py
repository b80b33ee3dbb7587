"""The Python client: blocking, one class over the generated stubs, with typed errors.

Messages are those of `chunkstore.v1`; a channel's score that is unset means that the channel did not rank the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2
from grpc_status import rpc_status

from chunkstore.v1 import (
    chunk_purge_service_pb2,
    chunk_purge_service_pb2_grpc,
    error_reason_pb2,
    explanation_service_pb2,
    explanation_service_pb2_grpc,
    indexing_service_pb2,
    indexing_service_pb2_grpc,
    retrieval_service_pb2,
    retrieval_service_pb2_grpc,
    store_service_pb2,
    store_service_pb2_grpc,
)
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.indexing_service_pb2 import DocumentFormat, DocumentOutcome, IndexSummary
from chunkstore.v1.retrieval_service_pb2 import Channel, Fusion, RetrievalMode, RetrieveChunksResponse

MessageT = TypeVar("MessageT", bound=Message)
ResponseT = TypeVar("ResponseT")

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# The wire's numbers are doubles, which carry every whole number up to here.
MAX_WHOLE_NUMBER = 2**53


class ServiceError(Exception):
    """A call failed: the gRPC `code`, the `reason` of error_reason.proto, the `field` at fault, further `metadata`.

    `reason` is empty where the failure is not the service's own, for example when no server answers.
    """

    def __init__(
        self, code: grpc.StatusCode, message: str, reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{code.name}{f' ({reason})' if reason else ''}: {message}")
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.field = self.metadata.get("field", "")


class DocumentsFailedError(Exception):
    """Some documents of a stream were not stored; `report` tells which, and what became of the others."""

    def __init__(self, report: IndexReport) -> None:
        super().__init__(f"{len(report.failures)} of {report.summary.documents} documents were not stored")
        self.report = report


@dataclass(frozen=True, slots=True)
class Document:
    """A document to index; see Document of the contract."""

    source_id: str
    text: str
    format: DocumentFormat.ValueType = indexing_service_pb2.DOCUMENT_FORMAT_PLAIN_TEXT
    metadata: Mapping[str, Any] = field(default_factory=dict)
    entity_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What became of a stream: the server's summary, with documents that could not be sent added, and the failures."""

    summary: IndexSummary
    failures: tuple[DocumentOutcome, ...]


class ChunkstoreClient:
    """A connection to a server as one tenant. Use it as a context manager, or `close` it. Safe for threads."""

    def __init__(self, address: str, tenant: str, *, timeout: float = 30.0) -> None:
        """Connect lazily to `address` (HOST:PORT); unary calls wait at most `timeout` seconds for an answer."""
        self._channel = grpc.insecure_channel(
            address, options=(("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),)
        )
        self._metadata = (("x-tenant-id", tenant),)
        self._timeout = timeout

    def retrieve_chunks(
        self,
        query: str,
        *,
        k: int | None = None,
        mode: RetrievalMode.ValueType = retrieval_service_pb2.RETRIEVAL_MODE_UNSPECIFIED,
        include_embeddings: bool = False,
        where: Filter | None = None,
        fusion: Fusion | None = None,
        channel_timeout: float | None = None,
        require: Sequence[Channel.ValueType] = (),
        explain: bool = False,
        neighbors_before: int = 0,
        neighbors_after: int = 0,
        max_per_source: int | None = None,
        page_token: str = "",
        channels: Sequence[Channel.ValueType] = (),
    ) -> RetrieveChunksResponse:
        """The k best chunks for `query` of those that meet `where`, and how the answer came about.

        Without `fusion`, by the server's own; `channels` are asked in place of a mode. With `explain`, each hit carries
        its explanation. Each channel may take
        `channel_timeout` seconds, None: the server's own; one of `require` that does not answer is an error instead of
        a partial answer. At most `max_per_source` of one source, and with each so many of its neighbors, in `contexts`.
        A `page_token` goes on where the answer that gave it ended. Raises ServiceError.
        """
        request = _made(
            retrieval_service_pb2.RetrieveChunksRequest,
            query=query,
            k=k,
            mode=mode,
            include_embeddings=include_embeddings,
            filter=where,
            fusion=fusion,
            channel_timeout=None if channel_timeout is None else _duration(channel_timeout),
            require=require,
            explain=explain,
            neighbors_before=neighbors_before,
            neighbors_after=neighbors_after,
            max_per_source=max_per_source,
            page_token=page_token,
            channels=channels,
        )
        return self._call(retrieval_service_pb2_grpc.RetrievalServiceStub(self._channel).RetrieveChunks, request)

    def retrieve_pages(self, query: str, **options: Any) -> Iterator[RetrieveChunksResponse]:
        """Page after page of the answer, each of k chunks but the last; `options` are those of `retrieve_chunks`.

        Raises ServiceError; its code is ABORTED where the corpus has changed since the first page.
        """
        page = self.retrieve_chunks(query, **options)
        yield page
        while page.next_page_token:
            page = self.retrieve_chunks(query, **options | {"page_token": page.next_page_token})
            yield page

    def explain_chunk(
        self,
        query: str,
        chunk_id: str,
        *,
        mode: RetrievalMode.ValueType = retrieval_service_pb2.RETRIEVAL_MODE_HYBRID,
        where: Filter | None = None,
        fusion: Fusion | None = None,
        channel_timeout: float | None = None,
    ) -> explanation_service_pb2.ExplainChunkResponse:
        """Where a chunk is in the ranking of `query`, and why, or why it is not there. Raises ServiceError."""
        request = _made(
            explanation_service_pb2.ExplainChunkRequest,
            query=query,
            chunk_id=chunk_id,
            mode=mode,
            filter=where,
            fusion=fusion,
            channel_timeout=None if channel_timeout is None else _duration(channel_timeout),
        )
        return self._call(explanation_service_pb2_grpc.ExplanationServiceStub(self._channel).ExplainChunk, request)

    def analyze(self, text: str) -> explanation_service_pb2.AnalyzeResponse:
        """The terms of `text` under the store's analyzer, and how common each is. Raises ServiceError."""
        stub = explanation_service_pb2_grpc.ExplanationServiceStub(self._channel)
        return self._call(stub.Analyze, _made(explanation_service_pb2.AnalyzeRequest, text=text))

    def store_info(self) -> store_service_pb2.GetStoreInfoResponse:
        """The store's facts and limits, and the tenant's counts. Raises ServiceError."""
        stub = store_service_pb2_grpc.StoreServiceStub(self._channel)
        return self._call(stub.GetStoreInfo, store_service_pb2.GetStoreInfoRequest())

    def purge_tenant(self) -> int:
        """Remove everything of the tenant for good; how many chunks there were. Raises ServiceError."""
        stub = chunk_purge_service_pb2_grpc.ChunkPurgeServiceStub(self._channel)
        return self._call(stub.PurgeTenant, chunk_purge_service_pb2.PurgeTenantRequest()).removed

    def index_documents(
        self, documents: Iterable[Document], on_outcome: Callable[[DocumentOutcome], None] = lambda _: None
    ) -> IndexReport:
        """Stream documents in; `on_outcome` is called with each one's outcome, after its commit.

        Returns only if every document was stored; raises DocumentsFailedError with the report otherwise, ServiceError
        where the stream itself ends early, and whatever iterating `documents` raises. Documents are taken from the
        iterable as the server has room for them, in a thread of their own.
        """
        sending = _Sending(documents)
        stub = indexing_service_pb2_grpc.IndexingServiceStub(self._channel)
        summary = IndexSummary()
        failures: list[DocumentOutcome] = []

        def note(outcome: DocumentOutcome) -> None:
            if outcome.WhichOneof("result") == "error":
                failures.append(outcome)
            on_outcome(outcome)

        try:
            for response in stub.IndexDocuments(iter(sending), metadata=self._metadata):
                if response.WhichOneof("event") == "summary":
                    summary.CopyFrom(response.summary)
                else:
                    response.outcome.ordinal = sending.places[response.outcome.ordinal]
                    note(response.outcome)
        except grpc.RpcError as error:
            if sending.failure is not None:
                raise sending.failure from None
            raise _service_error(error) from None
        for outcome in sending.unsendable:
            note(outcome)
            summary.documents += 1
            summary.failed += 1
        report = IndexReport(summary, tuple(failures))
        if failures:
            raise DocumentsFailedError(report)
        return report

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: Callable[..., ResponseT], request: Message) -> ResponseT:
        try:
            return method(request, metadata=self._metadata, timeout=self._timeout)
        except grpc.RpcError as error:
            raise _service_error(error) from None


class _Sending:
    """Documents on their way out: which were sent in which place, which could not be, and what stopped them."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = documents
        self.places: list[int] = []
        self.unsendable: list[DocumentOutcome] = []
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[indexing_service_pb2.IndexDocumentsRequest]:
        try:
            for place, document in enumerate(self._documents):
                try:
                    request = indexing_service_pb2.IndexDocumentsRequest(document=_document_message(document))
                except ServiceError as error:
                    self.unsendable.append(_unsendable(place, error))
                    continue
                self.places.append(place)
                yield request
        except Exception as error:
            self.failure = error
            raise


def _document_message(document: Document) -> indexing_service_pb2.Document:
    message = _made(
        indexing_service_pb2.Document,
        source_id=document.source_id,
        text=document.text,
        format=document.format,
        entity_ids=document.entity_ids,
    )
    if document.metadata:
        if not _is_exact(document.metadata):
            raise _refused("metadata", "holds a whole number beyond 2^53, which no double carries: send it as a string")
        try:
            message.metadata.update(document.metadata)
        except (UnicodeError, ValueError, TypeError):
            raise _refused("metadata", "holds what JSON cannot") from None
    return message


def _is_exact(value: object) -> bool:
    """Whether the wire's numbers, which are doubles, carry every whole number in the value."""
    if isinstance(value, Mapping):
        return all(map(_is_exact, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_exact, value))
    return not isinstance(value, int) or abs(value) <= MAX_WHOLE_NUMBER


def _made(kind: type[MessageT], **fields: Any) -> MessageT:
    """A message of these fields; a value that the wire cannot carry is INVALID_ARGUMENT, named, as from the server."""
    message = kind()
    for name, value in fields.items():
        try:
            message.MergeFrom(kind(**{name: value}))
        except (UnicodeError, ValueError, TypeError):
            raise _refused(
                name, "is not valid: it must be Unicode without lone surrogates, and numbers in range"
            ) from None
    return message


def _duration(seconds: float) -> Duration:
    try:
        return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
    except (ValueError, OverflowError):
        raise _refused("channel_timeout", "is not a number of seconds") from None


def _refused(name: str, problem: str) -> ServiceError:
    return ServiceError(grpc.StatusCode.INVALID_ARGUMENT, f"{name} {problem}", "INVALID_FIELD", {"field": name})


def _unsendable(place: int, error: ServiceError) -> DocumentOutcome:
    return DocumentOutcome(
        ordinal=place,
        error=indexing_service_pb2.DocumentError(
            code=code_pb2.INVALID_ARGUMENT,
            reason=error_reason_pb2.ERROR_REASON_INVALID_FIELD,
            message=error.message,
            field=f"document.{error.field}",
        ),
    )


def _service_error(error: grpc.RpcError) -> ServiceError:
    assert isinstance(error, grpc.Call)
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status else ():
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
    return ServiceError(error.code(), error.details() or "", info.reason, info.metadata)
