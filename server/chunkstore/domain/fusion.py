"""Reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeVar

RRF_K: Final = 60

IdT = TypeVar("IdT", bound=Hashable)


def reciprocal_rank_fusion(rankings: Sequence[Sequence[IdT]]) -> list[tuple[IdT, float]]:
    """Fuse rankings, best first, into (id, sum of 1 / (60 + rank)), score descending, ties by `str(id).lower()`.

    Ranks are places from 1. An id repeated within a ranking counts once, at its best place; one that a ranking lacks
    gets nothing from it. Source: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion (SIGIR 2009).
    """
    scores: dict[IdT, float] = {}
    for ranking in rankings:
        for identifier, rank in best_ranks(ranking).items():
            scores[identifier] = scores.get(identifier, 0.0) + 1.0 / (RRF_K + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], str(item[0]).lower(), str(item[0])))


def best_ranks(ranking: Sequence[IdT]) -> dict[IdT, int]:
    """Each id's best place in `ranking`, from 1."""
    ranks: dict[IdT, int] = {}
    for rank, identifier in enumerate(ranking, start=1):
        ranks.setdefault(identifier, rank)
    return ranks
