"""The rows of a segment among which the best by BM25 are, told by approximate scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import Counts, add_approximate_scores
from chunkstore.domain.compiled import compiled
from chunkstore.ranking.segment import Rows
from chunkstore.ranking.threshold import reached

# Wider than the rounding of a float32 sum over any number of terms that a query may have.
_SLACK: Final = 1e-3


class QueryTerm(NamedTuple):
    """A term of a query in one segment: its idf, the rows that hold it, ascending, and its frequency in each."""

    idf: float
    rows: Rows
    frequencies: Counts


def contending(terms: Sequence[QueryTerm], factors: npt.NDArray[np.float32], limit: int) -> Rows:
    """Rows, ascending, that hold a term, every one among the best `limit` of them by BM25 included; `limit` above 0.

    `factors` (n,) are the rows' length factors.
    """
    scores = np.zeros(factors.size, dtype=np.float32)
    for term in terms:
        add_approximate_scores(scores, term.rows, term.frequencies, term.idf, factors)
    least = reached(scores, limit, 0.0) * (1.0 - _SLACK)
    return np.flatnonzero(scores >= least if least > 0.0 else scores > 0.0).astype(np.int32)


def frequencies_at(terms: Sequence[QueryTerm], rows: Rows) -> Counts:
    """How often each of the terms occurs in each of `rows` (n,), ascending: (n, terms), 0 where it does not."""
    found = np.zeros((len(terms), len(rows)), dtype=np.int32)
    for term, of_term in zip(terms, found, strict=True):
        _look_up(term.rows, term.frequencies, rows, of_term)
    return found.T


@compiled
def _look_up(holders: Rows, frequencies: Counts, rows: Rows, found: Counts) -> None:
    low = 0
    for place in range(rows.size):
        high = holders.size
        while low < high:
            middle = (low + high) // 2
            if holders[middle] < rows[place]:
                low = middle + 1
            else:
                high = middle
        if low == holders.size:
            break
        if holders[low] == rows[place]:
            found[place] = frequencies[low]
