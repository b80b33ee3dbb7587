"""Rows of `chunkstore.chunks`: read into chunks, and written as PostgreSQL's binary COPY stream.

Formats: PostgreSQL's documentation of COPY, "Binary Format", and the send functions of the types; pgvector's
`vector_send` is two 16-bit numbers, the width and 0, followed by big-endian float32 values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.chunk import ChunkId, Occurrence, StoredChunk
from chunkstore.domain.metadata import EMPTY, metadata_from_json, metadata_json
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId

Record = Any
ValueT = TypeVar("ValueT")

RowReader = Callable[[Record], tuple[ChunkId, ValueT]]

COPY_COLUMNS: Final = (
    "tenant_id",
    "id",
    "source_id",
    "text",
    "chunk_index",
    "start_char",
    "end_char",
    "entity_ids",
    "entity_keys",
    "metadata",
    "other_occurrences",
    "doc_length",
    "term_keys",
    "term_frequencies",
    "embedding",
    "revision",
)

_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_COPY_TRAILER: Final = struct.pack(">h", -1)
_COLUMN_COUNT: Final = struct.pack(">h", len(COPY_COLUMNS))
_NULL: Final = struct.pack(">i", -1)
_JSONB_VERSION: Final = b"\x01"
_TEXT_OID: Final = 25
_VECTOR_HEADER: Final = 4


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk as it goes into the database: its COPY fields before embedding and revision, and its length in terms."""

    fields: bytes
    length: int


def id_bytes(identifier: ChunkId) -> bytes:
    """The 32 bytes of a chunk id, as stored."""
    return bytes.fromhex(identifier)


def packed_ids(ids: Iterable[ChunkId]) -> list[bytes]:
    """The bytes of each of some ids."""
    return [id_bytes(identifier) for identifier in ids]


def encode_chunks(
    tenant_id: TenantId, chunks: Iterable[StoredChunk], analyzer: Analyzer
) -> dict[ChunkId, EncodedChunk]:
    """Analyse and encode chunks of distinct ids. Takes its time: meant for a thread, before any lock is held."""
    chunks = list(chunks)
    keys = TermKeys(tenant_id)
    postings = keys.joined_postings([analyzer.terms(chunk.text) for chunk in chunks])
    key_arrays = _number_arrays(postings.keys, postings.ends)
    frequency_arrays = _number_arrays(postings.frequencies, postings.ends)
    first = _COLUMN_COUNT + _field(tenant_id.encode())
    encoded = {}
    for chunk, length, *arrays in zip(chunks, postings.lengths, key_arrays, frequency_arrays, strict=True):
        fields = b"".join((first, *_own_fields(chunk, keys), _integer(length), *arrays))
        encoded[chunk.id] = EncodedChunk(fields, length)
    return encoded


def copy_stream(rows: Iterable[tuple[EncodedChunk, Vector | None]], revision: int) -> bytes:
    """The COPY stream of COPY_COLUMNS for `rows`, all of one revision."""
    last = _field(struct.pack(">q", revision))
    parts = [_COPY_HEADER]
    for encoded, vector in rows:
        parts += (encoded.fields, *_vector_field(vector), last)
    parts.append(_COPY_TRAILER)
    return b"".join(parts)


def vector_from(value: bytes) -> Vector:
    """The vector that `vector_send` gave."""
    return np.frombuffer(value, dtype=">f4", offset=_VECTOR_HEADER).astype(np.float32)


def chunk_from(record: Record) -> StoredChunk:
    """The chunk of a row of queries.CHUNK_FIELDS; its vector where the row has one."""
    embedding = record["embedding"]
    metadata = record["metadata"]
    places = record["other_occurrences"]
    return StoredChunk(
        source_id=record["source_id"],
        text=record["text"],
        chunk_index=record["chunk_index"],
        start_char=record["start_char"],
        end_char=record["end_char"],
        entity_ids=tuple(record["entity_ids"]),
        metadata=EMPTY if metadata == "{}" else metadata_from_json(metadata),
        embedding=None if embedding is None else vector_from(embedding),
        other_occurrences=tuple(Occurrence(*places[n : n + 3]) for n in range(0, len(places), 3)),
    )


def chunk_of(record: Record) -> tuple[ChunkId, StoredChunk]:
    """The id and the chunk of a row, as `chunk_from`."""
    chunk = chunk_from(record)
    return chunk.id, chunk


def source_of(record: Record) -> tuple[ChunkId, str]:
    """The id and the source of a row of queries.SOURCES_OF_CHUNKS."""
    return _id_from(record["id"]), record["source_id"]


def neighbors_of(record: Record) -> tuple[ChunkId, list[ChunkId]]:
    """The id of a row of queries.NEIGHBORS, and the ids around it and itself in document order."""
    window = (*reversed(record["before"]), record["id"], *record["after"])
    return _id_from(record["id"]), [_id_from(identifier) for identifier in window]


def _id_from(value: bytes) -> ChunkId:
    return ChunkId(value.hex())


def _own_fields(chunk: StoredChunk, keys: TermKeys) -> tuple[bytes, ...]:
    """The fields from id to other_occurrences."""
    entity_keys = np.array([keys.key(entity) for entity in chunk.entity_ids], dtype=np.int64)
    places = [n for place in chunk.other_occurrences for n in (place.chunk_index, place.start_char, place.end_char)]
    return (
        _field(id_bytes(chunk.id)),
        _field(chunk.source_id.encode()),
        _field(chunk.text.encode()),
        _integer(chunk.chunk_index),
        _integer(chunk.start_char),
        _integer(chunk.end_char),
        _text_array(chunk.entity_ids),
        *_number_arrays(entity_keys, [entity_keys.size]),
        _field(_JSONB_VERSION + metadata_json(chunk.metadata).encode()),
        *_number_arrays(np.array(places, dtype=np.int32), [len(places)]),
    )


def _field(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _integer(value: int) -> bytes:
    return struct.pack(">ii", 4, value)


def _vector_field(vector: Vector | None) -> tuple[bytes, ...]:
    if vector is None:
        return (_NULL,)
    values = vector.astype(">f4").tobytes()
    return struct.pack(">ihh", _VECTOR_HEADER + len(values), vector.size, 0), values


_NUMBER_OIDS: Final = {8: 20, 4: 23}
_ARRAY_HEADER: Final = 20
_EMPTY_ARRAYS: Final = {size: _field(struct.pack(">iii", 0, 0, oid)) for size, oid in _NUMBER_OIDS.items()}
_ELEMENTS: Final = {size: np.dtype([("size", ">i4"), ("value", f">i{size}")]) for size in _NUMBER_OIDS}


def _number_arrays(values: npt.NDArray[np.int64] | npt.NDArray[np.int32], ends: Iterable[int]) -> Iterator[bytes]:
    """The field of each array of those that `values` holds one after the other, up to `ends`."""
    size = values.dtype.itemsize
    elements = np.empty(values.size, dtype=_ELEMENTS[size])
    elements["size"] = size
    elements["value"] = values
    content, width, oid = elements.tobytes(), elements.itemsize, _NUMBER_OIDS[size]
    start = 0
    for end in ends:
        count = end - start
        if count:
            header = struct.pack(">iiiiii", _ARRAY_HEADER + count * width, 1, 0, oid, count, 1)
            yield header + content[start * width : end * width]
        else:
            yield _EMPTY_ARRAYS[size]
        start = end


def _text_array(values: Sequence[str]) -> bytes:
    if not values:
        return _field(struct.pack(">iii", 0, 0, _TEXT_OID))
    elements = b"".join(_field(value.encode()) for value in values)
    return _field(struct.pack(">iiiii", 1, 0, _TEXT_OID, len(values), 1) + elements)
