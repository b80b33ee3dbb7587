"""The ids of rankings: where they are, and which are the same; those of chunks are numbers until they are read."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import IdWords, hex_ids, id_words
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.compiled import compiled_briefly_run

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


def places_of(ranking: Sequence[IdT], wanted: Collection[IdT]) -> dict[IdT, int]:
    """The first place, from 0, of each of `wanted`, a set, that is in `ranking`."""
    if isinstance(ranking, RankedIds):
        asked = [*wanted]
        words = id_words(bytes.fromhex("".join(map(str, asked))))
        numbers, first = _numbered(np.concatenate([ranking.words, words]))
        places = first[numbers[len(ranking) :]].tolist()
        return {identifier: place for identifier, place in zip(asked, places, strict=True) if place < len(ranking)}
    # Reversed, so that the first place of a repeated id is the last to be set.
    backwards = zip(range(len(ranking) - 1, -1, -1), reversed(ranking), strict=True)
    return {identifier: place for place, identifier in backwards if identifier in wanted}


def joined(rankings: Sequence[Sequence[IdT]]) -> Sequence[IdT]:
    """All ids of all rankings, one ranking after the other."""
    if rankings and all(isinstance(ranking, RankedIds) for ranking in rankings):
        words = np.concatenate([cast(RankedIds, ranking).words for ranking in rankings])
        return cast(Sequence[IdT], RankedIds(words))
    return [identifier for ranking in rankings for identifier in ranking]


def numbered(ids: Sequence[IdT]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The number of each of the ids (n,), and the first place of each number (m,); distinct ids count as they come."""
    if isinstance(ids, RankedIds):
        return _numbered(ids.words)
    known: dict[IdT, int] = {}
    numbers = np.array([known.setdefault(identifier, len(known)) for identifier in ids], dtype=np.intp)
    _, first = np.unique(numbers, return_index=True)
    return numbers, first


def taken(ids: Sequence[IdT], places: npt.NDArray[np.intp]) -> Sequence[IdT]:
    """The ids at `places`."""
    if isinstance(ids, RankedIds):
        return cast(Sequence[IdT], RankedIds(ids.words[places]))
    return [ids[place] for place in places.tolist()]


@compiled_briefly_run
def _numbered(words: IdWords) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """See `numbered`: a hash table of numbers, of which at least half stays free, all in one function as it is hot."""
    size = 16
    while size < 2 * len(words):
        size *= 2
    table = np.full(size, -1, np.intp)
    numbers = np.empty(len(words), np.intp)
    first = np.empty(len(words), np.intp)
    count = 0
    for place in range(len(words)):
        # Ids are digests: any of their bits tell where to look first.
        slot = np.intp(words[place, 0]) & (size - 1)
        while table[slot] >= 0:
            held = first[table[slot]]
            word = 0
            while word < words.shape[1] and words[held, word] == words[place, word]:
                word += 1
            if word == words.shape[1]:
                break
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = count
            first[count] = place
            count += 1
        numbers[place] = table[slot]
    return numbers, first[:count]
