"""Functions that run as machine code.

Giving up the interpreter's lock lets other threads run, and costs waiting for it again; numpy does both in every
operation on some hundred numbers. So what a query does to its candidates is compiled into few functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT) -> FunctionT:
    """`function`, of numbers and C-contiguous arrays, as machine code that lets other threads run meanwhile.

    Its arithmetic is IEEE 754's, in the order written: nothing is reassociated or contracted. It is compiled when it is
    first called with arguments of their kinds, and kept on disk, where a folder can be written, until its own file
    changes; so it may call only what is defined in that file.
    """
    return _compiled(function, nogil=True)


def compiled_briefly_run(function: FunctionT) -> FunctionT:
    """As `compiled`, but for what takes microseconds: it keeps the lock, which others would make it wait for."""
    return _compiled(function, nogil=False)


def _compiled(function: FunctionT, *, nogil: bool) -> FunctionT:
    try:
        dispatcher = numba.njit(nogil=nogil, error_model="numpy", cache=True)(function)
    except RuntimeError:
        # No folder to keep it in: each process compiles for itself.
        dispatcher = numba.njit(nogil=nogil, error_model="numpy")(function)
    return cast(FunctionT, dispatcher)
