"""The exact nearest vectors of segments: passes that keep every winner, then the canonical score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from chunkstore.domain.similarity import Scores, Vector, cosine_scores, rounding_margin
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.segment import Rows, Segment

Positions = npt.NDArray[np.intp]

# A float32 product costs so many times what one over codes does, where its vectors are gathered one by one.
_GATHERED_COST: Final = 6


def nearest(
    segments: Sequence[Segment], vector: Vector, limit: int, allowed: Allowed | None = None
) -> list[tuple[Rows, Scores]]:
    """For each segment live rows and their scores by `cosine_scores`, the best `limit` of all segments among them.

    With `allowed`, of those rows alone.

    Each pass keeps every vector that may be among the best, within its own bound of error: integer codes in large
    segments, then a float32 product. What is left is scored by the canonical function, which alone decides.
    """
    unit = (vector / np.sqrt(np.square(vector, dtype=np.float64).sum())).astype(np.float32)
    masks = allowed or [None] * len(segments)
    near = [_near(segment, unit, limit, mask) for segment, mask in zip(segments, masks, strict=True)]
    everything = np.concatenate([scores for _, _, scores in near])
    kept = min(limit, everything.size)
    least = np.partition(everything, everything.size - kept)[everything.size - kept] if kept else np.float32(0.0)
    least -= np.float32(2 * rounding_margin(vector.size))
    found = []
    for segment, (positions, vectors, scores) in zip(segments, near, strict=True):
        kept_here = scores >= least
        close = positions[kept_here]
        found.append((segment.vector_rows[close], cosine_scores(vectors[kept_here], vector, segment.norms[close])))
    return found


def _near(
    segment: Segment, unit: Vector, limit: int, allowed: npt.NDArray[np.bool_] | None
) -> tuple[Positions, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Live vectors, every one among the segment's `limit` nearest included: positions, vectors, and float32 scores."""
    live = segment.vectors_of(allowed)
    count = len(segment.vectors) if live is None else int(np.count_nonzero(live))
    if segment.codes is not None and limit < count and count * _GATHERED_COST > len(segment.vectors):
        positions = segment.codes.candidates(unit, limit, None if live is None else ~live)
    else:
        positions = np.arange(len(segment.vectors)) if live is None else np.flatnonzero(live)
    vectors = segment.vectors if len(positions) == len(segment.vectors) else segment.vectors[positions]
    scores: npt.NDArray[np.float32] = vectors @ unit
    scores *= segment.inverse_norms[positions]
    scores *= np.float32(0.5)
    scores += np.float32(0.5)
    return positions, vectors, scores
