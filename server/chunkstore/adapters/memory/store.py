"""`InMemoryChunkStore`: the twin of the PostgreSQL store, ranked by `ranking`, gone with the process."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from chunkstore.adapters.memory.corpus import MemoryCorpus
from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, SourceChangedError
from chunkstore.domain.filters import Filter
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.results import (
    CorpusCounts,
    LexicalCandidates,
    MirrorInfo,
    Ranking,
    Source,
    WriteResult,
)
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.domain.writes import require_dimension, require_sources
from chunkstore.ports.chunk_store import SourceReplacement
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.reader import IndexReader

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """A tenant's corpus at one revision; see ports.chunk_store.CorpusSnapshot."""

    corpus: MemoryCorpus
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def counts(self) -> CorpusCounts:
        """The revision and the counts at it."""
        return self.corpus.counts

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        return self.corpus.index.dimension

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, where: Filter | None = None
    ) -> LexicalCandidates:
        """See LexicalCandidateSource."""
        return await self._reader.lexical_candidates(terms, limit, allowed=await self._allowed(where))

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, where: Filter | None = None
    ) -> Ranking:
        """See SemanticCandidateSource."""
        allowed = await self._allowed(where)
        return await self._reader.semantic_candidates(vector, limit, min_score=min_score, allowed=allowed)

    async def chunks(self, ids: Sequence[ChunkId], *, with_embeddings: bool = False) -> list[StoredChunk]:
        """See CorpusSnapshot."""
        try:
            return [_shown(self.corpus.rows[identifier], with_embeddings) for identifier in ids]
        except KeyError:
            raise ChunkNotFoundError from None

    async def source_ids(self, ids: Sequence[ChunkId]) -> list[str]:
        """See CorpusSnapshot."""
        return [self.corpus.rows[identifier].source_id for identifier in ids]

    async def neighbors(self, ids: Sequence[ChunkId], *, before: int, after: int) -> list[list[ChunkId]]:
        """See CorpusSnapshot."""
        hits = [self.corpus.rows[identifier] for identifier in ids]
        documents = {source: self.corpus.document(source) for source in {hit.source_id for hit in hits}}
        windows = []
        for hit in hits:
            document = documents[hit.source_id]
            place = bisect_left(document, (hit.chunk_index, hit.id))
            windows.append([identifier for _, identifier in document[max(0, place - before) : place + after + 1]])
        return windows

    async def _allowed(self, where: Filter | None) -> Allowed | None:
        if where is None:
            return None
        async with self.turn:
            allowed = self.corpus.known.get(where)
            if allowed is None:
                allowed = await asyncio.to_thread(self.corpus.allowed, where)
                self.corpus.known.put(where, allowed)
            return allowed

    @property
    def _reader(self) -> IndexReader:
        return IndexReader(self.corpus.keys, self.corpus.index)


class InMemoryChunkStore:
    """The chunk store in memory; see ports.chunk_store.ChunkStore for every method's contract.

    Each tenant's corpus is an immutable value that a write replaces, so readers never wait and never see half a write.
    """

    def __init__(self, *, dimension: int, analyzer: Analyzer, embedding_model: str | None = None) -> None:
        """Open an empty store. Raises ValueError for a dimension below 1."""
        if dimension < 1:
            raise ValueError("dimension must be at least 1")
        self._dimension = dimension
        self._analyzer = analyzer
        self._embedding_model = embedding_model
        self._corpora: dict[TenantId, MemoryCorpus] = {}
        self._writing: defaultdict[TenantId, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def adapter(self) -> str:
        """The adapter's name."""
        return "memory"

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        return self._dimension

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of every text and query."""
        return self._analyzer

    @property
    def embedding_model(self) -> str | None:
        """The model of the stored vectors."""
        return self._embedding_model

    async def upsert_many(self, tenant_id: TenantId, chunks: Sequence[StoredChunk]) -> WriteResult:
        """See ChunkWriter."""
        require_dimension(chunks, self._dimension)
        return await self._write(tenant_id, lambda corpus: corpus.upserted(chunks, self._analyzer))

    async def replace_sources(
        self, tenant_id: TenantId, replacements: Sequence[SourceReplacement]
    ) -> list[WriteResult | SourceChangedError]:
        """See ChunkWriter."""
        require_sources((replacement.source_id, replacement.chunks) for replacement in replacements)
        for replacement in replacements:
            require_dimension(replacement.chunks, self._dimension)
        return await self._write(tenant_id, lambda corpus: corpus.replaced(replacements, self._analyzer))

    async def purge_source(self, tenant_id: TenantId, source_id: str) -> int:
        """See ChunkPurge."""
        return await self._write(tenant_id, lambda corpus: corpus.purged([source_id]))

    async def purge_tenant(self, tenant_id: TenantId) -> int:
        """See ChunkPurge."""
        return await self._write(tenant_id, lambda corpus: corpus.purged(corpus.sources))

    async def get(self, tenant_id: TenantId, chunk_id: ChunkId, *, with_embedding: bool = False) -> StoredChunk:
        """See ChunkReader."""
        chunk = self._corpus(tenant_id).rows.get(chunk_id)
        if chunk is None:
            raise ChunkNotFoundError
        return _shown(chunk, with_embedding)

    async def get_by_source(
        self,
        tenant_id: TenantId,
        source_id: str,
        *,
        after: tuple[int, ChunkId] | None = None,
        limit: int,
        with_embeddings: bool = False,
    ) -> list[StoredChunk]:
        """See ChunkReader."""
        corpus = self._corpus(tenant_id)
        page = [key for key in corpus.document(source_id) if after is None or key > after][:limit]
        return [_shown(corpus.rows[identifier], with_embeddings) for _, identifier in page]

    async def get_by_entity(
        self,
        tenant_id: TenantId,
        entity_id: str,
        *,
        after: tuple[str, int, ChunkId] | None = None,
        limit: int,
        with_embeddings: bool = False,
    ) -> list[StoredChunk]:
        """See ChunkReader."""
        corpus = self._corpus(tenant_id)
        chunks = [corpus.rows[identifier] for identifier in corpus.entities.get(entity_id, ())]
        keyed = sorted((chunk.source_id, chunk.chunk_index, chunk.id) for chunk in chunks)
        page = [key for key in keyed if after is None or key > after][:limit]
        return [_shown(corpus.rows[identifier], with_embeddings) for _, _, identifier in page]

    async def list_sources(self, tenant_id: TenantId, *, after: str | None = None, limit: int) -> list[Source]:
        """See ChunkReader."""
        corpus = self._corpus(tenant_id)
        page = sorted(name for name in corpus.sources if after is None or name > after)[:limit]
        return [source for name in page if (source := corpus.source(name))]

    async def source_revisions(self, tenant_id: TenantId, source_ids: Collection[str]) -> dict[str, int]:
        """See ChunkReader."""
        sources = self._corpus(tenant_id).sources
        return {name: row.revision for name in source_ids if (row := sources.get(name)) is not None}

    async def embedded_ids(self, tenant_id: TenantId, ids: Collection[ChunkId]) -> set[ChunkId]:
        """See ChunkReader."""
        rows = self._corpus(tenant_id).rows
        return {i for i in ids if (row := rows.get(i)) is not None and row.embedding is not None}

    async def counts(self, tenant_id: TenantId) -> CorpusCounts:
        """See ChunkReader."""
        return self._corpus(tenant_id).counts

    @asynccontextmanager
    async def snapshot(
        self, tenant_id: TenantId, *, pinned: bool = False, ready: Awaitable[object] | None = None
    ) -> AsyncIterator[MemorySnapshot]:
        """See ChunkStore; always pinned, and there are no connections."""
        yield MemorySnapshot(self._corpus(tenant_id))

    def mirror_info(self, tenant_id: TenantId) -> MirrorInfo | None:
        """See ChunkStore: there are no mirrors."""
        return None

    async def ping(self) -> None:
        """See ChunkStore; memory always answers."""

    async def aclose(self) -> None:
        """See ChunkStore; everything stored is gone."""
        self._corpora.clear()

    def _corpus(self, tenant_id: TenantId) -> MemoryCorpus:
        return self._corpora.get(tenant_id) or MemoryCorpus(TermKeys(tenant_id), CorpusIndex(self._dimension))

    async def _write(
        self, tenant_id: TenantId, change: Callable[[MemoryCorpus], tuple[MemoryCorpus, ResultT]]
    ) -> ResultT:
        async with self._writing[tenant_id]:
            corpus, result = await asyncio.to_thread(change, self._corpus(tenant_id))
            self._corpora[tenant_id] = corpus
            return result


def _shown(chunk: StoredChunk, with_embedding: bool) -> StoredChunk:
    return chunk if with_embedding else chunk.with_embedding(None)
