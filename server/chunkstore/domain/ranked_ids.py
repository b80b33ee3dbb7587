"""The ids of rankings: where they are, and which are the same; those of chunks are numbers until they are read."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import IdWords, hex_ids, id_words
from chunkstore.domain.chunk import ChunkId

IdT = TypeVar("IdT", bound=Hashable)


class RankedIds(Sequence[ChunkId]):
    """The distinct chunk ids of `words` (n, 4), in the order of a ranking; equal to every sequence of the same ids."""

    # Equal to lists, which have none either.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, words: IdWords | None = None) -> None:
        self.words = np.empty((0, 4), dtype=np.uint64) if words is None else words

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[ChunkId]:
        return iter(hex_ids(self.words))

    @overload
    def __getitem__(self, at: int) -> ChunkId: ...

    @overload
    def __getitem__(self, at: slice) -> RankedIds: ...

    def __getitem__(self, at: int | slice) -> ChunkId | RankedIds:
        if isinstance(at, slice):
            return RankedIds(self.words[at])
        return hex_ids(self.words[at][np.newaxis])[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def __repr__(self) -> str:
        return f"RankedIds({[*self]})"

    @cached_property
    def by_leading_word(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64]]:
        """The order by the first word, and the first words in it."""
        order = np.argsort(self.words[:, 0])
        return order, self.words[order, 0]


def places_of(ranking: Sequence[IdT], wanted: Collection[IdT]) -> dict[IdT, int]:
    """The first place, from 0, of each of `wanted`, a set, that is in `ranking`."""
    if isinstance(ranking, RankedIds):
        order, leading = ranking.by_leading_word
        if len(ranking) and (leading[1:] > leading[:-1]).all():
            asked = [*wanted]
            words = id_words(bytes.fromhex("".join(map(str, asked))))
            places = order[np.minimum(np.searchsorted(leading, words[:, 0]), len(ranking) - 1)]
            held = (ranking.words[places] == words).all(axis=1)
            present = np.flatnonzero(held)
            return dict(zip((asked[n] for n in present.tolist()), places[present].tolist(), strict=True))
    # Reversed, so that the first place of a repeated id is the last to be set.
    found = zip(range(len(ranking) - 1, -1, -1), reversed(ranking), strict=True)
    return {identifier: place for place, identifier in found if identifier in wanted}


def numbered(rankings: Sequence[Sequence[IdT]]) -> tuple[list[npt.NDArray[np.intp]], Sequence[IdT]]:
    """The distinct ids of all rankings, and each ranking as their places."""
    ends = [0, *accumulate(map(len, rankings))]
    spans = [slice(start, end) for start, end in pairwise(ends)]
    if rankings and all(isinstance(ranking, RankedIds) for ranking in rankings):
        words = np.concatenate([cast(RankedIds, ranking).words for ranking in rankings])
        order = np.argsort(words[:, 0])
        ascending = words[order]
        first = np.append(True, ascending[1:, 0] != ascending[:-1, 0])[: len(order)]
        if (ascending[1:][~first[1:]] == ascending[:-1][~first[1:]]).all():
            places = np.empty(len(order), dtype=np.intp)
            places[order] = np.cumsum(first) - 1
            return [places[span] for span in spans], cast(Sequence[IdT], RankedIds(ascending[first]))
    # Two ids that share their first word, or ids of another kind.
    known: dict[IdT, int] = {}
    places = np.array([known.setdefault(it, len(known)) for ranking in rankings for it in ranking], dtype=np.intp)
    return [places[span] for span in spans], [*known]


def taken(ranking: Sequence[IdT], places: npt.NDArray[np.intp]) -> Sequence[IdT]:
    """The ids at `places` of a ranking."""
    if isinstance(ranking, RankedIds):
        return cast(Sequence[IdT], RankedIds(ranking.words[places]))
    return [ranking[place] for place in places.tolist()]
