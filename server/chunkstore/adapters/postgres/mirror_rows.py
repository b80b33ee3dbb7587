"""What a mirror reads of a tenant's chunks: columns for a segment, decoded from the database's binary forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import id_words
from chunkstore.ranking.segment import Segment

# array_send: five words of header, then each element behind a word with its length. vector_send: one word of header.
_ARRAY_HEADER = 5
_WORD = 4


@dataclass(slots=True)
class PackedColumns:
    """The rows of queries.INDEXED_CHUNKS, column by column, as they came."""

    ids: list[bytes] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    frequencies: list[bytes] = field(default_factory=list)
    vectors: list[bytes | None] = field(default_factory=list)

    def extend(self, records: Iterable[Any]) -> None:
        """Take in further rows, at least one."""
        ids, lengths, keys, frequencies, vectors = zip(*records, strict=True)
        self.ids.extend(ids)
        self.lengths.extend(lengths)
        self.keys.extend(keys)
        self.frequencies.extend(frequencies)
        self.vectors.extend(vectors)

    def segment(self, dimension: int) -> Segment:
        """The segment of these chunks, whose vectors are `dimension` wide."""
        sizes = np.fromiter(map(len, self.keys), dtype=np.int64, count=len(self.keys))
        # An empty array has a header of three words and no element.
        counts = np.maximum(sizes // _WORD - _ARRAY_HEADER, 0) // 3
        embedded = [row for row, vector in enumerate(self.vectors) if vector is not None]
        present = b"".join(vector for vector in self.vectors if vector is not None)
        row_type = np.dtype([("header", "V4"), ("vector", ">f4", (dimension,))])
        return Segment.of_columns(
            ids=id_words(b"".join(self.ids)),
            lengths=np.array(self.lengths, dtype=np.int32),
            posting_keys=_long_elements(self.keys, sizes, counts),
            posting_rows=np.repeat(np.arange(len(self.ids), dtype=np.int32), counts),
            frequencies=_word_elements(self.frequencies, counts),
            vector_rows=np.array(embedded, dtype=np.int32),
            vectors=np.frombuffer(present, dtype=row_type)["vector"].astype(np.float32).reshape(-1, dimension),
        )


def _long_elements(
    arrays: list[bytes], sizes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """All elements of bigint arrays, one array after the other."""
    words = np.frombuffer(b"".join(arrays), dtype=">u4")
    high = _positions(sizes, counts, stride=3) + 1
    keys: npt.NDArray[np.int64] = (words[high].astype(np.uint64) << np.uint64(32) | words[high + 1]).view(np.int64)
    return keys


def _word_elements(arrays: list[bytes], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """All elements of integer arrays, one array after the other."""
    sizes = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
    words = np.frombuffer(b"".join(arrays), dtype=">i4")
    return words[_positions(sizes, counts, stride=2) + 1].astype(np.int32)


def _positions(sizes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], *, stride: int) -> npt.NDArray[np.int64]:
    """Where each element starts, in words of the joined arrays."""
    first = np.cumsum(sizes // _WORD) - sizes // _WORD + _ARRAY_HEADER
    before = np.cumsum(counts) - counts
    return np.repeat(first - stride * before, counts) + stride * np.arange(int(counts.sum()))
