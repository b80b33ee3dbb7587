"""How many calls run at a time, and none any more once the server drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from chunkstore.service.errors import ServerDrainingError, TooManyCallsError
from chunkstore.service.interceptors.around import Context, Continuation, Handler, around_calls, is_open


class Admission:
    """Counts running calls against a limit, and knows when the last of them has ended."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        self.draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Count a call while it runs. Raises TooManyCallsError at the limit, ServerDrainingError when draining."""
        if self.draining.is_set():
            raise ServerDrainingError
        if self.active >= self.limit:
            raise TooManyCallsError(self.limit)
        self.active += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()

    async def drain(self, grace: float) -> None:
        """Admit no more calls, and wait at most `grace` seconds for the running ones to end."""
        self.draining.set()
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            return


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Admits calls; health checks and reflection are always admitted."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        if handler is None or is_open(handler_call_details.method):
            return handler
        return around_calls(handler, self._around)

    @asynccontextmanager
    async def _around(self, _: object, __: Context) -> AsyncIterator[None]:
        async with self._admission.admitted():
            yield
