"""Answers larger than a client can receive are refused here, where the reason can still be told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from chunkstore.service.errors import ResultTooLargeError
from chunkstore.service.interceptors.around import Context, Continuation, Handler, with_fields


class ResponseSizeInterceptor(grpc.aio.ServerInterceptor):
    """Raises ResultTooLargeError for the response of a unary call that has more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        behaviour: Callable[[Any, Context], Awaitable[Message]] = handler.unary_unary  # type: ignore[assignment]

        async def call(request: Any, context: Context) -> Message:
            response = await behaviour(request, context)
            if (size := response.ByteSize()) > self._limit:
                raise ResultTooLargeError(limit=self._limit, actual=size)
            return response

        return with_fields(handler, unary_unary=call)
