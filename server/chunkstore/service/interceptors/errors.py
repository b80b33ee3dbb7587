"""Outermost: whatever a handler raises becomes a status of the table, and defects are logged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import structlog

from chunkstore.domain.errors import ChunkstoreError
from chunkstore.service.errors import InternalError, abort
from chunkstore.service.interceptors.around import Context, Continuation, Handler, around_calls

_log = structlog.get_logger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Ends calls with the status of the error that their handler raised; an unexpected one is logged and INTERNAL."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method

        @asynccontextmanager
        async def around(_: object, context: Context) -> AsyncIterator[None]:
            try:
                yield
            except ChunkstoreError as error:
                await abort(context, error)
            except grpc.aio.AbortError:
                raise
            except Exception:
                _log.exception("call failed", method=method)
                await abort(context, InternalError())

        return around_calls(handler, around)
