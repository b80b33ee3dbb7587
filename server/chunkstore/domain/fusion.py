"""Fusion: what each channel gives to a chunk, and the order by the sum.

A channel's shares are numbers of at least 0. A fused score is the sum of an id's shares in the order of the channels,
from 0.0, where an id that a channel lacks gets nothing from it: so the shares account for the score to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import Counts, contenders
from chunkstore.domain.compiled import compiled_briefly_run
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.ranked_ids import joined, numbered, places_of, taken
from chunkstore.domain.results import CorpusStatistics, LexicalCandidates

RRF_K: Final = 60
SEMANTIC_WEIGHT: Final = 0.5
# More than all other channels together give, by either fusion.
IDENTIFIER_SHARE: Final = 2.0
# An identifier that more chunks hold than both of these is a word of the corpus's subject, and names nothing.
TELLING_IN_CHUNKS: Final = 10
TELLING_IN_ONE_OF: Final = 100

IdT = TypeVar("IdT", bound=Hashable)
RankedT_co = TypeVar("RankedT_co", bound=Hashable, covariant=True)


class Scored(Protocol[RankedT_co]):
    """A ranking, best first: ids and, beside them, their scores, descending."""

    @property
    def ids(self) -> Sequence[RankedT_co]:
        """The ids."""
        ...

    @property
    def scores(self) -> Sequence[float]:
        """As many scores."""
        ...


class Shares(NamedTuple, Generic[IdT]):
    """What a channel gives: ids, best first, and their shares; a repeated id gets that of its best place."""

    ids: Sequence[IdT]
    values: npt.NDArray[np.float64]

    def above_zero(self) -> Shares[IdT]:
        """Those who are given anything."""
        given = np.flatnonzero(self.values)
        return Shares(taken(self.ids, given), self.values[given])


def reciprocal_rank_shares(ranking: Sequence[IdT]) -> Shares[IdT]:
    """`1 / (60 + rank)`, ranks being places from 1.

    Source: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion (SIGIR 2009).
    """
    return Shares(ranking, 1.0 / (RRF_K + np.arange(1.0, len(ranking) + 1.0)))


def weighted_shares(
    semantic: Scored[IdT], lexical: Scored[IdT], weight: float = SEMANTIC_WEIGHT
) -> tuple[Shares[IdT], Shares[IdT]]:
    """The semantic shares `weight * (cosine / best cosine)` and the lexical `(1 - weight) * (BM25 / best BM25)`.

    Semantic scores are those of the channel, `1 - cosine distance / 2`; a cosine below 0 counts 0, and where the best
    is not above 0 every share is 0. Raises InvalidFieldError for a weight outside [0, 1]. Source: Bruch, Gai and
    Ingber, An Analysis of Fusion Functions for Hybrid Retrieval (TOIS 2023).
    """
    if not 0.0 <= weight <= 1.0:
        raise InvalidFieldError("weight", "must be within [0, 1]")
    cosines = 2.0 * np.asarray(semantic.scores, dtype=np.float64) - 1.0
    return (
        Shares(semantic.ids, _proportional(cosines, weight)),
        Shares(lexical.ids, _proportional(np.asarray(lexical.scores, dtype=np.float64), 1.0 - weight)),
    )


def identifier_shares(ranking: Sequence[IdT], held: Sequence[int] | npt.NDArray[np.intp]) -> Shares[IdT]:
    """2 for each of the query's telling identifiers that a chunk holds whole, `held` being their numbers.

    The other channels give at most 2/61 (reciprocal ranks) or 1 (weighted sum) together, so a chunk that holds more
    of them comes before every one that holds fewer.
    """
    return Shares(ranking, IDENTIFIER_SHARE * np.asarray(held, dtype=np.float64))


def identifiers_held(found: LexicalCandidates) -> npt.NDArray[np.intp]:
    """How many of the query's telling identifiers each candidate holds; `found` are those of the identifiers alone."""
    telling = telling_identifiers(found.statistics)
    columns = [place for place, term in enumerate(found.statistics.doc_frequencies) if term in telling]
    if not len(found.ranking):
        return np.zeros(0, dtype=np.intp)
    return _counts_of(found.frequencies, np.array(columns, dtype=np.intp))


def telling_identifiers(statistics: CorpusStatistics) -> frozenset[str]:
    """Those of a query's identifiers that at most 10 chunks of the corpus hold, or at most one in a hundred.

    `statistics` are those of the identifiers. `BX-7741` names a thing; where half the corpus holds `COVID-19`, it
    is a word like others, and BM25 weighs it. One that no chunk holds tells nothing either.
    """
    most = max(TELLING_IN_CHUNKS, statistics.chunk_count // TELLING_IN_ONE_OF)
    return frozenset(term for term, count in statistics.doc_frequencies.items() if 0 < count <= most)


def fused(shares: Sequence[Shares[IdT]], limit: int | None = None) -> list[tuple[IdT, float]]:
    """Every id of any channel with the sum of its shares, descending, ties by `str(id).lower()`, then `str(id)`.

    `limit`: the first so many of these; the result for one limit begins that for a larger one.
    """
    ids = joined([channel.ids for channel in shares])
    numbers, first = numbered(ids)
    values = np.concatenate([channel.values for channel in shares]) if shares else np.empty(0)
    ends = np.cumsum([len(channel.ids) for channel in shares], dtype=np.intp)
    sums = _sums(numbers, values, ends, first.size)
    best = contenders(sums, first.size if limit is None else limit)
    found = zip(taken(ids, first[best]), sums[best].tolist(), strict=True)
    return sorted(found, key=lambda item: (-item[1], str(item[0]).lower(), str(item[0])))[:limit]


def best_ranks(ranking: Sequence[IdT], wanted: Collection[IdT]) -> dict[IdT, int]:
    """The best place, from 1, of each of `wanted`, a set, that is in `ranking`."""
    return {identifier: place + 1 for identifier, place in places_of(ranking, wanted).items()}


def _proportional(scores: npt.NDArray[np.float64], weight: float) -> npt.NDArray[np.float64]:
    """`weight * (score / best)` of each, 0 for scores below 0."""
    best = scores[0] if scores.size else 0.0
    return weight * (np.maximum(scores, 0.0) / best) if best > 0.0 else np.zeros(scores.size)


@compiled_briefly_run
def _sums(
    numbers: npt.NDArray[np.intp], values: npt.NDArray[np.float64], ends: npt.NDArray[np.intp], count: int
) -> npt.NDArray[np.float64]:
    """What the channels give together to each number below `count`.

    Channel after channel, up to `ends`, gives `values` to `numbers`, and nothing to one that it repeats.
    """
    sums = np.zeros(count, np.float64)
    given_by = np.full(count, -1, np.intp)
    start = 0
    for channel in range(ends.size):
        for place in range(start, ends[channel]):
            number = numbers[place]
            if given_by[number] != channel:
                given_by[number] = channel
                sums[number] += values[place]
        start = ends[channel]
    return sums


@compiled_briefly_run
def _counts_of(frequencies: Counts, columns: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """How many of the columns of each row (n, t) are above 0."""
    counts = np.zeros(len(frequencies), np.intp)
    for row in range(len(frequencies)):
        for column in columns:
            counts[row] += frequencies[row, column] > 0
    return counts
