"""The chunk ids of a ranking, as numbers until they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import IdWords, hex_ids, id_words
from chunkstore.domain.chunk import ChunkId


class RankedIds(Sequence[ChunkId]):
    """The distinct chunk ids of `words` (n, 4), in the order of a ranking; equal to every sequence of the same ids."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, words: IdWords) -> None:
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[ChunkId]:
        return iter(hex_ids(self._words))

    @overload
    def __getitem__(self, at: int) -> ChunkId: ...

    @overload
    def __getitem__(self, at: slice) -> RankedIds: ...

    def __getitem__(self, at: int | slice) -> ChunkId | RankedIds:
        if isinstance(at, slice):
            return RankedIds(self._words[at])
        return hex_ids(self._words[at][np.newaxis])[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def __repr__(self) -> str:
        return f"RankedIds({[*self]})"

    def taken(self, places: npt.NDArray[np.intp]) -> RankedIds:
        """The ids at `places`."""
        return RankedIds(self._words[places])

    def places(self, wanted: Collection[ChunkId]) -> dict[ChunkId, int]:
        """The place, from 0, of each of `wanted` that is among them."""
        order, leading = self._by_leading_word
        if not (leading[1:] > leading[:-1]).all() or not len(self):
            return {identifier: place for place, identifier in enumerate(self) if identifier in wanted}
        asked = [*wanted]
        words = id_words(bytes.fromhex("".join(asked)))
        places = order[np.minimum(np.searchsorted(leading, words[:, 0]), len(self) - 1)]
        held = (self._words[places] == words).all(axis=1)
        return {asked[n]: place for n, place in zip(np.flatnonzero(held).tolist(), places[held].tolist(), strict=True)}

    @cached_property
    def _by_leading_word(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64]]:
        order = np.argsort(self._words[:, 0])
        return order, self._words[order, 0]
