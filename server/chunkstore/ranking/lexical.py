"""The exact best rows of a segment by BM25, without scoring every posting of frequent terms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import Counts, add_approximate_scores, term_scores
from chunkstore.domain.compiled import compiled
from chunkstore.ranking.segment import Rows, TermPostings
from chunkstore.ranking.threshold import reached, reaching

# Wider than the rounding of a float32 sum over any number of terms that a query may have.
_SLACK: Final = 1e-3
# Looking a row up in a term's postings costs so many times what adding one of them does.
_LOOKUP_COST: Final = 6

Approximate = npt.NDArray[np.float32]


class QueryTerm(NamedTuple):
    """A term of a query in one segment: its idf, and its postings there."""

    idf: float
    postings: TermPostings


def contending(terms: Sequence[QueryTerm], factors: Approximate, least_factor: float, limit: int) -> Rows:
    """Rows, ascending, that hold a term, every one among the best `limit` of them by BM25 included; `limit` above 0.

    `factors` (n,) are the rows' length factors, `least_factor` the least of them. Terms are added rare ones first; once
    the best `limit` rows so far reach more than all terms left could give a row, those that hold none but them are out,
    and if few rows are in, the terms are looked up in these alone. Source: Turtle and Flood, Query evaluation:
    strategies and optimizations (1995).
    """
    rare_first = sorted(terms, key=lambda term: len(term.postings.rows))
    left = [*itertools.accumulate((_most(term, least_factor) for term in reversed(rare_first)), initial=0.0)][::-1]
    scores = np.zeros(factors.size, dtype=np.float32)
    for place, term in enumerate(rare_first):
        count = len(term.postings.rows)
        if place and count > limit * _LOOKUP_COST:
            rows = _still_in(scores, left[place], limit)
            if rows is not None and len(rows) * _LOOKUP_COST < count:
                return _completed(rows, scores[rows], rare_first[place:], factors[rows], limit)
        add_approximate_scores(scores, term.postings.rows, term.postings.frequencies, term.idf, factors)
    return _best_of(None, scores, limit)


def frequencies_at(terms: Sequence[QueryTerm], rows: Rows) -> Counts:
    """How often each of the terms occurs in each of `rows` (n,), ascending: (n, terms), 0 where it does not."""
    found = np.zeros((len(terms), len(rows)), dtype=np.int32)
    for term, of_term in zip(terms, found, strict=True):
        _look_up(term.postings.rows, term.postings.frequencies, rows, of_term)
    return found.T


def _still_in(scores: Approximate, left: float, limit: int) -> Rows | None:
    """Rows that may be among the best when each may still get `left`; None if that goes for rows without a score."""
    least = reached(scores, limit, 0.0) * (1.0 - _SLACK) - left * (1.0 + _SLACK)
    return reaching(scores, least, 0.0) if least > 0.0 else None


def _completed(rows: Rows, scores: Approximate, terms: Sequence[QueryTerm], factors: Approximate, limit: int) -> Rows:
    """Those of `rows` that contend when `terms` have been added to their scores."""
    places = np.arange(len(rows), dtype=np.int32)
    for term, frequencies in zip(terms, frequencies_at(terms, rows).T, strict=True):
        add_approximate_scores(scores, places, frequencies, term.idf, factors)
    return _best_of(rows, scores, limit)


def _best_of(rows: Rows | None, scores: Approximate, limit: int) -> Rows:
    """Those of `rows`, None for all, whose scores are above 0 and, but for rounding, among the best `limit`."""
    places = reaching(scores, reached(scores, limit, 0.0) * (1.0 - _SLACK), 0.0)
    return places if rows is None else rows[places]


def _most(term: QueryTerm, least_factor: float) -> float:
    """No row gets more from a term: its highest frequency, in the shortest chunk."""
    return float(term_scores(term.idf, np.array([term.postings.highest]), np.array([least_factor]))[0])


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
