"""Compiled functions: with a file to keep them in and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chunkstore.domain.compiled import compiled


def _halved(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(values.sum() / 2.0)


def test_a_function_computes_what_it_says() -> None:
    assert compiled(_halved)(np.array([1.0, 2.0])) == 1.5


def test_without_a_file_it_is_compiled_all_the_same() -> None:
    """What is made at run time has no folder to be kept beside, as where none can be written."""
    namespace: dict[str, Callable[[float], float]] = {}
    exec("def doubled(value):\n    return 2.0 * value", namespace)
    assert compiled(namespace["doubled"])(3.0) == 6.0


def test_a_division_by_zero_is_that_of_ieee_754() -> None:
    """Excludes Python's exception in the middle of a ranking."""
    namespace: dict[str, Callable[[float], float]] = {}
    exec("def inverse(value):\n    return 1.0 / value", namespace)
    assert compiled(namespace["inverse"])(0.0) == float("inf")
