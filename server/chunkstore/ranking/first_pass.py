"""A compact first pass over vectors: int8 codes whose error is known, so that no true winner is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numkong
import numpy as np
import numpy.typing as npt

from chunkstore.domain.compiled import compiled
from chunkstore.domain.similarity import Scores, Vector
from chunkstore.ranking.parallel import in_parts, parts
from chunkstore.ranking.threshold import reached, rows_reaching

# Below this many vectors the canonical score of all is as fast.
MIN_VECTORS: Final = 1024

_LEVELS: Final = 127
# Fewer codes are read in the time that it takes to share them out.
_LEAST_ROWS: Final = 16_384
# Room for the rounding of the bounds themselves, in float32.
_SLACK: Final = 4e-6
_STRETCH: Final = 1.001
# No bound of a cosine is as low: codes leave out less than all of a vector.
_BELOW_ALL: Final = -4.0


@dataclass(frozen=True, slots=True)
class Products:
    """A query's codes, and the finer ones of what they leave out, times those of every vector.

    `values` are (2, n) int32 of each part of the vectors, one after the other. `units` (2,) are the values of the
    query's codes, `error` bounds what both leave out.
    """

    values: list[npt.NDArray[np.int32]]
    units: npt.NDArray[np.float32]
    error: np.float32


class Codes:
    """int8 codes of `vectors` (e, d) of `squared_norms` (e,), each vector by its own scale; 1 byte a dimension.

    Products of codes are exact integers. Safe for threads.
    """

    def __init__(self, vectors: npt.NDArray[np.float32], squared_norms: Scores) -> None:
        codes, self._units, self._errors = _coded(vectors, (1.0 / np.sqrt(squared_norms)).astype(np.float32))
        self._packed = [numkong.dots_pack(codes[part], dtype="int8") for part in parts(len(vectors), _LEAST_ROWS)]

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(part.nbytes for part in self._packed) + self._units.nbytes + self._errors.nbytes

    def products(self, queries: Sequence[Vector]) -> list[Products]:
        """The products of each query, a unit vector; the codes are read once for all, by all cores for a lone one."""
        coded = [_twice_coded(query) for query in queries]
        codes = np.concatenate([codes for codes, _, _ in coded])
        found = in_parts(
            lambda part: np.asarray(numkong.dots_packed(codes, self._packed[part])),
            len(self._packed),
            at_once=len(queries) == 1,
        )
        return [
            Products([values[2 * number : 2 * number + 2] for values in found], units, error)
            for number, (_, units, error) in enumerate(coded)
        ]

    def candidates(
        self, products: Products, kept: int, live: npt.NDArray[np.bool_], least: float = -1.0
    ) -> npt.NDArray[np.int32]:
        """Every row, ascending, that may be among the `kept` of highest cosine with the query of `products`.

        Those whose cosine must be below `least` are left out. `live` (e,) marks the rows that count, empty where all
        do; `kept` is at least 1 and at most their number. The cosine of a row differs from its codes' by at most the
        two parts left out (Cauchy-Schwarz), so a row whose upper bound is below the `kept`-th best lower bound is not
        among them.
        """
        lowest, highest = np.empty_like(self._units), np.empty_like(self._units)
        start = 0
        for coarse, fine in products.values:
            part = slice(start, start + coarse.size)
            _bound(
                lowest[part],
                highest[part],
                coarse,
                fine,
                products.units,
                products.error,
                self._units[part],
                self._errors[part],
                live[part],
            )
            start = part.stop
        return rows_reaching(highest, max(reached(lowest, kept, _BELOW_ALL), least))


@compiled
def _bound(
    lowest: npt.NDArray[np.float32],
    highest: npt.NDArray[np.float32],
    coarse: npt.NDArray[np.int32],
    fine: npt.NDArray[np.int32],
    query_units: npt.NDArray[np.float32],
    query_error: np.float32,
    units: npt.NDArray[np.float32],
    errors: npt.NDArray[np.float32],
    live: npt.NDArray[np.bool_],
) -> None:
    """Set the least and the most that the cosine with the query can be, of one part of the rows."""
    coarse_unit, fine_unit = query_units
    for row in range(units.size):
        cosine = (np.float32(coarse[row]) * coarse_unit + np.float32(fine[row]) * fine_unit) * units[row]
        margin = errors[row] * (np.float32(1.0) + query_error) + query_error + np.float32(_SLACK)
        lowest[row], highest[row] = cosine - margin, cosine + margin
    for row in range(live.size):
        if not live[row]:
            lowest[row] = highest[row] = -np.inf


def _twice_coded(unit: Vector) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], np.float32]:
    """A unit vector's codes and those of what they leave out (2, d), each one's unit (2,), and a bound of the rest.

    A second row costs the kernel next to nothing, and a vector's bound is then as good as that of its own codes.
    """
    once = np.ones(1, dtype=np.float32)
    codes, units, _ = _coded(unit[np.newaxis], once)
    finer, finer_units, [error] = _coded(unit[np.newaxis] - codes * units[:, np.newaxis], once)
    return np.concatenate([codes, finer]), np.concatenate([units, finer_units]), error


@compiled
def _coded(
    vectors: npt.NDArray[np.float32], factors: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Codes (n, d) of vectors times their factors (n,), each one's code unit (n,), and a bound of what is left out."""
    codes = np.zeros(vectors.shape, np.int8)
    units, errors = np.zeros(len(vectors), np.float32), np.full(len(vectors), _SLACK, np.float32)
    for row in range(len(vectors)):
        largest = np.float32(0.0)
        for column in range(vectors.shape[1]):
            largest = max(largest, abs(vectors[row, column] * factors[row]))
        units[row] = largest / np.float32(_LEVELS)
        if not units[row] > 0.0:
            continue
        left_out = 0.0
        for column in range(vectors.shape[1]):
            value = vectors[row, column] * factors[row]
            code = np.rint(value / units[row])
            codes[row, column] = np.int8(code)
            rest = np.float64(value - code * units[row])
            left_out += rest * rest
        errors[row] = np.float32(np.sqrt(left_out)) * np.float32(_STRETCH) + np.float32(_SLACK)
    return codes, units, errors
