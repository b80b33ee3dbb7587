"""Cosine similarity of stored vectors: which vectors may be stored, and their one exact score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from chunkstore.domain.compiled import compiled
from chunkstore.domain.errors import DimensionMismatchError, InvalidVectorError

Vector = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]

MIN_NORM: Final = 1e-12
MAX_NORM: Final = 1e12
MAX_DIMENSION: Final = 16_000


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


def cosine_scores(
    vectors: npt.NDArray[np.float32],
    query: Vector,
    *,
    rows: npt.NDArray[np.int32] | None = None,
    norms: Scores | None = None,
) -> Scores:
    """Score rows of `vectors` (n, d) against `query` (d,): `1 - cosine distance / 2`, float64 (m,), in [0, 1].

    The bits depend on the two vectors alone: products are exact in float64, and sums are taken over a fixed binary
    tree. Equal directions of the same values score exactly 1. `rows` (m,) are those to score, None for all in order.
    `norms` (n,), where known, are `squared_norms(vectors)`.
    """
    stored = np.require(vectors, np.float32, ["C", "W"])
    scored = np.arange(len(stored), dtype=np.int32) if rows is None else rows
    return _cosine_scores(stored, scored, squared_norms(stored) if norms is None else norms, query.astype(np.float64))


def squared_norms(vectors: npt.NDArray[np.float32]) -> Scores:
    """The square of each row's Euclidean norm, float64 (n,), summed as `cosine_scores` sums."""
    return _squares(np.require(vectors, np.float32, ["C", "W"]))


def rounding_margin(dimension: int) -> float:
    """How far a float32 computation of a score may lie from `cosine_scores`, in any summation order.

    Standard bound n * u / (1 - n * u) for a sum of n terms (Higham, Accuracy and Stability of Numerical Algorithms,
    3.1), for the product and for both norms, with room for rounding of normalised inputs; halved as the score is.
    """
    terms = dimension + 16
    return 2.0 * terms * 2.0**-24 / (1.0 - terms * 2.0**-24)


@compiled
def _cosine_scores(
    vectors: npt.NDArray[np.float32], rows: npt.NDArray[np.int32], norms: Scores, query: Scores
) -> Scores:
    scores = np.empty(rows.size, np.float64)
    query_norm = _summed(query * query)
    values = np.empty(query.size, np.float64)
    for place in range(rows.size):
        row = rows[place]
        for column in range(query.size):
            values[column] = vectors[row, column] * query[column]
        # sqrt(x * x) is exactly x, so that a vector's score against itself is exactly 1.
        cosine = _summed(values) / np.sqrt(norms[row] * query_norm)
        scores[place] = 1.0 - (1.0 - min(max(cosine, -1.0), 1.0)) / 2.0
    return scores


@compiled
def _squares(vectors: npt.NDArray[np.float32]) -> Scores:
    squares = np.empty(vectors.shape[0], np.float64)
    values = np.empty(vectors.shape[1], np.float64)
    for row in range(vectors.shape[0]):
        for column in range(vectors.shape[1]):
            values[column] = np.float64(vectors[row, column]) * np.float64(vectors[row, column])
        squares[row] = _summed(values)
    return squares


@compiled
def _summed(values: Scores) -> float:
    """The sum of a scratch array over a binary tree whose shape depends on its size alone."""
    size = values.size
    while size > 1:
        half = (size + 1) // 2
        for place in range(size - half):
            values[place] += values[half + place]
        size = half
    return float(values[0])
