"""What interceptors make of a method's handler is made once, not for each call."""

from __future__ import annotations

import grpc

from chunkstore.service.interceptors.around import Continuation, Handler


class OncePerMethodInterceptor(grpc.aio.ServerInterceptor):
    """Keeps the handler that the interceptors after it give for a method: to them, a method is all that counts."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See grpc.aio.ServerInterceptor."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            handler = await continuation(handler_call_details)
            # Names that nobody serves are not kept: callers make them up.
            if handler is not None:
                self._handlers[method] = handler
        return handler
