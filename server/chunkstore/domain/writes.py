"""What a write does to the stored rows, decided in one place for every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chunkstore.domain.chunk import ChunkId, StoredChunk, fold_duplicates, keep_embedding
from chunkstore.domain.errors import DimensionMismatchError
from chunkstore.domain.results import WriteCounts


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Chunks to insert, chunks to update (as they shall be stored), ids to remove, and the counts to report."""

    inserted: tuple[StoredChunk, ...]
    updated: tuple[StoredChunk, ...]
    removed: tuple[ChunkId, ...]
    counts: WriteCounts

    @property
    def changes_anything(self) -> bool:
        """Whether any row differs afterwards."""
        return bool(self.inserted or self.updated or self.removed)


def plan_write(chunks: Sequence[StoredChunk], stored: Mapping[ChunkId, StoredChunk], *, replace: bool) -> WritePlan:
    """Plan writing `chunks` over the rows `stored`; with `replace`, rows that are not among the chunks are removed.

    `stored` holds at least the rows of the chunks' ids, and all rows of the source where it is replaced. Repeats of an
    id are folded. A chunk without a vector keeps the stored one, and is unchanged if nothing else differs.
    """
    folded, duplicates = fold_duplicates(chunks)
    inserted: list[StoredChunk] = []
    updated: list[StoredChunk] = []
    embedded = reused = 0
    for chunk in folded:
        before = stored.get(chunk.id)
        if before is None:
            inserted.append(chunk)
            embedded += chunk.embedding is not None
            continue
        sets_vector = chunk.embedding is not None and not _holds(before, chunk.embedding)
        reused += chunk.embedding is None and before.embedding is not None
        if sets_vector or not chunk.same_fields(before):
            updated.append(keep_embedding(chunk, before))
            embedded += sets_vector
    kept = {chunk.id for chunk in folded}
    removed = tuple(identifier for identifier in stored if identifier not in kept) if replace else ()
    counts = WriteCounts(
        written=len(inserted) + len(updated),
        unchanged=len(folded) - len(inserted) - len(updated),
        removed=len(removed),
        embedded=embedded,
        embeddings_reused=reused,
        duplicates_folded=duplicates,
    )
    return WritePlan(tuple(inserted), tuple(updated), removed, counts)


def require_dimension(chunks: Sequence[StoredChunk], dimension: int) -> None:
    """Raise DimensionMismatchError, naming the chunk's place, for the first vector of another width."""
    for position, chunk in enumerate(chunks):
        if chunk.embedding is not None and chunk.embedding.size != dimension:
            field = f"chunks[{position}].embedding"
            raise DimensionMismatchError(expected=dimension, actual=chunk.embedding.size, field=field)


def require_sources(replacements: Iterable[tuple[str, Sequence[StoredChunk]]]) -> None:
    """Raise ValueError where two replacements name one source, or a chunk is of another source than its own."""
    seen: set[str] = set()
    for source_id, chunks in replacements:
        if source_id in seen:
            raise ValueError("a source is replaced twice in one call")
        if any(chunk.source_id != source_id for chunk in chunks):
            raise ValueError("a chunk is of another source than the one replaced")
        seen.add(source_id)


def _holds(chunk: StoredChunk, vector: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bool:
    return chunk.embedding is not None and np.array_equal(chunk.embedding, vector)
