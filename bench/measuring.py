"""How everything is measured: the same passes, percentiles and memory for this service and for its peers."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec

import numpy as np
import psutil

from bench.workload import Query

K = 10
MOST_PASSES = 5
ENOUGH_S = 3.0
MEMORY_QUERIES = 20

P = ParamSpec("P")

Answer = list[int]
"""Numbers of the chunks found, best first."""
Search = Callable[[Query], Answer]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a query, one client."""

    p50_ms: float
    p95_ms: float
    queries_per_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """The percentiles of some queries' seconds, of which there is one at least."""
        p50, p95 = np.percentile(seconds, (50, 95)) * 1e3
        return cls(float(p50), float(p95), len(seconds) / sum(seconds))


@dataclass(frozen=True, slots=True)
class Restart:
    """What the first queries after a restart cost: milliseconds above a warm query, and bytes of memory."""

    cold_load_ms: float
    memory_bytes: int


def answered(search: Search, queries: Sequence[Query]) -> tuple[list[Answer], Latency]:
    """The answers of a first pass over the queries, and the latency of further ones.

    These are at most five, and none begins once they have taken three seconds.
    """
    answers = [search(query) for query in queries]
    spent: list[float] = []
    while sum(spent) < ENOUGH_S and len(spent) < MOST_PASSES * len(queries):
        spent += [seconds(search, query) for query in queries]
    return answers, Latency.of(spent)


def seconds(action: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    action(*arguments, **options)
    return time.perf_counter() - started


def restarted(
    open_store: Callable[[], None], search: Search, queries: Sequence[Query], process: psutil.Process
) -> Restart:
    """Open a store that an earlier process filled, and ask: the first query twice, then some more.

    `memory_bytes` is what `process` has grown by between then and the start.
    """
    before = resident_bytes(process)
    cold = seconds(open_store) + seconds(search, queries[0])
    warm = seconds(search, queries[0])
    for query in queries[:MEMORY_QUERIES]:
        search(query)
    return Restart((cold - warm) * 1e3, resident_bytes(process) - before)


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory of a process and of those it has started."""
    return sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))


def recall(answers: Sequence[Answer], truth: Sequence[Answer]) -> float:
    """The share of the true chunks that the answers hold, averaged over the queries."""
    return float(np.mean([len({*found} & {*true}) / len(true) for found, true in zip(answers, truth, strict=True)]))


def folder_bytes(folder: Path) -> int:
    """Bytes on disk of all files below a folder."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def machine() -> str:
    """CPU model, cores, memory, operating system and Python."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{_cpu_model()}, {psutil.cpu_count()} cores, {memory:.0f} GiB memory, {_system()}, "
        f"Python {platform.python_version()}"
    )


def _cpu_model() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return f"{platform.system()} {platform.release()}"
