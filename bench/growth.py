"""How latency and memory grow with the chunks of a tenant and with the number of tenants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.measuring import Latency, resident_bytes, seconds
from bench.results import ChunksPoint, TenantsPoint
from bench.service import Server, ServiceFigures, measure_service
from bench.wire import Tenant
from bench.workload import Workload

CHUNKS_PER_TENANT = 1000
RANDOM_QUERIES = 500
# So that every tenant stays hot; what the default does past its budget is to load again.
MIRROR_MEMORY = 8 * 2**30


def at_chunks(chunks: int, dimension: int, folder: Path) -> ChunksPoint:
    """One tenant of that many chunks, in an empty folder."""
    return chunks_point(chunks, measure_service(Workload.generate(chunks, dimension), folder))


def chunks_point(chunks: int, figures: ServiceFigures) -> ChunksPoint:
    """The point of the curve that a measurement is."""
    return ChunksPoint(
        chunks=chunks,
        p50_ms=figures.latency.p50_ms,
        p95_ms=figures.latency.p95_ms,
        chunks_per_s=chunks / figures.index_s,
        cold_load_ms=figures.restart.cold_load_ms,
        memory_bytes=figures.restart.memory_bytes,
        mirror_bytes=figures.mirror_bytes,
    )


def by_tenants(counts: Sequence[int], dimension: int, folder: Path) -> list[TenantsPoint]:
    """That many tenants of 1,000 chunks each on one server, in an empty folder; `counts` ascend."""
    workload = Workload.generate(CHUNKS_PER_TENANT, dimension)
    with Server(folder, dimension=dimension) as server:
        for number in range(max(counts)):
            Tenant(server.channel, _name(number)).index(workload)
    return [_at_tenants(count, workload, folder) for count in counts]


def _at_tenants(count: int, workload: Workload, folder: Path) -> TenantsPoint:
    random = np.random.default_rng(count)
    with Server(folder, "--mirror-memory", str(MIRROR_MEMORY), dimension=workload.vectors.shape[1]) as server:
        before = resident_bytes(server.process)
        tenants = [Tenant(server.channel, _name(number)) for number in range(count)]
        first = Latency.of([seconds(tenant.search, workload.queries[0]) for tenant in tenants])
        asked = random.integers((count, len(workload.queries)), size=(RANDOM_QUERIES, 2))
        latency = Latency.of([seconds(tenants[tenant].search, workload.queries[query]) for tenant, query in asked])
        return TenantsPoint(
            tenants=count,
            chunks_per_tenant=CHUNKS_PER_TENANT,
            p50_ms=latency.p50_ms,
            p95_ms=latency.p95_ms,
            first_query_p50_ms=first.p50_ms,
            memory_bytes=resident_bytes(server.process) - before,
            mirror_bytes=tenants[0].mirror().memory_used_bytes,
        )


def _name(number: int) -> str:
    return f"tenant-{number}"
