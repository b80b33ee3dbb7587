"""Health: every service is SERVING exactly while the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from chunkstore.domain.errors import ChunkstoreError, NoFreeConnectionError
from chunkstore.ports.chunk_store import ChunkStore

_log = structlog.get_logger(__name__)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthMonitor:
    """Asks the store every `interval` seconds whether it answers, and sets the health of `services` and of ""."""

    def __init__(self, chunks: ChunkStore, services: Iterable[str], interval: float = 1.0) -> None:
        self.servicer = health_aio.HealthServicer()
        self._chunks = chunks
        self._services = ("", *services)
        self._interval = interval
        self._serving: bool | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(self._interval)

    async def check(self) -> None:
        """Ask once, and set the health accordingly. A store that is merely busy is serving."""
        try:
            await asyncio.wait_for(self._chunks.ping(), 5.0)
            serving = True
        except NoFreeConnectionError:
            serving = True
        except (ChunkstoreError, TimeoutError):
            serving = False
        except Exception:
            _log.exception("health check failed")
            serving = False
        if serving is self._serving:
            return
        _log.info("health changed", serving=serving)
        self._serving = serving
        for service in self._services:
            await self.servicer.set(service, _SERVING if serving else _NOT_SERVING)

    async def drain(self) -> None:
        """Say NOT_SERVING from now on, whatever the store."""
        await self.servicer.enter_graceful_shutdown()
