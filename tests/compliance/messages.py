"""Short ways to make the contract's messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format, struct_pb2

from chunkstore.v1 import (
    chunk_pb2,
    chunk_writer_service_pb2,
    indexing_service_pb2,
)
from chunkstore.v1.chunk_pb2 import Chunk, Occurrence, Vector
from chunkstore.v1.chunk_writer_service_pb2 import WriteCounts
from chunkstore.v1.indexing_service_pb2 import Document, DocumentFormat, IndexCounts, IndexDocumentsRequest

Place = tuple[int, int, int]

PASSAGE = indexing_service_pb2.DOCUMENT_FORMAT_PASSAGE
PLAIN_TEXT = indexing_service_pb2.DOCUMENT_FORMAT_PLAIN_TEXT
MARKDOWN = indexing_service_pb2.DOCUMENT_FORMAT_MARKDOWN


def derived_id(source_id: str, text: str) -> str:
    """The id of a chunk, as the contract defines it."""
    return hashlib.sha256(source_id.encode() + b"\0" + text.encode()).hexdigest()


def chunk(
    source_id: str,
    text: str,
    *,
    index: int = 0,
    start: int = 0,
    entities: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    vector: Sequence[float] | None = None,
    others: Sequence[Place] = (),
) -> Chunk:
    """A chunk to write; id and end are left to the server."""
    message = Chunk(source_id=source_id, text=text, chunk_index=index, start_char=start, entity_ids=entities)
    if metadata is not None:
        message.metadata.CopyFrom(struct(metadata))
    if vector is not None:
        message.embedding.CopyFrom(Vector(values=vector))
    message.other_occurrences.extend(occurrence(place) for place in others)
    return message


def stored(sent: Chunk, **changed: Any) -> Chunk:
    """`sent` as it is read back, with its vector: id and end filled in, entities sorted and distinct."""
    expected = Chunk()
    expected.CopyFrom(sent)
    expected.id = derived_id(sent.source_id, sent.text)
    if not sent.HasField("end_char"):
        expected.end_char = sent.start_char + len(sent.text)
    entities = sorted(set(sent.entity_ids))
    del expected.entity_ids[:]
    expected.entity_ids.extend(entities)
    for name, value in changed.items():
        setattr(expected, name, value)
    return expected


def without_vector(message: Chunk) -> Chunk:
    """The chunk as it is read back where vectors were not asked for."""
    bare = Chunk()
    bare.CopyFrom(message)
    bare.ClearField("embedding")
    return bare


def occurrence(place: Place) -> Occurrence:
    """An occurrence of `(chunk_index, start_char, end_char)`."""
    return chunk_pb2.Occurrence(chunk_index=place[0], start_char=place[1], end_char=place[2])


def places(message: Chunk) -> list[Place]:
    """The chunk's further places."""
    return [(at.chunk_index, at.start_char, at.end_char) for at in message.other_occurrences]


def struct(value: Mapping[str, Any]) -> struct_pb2.Struct:
    """A Struct of a JSON object; unlike json_format it lets NaN and the infinities through."""
    message = struct_pb2.Struct()
    message.update(dict(value))
    return message


def nested_struct(levels: int) -> bytes:
    """The bytes of a Struct of that many levels, which need not be decodable."""
    content = b""
    for _ in range(levels):
        value = length_delimited(5, content)
        content = length_delimited(1, length_delimited(1, b"k") + length_delimited(2, value))
    return content


def length_delimited(field_number: int, content: bytes) -> bytes:
    """A field of a message, as bytes."""
    return bytes([field_number << 3 | 2]) + _varint(len(content)) + content


def plain(message: struct_pb2.Struct) -> dict[str, Any]:
    """The JSON object of a Struct."""
    value: dict[str, Any] = json_format.MessageToDict(message)
    return value


def counts(**numbers: int) -> WriteCounts:
    """Counts of a write; those not named are 0."""
    return chunk_writer_service_pb2.WriteCounts(**numbers)


def index_counts(**numbers: int) -> IndexCounts:
    """Counts of an indexed document; those not named are 0."""
    return indexing_service_pb2.IndexCounts(**numbers)


def document(
    source_id: str,
    text: str,
    *,
    cut: DocumentFormat.ValueType = PASSAGE,
    metadata: Mapping[str, Any] | None = None,
    entities: Sequence[str] = (),
) -> IndexDocumentsRequest:
    """A document to stream; a passage where not said otherwise."""
    message = Document(source_id=source_id, text=text, format=cut, entity_ids=entities)
    if metadata is not None:
        message.metadata.CopyFrom(struct(metadata))
    return indexing_service_pb2.IndexDocumentsRequest(document=message)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
