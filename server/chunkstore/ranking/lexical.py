"""The rows of a segment among which the best by BM25 are, told by approximate scores."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import Counts, Scores, approximate_scores
from chunkstore.domain.compiled import compiled
from chunkstore.ranking.segment import RowMask, Rows, TermPostings
from chunkstore.ranking.threshold import reached, rows_reaching

# Wider than the rounding of a float32 sum over any number of terms that a query may have.
_SLACK: Final = 1e-3
_ABOVE_ZERO: Final = float(np.nextafter(np.float32(0.0), np.float32(1.0)))


def contending(
    postings: TermPostings, idfs: Scores, factors: npt.NDArray[np.float32], allowed: RowMask, limit: int
) -> Rows:
    """Rows, ascending, that hold a term, every one among the best `limit` of them by BM25 included; `limit` above 0.

    `factors` (n,) are the rows' length factors; only `allowed` rows (n,), all where that is empty, are candidates.
    """
    scores = approximate_scores(*postings, idfs, factors, allowed)
    least = reached(scores, limit, 0.0) * (1.0 - _SLACK)
    return rows_reaching(scores, max(least, _ABOVE_ZERO))


@compiled
def frequencies_at(
    holders: Rows,
    frequencies: Counts,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    rows: Rows,
) -> Counts:
    """How often each term of TermPostings occurs in each of `rows` (n,), ascending: (n, terms), 0 where not at all."""
    found = np.zeros((rows.size, starts.size), np.int32)
    for term in range(starts.size):
        low, end = starts[term], ends[term]
        for place in range(rows.size):
            # What is looked for is near, as both ascend: by steps that double, then between the last two.
            high, step = low, 1
            while high < end and holders[high] < rows[place]:
                low, high, step = high + 1, high + step, 2 * step
            high = min(high, end)
            while low < high:
                middle = (low + high) // 2
                if holders[middle] < rows[place]:
                    low = middle + 1
                else:
                    high = middle
            if low == end:
                break
            if holders[low] == rows[place]:
                found[place, term] = frequencies[low]
    return found
