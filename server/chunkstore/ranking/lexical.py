"""The exact best rows of a segment by BM25, without scoring every posting of frequent terms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import Counts, term_scores
from chunkstore.ranking.segment import Rows

# Wider than the rounding of a float32 sum over any number of terms that a query may have.
_SLACK: Final = 1e-3
# Looking a row up in a term's postings costs so many times what adding one of them does.
_LOOKUP_COST: Final = 6
_GROUP: Final = 16

Approximate = npt.NDArray[np.float32]


class QueryTerm(NamedTuple):
    """A term of a query in one segment: its idf, the rows that hold it, ascending, and its frequency in each."""

    idf: float
    rows: Rows
    frequencies: Counts

    def frequencies_at(self, rows: Rows) -> Counts:
        """How often it occurs in each of `rows` (n,), ascending; 0 where it does not."""
        if not len(self.rows):
            return np.zeros(len(rows), dtype=np.int32)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[places] == rows, self.frequencies[places], np.int32(0))


def contending(terms: Sequence[QueryTerm], factors: Approximate, limit: int) -> Rows:
    """Rows, ascending, that hold a term, every one among the best `limit` of them by BM25 included; `limit` above 0.

    `factors` (n,) are the rows' length factors. Terms are added rare ones first; once the best `limit` rows so far
    reach more than all terms left could give a row, those that hold none but them are out, and if few rows are in, the
    terms are looked up in these alone. Source: Turtle and Flood, Query evaluation: strategies and optimizations (1995).
    """
    rare_first = sorted(terms, key=lambda term: len(term.rows))
    least_factor = factors.min(initial=np.inf, keepdims=True)
    most = [_most(term, least_factor) for term in rare_first]
    left = [*itertools.accumulate(reversed(most), initial=0.0)][::-1]
    scores = np.zeros(factors.size, dtype=np.float32)
    for place, term in enumerate(rare_first):
        if place and len(term.rows) > limit * _LOOKUP_COST:
            rows = _still_in(scores, left[place], limit)
            if rows is not None and len(rows) * _LOOKUP_COST < len(term.rows):
                return _completed(rows, scores[rows], rare_first[place:], factors[rows], limit)
        scores[term.rows] += _shares(term, term.frequencies, factors[term.rows])
    return _best_of(np.arange(scores.size, dtype=np.int32), scores, limit)


def _still_in(scores: Approximate, left: float, limit: int) -> Rows | None:
    """Rows that may be among the best when each may still get `left`; None if that goes for rows without a score."""
    reached = _reached(scores, limit)
    missing = left * (1.0 + _SLACK)
    return np.flatnonzero(scores >= reached - missing).astype(np.int32) if reached > missing else None


def _completed(rows: Rows, scores: Approximate, terms: Sequence[QueryTerm], factors: Approximate, limit: int) -> Rows:
    """Those of `rows` that contend when `terms` have been added to their scores."""
    for term in terms:
        scores += _shares(term, term.frequencies_at(rows), factors)
    return _best_of(rows, scores, limit)


def _best_of(rows: Rows, scores: Approximate, limit: int) -> Rows:
    reached = _reached(scores, limit)
    return rows[scores >= reached] if reached > 0.0 else rows[scores > 0.0]


def _shares(term: QueryTerm, frequencies: Counts, factors: Approximate) -> Approximate:
    return term_scores(term.idf, frequencies.astype(np.float32), factors)


def _most(term: QueryTerm, least_factor: Approximate) -> float:
    """No row gets more from a term: its highest frequency, in the shortest chunk."""
    return float(_shares(term, term.frequencies.max(initial=0, keepdims=True), least_factor)[0])


def _reached(scores: Approximate, limit: int) -> float:
    """A score that at least `limit` rows reach, a little below that of the last of them; 0 where fewer have one.

    The best of each group of rows stand for all: selecting among them is faster, and what they reach others do too.
    """
    groups = scores.size // _GROUP
    best = scores[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0) if groups > 4 * limit else scores
    if best.size < limit:
        return 0.0
    return float(np.partition(best, best.size - limit)[best.size - limit]) * (1.0 - _SLACK)
