"""A compact first pass over vectors: int8 codes whose error is known, so that no true winner is lost."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import numkong
import numpy as np
import numpy.typing as npt

from chunkstore.domain.similarity import Vector

# Below this many vectors the float32 product is as fast.
MIN_VECTORS: Final = 8192

_LEVELS: Final = 127
# Few enough for a core's own cache.
_ROWS_AT_ONCE: Final = 256
_MOST_AT_ONCE: Final = 32
# Room for the rounding of the bounds themselves, in float32.
_SLACK: Final = 4e-6
_STRETCH: Final = 1.001


@dataclass(slots=True)
class _Request:
    codes: npt.NDArray[np.int8]
    products: npt.NDArray[np.int32] | None = None


class Codes:
    """int8 codes of `vectors` (e, d), each vector by its own scale; 1 byte a dimension.

    Products of codes are exact integers. Queries that come while a product is being computed are answered together by
    the next one, which reads the codes once for all of them; a lone query waits for nobody. Safe for threads.
    """

    def __init__(self, vectors: npt.NDArray[np.float32], inverse_norms: npt.NDArray[np.float32]) -> None:
        count, dimension = vectors.shape
        codes = np.empty((count, dimension), dtype=np.int8)
        # Of a vector divided by its norm: the value of a code's unit, and the norm of what the codes leave out.
        self._units = np.empty(count, dtype=np.float32)
        self._errors = np.empty(count, dtype=np.float32)
        for start in range(0, count, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            unit_vectors = vectors[rows] * inverse_norms[rows, np.newaxis]
            codes[rows], self._units[rows], self._errors[rows] = _coded(unit_vectors)
        self._packed = numkong.dots_pack(codes, dtype="int8")
        self._pending: list[_Request] = []
        self._computing = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._packed.nbytes + self._units.nbytes + self._errors.nbytes

    def candidates(self, unit: Vector, kept: int, dead: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.intp]:
        """Every row that may be among the `kept` of highest cosine with the unit vector `unit`, ascending.

        `dead` (e,) marks rows that are none; `kept` is at least 1 and at most the number of the others. The cosine of a
        row differs from its codes' by at most the two parts left out (Cauchy-Schwarz), so a row whose upper bound is
        below the `kept`-th best lower bound cannot be among them.
        """
        codes, units, query_error = _twice_coded(unit)
        first, second = self._products(codes)
        cosines = first.astype(np.float32)
        cosines *= units[0]
        cosines += second.astype(np.float32) * units[1]
        cosines *= self._units
        errors = self._errors * (np.float32(1.0) + query_error)
        errors += query_error + np.float32(_SLACK)
        if dead is not None:
            cosines[dead] = -np.inf
        lower = cosines - errors
        least = np.partition(lower, lower.size - kept)[lower.size - kept]
        cosines += errors
        return np.flatnonzero(cosines >= least)

    def _products(self, codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
        """The products (2, e) of two rows of codes (2, d) with those of every vector."""
        request = _Request(codes)
        self._pending.append(request)
        with self._computing:
            if request.products is None:
                self._compute()
        assert request.products is not None
        return request.products

    def _compute(self) -> None:
        """Answer what is pending, which holds the caller's request."""
        while self._pending:
            batch = self._pending[:_MOST_AT_ONCE]
            del self._pending[: len(batch)]
            codes = np.concatenate([request.codes for request in batch])
            products = np.asarray(numkong.dots_packed(codes, self._packed))
            for number, request in enumerate(batch):
                request.products = products[2 * number : 2 * number + 2]


def _twice_coded(unit: Vector) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], np.float32]:
    """A unit vector's codes and those of what they leave out (2, d), each one's unit (2,), and a bound of the rest.

    A second row costs the kernel next to nothing, and a vector's bound is then as good as that of its own codes.
    """
    codes, units, _ = _coded(unit[np.newaxis])
    rest = unit[np.newaxis] - codes * units[:, np.newaxis]
    if not rest.any():
        return np.concatenate([codes, codes]), np.array([units[0], 0.0], dtype=np.float32), np.float32(_SLACK)
    finer, finer_units, [error] = _coded(rest)
    return np.concatenate([codes, finer]), np.concatenate([units, finer_units]), error


def _coded(
    unit_vectors: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Codes (n, d) of unit vectors, the value of each one's code unit (n,), and a bound of what they leave out (n,)."""
    units = np.abs(unit_vectors).max(axis=1) / np.float32(_LEVELS)
    codes = np.rint(unit_vectors / units[:, np.newaxis])
    rest = unit_vectors - codes * units[:, np.newaxis]
    errors = np.sqrt(np.einsum("ij,ij->i", rest, rest)) * np.float32(_STRETCH) + np.float32(_SLACK)
    return codes.astype(np.int8), units, errors
