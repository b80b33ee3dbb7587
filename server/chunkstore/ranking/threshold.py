"""A value that the best of many reach, found without sorting or selecting."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from chunkstore.domain.compiled import compiled

_GROUP: Final = 16
_BINS: Final = 4096


@compiled
def reached(values: npt.NDArray[np.float32], count: int, above: float) -> float:
    """A value, near the `count`-th best, that at least `count` of `values` (n,) reach; `above` where fewer exceed it.

    Values up to `above`, which is finite, are none; there are no NaNs, and `count` is at least 1. Where there are
    many, the best of each group tell first what is out: what so many of them reach, as many of all do.
    """
    groups = values.size // _GROUP
    if groups > 4 * count:
        best = values[:groups].copy()
        for member in range(1, _GROUP):
            for group in range(groups):
                best[group] = max(best[group], values[member * groups + group])
        above = _in_best_bins(best, count, above)
    kept = np.empty(values.size, np.float32)
    size = 0
    for value in values:
        # Without a branch, which would mostly be taken wrongly.
        kept[size] = value
        size += int(value > above)
    return _in_best_bins(kept[:size], count, above)


@compiled
def rows_reaching(values: npt.NDArray[np.float32], least: float) -> npt.NDArray[np.int32]:
    """The places of `values` (n,) that are at least `least`, ascending."""
    rows = np.empty(values.size, np.int32)
    size = 0
    for place in range(values.size):
        rows[size] = place
        size += int(values[place] >= least)
    return rows[:size].copy()


@compiled
def _in_best_bins(values: npt.NDArray[np.float32], count: int, above: float) -> float:
    """The least of the best values: of those in the best bins of a histogram that hold `count` together."""
    floor = np.float32(above)
    best = floor
    for value in values:
        best = max(best, value)
    width = (best - floor) / np.float32(_BINS)
    if not width > 0.0:
        return above
    counts = np.zeros(_BINS, np.int64)
    least = np.full(_BINS, best, np.float32)
    for value in values:
        if value > floor:
            place = min(int((value - floor) / width), _BINS - 1)
            counts[place] += 1
            least[place] = min(least[place], value)
    found = 0
    for place in range(_BINS - 1, -1, -1):
        found += counts[place]
        if found >= count:
            return float(least[place])
    return above
