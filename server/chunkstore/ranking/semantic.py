"""The exact nearest vectors of segments: passes that keep every winner, then the canonical score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chunkstore.domain.similarity import Scores, Vector, cosine_scores, rounding_margin
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.first_pass import Products
from chunkstore.ranking.segment import Rows, Segment

Positions = npt.NDArray[np.intp]

# A float32 product costs so many times what one over codes does, where its vectors are gathered one by one.
_GATHERED_COST: Final = 6


class Question(NamedTuple):
    """The `limit` nearest to `vector` are asked for, of those that score `min_score`, of `allowed` rows."""

    vector: Vector
    limit: int
    min_score: float | None = None
    allowed: Allowed | None = None


def nearest(segments: Sequence[Segment], questions: Sequence[Question]) -> Iterator[list[tuple[Rows, Scores]]]:
    """For each question and segment live rows and their scores, the best `limit` of all segments among them.

    Each pass keeps every vector that may be among the best, within its own bound of error: integer codes in large
    segments, read once for all questions, then a float32 product. What is left is scored by `cosine_scores`, which
    alone decides.
    """
    units = [_unit(question.vector) for question in questions]
    products = [segment.codes.products(units) if segment.codes else [None] * len(units) for segment in segments]
    for number, (question, unit) in enumerate(zip(questions, units, strict=True)):
        yield _nearest(segments, question, unit, [of_segment[number] for of_segment in products])


def _unit(vector: Vector) -> Vector:
    unit: Vector = (vector / np.sqrt(np.square(vector, dtype=np.float64).sum())).astype(np.float32)
    return unit


def _nearest(
    segments: Sequence[Segment], question: Question, unit: Vector, products: Sequence[Products | None]
) -> list[tuple[Rows, Scores]]:
    vector, limit, min_score, allowed = question
    masks = allowed or [None] * len(segments)
    near = [
        _near(segment, product, unit, limit, mask)
        for segment, product, mask in zip(segments, products, masks, strict=True)
    ]
    everything = np.concatenate([scores for _, _, scores in near])
    kept = min(limit, everything.size)
    least = np.partition(everything, everything.size - kept)[everything.size - kept] if kept else np.float32(0.0)
    least -= np.float32(2 * rounding_margin(vector.size))
    found = []
    for segment, (positions, vectors, scores) in zip(segments, near, strict=True):
        kept_here = scores >= least
        close = positions[kept_here]
        scored = cosine_scores(vectors[kept_here], vector, segment.norms[close])
        enough = slice(None) if min_score is None else scored >= min_score
        found.append((segment.vector_rows[close][enough], scored[enough]))
    return found


def _near(
    segment: Segment, products: Products | None, unit: Vector, limit: int, allowed: npt.NDArray[np.bool_] | None
) -> tuple[Positions, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Live vectors, every one among the segment's `limit` nearest included: positions, vectors, and float32 scores."""
    live = segment.vectors_of(allowed)
    count = len(segment.vectors) if live is None else int(np.count_nonzero(live))
    if segment.codes and products and 0 < limit < count and count * _GATHERED_COST > len(segment.vectors):
        positions = segment.codes.candidates(products, limit, None if live is None else ~live)
    else:
        positions = np.arange(len(segment.vectors)) if live is None else np.flatnonzero(live)
    vectors = segment.vectors if len(positions) == len(segment.vectors) else segment.vectors[positions]
    scores: npt.NDArray[np.float32] = vectors @ unit
    scores *= segment.inverse_norms[positions]
    scores *= np.float32(0.5)
    scores += np.float32(0.5)
    return positions, vectors, scores
