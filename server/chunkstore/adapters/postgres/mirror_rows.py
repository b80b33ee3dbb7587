"""What a mirror reads of a tenant's chunks: columns for a segment, decoded from the database's binary forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import id_words
from chunkstore.ranking.segment import Segment

ValueT = TypeVar("ValueT", bound=np.generic)

# array_send: five words of header, of which an empty array has three, then each element behind a word with its length.
_ARRAY_HEADER: Final = 20
_KEY: Final = np.dtype([("length", ">i4"), ("value", ">i8")])
_FREQUENCY: Final = np.dtype([("length", ">i4"), ("value", ">i4")])


class ChunkColumns:
    """The rows of queries.INDEXED_CHUNKS, column by column, decoded batch by batch as they come.

    `ids` are the chunks', 32 bytes each, in the order of their rows. Not for two threads at a time.
    """

    def __init__(self, dimension: int) -> None:
        self.ids: list[bytes] = []
        # vector_send: a word of header, then the values.
        self._vector = np.dtype([("header", "V4"), ("values", ">f4", (dimension,))])
        self._lengths: list[npt.NDArray[np.int32]] = []
        self._term_counts: list[npt.NDArray[np.int64]] = []
        self._keys: list[npt.NDArray[np.int64]] = []
        self._frequencies: list[npt.NDArray[np.int32]] = []
        self._vector_rows: list[npt.NDArray[np.int32]] = []
        self._vectors: list[npt.NDArray[np.float32]] = []

    def extend(self, records: Sequence[Any]) -> None:
        """Take in further rows, at least one."""
        ids, lengths, keys, frequencies, vectors = zip(*records, strict=True)
        embedded = [row for row, vector in enumerate(vectors, start=len(self.ids)) if vector is not None]
        present = b"".join(vector for vector in vectors if vector is not None)
        sizes = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
        self.ids += ids
        self._lengths.append(np.array(lengths, dtype=np.int32))
        self._term_counts.append(np.maximum(sizes - _ARRAY_HEADER, 0) // _KEY.itemsize)
        self._keys.append(_elements(keys, _KEY).astype(np.int64))
        self._frequencies.append(_elements(frequencies, _FREQUENCY).astype(np.int32))
        self._vector_rows.append(np.array(embedded, dtype=np.int32))
        self._vectors.append(np.frombuffer(present, dtype=self._vector)["values"].astype(np.float32))

    def segment(self) -> Segment:
        """The segment of the rows, at least one; takes the columns away, so that no more than one is held twice."""
        return Segment.of_columns(
            ids=id_words(b"".join(self.ids)),
            lengths=_taken(self._lengths),
            posting_rows=np.repeat(np.arange(len(self.ids), dtype=np.int32), np.concatenate(self._term_counts)),
            vector_rows=_taken(self._vector_rows),
            vectors=_taken(self._vectors),
            posting_keys=_taken(self._keys),
            frequencies=_taken(self._frequencies),
        )


def _elements(arrays: Sequence[bytes], element: np.dtype[np.void]) -> npt.NDArray[Any]:
    """The elements of all arrays, one array after the other."""
    return np.frombuffer(b"".join([array[_ARRAY_HEADER:] for array in arrays]), dtype=element)["value"]


def _taken(parts: list[npt.NDArray[ValueT]]) -> npt.NDArray[ValueT]:
    """All parts as one array; the list is left empty."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole
