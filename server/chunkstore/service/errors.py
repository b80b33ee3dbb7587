"""Errors to statuses: the one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from chunkstore.domain import errors
from chunkstore.v1 import error_reason_pb2, indexing_service_pb2
from chunkstore.v1.error_reason_pb2 import ErrorReason

DOMAIN = "chunkstore"
_STATUS_DETAILS = "grpc-status-details-bin"


class MalformedRequestError(errors.InvalidFieldError):
    """A request message that cannot be decoded; `field` is where."""


class TooManyCallsError(errors.ChunkstoreError):
    """The server is at its limit of concurrent calls."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the server is at its limit of {limit} concurrent calls")
        self.limit = limit


class ResultTooLargeError(errors.ChunkstoreError):
    """An answer of `actual` bytes is larger than the `limit` of a response message."""

    def __init__(self, *, limit: int, actual: int) -> None:
        super().__init__(f"the answer has {actual} bytes, a response at most {limit}; ask for less")
        self.limit = limit
        self.actual = actual


class StreamIdleError(errors.ChunkstoreError):
    """Nothing moved on a stream for `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"nothing moved on the stream for {timeout * 1000:.0f} ms")
        self.timeout = timeout


class ServerDrainingError(errors.ChunkstoreError):
    """The server is shutting down."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class InternalError(errors.ChunkstoreError):
    """A defect of the server."""

    def __init__(self) -> None:
        super().__init__("internal error")


@dataclass(frozen=True, slots=True)
class _Row:
    code: grpc.StatusCode
    reason: ErrorReason.ValueType
    metadata: Callable[[Any], dict[str, str]] = lambda _: {}


def _field(error: errors.InvalidFieldError) -> dict[str, str]:
    return {"field": error.field}


def _widths(error: errors.DimensionMismatchError) -> dict[str, str]:
    return {"field": error.field or "vector", "expected": str(error.expected), "actual": str(error.actual)}


def _sizes(error: ResultTooLargeError) -> dict[str, str]:
    return {"limit": str(error.limit), "actual": str(error.actual)}


def _revisions(error: errors.SourceChangedError | errors.CorpusChangedError) -> dict[str, str]:
    return {"expected": str(error.expected), "actual": str(error.actual)}


def _channels(error: errors.RetrievalDegradedError) -> dict[str, str]:
    return {"missing": ",".join(error.missing), "answered": ",".join(error.answered)}


def _timeout(error: errors.NoFreeConnectionError | StreamIdleError) -> dict[str, str]:
    return {"timeout_ms": f"{error.timeout * 1000:.0f}"}


_C, _R = grpc.StatusCode, error_reason_pb2

# Looked up along the error's classes, most derived first.
_TABLE: dict[type[errors.ChunkstoreError], _Row] = {
    errors.InvalidFieldError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_INVALID_FIELD, _field),
    errors.ChunkIdMismatchError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_CHUNK_ID_MISMATCH, _field),
    errors.DimensionMismatchError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_DIMENSION_MISMATCH, _widths),
    errors.InvalidVectorError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_INVALID_VECTOR, _field),
    errors.InvalidTenantError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_INVALID_TENANT, _field),
    errors.TenantFilterRefusedError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_TENANT_FILTER_REFUSED, _field),
    MalformedRequestError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_MALFORMED_REQUEST, _field),
    errors.ChunkNotFoundError: _Row(_C.NOT_FOUND, _R.ERROR_REASON_CHUNK_NOT_FOUND),
    errors.SourceChangedError: _Row(_C.ABORTED, _R.ERROR_REASON_SOURCE_CHANGED, _revisions),
    errors.RetrievalDegradedError: _Row(_C.UNAVAILABLE, _R.ERROR_REASON_RETRIEVAL_DEGRADED, _channels),
    errors.CorpusChangedError: _Row(_C.ABORTED, _R.ERROR_REASON_CORPUS_CHANGED, _revisions),
    errors.RankingChangedError: _Row(
        _C.ABORTED, _R.ERROR_REASON_RANKING_CHANGED, lambda error: {"channels": ",".join(error.channels)}
    ),
    errors.EmbeddingFailedError: _Row(_C.UNAVAILABLE, _R.ERROR_REASON_EMBEDDING_FAILED),
    errors.EmbeddingQuotaError: _Row(_C.RESOURCE_EXHAUSTED, _R.ERROR_REASON_EMBEDDING_FAILED),
    errors.EmbeddingRejectedError: _Row(_C.INVALID_ARGUMENT, _R.ERROR_REASON_EMBEDDING_REJECTED),
    errors.StoreUnavailableError: _Row(_C.UNAVAILABLE, _R.ERROR_REASON_STORE_UNAVAILABLE),
    errors.StoreMismatchError: _Row(_C.FAILED_PRECONDITION, _R.ERROR_REASON_STORE_MISMATCH),
    errors.SnapshotExpiredError: _Row(_C.UNAVAILABLE, _R.ERROR_REASON_STORE_UNAVAILABLE),
    errors.NoFreeConnectionError: _Row(_C.RESOURCE_EXHAUSTED, _R.ERROR_REASON_NO_FREE_CONNECTION, _timeout),
    TooManyCallsError: _Row(
        _C.RESOURCE_EXHAUSTED, _R.ERROR_REASON_TOO_MANY_CALLS, lambda error: {"limit": str(error.limit)}
    ),
    ResultTooLargeError: _Row(_C.RESOURCE_EXHAUSTED, _R.ERROR_REASON_RESULT_TOO_LARGE, _sizes),
    StreamIdleError: _Row(_C.DEADLINE_EXCEEDED, _R.ERROR_REASON_STREAM_IDLE, _timeout),
    ServerDrainingError: _Row(_C.UNAVAILABLE, _R.ERROR_REASON_SERVER_DRAINING),
    errors.ChunkstoreError: _Row(_C.INTERNAL, _R.ERROR_REASON_INTERNAL),
}


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: errors.ChunkstoreError) -> NoReturn:
    """End the call with the status of `error`."""
    status = status_of(error)
    await context.abort(_row(error).code, status.message, ((_STATUS_DETAILS, status.SerializeToString()),))


def status_of(error: errors.ChunkstoreError) -> status_pb2.Status:
    """Code, message, ErrorInfo, and BadRequest where a field is at fault."""
    row = _row(error)
    info = error_details_pb2.ErrorInfo(reason=_reason_name(row), domain=DOMAIN, metadata=row.metadata(error))
    status = status_pb2.Status(code=row.code.value[0], message=_message(error, row), details=[_packed(info)])
    if field := _field_of(error):
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=status.message)
        status.details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    return status


def document_error(error: errors.ChunkstoreError) -> indexing_service_pb2.DocumentError:
    """The outcome of a document that `error` kept from being stored."""
    row = _row(error)
    return indexing_service_pb2.DocumentError(
        code=code_pb2.Code.ValueType(row.code.value[0]),
        reason=row.reason,
        message=_message(error, row),
        field=_field_of(error),
    )


def _row(error: errors.ChunkstoreError) -> _Row:
    return next(_TABLE[kind] for kind in type(error).__mro__ if kind in _TABLE)


def _message(error: errors.ChunkstoreError, row: _Row) -> str:
    if row.code is _C.INTERNAL:
        return "internal error"
    if isinstance(error, errors.StoreMismatchError):
        # Its own words are for whoever starts a server.
        return "the store has been migrated to another analyzer or model; the server must be started anew"
    return str(error)


def _field_of(error: errors.ChunkstoreError) -> str:
    if isinstance(error, (errors.InvalidFieldError, errors.DimensionMismatchError)):
        return error.field
    return ""


def _reason_name(row: _Row) -> str:
    return error_reason_pb2.ErrorReason.Name(row.reason).removeprefix("ERROR_REASON_")


def _packed(message: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
