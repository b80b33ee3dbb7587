"""Work on many rows, shared out among the processor's cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")

_CORES: Final = os.cpu_count() or 1
# One core less: who shares work out takes a part of it.
_HELPERS: Final = ThreadPoolExecutor(max(1, _CORES - 1), thread_name_prefix="ranking-part")


def parts(count: int, least: int) -> list[slice]:
    """`count` rows in as many parts of about the same size as there are cores, but of no fewer than `least` rows each.

    One part where there are fewer; none is empty but that of no rows.
    """
    number = max(1, min(_CORES, count // least))
    return [slice(count * part // number, count * (part + 1) // number) for part in range(number)]


def in_parts(work: Callable[[int], ResultT], number: int, *, at_once: bool = True) -> list[ResultT]:
    """What `work` makes of each part, numbered from 0, in order; the first in this thread, the others beside it.

    Unless they are to run `at_once`, all in this thread: sharing work out pays where cores are idle. `work` waits for
    no other work, and lets other threads run: compiled functions and products of matrices do.
    """
    if not at_once:
        return [work(part) for part in range(number)]
    others = [_HELPERS.submit(work, part) for part in range(1, number)]
    return [work(0), *(other.result() for other in others)]
