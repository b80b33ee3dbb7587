"""Clients that ask at the same time, in processes of their own."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.synchronize import Barrier

from bench.wire import Tenant, connect
from bench.workload import Query

MOST_PROCESSES = 4
START_TIMEOUT_S = 60.0

_start: Barrier


def queries_per_second(address: str, queries: Sequence[Query], *, clients: int, seconds: float) -> float:
    """Queries answered per second, all clients together, while each asks one after the other for that long.

    Clients are spread over at most four processes; each has a connection of its own.
    """
    processes = min(clients, MOST_PROCESSES)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(clients)
    with ProcessPoolExecutor(processes, context, _share, (barrier,)) as pool:
        shares = [clients // processes + (process < clients % processes) for process in range(processes)]
        rates = [pool.submit(_clients, address, queries, share, seconds) for share in shares]
        return sum(rate.result() for rate in rates)


def _share(barrier: Barrier) -> None:
    global _start  # noqa: PLW0603 - a barrier reaches a pool's process by its initializer only
    _start = barrier


def _clients(address: str, queries: Sequence[Query], count: int, seconds: float) -> float:
    with ThreadPoolExecutor(count) as threads:
        rates = [threads.submit(_client, address, queries, offset, seconds) for offset in range(count)]
        return sum(rate.result() for rate in rates)


def _client(address: str, queries: Sequence[Query], offset: int, seconds: float) -> float:
    with connect(address) as channel:
        tenant = Tenant(channel)
        tenant.search(queries[0])
        _start.wait(START_TIMEOUT_S)
        started = time.perf_counter()
        answered = 0
        for query in itertools.islice(itertools.cycle(queries), offset, None):
            if time.perf_counter() - started >= seconds:
                break
            tenant.search(query)
            answered += 1
        return answered / (time.perf_counter() - started)
