"""What an answer takes from a ranking, without changing its order: a page, a cap for each source, the chunks around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chunkstore.composition.pool import Pool
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.filters import Filter
from chunkstore.domain.results import PageStart, SourceContext
from chunkstore.domain.sources import runs_around, within_source_cap
from chunkstore.ports.chunk_store import CorpusSnapshot

DEFAULT_K: Final = 10
MAX_NEIGHBORS: Final = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a ranking to answer with: `k` chunks from `start` on, at most `max_per_source` of one source.

    None is the top, and no cap. With each chunk go so many neighbors of it and, where `explain` asks for it, its
    explanation. Raises InvalidFieldError for a cap below 1, or for neighbors outside [0, 10].
    """

    k: int = DEFAULT_K
    start: PageStart | None = None
    max_per_source: int | None = None
    neighbors_before: int = 0
    neighbors_after: int = 0
    with_embeddings: bool = False
    explain: bool = False

    def __post_init__(self) -> None:
        if self.max_per_source is not None and self.max_per_source < 1:
            raise InvalidFieldError("max_per_source", "must be at least 1")
        for field in ("neighbors_before", "neighbors_after"):
            if not 0 <= getattr(self, field) <= MAX_NEIGHBORS:
                raise InvalidFieldError(field, f"must be within [0, {MAX_NEIGHBORS}]")

    @property
    def offset(self) -> int:
        """How many chunks of the answer come before the first."""
        return 0 if self.start is None else self.start.offset


@dataclass(frozen=True, slots=True)
class SelectedChunks:
    """Chunks of the fused order, best first, each with its fused score, and whether the order goes on after them."""

    ids: list[ChunkId]
    scores: list[float]
    more: bool


async def select_chunks(corpus: CorpusSnapshot, pool: Pool, selection: Selection) -> SelectedChunks:
    """The chunks of the selection; fewer than k where the pool has no more."""
    end = selection.offset + selection.k
    if selection.max_per_source is None:
        found = pool.best(end + 1)
    else:
        fused = pool.best()
        ids = [identifier for identifier, _ in fused]
        found = [fused[n] for n in await _within_cap(corpus, ids, selection.max_per_source, end + 1)]
    page = found[selection.offset : end]
    return SelectedChunks(
        ids=[identifier for identifier, _ in page], scores=[score for _, score in page], more=len(found) > end
    )


async def read_selected(
    corpus: CorpusSnapshot, ids: Sequence[ChunkId], selection: Selection, where: Filter | None
) -> tuple[list[StoredChunk], tuple[SourceContext, ...]]:
    """The chunks of `ids`, in their order, and what stands around them and meets `where`, if any of it is asked for."""
    before, after = selection.neighbors_before, selection.neighbors_after
    if not ids or not (before or after):
        return await corpus.chunks(ids, with_embeddings=selection.with_embeddings), ()
    # One further than asked for tells which windows adjoin.
    windows = await corpus.neighbors(ids, before=before, after=after + 1)
    asked = [window[: window.index(hit) + after + 1] for hit, window in zip(ids, windows, strict=True)]
    wanted = list(dict.fromkeys(identifier for window in asked for identifier in window))
    chunks = {chunk.id: chunk for chunk in await corpus.chunks(wanted, with_embeddings=selection.with_embeddings)}
    kept = {chunk.id for chunk in chunks.values() if where is None or where.meets(chunk.source_id, chunk.metadata)}
    contexts = tuple(
        SourceContext(tuple(chunks[identifier] for identifier in run.ids), tuple(run.hits))
        for run in runs_around(ids, windows, kept)
    )
    return [chunks[identifier] for identifier in ids], contexts


async def _within_cap(corpus: CorpusSnapshot, ids: Sequence[ChunkId], most: int, count: int) -> list[int]:
    """The first `count` positions of `ids` that a cap of `most` for each source lets through, fewer at the end.

    Sources are read from the top down, twice as many each time, until that is known.
    """
    sources: list[str] = []
    kept: list[int] = []
    while len(kept) < count and len(sources) < len(ids):
        sources += await corpus.source_ids(ids[len(sources) : 2 * max(len(sources), count)])
        kept = within_source_cap(sources, most)
    return kept[:count]
