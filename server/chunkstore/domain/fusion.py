"""Fusion: what each channel gives to a chunk, and the order by the sum.

A channel's shares are a mapping from id to a number of at least 0. A fused score is the sum of an id's shares in the
order of the channels, from 0.0, where an id that a channel lacks gets nothing from it: so the shares account for the
score to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.errors import InvalidFieldError
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


def reciprocal_rank_shares(ranking: Sequence[IdT]) -> dict[IdT, float]:
    """`1 / (60 + rank)`, ranks being places from 1, an id repeated counting once, at its best place.

    Source: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion (SIGIR 2009).
    """
    return _by_best_place(ranking, 1.0 / (RRF_K + np.arange(1.0, len(ranking) + 1.0)))


def weighted_shares(
    semantic: Scored[IdT], lexical: Scored[IdT], weight: float = SEMANTIC_WEIGHT
) -> tuple[dict[IdT, float], dict[IdT, float]]:
    """The semantic shares `weight * (cosine / best cosine)` and the lexical `(1 - weight) * (BM25 / best BM25)`.

    Semantic scores are those of the channel, `1 - cosine distance / 2`; a cosine below 0 counts 0, and where the best
    is not above 0 every share is 0. Raises InvalidFieldError for a weight outside [0, 1]. Source: Bruch, Gai and
    Ingber, An Analysis of Fusion Functions for Hybrid Retrieval (TOIS 2023).
    """
    if not 0.0 <= weight <= 1.0:
        raise InvalidFieldError("weight", "must be within [0, 1]")
    cosines = 2.0 * np.asarray(semantic.scores, dtype=np.float64) - 1.0
    return (
        _proportional(semantic.ids, cosines, weight),
        _proportional(lexical.ids, np.asarray(lexical.scores, dtype=np.float64), 1.0 - weight),
    )


def identifier_shares(held: Mapping[IdT, int]) -> dict[IdT, float]:
    """2 for each of the query's telling identifiers that a chunk holds whole, `held` being their number.

    The other channels give at most 2/61 (reciprocal ranks) or 1 (weighted sum) together, so a chunk that holds more
    of them comes before every one that holds fewer.
    """
    return {identifier: IDENTIFIER_SHARE * count for identifier, count in held.items()}


def identifiers_held(found: LexicalCandidates) -> dict[ChunkId, int]:
    """How many of the query's telling identifiers each candidate holds, of those that hold one.

    `found` are the candidates of the identifiers alone.
    """
    telling = telling_identifiers(found.statistics)
    columns = [place for place, term in enumerate(found.statistics.doc_frequencies) if term in telling]
    if not columns or not found.ranking.ids:
        return {}
    counts = np.count_nonzero(found.frequencies[:, columns], axis=1).tolist()
    return {identifier: count for identifier, count in zip(found.ranking.ids, counts, strict=True) if count}


def telling_identifiers(statistics: CorpusStatistics) -> frozenset[str]:
    """Those of a query's identifiers that at most 10 chunks of the corpus hold, or at most one in a hundred.

    `statistics` are those of the identifiers. `BX-7741` names a thing; where half the corpus holds `COVID-19`, it
    is a word like others, and BM25 weighs it. One that no chunk holds tells nothing either.
    """
    most = max(TELLING_IN_CHUNKS, statistics.chunk_count // TELLING_IN_ONE_OF)
    return frozenset(term for term, count in statistics.doc_frequencies.items() if 0 < count <= most)


def fused(shares: Sequence[Mapping[IdT, float]], limit: int | None = None) -> list[tuple[IdT, float]]:
    """Every id of any channel with the sum of its shares, descending, ties by `str(id).lower()`, then `str(id)`.

    `limit`: the first so many of these; the result for one limit begins that for a larger one.
    """
    scores = dict(shares[0]) if shares else {}
    for channel in shares[1:]:
        for identifier, share in channel.items():
            scores[identifier] = scores.get(identifier, 0.0) + share
    return _best(scores, limit)


def best_ranks(ranking: Sequence[IdT]) -> dict[IdT, int]:
    """Each id's best place in `ranking`, from 1."""
    return _by_best_place(ranking, np.arange(1, len(ranking) + 1))


def _proportional(ids: Sequence[IdT], scores: npt.NDArray[np.float64], weight: float) -> dict[IdT, float]:
    """`weight * (score / best)` of each id at its best place, 0 for scores below 0."""
    best = scores[0] if scores.size else 0.0
    shares = weight * (np.maximum(scores, 0.0) / best) if best > 0.0 else np.zeros(scores.size)
    return _by_best_place(ids, shares)


def _by_best_place(ids: Sequence[IdT], values: npt.NDArray[Any]) -> dict[IdT, Any]:
    """Each id's value at its best place."""
    # Reversed, so that the best place of a repeated id is the last to be set.
    return dict(zip(reversed(ids), reversed(values.tolist()), strict=True))


def _best(scores: Mapping[IdT, float], limit: int | None) -> list[tuple[IdT, float]]:
    """The best `limit` in order; only those that reach the score of the last of them need sorting by id."""
    found = scores.items()
    if limit is not None and limit < len(scores):
        # Values come in runs of the channels' own order, which sorting makes use of.
        least = sorted(scores.values(), reverse=True)[limit - 1] if limit else math.inf
        found = {identifier: score for identifier, score in found if score >= least}.items()
    return sorted(found, key=lambda item: (-item[1], str(item[0]).lower(), str(item[0])))[:limit]
