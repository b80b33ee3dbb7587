"""The exact nearest vectors of segments: a pass that keeps every winner, then the canonical score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chunkstore.domain.similarity import Scores, Vector, cosine_scores
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.first_pass import Products
from chunkstore.ranking.parallel import in_parts, parts
from chunkstore.ranking.segment import Rows, Segment

Positions = npt.NDArray[np.int32]

# The canonical score of a vector costs so many times what the pass over its codes does.
_SCORE_COST: Final = 12
# Fewer are scored in the time that it takes to share them out.
_LEAST_ROWS: Final = 512


class Question(NamedTuple):
    """The `limit` nearest to `vector` are asked for, of those that score `min_score`, of `allowed` rows."""

    vector: Vector
    limit: int
    min_score: float | None = None
    allowed: Allowed | None = None


def nearest(segments: Sequence[Segment], questions: Sequence[Question]) -> Iterator[list[tuple[Rows, Scores]]]:
    """For each question and segment live rows and their scores, the best `limit` of all segments among them.

    In large segments integer codes, read once for all questions, leave what may be among the best, within their own
    bound of error, and what the segments before have been found to hold. What is left is scored by `cosine_scores`,
    which alone decides.
    """
    units = [_unit(question.vector) for question in questions]
    products = [segment.codes.products(units) if segment.codes else [None] * len(units) for segment in segments]
    for number, question in enumerate(questions):
        masks = question.allowed or [None] * len(segments)
        found: list[tuple[Rows, Scores]] = []
        for segment, of_segment, mask in zip(segments, products, masks, strict=True):
            least = _least([scores for _, scores in found], question.limit)
            found.append(_scored(segment, of_segment[number], question, mask, least, alone=len(questions) == 1))
        yield found


def _least(scores: Sequence[Scores], limit: int) -> float:
    """The `limit`-th best of the scores found so far, 0 where there are fewer, which no score is below."""
    found = sum(map(len, scores))
    if not 0 < limit <= found:
        return 0.0
    return float(np.partition(np.concatenate(scores), found - limit)[found - limit])


def _unit(vector: Vector) -> Vector:
    unit: Vector = (vector / np.sqrt(np.square(vector, dtype=np.float64).sum())).astype(np.float32)
    return unit


def _scored(
    segment: Segment,
    products: Products | None,
    question: Question,
    allowed: npt.NDArray[np.bool_] | None,
    least: float,
    *,
    alone: bool,
) -> tuple[Rows, Scores]:
    """Live rows that score `min_score`, and their scores.

    Every one among the segment's `limit` nearest is included, unless it scores less than `least`.
    """
    positions = _contending(segment, products, question.limit, allowed, least)
    shares = parts(len(positions), _LEAST_ROWS)

    def scored(part: int) -> Scores:
        return cosine_scores(segment.vectors, question.vector, rows=positions[shares[part]], norms=segment.norms)

    scores = np.concatenate(in_parts(scored, len(shares), at_once=alone))
    enough = slice(None) if question.min_score is None else scores >= question.min_score
    return segment.vector_rows[positions[enough]], scores[enough]


def _contending(
    segment: Segment, products: Products | None, limit: int, allowed: npt.NDArray[np.bool_] | None, least: float
) -> Positions:
    """Live vectors, every one that scores `least` among the segment's `limit` nearest included."""
    live = segment.vectors_of(allowed)
    count = int(np.count_nonzero(live)) if live.size else len(segment.vectors)
    if segment.codes and products and 0 < limit < count and count * _SCORE_COST > len(segment.vectors):
        return segment.codes.candidates(products, limit, live, 2.0 * least - 1.0)
    return np.flatnonzero(live).astype(np.int32) if live.size else np.arange(count, dtype=np.int32)
