"""The chunk: its derived id, its bounds, and how repeats of a text within a document fold into one."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NewType

import numpy as np

from chunkstore.domain.errors import ChunkIdMismatchError, InvalidFieldError
from chunkstore.domain.metadata import EMPTY, Metadata, frozen_metadata, same_metadata
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import checked_entity_id, checked_source_id, checked_text

ChunkId = NewType("ChunkId", str)

MAX_CHUNK_BYTES: Final = 256 * 1024
MAX_ENTITIES: Final = 256
MAX_OFFSET: Final = 2**31 - 1

_CHUNK_ID = re.compile("[0-9a-f]{64}")


def chunk_id(source_id: str, text: str) -> ChunkId:
    """Hex SHA-256 of the UTF-8 source id, one NUL byte and the UTF-8 text.

    NUL is refused in both, so no two pairs share a preimage. Raises InvalidFieldError for what cannot be stored.
    """
    checked_source_id(source_id)
    checked_text("text", text, max_bytes=MAX_CHUNK_BYTES)
    return ChunkId(hashlib.sha256(source_id.encode() + b"\0" + text.encode()).hexdigest())


def checked_chunk_id(value: str, field: str = "id") -> ChunkId:
    """Return `value` if it has the form of a chunk id: 64 lower-case hexadecimal digits."""
    if not _CHUNK_ID.fullmatch(value):
        raise InvalidFieldError(field, "must be 64 lower-case hexadecimal digits")
    return ChunkId(value)


def checked_entities(entity_ids: Iterable[str]) -> tuple[str, ...]:
    """Entity ids sorted and distinct. Raises InvalidFieldError for a bad one, or for more than 256."""
    if not entity_ids:
        return ()
    distinct = sorted({checked_entity_id(entity, f"entity_ids[{n}]") for n, entity in enumerate(entity_ids)})
    if len(distinct) > MAX_ENTITIES:
        raise InvalidFieldError("entity_ids", f"has more than {MAX_ENTITIES} entries")
    return tuple(distinct)


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """A place of a text in its document; offsets in Unicode code points, half open. Ordered by place."""

    chunk_index: int
    start_char: int
    end_char: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunk:
    """One passage of one document; immutable, and valid by construction.

    `embedding` is a read-only float32 array, or None for *not embedded*, which is no zero vector. `entity_ids` come
    out sorted and distinct, `other_occurrences` sorted. Offsets are code points of the document: end_char -
    start_char is the length of `text`. Raises InvalidFieldError naming the field.
    """

    source_id: str
    text: str
    chunk_index: int
    start_char: int
    end_char: int
    entity_ids: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=lambda: EMPTY)
    embedding: Vector | None = None
    other_occurrences: tuple[Occurrence, ...] = ()
    id: ChunkId = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "id", chunk_id(self.source_id, self.text))
        _check_place(self.place, len(self.text))
        for number, place in enumerate(self.other_occurrences):
            _check_place(place, len(self.text), f"other_occurrences[{number}].")
        set_field(self, "entity_ids", checked_entities(self.entity_ids))
        set_field(self, "metadata", frozen_metadata(self.metadata))
        if self.other_occurrences:
            set_field(self, "other_occurrences", tuple(sorted(set(self.other_occurrences) - {self.place})))
        if self.embedding is not None:
            set_field(self, "embedding", checked_vector(self.embedding, "embedding"))

    @property
    def place(self) -> Occurrence:
        """Where the text occurs first."""
        return Occurrence(self.chunk_index, self.start_char, self.end_char)

    def with_embedding(self, embedding: Vector | None) -> StoredChunk:
        """The same chunk with another vector, or none."""
        return dataclasses.replace(self, embedding=embedding)

    def same_fields(self, other: StoredChunk) -> bool:
        """Whether everything but the embedding is equal."""
        return (
            self.id == other.id
            and self.place == other.place
            and self.entity_ids == other.entity_ids
            and same_metadata(self.metadata, other.metadata)
            and self.other_occurrences == other.other_occurrences
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredChunk):
            return NotImplemented
        return self.same_fields(other) and _same_vector(self.embedding, other.embedding)

    def __hash__(self) -> int:
        return hash(self.id)


def require_id(chunk: StoredChunk, supplied: str, field: str = "id") -> StoredChunk:
    """Return `chunk` if `supplied` is empty or its id. Raises ChunkIdMismatchError naming `field`."""
    if supplied and supplied != chunk.id:
        raise ChunkIdMismatchError(field, "is not the one derived from source_id and text")
    return chunk


def fold_duplicates(chunks: Iterable[StoredChunk]) -> tuple[list[StoredChunk], int]:
    """Fold chunks of the same id into the one at the first place; the others become its other_occurrences.

    Returns the folded chunks in the order of their first appearance, and how many were folded away. The first place's
    metadata stays, entities are united, and the first vector present is kept.
    """
    groups: dict[ChunkId, list[StoredChunk]] = {}
    for chunk in chunks:
        groups.setdefault(chunk.id, []).append(chunk)
    folded = [_folded(group) for group in groups.values()]
    return folded, sum(map(len, groups.values())) - len(folded)


def keep_embedding(chunk: StoredChunk, stored: StoredChunk) -> StoredChunk:
    """`chunk` as a write leaves it over `stored`: a write without a vector never erases one."""
    if chunk.embedding is None and stored.embedding is not None:
        return chunk.with_embedding(stored.embedding)
    return chunk


def _folded(group: Sequence[StoredChunk]) -> StoredChunk:
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda chunk: chunk.place)
    return dataclasses.replace(
        first,
        entity_ids=tuple(entity for chunk in group for entity in chunk.entity_ids),
        embedding=next((chunk.embedding for chunk in group if chunk.embedding is not None), None),
        other_occurrences=tuple(place for chunk in group for place in (chunk.place, *chunk.other_occurrences)),
    )


def _check_place(place: Occurrence, length: int, within: str = "") -> None:
    if not 0 <= place.chunk_index <= MAX_OFFSET:
        raise InvalidFieldError(f"{within}chunk_index", f"must be within [0, {MAX_OFFSET}]")
    if not 0 <= place.start_char <= MAX_OFFSET - length:
        raise InvalidFieldError(f"{within}start_char", f"must be within [0, {MAX_OFFSET}] less the length of text")
    if place.end_char - place.start_char != length:
        raise InvalidFieldError(f"{within}end_char", "must be start_char plus the number of code points of text")


def _same_vector(one: Vector | None, other: Vector | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
