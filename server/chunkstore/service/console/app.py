"""The console's pages and its one endpoint, which is a caller of this server's own RetrieveChunks."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any, Final

import grpc
import structlog
from google.protobuf import json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from chunkstore.domain.errors import ChunkstoreError
from chunkstore.domain.text import checked_tenant_id
from chunkstore.service.addresses import is_loopback
from chunkstore.service.errors import InternalError, MalformedRequestError, status_of
from chunkstore.service.tenancy import TENANT_METADATA_KEY
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub

# A query of the largest size takes six times as many bytes where JSON escapes each of them.
MAX_BODY_BYTES: Final = 256 * 1024

_PAGES: Final = {
    "/": ("index.html", "text/html"),
    "/console.css": ("console.css", "text/css"),
    "/console.js": ("console.js", "text/javascript"),
}
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_HTTP_STATUS: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

_log = structlog.get_logger(__name__)


def console_app(channel: grpc.aio.Channel) -> Starlette:
    """The console of the server at the other end of `channel`.

    POST /retrieve takes the JSON of a RetrieveChunksRequest, fields named as in the contract, and the tenant in the
    header x-tenant-id; it answers with the JSON of the response, or of the error: code, reason, field, message,
    metadata. Only a loopback Host is answered: another is a name that somebody pointed at this machine.
    """
    retrieve_chunks = RetrievalServiceStub(channel).RetrieveChunks

    async def retrieve(http: Request) -> Response:
        try:
            tenant = _tenant_of(http)
            request = _request_of(await _body_of(http))
            response = await retrieve_chunks(request, metadata=((TENANT_METADATA_KEY, tenant),))
        except ChunkstoreError as error:
            return _refusal(status_of(error))
        except grpc.aio.AioRpcError as error:
            status = rpc_status.from_call(error)
            return _refusal(status or status_pb2.Status(code=error.code().value[0], message=error.details() or ""))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            _log.exception("console call failed")
            return _refusal(status_of(InternalError()))
        return JSONResponse(
            json_format.MessageToDict(
                response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        )

    return Starlette(
        routes=[*map(_page, _PAGES), Route("/retrieve", retrieve, methods=["POST"])],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard)],
    )


def _page(path: str) -> Route:
    name, media_type = _PAGES[path]
    content = (resources.files(__package__) / "static" / name).read_bytes()

    async def page(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return Route(path, page)


async def _guard(http: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    host = http.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if is_loopback(name):
        response = await call_next(http)
    else:
        response = PlainTextResponse("the host must be a loopback address", status_code=403)
    response.headers.update(_HEADERS)
    return response


def _tenant_of(http: Request) -> str:
    supplied = http.headers.getlist(TENANT_METADATA_KEY)
    return checked_tenant_id(supplied[0] if len(supplied) == 1 else None, TENANT_METADATA_KEY)


async def _body_of(http: Request) -> bytes:
    # A page of another origin may send other types without asking first.
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise MalformedRequestError("content-type", "must be application/json")
    body = bytearray()
    async for part in http.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise MalformedRequestError("request", f"must have at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _request_of(body: bytes) -> RetrieveChunksRequest:
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedRequestError("request", "is not JSON") from None
    if not isinstance(fields, dict):
        raise MalformedRequestError("request", "is not a JSON object")
    request = RetrieveChunksRequest()
    for name, value in fields.items():
        if name not in RetrieveChunksRequest.DESCRIPTOR.fields_by_name:
            raise MalformedRequestError("request", "has a field that RetrieveChunksRequest lacks")
        try:
            json_format.ParseDict({name: value}, request)
        except (json_format.ParseError, ValueError, RecursionError):
            raise MalformedRequestError(name, "cannot be decoded") from None
    return request


def _refusal(status: status_pb2.Status) -> Response:
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        _ = detail.Unpack(info) or detail.Unpack(violations)
    code = code_pb2.Code.Name(status.code)
    content = {
        "code": code,
        "reason": info.reason,
        "field": next((violation.field for violation in violations.field_violations), ""),
        "message": status.message,
        "metadata": dict(info.metadata),
    }
    return JSONResponse(content, status_code=_HTTP_STATUS.get(code, 500))
