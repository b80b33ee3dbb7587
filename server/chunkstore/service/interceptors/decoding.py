"""Requests that cannot be decoded are the caller's mistake, with the field named, not the server's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import unknown_fields
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError

from chunkstore.service.errors import MalformedRequestError
from chunkstore.service.interceptors.around import Context, Continuation, Handler, around_calls, with_fields

_LENGTH_DELIMITED = 2
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    """Stands in a stream for a message that cannot be decoded."""

    error: MalformedRequestError
    size: int


class DecodingInterceptor(grpc.aio.ServerInterceptor):
    """Raises MalformedRequestError for a unary request that cannot be decoded.

    In a request stream a MalformedRequest takes the message's place, as one bad message must not end the stream.
    """

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        tolerant = _tolerant(handler.request_deserializer)
        return around_calls(with_fields(handler, request_deserializer=tolerant), _refuse)


@asynccontextmanager
async def _refuse(request: object, _: Context) -> AsyncIterator[None]:
    if isinstance(request, MalformedRequest):
        raise request.error
    yield


def _tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialize(content: bytes) -> Any:
        try:
            return deserializer(content)
        except DecodeError:
            descriptor: Descriptor = deserializer.__self__.DESCRIPTOR  # type: ignore[attr-defined]
            try:
                fault = _fault(content, descriptor)
            except DecodeError:
                fault = None
            field, problem = fault or ("request", "cannot be decoded")
            return MalformedRequest(MalformedRequestError(field, problem), len(content))

    return deserialize


def _fault(content: bytes, descriptor: Descriptor, path: str = "", depth: int = 0) -> tuple[str, str] | None:
    """The first field that makes `content` undecodable, and what is wrong with it."""
    if depth > _MAX_DEPTH:
        return path, f"is nested deeper than {_MAX_DEPTH} messages"
    for entry in unknown_fields.UnknownFieldSet(Empty.FromString(content)):  # type: ignore[attr-defined]
        field = descriptor.fields_by_number.get(entry.field_number)
        if field is None or entry.wire_type != _LENGTH_DELIMITED:
            continue
        name = f"{path}.{field.name}" if path else field.name
        if field.type == FieldDescriptor.TYPE_STRING and not _is_utf8(entry.data):
            return name, "is not valid UTF-8 (a lone surrogate is not)"
        if field.message_type is not None:
            try:
                fault = _fault(entry.data, field.message_type, name, depth + 1)
            except DecodeError:
                fault = name, "cannot be decoded"
            if fault:
                return fault
    return None


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
