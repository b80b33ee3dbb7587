"""Cosine similarity of stored vectors: which vectors may be stored, and their one exact score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from chunkstore.domain.errors import DimensionMismatchError, InvalidVectorError

Vector = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]

MIN_NORM: Final = 1e-12
MAX_NORM: Final = 1e12
MAX_DIMENSION: Final = 16_000
# Numbers in a block of rows: 256 kB of float64.
_BLOCK_VALUES: Final = 1 << 15


def checked_vector(values: Sequence[float] | Vector, field: str, dimension: int | None = None) -> Vector:
    """Return `values` as a read-only float32 array of shape (dimension,).

    Raises DimensionMismatchError for another width; InvalidVectorError for a value that is not finite as float32 or a
    Euclidean norm outside [1e-12, 1e12], within which pgvector's float32 sums neither overflow nor vanish.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        vector = np.array(values, dtype=np.float32)
        # Squares of finite float32 values never overflow their sum in float64: a norm is finite if all values are.
        norm = math.sqrt(np.square(vector, dtype=np.float64).sum())
    if dimension is not None and vector.size != dimension:
        raise DimensionMismatchError(expected=dimension, actual=vector.size, field=field)
    if vector.ndim != 1 or vector.size == 0:
        raise InvalidVectorError(field, "must be a non-empty list of numbers")
    if not MIN_NORM <= norm <= MAX_NORM:
        if not math.isfinite(norm):
            raise InvalidVectorError(field, "holds a value that is not finite")
        raise InvalidVectorError(field, f"has a norm outside [{MIN_NORM:g}, {MAX_NORM:g}]")
    vector.flags.writeable = False
    return vector


def cosine_scores(vectors: npt.NDArray[np.float32], query: Vector, norms: Scores | None = None) -> Scores:
    """Score each row of `vectors` (n, d) against `query` (d,): `1 - cosine distance / 2`, float64 (n,), in [0, 1].

    The bits depend on the two vectors alone: products are exact in float64, and sums are taken over a fixed binary
    tree. Equal directions of the same values score exactly 1. `norms` (n,), where known, are `squared_norms(vectors)`.
    """
    scores = np.empty(len(vectors), dtype=np.float64)
    column = query.astype(np.float64)[:, np.newaxis]
    [query_norm] = squared_norms(query[np.newaxis])
    for rows in _blocks(vectors):
        columns = vectors[rows].T.astype(np.float64, order="C")
        columns *= column
        scores[rows] = _column_sums(columns)
    # sqrt(x * x) is exactly x, so that a vector's score against itself is exactly 1.
    cosines = np.clip(scores / np.sqrt((squared_norms(vectors) if norms is None else norms) * query_norm), -1.0, 1.0)
    result: Scores = 1.0 - (1.0 - cosines) / 2.0
    return result


def squared_norms(vectors: npt.NDArray[np.float32]) -> Scores:
    """The square of each row's Euclidean norm, float64 (n,), summed as `cosine_scores` sums."""
    norms = np.empty(len(vectors), dtype=np.float64)
    for rows in _blocks(vectors):
        columns = vectors[rows].T.astype(np.float64, order="C")
        columns *= columns
        norms[rows] = _column_sums(columns)
    return norms


def rounding_margin(dimension: int) -> float:
    """How far a float32 computation of a score may lie from `cosine_scores`, in any summation order.

    Standard bound n * u / (1 - n * u) for a sum of n terms (Higham, Accuracy and Stability of Numerical Algorithms,
    3.1), for the product and for both norms, with room for rounding of normalised inputs; halved as the score is.
    """
    terms = dimension + 16
    return 2.0 * terms * 2.0**-24 / (1.0 - terms * 2.0**-24)


def _blocks(vectors: npt.NDArray[np.float32]) -> Iterator[slice]:
    """Blocks of rows that stay in the processor's cache."""
    count, dimension = vectors.shape
    step = max(1, _BLOCK_VALUES // max(1, dimension))
    return (slice(start, start + step) for start in range(0, count, step))


def _column_sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum each column of a scratch array over a binary tree whose shape depends on the height alone."""
    height = len(values)
    while height > 1:
        half = (height + 1) // 2
        values[: height - half] += values[half:height]
        height = half
    sums: npt.NDArray[np.float64] = values[0]
    return sums
