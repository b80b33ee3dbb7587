"""The chunk store: five capabilities, and the snapshot in which the two candidate sources are read.

Every method is bound to one tenant and reaches no other tenant's rows. Errors that any of them may raise:
StoreUnavailableError, NoFreeConnectionError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import SourceChangedError
from chunkstore.domain.filters import Filter
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


@dataclass(frozen=True, slots=True)
class SourceReplacement:
    """The whole new content of a source. `expected_revision` None is unconditional; 0 means "does not exist"."""

    source_id: str
    chunks: Sequence[StoredChunk]
    expected_revision: int | None = None


class ChunkWriter(Protocol):
    """Writing. Each call is one transaction: visible whole to later reads, or not at all.

    Chunks of the same id within a call are folded into one. A chunk without a vector keeps a stored one; a chunk with
    one sets it. A write that changes nothing leaves every revision as it was. Raises DimensionMismatchError, before
    anything is written, for a vector of another width than the store's.
    """

    async def upsert_many(self, tenant_id: TenantId, chunks: Sequence[StoredChunk]) -> WriteResult:
        """Insert chunks, or update those stored under the same id; others stay. The result's revision is the corpus's.

        A chunk id is derived from source id and text, so an update never changes a text.
        """
        ...

    async def replace_sources(
        self, tenant_id: TenantId, replacements: Sequence[SourceReplacement]
    ) -> list[WriteResult | SourceChangedError]:
        """Replace sources, all in one transaction; one result each, in order, with the source's revision.

        A replacement whose expected_revision does not hold changes nothing and gives a SourceChangedError (returned,
        not raised); the others are carried out. Raises ValueError where two replacements name one source or a chunk is
        of another source.
        """
        ...


class ChunkReader(Protocol):
    """Reading what is stored, unranked. Vectors are read only where asked for; without, `embedding` is None."""

    async def get(self, tenant_id: TenantId, chunk_id: ChunkId, *, with_embedding: bool = False) -> StoredChunk:
        """One chunk. Raises ChunkNotFoundError, also for a chunk that only another tenant has."""
        ...

    async def get_by_source(
        self,
        tenant_id: TenantId,
        source_id: str,
        *,
        after: tuple[int, ChunkId] | None = None,
        limit: int,
        with_embeddings: bool = False,
    ) -> list[StoredChunk]:
        """At most `limit` chunks of a source by (chunk_index, id), those after `after`; none for an absent source."""
        ...

    async def get_by_entity(
        self,
        tenant_id: TenantId,
        entity_id: str,
        *,
        after: tuple[str, int, ChunkId] | None = None,
        limit: int,
        with_embeddings: bool = False,
    ) -> list[StoredChunk]:
        """At most `limit` chunks that mention an entity by (source_id, chunk_index, id), those after `after`."""
        ...

    async def list_sources(self, tenant_id: TenantId, *, after: str | None = None, limit: int) -> list[Source]:
        """At most `limit` sources by source_id (code points), those after `after`."""
        ...

    async def source_revisions(self, tenant_id: TenantId, source_ids: Collection[str]) -> dict[str, int]:
        """The revisions of those of `source_ids` that exist."""
        ...

    async def embedded_ids(self, tenant_id: TenantId, ids: Collection[ChunkId]) -> set[ChunkId]:
        """Those of `ids` that are stored with a vector."""
        ...

    async def counts(self, tenant_id: TenantId) -> CorpusCounts:
        """The tenant's counts; all 0 for a tenant that has never written."""
        ...


class LexicalCandidateSource(Protocol):
    """The chunks that share terms with a query."""

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, where: Filter | None = None
    ) -> LexicalCandidates:
        """The exact top `limit` by BM25 over the distinct `terms`, score descending, ties by id ascending.

        Chunks that do not meet `where` are no candidates: it applies before `limit`. Statistics are of the tenant's
        whole corpus whatever the filter; doc_frequencies covers exactly the asked terms, 0 for one that no chunk holds.
        `limit` 0: no candidates, full statistics. No terms: neither. Raises ValueError if negative.
        """
        ...


class SemanticCandidateSource(Protocol):
    """The chunks nearest to a vector."""

    @property
    def dimension(self) -> int:
        """Width of every vector, stored or asked with."""
        ...

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, where: Filter | None = None
    ) -> Ranking:
        """The exact top `limit` embedded chunks by `cosine_scores`, score descending, ties by id ascending.

        Chunks that are not embedded, or do not meet `where`, are no candidates. `min_score` and `where` apply before
        `limit`; limit 0 gives nothing.
        Raises ValueError for a negative limit, DimensionMismatchError for a vector of another width.
        """
        ...


class CorpusSnapshot(LexicalCandidateSource, SemanticCandidateSource, Protocol):
    """One tenant's corpus as of one revision: whatever is read through it agrees, whatever is written meanwhile."""

    @property
    def counts(self) -> CorpusCounts:
        """The revision and the counts at that revision."""
        ...

    async def chunks(self, ids: Sequence[ChunkId], *, with_embeddings: bool = False) -> list[StoredChunk]:
        """The chunks of this snapshot of those ids, in their order. Raises ChunkNotFoundError for one that it lacks."""
        ...

    async def source_ids(self, ids: Sequence[ChunkId]) -> list[str]:
        """The sources of candidates of this snapshot, in the order of `ids`."""
        ...

    async def neighbors(self, ids: Sequence[ChunkId], *, before: int, after: int) -> list[list[ChunkId]]:
        """For each candidate of `ids`: those around it in its source, in document order, itself among them.

        At most `before` of them stand before it and `after` of them after it; none is left out in between. Document
        order is by (chunk_index, id).
        """
        ...


class ChunkPurge(Protocol):
    """Removal for good. What is not there counts 0."""

    async def purge_source(self, tenant_id: TenantId, source_id: str) -> int:
        """Remove a source and its chunks; how many chunks there were."""
        ...

    async def purge_tenant(self, tenant_id: TenantId) -> int:
        """Remove everything of the tenant; how many chunks there were. Its revision goes on from where it was."""
        ...


class ChunkStore(ChunkWriter, ChunkReader, ChunkPurge, Protocol):
    """All capabilities; the two candidate sources are those of a snapshot, so that channels agree on a revision."""

    @property
    def adapter(self) -> str:
        """The adapter's name."""
        ...

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        ...

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of every text and query."""
        ...

    @property
    def embedding_model(self) -> str | None:
        """The model of the stored vectors; None where none has been recorded."""
        ...

    def snapshot(
        self, tenant_id: TenantId, *, pinned: bool = False, ready: Awaitable[object] | None = None
    ) -> AbstractAsyncContextManager[CorpusSnapshot]:
        """The tenant's corpus as of a commit not older than the last one before the call. Keep it short.

        Unless `pinned`, an adapter may notice only when chunks are read, or when the snapshot ends, that it is not, or
        that its rows have changed since, and raise SnapshotExpiredError: see `composition.reading`. A pinned one never
        does; it may hold a connection meanwhile. `ready` is awaited before a connection is taken that will be held.
        """
        ...

    def mirror_info(self, tenant_id: TenantId) -> MirrorInfo | None:
        """What mirrors take in this process's memory, and how the tenant is ranked; None where there are none.

        Asking loads nothing, and does not count as a use of the tenant.
        """
        ...

    async def ping(self) -> None:
        """Return if the store can answer. Raises StoreUnavailableError or NoFreeConnectionError."""
        ...

    async def aclose(self) -> None:
        """Release everything held; further calls are an error."""
        ...
