"""Chunks as parts of their sources: how many of one source an answer takes, and the chunks that stand around hits.

The document order of a source's chunks is by chunk_index, then id; a chunk that folds several places stands at its
first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

IdT = TypeVar("IdT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Run(Generic[IdT]):
    """Chunks of one source that stand one after the other, in document order, and the hits among them, best first."""

    ids: list[IdT]
    hits: list[IdT] = field(default_factory=list)


def within_source_cap(sources: Sequence[str], most: int) -> list[int]:
    """The positions in `sources` that have fewer than `most` of the same source before them, ascending.

    `sources` are those of a ranking's chunks, best first. What is found in a beginning of them begins what is found in
    all of them.
    """
    given: Counter[str] = Counter()
    kept = []
    for position, source in enumerate(sources):
        if given[source] < most:
            given[source] += 1
            kept.append(position)
    return kept


def runs_around(hits: Iterable[IdT], windows: Iterable[Sequence[IdT]], kept: AbstractSet[IdT]) -> list[Run[IdT]]:
    """The longest runs of `kept` ids around `hits`, which are among them; in the order of each one's best hit.

    `windows` tell what stands next to what: each holds ids of one source that follow each other in document order. Two
    of them make one run where they overlap, or where one holds the first id of the other after its own. An id that is
    not kept ends a run: none leaps over a chunk.
    """
    following: dict[IdT, IdT] = {}
    for window in windows:
        following.update((one, other) for one, other in pairwise(window) if one in kept and other in kept)
    preceding = {other: one for one, other in following.items()}
    run_of: dict[IdT, Run[IdT]] = {}
    runs = []
    for hit in hits:
        if hit not in run_of:
            first = _chain(hit, preceding)[-1]
            run = Run(_chain(first, following))
            run_of.update(dict.fromkeys(run.ids, run))
            runs.append(run)
        run_of[hit].hits.append(hit)
    return runs


def _chain(start: IdT, steps: dict[IdT, IdT]) -> list[IdT]:
    """`start` and what is reached from it, step by step."""
    chain = [start]
    while chain[-1] in steps:
        chain.append(steps[chain[-1]])
    return chain
