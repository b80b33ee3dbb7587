"""What a run found, as it is written to `latest.json`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class System(_Facts):
    """One system on the workload, one client.

    `recall` is the share of this service's answer that is found too; `recall_same_fusion` that of the answer which
    fusing the exact 30 best of each channel gives. `memory_per_chunk` is absent where another process holds the index,
    `mirror_per_chunk` (this service's own count) of the peers.
    """

    p50_ms: float
    p95_ms: float
    queries_per_s: float
    index_s: float
    chunks_per_s: float
    cold_load_ms: float
    memory_per_chunk: float | None
    mirror_per_chunk: float | None
    peak_memory_bytes: int | None
    disk_per_chunk: float
    disk_ratio: float
    recall: float
    recall_same_fusion: float


class Failure(_Facts):
    """A system that could not be installed or that failed: the type of its error."""

    error: str


class SmallTenant(_Facts):
    """A query of a small tenant beside an empty call to the same server."""

    chunks: int
    query_p50_ms: float
    ratio_to_empty_call: float


class ChunksPoint(_Facts):
    """One tenant of this many chunks."""

    chunks: int
    p50_ms: float
    p95_ms: float
    chunks_per_s: float
    cold_load_ms: float
    memory_bytes: int
    mirror_bytes: int


class TenantsPoint(_Facts):
    """This many tenants of equally many chunks, all hot; queries of tenants drawn at random."""

    tenants: int
    chunks_per_tenant: int
    p50_ms: float
    p95_ms: float
    first_query_p50_ms: float
    memory_bytes: int
    mirror_bytes: int


class Results(_Facts):
    """A run. `throughput` is queries per second of this service by the number of clients."""

    machine: str
    load_average: tuple[float, float, float]
    date: str
    chunks: int
    dimension: int
    payload_per_chunk: float
    systems: dict[str, System | Failure]
    throughput: dict[str, float]
    empty_call_p50_ms: float
    small_tenant: SmallTenant
    by_chunks: list[ChunksPoint]
    by_tenants: list[TenantsPoint]

    @property
    def failures(self) -> dict[str, str]:
        """The systems that failed, with the types of their errors."""
        return {name: found.error for name, found in self.systems.items() if isinstance(found, Failure)}
