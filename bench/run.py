"""One run: this service, every peer, and the curves of growth, one after the other."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.growth import at_chunks, by_tenants, chunks_point
from bench.measuring import Latency, Restart, machine, recall
from bench.peer_process import PeerFailedError, measure_peer
from bench.results import ChunksPoint, Failure, Results, SmallTenant, System, TenantsPoint
from bench.service import ServiceFigures, measure_load, measure_service
from bench.workload import Workload

NAME = "chunkstore"
CLIENTS = (1, 16)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much a run measures."""

    chunks: int
    small_tenant_chunks: int
    throughput_s: float
    growth_chunks: tuple[int, ...]
    growth_tenants: tuple[int, ...]
    peers: tuple[str, ...]
    dimension: int


def run(plan: Plan) -> Results:
    """Measure all that `plan` names, and tell the progress on stdout."""
    load_average = os.getloadavg()
    workload = Workload.generate(plan.chunks, plan.dimension)
    payload = workload.payload_bytes
    with _step(NAME) as folder:
        figures = measure_service(workload, folder / "postgres")
        load = measure_load(
            workload,
            folder / "postgres",
            clients=CLIENTS,
            duration=plan.throughput_s,
            small=workload.first(plan.small_tenant_chunks),
        )
    systems: dict[str, System | Failure] = {NAME: _own(figures, len(workload), payload)}
    systems |= dict(_peers(plan.peers, workload, payload, figures))
    return Results(
        machine=machine(),
        load_average=load_average,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        chunks=len(workload),
        dimension=plan.dimension,
        payload_per_chunk=payload / len(workload),
        systems=systems,
        throughput=load.throughput,
        empty_call_p50_ms=load.empty_call_p50_ms,
        small_tenant=SmallTenant(
            chunks=min(plan.small_tenant_chunks, len(workload)),
            query_p50_ms=load.small_tenant_p50_ms,
            ratio_to_empty_call=load.small_tenant_p50_ms / load.empty_call_p50_ms,
        ),
        by_chunks=_by_chunks(plan, figures),
        by_tenants=_by_tenants(plan),
    )


def _own(figures: ServiceFigures, chunks: int, payload: int) -> System:
    return _system(
        chunks,
        payload,
        index_s=figures.index_s,
        latency=figures.latency,
        restart=figures.restart,
        mirror_per_chunk=figures.mirror_bytes / chunks,
        stored_bytes=figures.stored_bytes,
        recall=1.0,
        recall_same_fusion=recall(figures.answers, figures.answers_as_peers_fuse),
    )


def _peers(
    names: Sequence[str], workload: Workload, payload: int, own: ServiceFigures
) -> Iterator[tuple[str, System | Failure]]:
    if not names:
        return
    with TemporaryDirectory(prefix="chunkstore-bench-") as shared:
        workload.save(Path(shared))
        for name in names:
            with _step(name) as folder:
                yield name, _peer(name, Path(shared), folder, len(workload), payload, own)


def _peer(
    name: str, workload_folder: Path, folder: Path, chunks: int, payload: int, own: ServiceFigures
) -> System | Failure:
    try:
        indexed, reopened = measure_peer(name, workload_folder, folder)
    except PeerFailedError as error:
        return Failure(error=error.kind)
    return _system(
        chunks,
        payload,
        index_s=indexed.index_s,
        latency=indexed.latency,
        restart=reopened.restart,
        stored_bytes=reopened.stored_bytes,
        recall=recall(indexed.answers, own.answers),
        recall_same_fusion=recall(indexed.answers, own.answers_as_peers_fuse),
        in_process=reopened.in_process,
        peak_memory_bytes=indexed.peak_bytes if reopened.in_process else None,
    )


def _system(
    chunks: int,
    payload: int,
    *,
    index_s: float,
    latency: Latency,
    restart: Restart,
    stored_bytes: int,
    recall: float,
    recall_same_fusion: float,
    in_process: bool = True,
    mirror_per_chunk: float | None = None,
    peak_memory_bytes: int | None = None,
) -> System:
    return System(
        p50_ms=latency.p50_ms,
        p95_ms=latency.p95_ms,
        queries_per_s=latency.queries_per_s,
        index_s=index_s,
        chunks_per_s=chunks / index_s,
        cold_load_ms=restart.cold_load_ms,
        memory_per_chunk=restart.memory_bytes / chunks if in_process else None,
        mirror_per_chunk=mirror_per_chunk,
        peak_memory_bytes=peak_memory_bytes,
        disk_per_chunk=stored_bytes / chunks,
        disk_ratio=stored_bytes / payload,
        recall=recall,
        recall_same_fusion=recall_same_fusion,
    )


def _by_chunks(plan: Plan, whole: ServiceFigures) -> list[ChunksPoint]:
    points = [chunks_point(plan.chunks, whole)]
    for chunks in plan.growth_chunks:
        with _step(f"{chunks} chunks") as folder:
            points.append(at_chunks(chunks, plan.dimension, folder / "postgres"))
    return sorted(points, key=lambda point: point.chunks)


def _by_tenants(plan: Plan) -> list[TenantsPoint]:
    if not plan.growth_tenants:
        return []
    with _step(f"{max(plan.growth_tenants)} tenants") as folder:
        return by_tenants(plan.growth_tenants, plan.dimension, folder / "postgres")


@contextmanager
def _step(name: str) -> Iterator[Path]:
    """A folder that is removed at the end; says what is under way, and how long it took."""
    print(f"{name} ...", end=" ", flush=True)
    started = time.perf_counter()
    with TemporaryDirectory(prefix="chunkstore-bench-") as folder:
        yield Path(folder)
    print(f"{time.perf_counter() - started:.0f} s", flush=True)
