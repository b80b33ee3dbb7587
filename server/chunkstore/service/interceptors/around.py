"""Running something around a call's handler, whatever its cardinality."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import grpc

Context = grpc.aio.ServicerContext[Any, Any]
# Generic in its type stubs alone.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]
Around = Callable[[Any, Context], AbstractAsyncContextManager[Any]]

# Infrastructure that has neither tenants nor a share in the limits.
OPEN_SERVICES = ("/grpc.health.v1.Health/", "/grpc.reflection.")

_BEHAVIOURS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def is_open(method: str) -> bool:
    """Whether a full method name is one of health checking or reflection."""
    return method.startswith(OPEN_SERVICES)


def around_calls(handler: Handler, around: Around) -> Handler:
    """The handler with `around(request or requests, context)` entered before its behaviour and left after it."""
    name = next(name for name in _BEHAVIOURS if getattr(handler, name) is not None)
    return with_fields(handler, **{name: _wrapped(getattr(handler, name), around)})


def with_fields(handler: Handler, **fields: Any) -> Handler:
    """The handler with other fields; every handler is a named tuple, which its type does not say."""
    replace: Callable[..., Handler] = handler._replace  # type: ignore[attr-defined]
    return replace(**fields)


def _wrapped(behaviour: Callable[..., Any], around: Around) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(behaviour):

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            async with around(request, context):
                async for response in behaviour(request, context):
                    yield response

        return stream

    async def call(request: Any, context: Context) -> Any:
        async with around(request, context):
            return await behaviour(request, context)

    return call
