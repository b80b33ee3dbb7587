"""This service, measured over the wire: a `chunkstore serve` process on its private PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import numpy as np
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.clients import queries_per_second
from bench.measuring import Answer, Latency, Restart, answered, restarted, seconds
from bench.wire import Tenant, connect
from bench.workload import Workload
from chunkstore.adapters.postgres.embedded import EmbeddedPostgres

SMALL_TENANT_PASSES = 5

_STORED_BYTES = """
    SELECT sum(pg_total_relation_size(c.oid))::bigint
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'chunkstore' AND c.relkind = 'r'"""


class Server:
    """A `chunkstore serve` process whose private PostgreSQL keeps its data in a folder; stopped on leaving."""

    def __init__(self, folder: Path, *options: str, dimension: int) -> None:
        command = [sys.executable, "-m", "chunkstore.cli.main", "serve", "--address", "127.0.0.1:0"]
        command += ["--data-dir", str(folder), "--embeddings", "none", "--dimension", str(dimension)]
        command += ["--analyzer", "standard", *options]
        log_file = folder.with_suffix(".log")
        with log_file.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the server ended with {self._process.wait()}:\n{log_file.read_text()}")
        self.address = line.removeprefix("listening on ").strip()
        self.process = psutil.Process(self._process.pid)
        self.channel = connect(self.address)
        self._health = health_pb2_grpc.HealthStub(self.channel)
        self.empty_call()

    def empty_call(self) -> None:
        """A unary call that reads nothing and does nothing: a health check."""
        self._health.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self._process.terminate()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class ServiceFigures:
    """What one tenant's corpus costs, and the answers to the workload's queries."""

    index_s: float
    latency: Latency
    restart: Restart
    mirror_bytes: int
    stored_bytes: int
    answers: list[Answer]
    answers_as_peers_fuse: list[Answer]


def measure_service(workload: Workload, folder: Path) -> ServiceFigures:
    """Index a workload into an empty folder, ask, and ask again after a restart."""
    dimension = workload.vectors.shape[1]
    with Server(folder, dimension=dimension) as server:
        tenant = Tenant(server.channel)
        index_s = seconds(tenant.index, workload)
        answers, latency = answered(tenant.search, workload.queries)
        as_peers_fuse = [tenant.search_as_peers_do(query) for query in workload.queries]
    with EmbeddedPostgres(folder) as dsn:
        stored_bytes = asyncio.run(_stored_bytes(dsn))
    with Server(folder, dimension=dimension) as server:
        tenant = Tenant(server.channel)
        restart = restarted(lambda: None, tenant.search, workload.queries, server.process)
        mirror_bytes = tenant.mirror().size_bytes
    return ServiceFigures(index_s, latency, restart, mirror_bytes, stored_bytes, answers, as_peers_fuse)


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Queries per second by number of clients; p50 of an empty call and of a small tenant's query in milliseconds."""

    throughput: dict[str, float]
    empty_call_p50_ms: float
    small_tenant_p50_ms: float


def measure_load(
    workload: Workload, folder: Path, *, clients: Sequence[int], duration: float, small: Workload
) -> LoadFigures:
    """Clients at the same time, on a folder in which `workload` is indexed; then `small`, as a tenant of its own.

    The small tenant and the health service are asked in turn.
    """
    with Server(folder, dimension=workload.vectors.shape[1]) as server:
        throughput = {
            str(count): queries_per_second(server.address, workload.queries, clients=count, seconds=duration)
            for count in clients
        }
        tenant = Tenant(server.channel, "small")
        tenant.index(small)
        for query in small.queries:
            tenant.search(query)
        pairs = [
            (seconds(server.empty_call), seconds(tenant.search, query))
            for _ in range(SMALL_TENANT_PASSES)
            for query in small.queries
        ]
    empty, small_p50 = np.median(pairs, axis=0) * 1e3
    return LoadFigures(throughput, float(empty), float(small_p50))


async def _stored_bytes(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("VACUUM")
        await connection.execute("CHECKPOINT")
        return int(await connection.fetchval(_STORED_BYTES))
    finally:
        await connection.close()
