"""Each peer in a process of its own, so that its memory is its own, and its failure too."""

from __future__ import annotations

import multiprocessing
import resource
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import psutil

from bench.measuring import Answer, Latency, Restart, answered, restarted, seconds
from bench.peers import PEERS
from bench.workload import Workload

TIMEOUT_S = 3600.0

T = TypeVar("T")


class PeerFailedError(Exception):
    """A peer could not be installed or failed; `kind` is the type of its error."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexing and asking in the same process gave; `peak_bytes` is the most memory that it took."""

    index_s: float
    latency: Latency
    answers: list[Answer]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Reopened:
    """What a second process found; `restart.memory_bytes` is the whole peer's where it runs `in_process`."""

    restart: Restart
    stored_bytes: int
    in_process: bool


def measure_peer(name: str, workload_folder: Path, folder: Path) -> tuple[Indexed, Reopened]:
    """Index the workload with a peer and ask, then ask again in a new process. Raises PeerFailedError."""
    return _in_process(_index, name, workload_folder, folder), _in_process(_reopen, name, workload_folder, folder)


def _index(name: str, workload_folder: Path, folder: Path) -> Indexed:
    workload = Workload.load(workload_folder)
    with closing(PEERS[name](folder)) as peer:
        index_s = seconds(peer.index, workload)
        answers, latency = answered(peer.search, workload.queries)
    return Indexed(index_s, latency, answers, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _reopen(name: str, workload_folder: Path, folder: Path) -> Reopened:
    queries = Workload.load(workload_folder).queries
    with closing(PEERS[name](folder)) as peer:
        restart = restarted(peer.open, peer.search, queries, psutil.Process())
        return Reopened(restart, peer.stored_bytes(), peer.in_process)


def _in_process(function: Callable[[str, Path, Path], T], name: str, workload_folder: Path, folder: Path) -> T:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, name, workload_folder, folder))
    process.start()
    sender.close()
    try:
        if not receiver.poll(TIMEOUT_S):
            raise PeerFailedError(TimeoutError.__name__)
        result: T | PeerFailedError = receiver.recv()
    except EOFError:
        raise PeerFailedError("ProcessDied") from None
    finally:
        process.kill()
        process.join()
    if isinstance(result, PeerFailedError):
        raise result
    return result


def _send(
    sender: Connection,
    function: Callable[[str, Path, Path], object],
    name: str,
    workload_folder: Path,
    folder: Path,
) -> None:
    try:
        sender.send(function(name, workload_folder, folder))
    except Exception as error:
        traceback.print_exc()
        sender.send(PeerFailedError(type(error).__name__))
