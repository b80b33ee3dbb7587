"""The console's HTTP server, on the loop of the gRPC server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import uvicorn

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.service.addresses import checked_address
from chunkstore.service.console.app import console_app

# The server itself has let running calls end by then.
_GRACE_S = 1


class Console:
    """The page at one loopback address; `start` serves it, `stop` ends it, both once.

    Raises InvalidFieldError for an address that is not loopback, or that cannot be bound.
    """

    def __init__(self, address: str) -> None:
        self._host, port = checked_address(address, "console")
        family = socket.AF_INET6 if self._host.startswith("[") else socket.AF_INET
        try:
            self._socket = socket.create_server((self._host.strip("[]"), port), family=family)
        except OSError:
            raise InvalidFieldError("console", "cannot be bound") from None

    def start(self, server_address: str) -> str:
        """Serve the console of the server at `server_address`, and return its URL."""
        # The address is this process's own: no proxy knows it.
        options = (("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1))
        self._channel = grpc.aio.insecure_channel(server_address, options=options)
        config = uvicorn.Config(
            console_app(self._channel),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        return f"http://{self._host}:{self._socket.getsockname()[1]}/"

    async def stop(self) -> None:
        """Answer nobody any more. Stop the gRPC server first: it lets running calls end."""
        self._server.should_exit = True
        await self._serving
        await self._channel.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command."""
        yield
