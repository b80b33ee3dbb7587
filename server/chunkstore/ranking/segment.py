"""A segment: an immutable block of chunks with their postings and vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import IdWords, id_words
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.compiled import compiled
from chunkstore.domain.postings import Postings
from chunkstore.domain.similarity import Scores, Vector, squared_norms
from chunkstore.ranking import first_pass
from chunkstore.ranking.first_pass import Codes

Rows = npt.NDArray[np.int32]
# Marks rows of a segment (n,); empty for all of them.
RowMask = npt.NDArray[np.bool_]
ValueT = TypeVar("ValueT", bound=np.generic)

_ALL: Final = np.empty(0, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """What ranking needs to know of a chunk."""

    id: ChunkId
    postings: Postings
    embedding: Vector | None


class TermPostings(NamedTuple):
    """The postings of some terms in one segment: term t is in `rows[starts[t]:ends[t]]`, ascending.

    How often is in `frequencies` beside them. Rows of dead chunks are among them.
    """

    rows: Rows
    frequencies: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """n chunks in columns; rows are numbered from 0 in no particular order.

    `ids` (n, 4) uint64, `lengths` (n,) int32, `alive` (n,) bool. Postings: `keys` (m,) int64 ascending; those of
    `keys[i]` are `rows[offsets[i]:offsets[i+1]]`, ascending, with `frequencies` beside them. Vectors: `vectors`
    (e, d) float32 as stored, of the rows `vector_rows` (e,) ascending.
    """

    ids: IdWords
    lengths: npt.NDArray[np.int32]
    alive: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    rows: Rows
    frequencies: npt.NDArray[np.int32]
    vector_rows: Rows
    vectors: npt.NDArray[np.float32]

    @staticmethod
    def of(chunks: Sequence[IndexedChunk], dimension: int) -> Segment:
        """The segment of `chunks`, whose ids are distinct; vectors are `dimension` wide."""
        embedded = [(row, chunk.embedding) for row, chunk in enumerate(chunks) if chunk.embedding is not None]
        sizes = [chunk.postings.keys.size for chunk in chunks]
        return Segment.of_columns(
            ids=id_words(b"".join(bytes.fromhex(chunk.id) for chunk in chunks)),
            lengths=np.array([chunk.postings.length for chunk in chunks], dtype=np.int32),
            posting_keys=_joined([chunk.postings.keys for chunk in chunks], np.int64),
            posting_rows=np.repeat(np.arange(len(chunks), dtype=np.int32), sizes),
            frequencies=_joined([chunk.postings.frequencies for chunk in chunks], np.int32),
            vector_rows=np.array([row for row, _ in embedded], dtype=np.int32),
            vectors=np.array([vector for _, vector in embedded], dtype=np.float32).reshape(-1, dimension),
        )

    @staticmethod
    def of_columns(
        *,
        ids: IdWords,
        lengths: npt.NDArray[np.int32],
        posting_keys: npt.NDArray[np.int64],
        posting_rows: Rows,
        frequencies: npt.NDArray[np.int32],
        vector_rows: Rows,
        vectors: npt.NDArray[np.float32],
    ) -> Segment:
        """The segment of n chunks: postings of each key by ascending row, vectors of distinct, ascending rows."""
        order, sorted_keys = sorted_stably(posting_keys)
        starts = np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1])[: order.size])
        return Segment(
            ids=ids,
            lengths=lengths,
            alive=np.ones(len(ids), dtype=np.bool_),
            keys=sorted_keys[starts],
            offsets=np.append(starts, order.size).astype(np.int64),
            rows=posting_rows[order],
            frequencies=frequencies[order],
            vector_rows=vector_rows,
            vectors=vectors,
        )

    @staticmethod
    def merged(segments: Sequence[Segment]) -> Segment:
        """One segment of the live chunks of `segments`."""
        parts = [segment._live_columns() for segment in segments]
        starts = np.cumsum([0, *(len(part[0]) for part in parts)])
        shifted = list(zip(parts, starts, strict=False))
        return Segment.of_columns(
            ids=np.concatenate([part[0] for part in parts]),
            lengths=np.concatenate([part[1] for part in parts]),
            posting_keys=np.concatenate([part[2] for part in parts]),
            posting_rows=np.concatenate([part[3] + np.int32(start) for part, start in shifted]),
            frequencies=np.concatenate([part[4] for part in parts]),
            vector_rows=np.concatenate([part[5] + np.int32(start) for part, start in shifted]),
            vectors=np.concatenate([part[6] for part in parts]),
        )

    @property
    def size(self) -> int:
        """Bytes of memory, near enough."""
        columns = (self.ids, self.lengths, self.alive, self.keys, self.offsets, self.rows, self.frequencies)
        vectors = (self.vector_rows, self.vectors, self.norms)
        return sum(column.nbytes for column in (*columns, *vectors)) + (self.codes.size if self.codes else 0)

    @cached_property
    def codes(self) -> Codes | None:
        """The vectors' codes, None where there are too few for them to pay."""
        if len(self.vectors) < first_pass.MIN_VECTORS:
            return None
        return Codes(self.vectors, self.norms)

    @cached_property
    def norms(self) -> Scores:
        """The `squared_norms` of the vectors (e,)."""
        return squared_norms(self.vectors)

    def vectors_of(self, allowed: RowMask | None) -> RowMask:
        """Which vectors (e,) are of `allowed` rows (n,), or of live ones where that is None; empty for all."""
        rows = self.live_rows if allowed is None else allowed
        return rows[self.vector_rows] if rows.size else _ALL

    @cached_property
    def live_count(self) -> int:
        """Number of chunks that are alive."""
        return int(np.count_nonzero(self.alive))

    def without(self, ids: IdWords) -> tuple[Segment, Rows]:
        """The segment with the chunks of `ids` dead, and the rows that died; ids it does not hold alive are ignored."""
        rows = self._rows_of(ids)
        rows = rows[self.alive[rows]]
        if not rows.size:
            return self, rows
        alive = self.alive.copy()
        alive[rows] = False
        survivor = dataclasses.replace(self, alive=alive)
        survivor.__dict__["_id_order"] = self._id_order
        # What depends on the vectors alone is made once.
        for name in self.__dict__.keys() & {"codes", "norms"}:
            survivor.__dict__[name] = getattr(self, name)
        return survivor, rows

    def live_rows_of(self, ids: IdWords) -> npt.NDArray[np.bool_]:
        """Which rows (n,) are alive and of `ids`."""
        held = np.zeros(len(self.ids), dtype=np.bool_)
        held[self._rows_of(ids)] = True
        return held & self.alive

    def postings(self, keys: npt.NDArray[np.int64]) -> TermPostings:
        """The postings of the terms of `keys` (t,); none of a term that no chunk holds."""
        starts = self.offsets[np.searchsorted(self.keys, keys, "left")]
        ends = self.offsets[np.searchsorted(self.keys, keys, "right")]
        return TermPostings(self.rows, self.frequencies, starts, ends)

    def document_frequencies(self, postings: TermPostings) -> npt.NDArray[np.int64]:
        """How many live chunks hold each term."""
        if not self.live_rows.size:
            return postings.ends - postings.starts
        return _marked(postings.rows, postings.starts, postings.ends, self.alive)

    @property
    def live_rows(self) -> RowMask:
        """Which rows (n,) are alive; empty where all are."""
        return _ALL if self.live_count == self.alive.size else self.alive

    @cached_property
    def _id_order(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64]]:
        order = np.argsort(self.ids[:, 0], kind="stable")
        return order, self.ids[order, 0]

    def _rows_of(self, ids: IdWords) -> Rows:
        order, first_words = self._id_order
        found = []
        place = np.searchsorted(first_words, ids[:, 0])
        pending = np.arange(len(ids))
        # More than one round only where two ids share their first eight bytes.
        while pending.size:
            pending = pending[place[pending] < first_words.size]
            pending = pending[first_words[place[pending]] == ids[pending, 0]]
            rows = order[place[pending]]
            found.append(rows[(self.ids[rows] == ids[pending]).all(axis=1)])
            place[pending] += 1
        return np.concatenate(found or [order[:0]]).astype(np.int32)

    def _live_columns(
        self,
    ) -> tuple[
        IdWords,
        npt.NDArray[np.int32],
        npt.NDArray[np.int64],
        Rows,
        npt.NDArray[np.int32],
        Rows,
        npt.NDArray[np.float32],
    ]:
        posting_keys = np.repeat(self.keys, np.diff(self.offsets))
        if self.live_count == self.alive.size:
            columns = (self.ids, self.lengths, posting_keys, self.rows, self.frequencies)
            return (*columns, self.vector_rows, self.vectors)
        renumbered = (np.cumsum(self.alive) - 1).astype(np.int32)
        live, embedded = self.alive[self.rows], self.alive[self.vector_rows]
        return (
            self.ids[self.alive],
            self.lengths[self.alive],
            posting_keys[live],
            renumbered[self.rows[live]],
            self.frequencies[live],
            renumbered[self.vector_rows[embedded]],
            self.vectors[embedded],
        )


def sorted_stably(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order that sorts `keys` (m,), equal ones by position, and the keys in it; much faster than numpy's argsort.

    Numbers made of a key's leading bits and its position are sorted as values, for which numpy has vector
    instructions. The few keys, if they are digests, that agree in their leading bits alone are then sorted apart.
    """
    positions = np.int64((1 << keys.size.bit_length()) - 1)
    order = keys & ~positions
    order |= np.arange(keys.size)
    order.sort()
    order &= positions
    ordered = keys[order]
    unsorted = ordered[:-1][ordered[1:] < ordered[:-1]] & ~positions
    if unsorted.size:
        leading = ordered & ~positions
        for bits in np.unique(unsorted):
            span = slice(np.searchsorted(leading, bits), np.searchsorted(leading, bits, side="right"))
            order[span] = order[span][np.argsort(ordered[span], kind="stable")]
            ordered[span] = keys[order[span]]
    return order, ordered


def _joined(arrays: Sequence[npt.NDArray[ValueT]], dtype: type[ValueT]) -> npt.NDArray[ValueT]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)


@compiled
def _marked(
    rows: Rows, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """How many rows of each span the mask marks."""
    counts = np.zeros(starts.size, np.int64)
    for span in range(starts.size):
        for place in range(starts[span], ends[span]):
            counts[span] += mask[rows[place]]
    return counts
