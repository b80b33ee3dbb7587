"""What a mirror decodes from PostgreSQL's binary forms is the segment of the same chunks."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from chunkstore.adapters.postgres.mirror_rows import ChunkColumns
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.postings import Postings
from chunkstore.ranking.segment import IndexedChunk, Segment

DIMENSION = 3
LEAST, MOST = -(2**63), 2**63 - 1

# Keys and frequencies of a chunk, and its vector.
Chunk = tuple[dict[int, int], list[float] | None]

EMPTY: Chunk = ({}, None)
ONLY_TERMS: Chunk = ({LEAST: 2, -1: 2**30, 0: 1, 256: 3, MOST: 1}, None)
ONLY_VECTOR: Chunk = ({}, [0.5, -1.25, 3e-38])
BOTH: Chunk = ({-1: 4, 7: 1}, [1.0, 0.0, -0.0])


def _array(values: Sequence[int], oid: int, form: str) -> bytes:
    """As array_send writes an array without NULLs."""
    if not values:
        return struct.pack(">iiI", 0, 0, oid)
    elements = b"".join(struct.pack(f">i{form}", struct.calcsize(f">{form}"), value) for value in values)
    return struct.pack(">iiIii", 1, 0, oid, len(values), 1) + elements


def _record(number: int, chunk: Chunk) -> tuple[bytes, int, bytes, bytes, bytes | None]:
    terms, vector = chunk
    sent = None if vector is None else struct.pack(f">hh{DIMENSION}f", DIMENSION, 0, *vector)
    keys, frequencies = _array(list(terms), 20, "q"), _array(list(terms.values()), 23, "i")
    return number.to_bytes(32, "big"), sum(terms.values()), keys, frequencies, sent


def _indexed(number: int, chunk: Chunk) -> IndexedChunk:
    terms, vector = chunk
    postings = Postings(np.array(list(terms), dtype=np.int64), np.array(list(terms.values()), dtype=np.int32))
    embedding = None if vector is None else np.array(vector, dtype=np.float32)
    return IndexedChunk(ChunkId(f"{number:064x}"), postings, embedding)


@pytest.mark.parametrize(
    "batches",
    [
        [[EMPTY]],
        [[ONLY_TERMS]],
        [[ONLY_VECTOR]],
        [[BOTH]],
        [[EMPTY, EMPTY], [EMPTY]],
        [[BOTH, EMPTY, ONLY_TERMS, ONLY_VECTOR, BOTH]],
        [[ONLY_TERMS, EMPTY], [ONLY_VECTOR], [BOTH, ONLY_TERMS, BOTH], [EMPTY]],
    ],
)
def test_decodes_the_segment_of_the_same_chunks(batches: list[list[Chunk]]) -> None:
    chunks = [chunk for batch in batches for chunk in batch]
    columns = ChunkColumns(DIMENSION)
    records = [_record(number, chunk) for number, chunk in enumerate(chunks)]
    for batch in batches:
        columns.extend(records[: len(batch)])
        del records[: len(batch)]
    assert columns.ids == [number.to_bytes(32, "big") for number in range(len(chunks))]
    decoded = columns.segment()
    expected = Segment.of([_indexed(number, chunk) for number, chunk in enumerate(chunks)], DIMENSION)
    for column in dataclasses.fields(Segment):
        found, wanted = getattr(decoded, column.name), getattr(expected, column.name)
        assert (column.name, found.dtype, found.shape) == (column.name, wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()
        assert found.dtype.isnative
