"""`MirroredChunkStore`: rows and truth in PostgreSQL, ranking in memory, always as fresh as the last commit."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog

from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.conditions import condition
from chunkstore.adapters.postgres.mirror_rows import ChunkColumns
from chunkstore.adapters.postgres.pool import Database, Record, Transaction
from chunkstore.adapters.postgres.rows import RowReader, chunk_of, neighbors_of, packed_ids, source_of
from chunkstore.adapters.postgres.settings import require_match, settings_from
from chunkstore.adapters.postgres.snapshot import PostgresSnapshot
from chunkstore.adapters.postgres.store import PostgresChunkStore, counts_from
from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.bm25 import IdWords, id_words
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, SnapshotExpiredError
from chunkstore.domain.filters import Filter
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.results import (
    CorpusCounts,
    LexicalCandidates,
    MirrorInfo,
    MirrorState,
    Ranking,
)
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import CorpusSnapshot
from chunkstore.ranking.allowed import Allowed, AllowedRows
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.reader import IndexReader

ValueT = TypeVar("ValueT")

DEFAULT_MEMORY: Final = 2 * 1024**3

_ROWS_AT_ONCE: Final = 2048
# Bytes of a chunk beside its vector and postings, and of a posting; of a vector beside its floats and codes.
_CHUNK_BYTES: Final = 64
_POSTING_BYTES: Final = 8
_VECTOR_BYTES: Final = 16
_MOST_TENANTS: Final = 10_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MirroredCorpus:
    """A tenant's index, the counts at its revision, the bytes of memory that it takes, and rows that meet filters."""

    reader: IndexReader
    counts: CorpusCounts
    size: int = 0
    known: AllowedRows = field(default_factory=AllowedRows)


@dataclass(slots=True)
class _Mirror:
    """A hot tenant's newest corpus; `lock` is held while it is loaded or caught up, or found not to fit.

    `underestimated`: how many times the estimate it took when it was last loaded, at least 1.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    corpus: MirroredCorpus | None = None
    too_large: bool = False
    underestimated: float = 1.0

    @property
    def size(self) -> int:
        return self.corpus.size + self.corpus.known.size if self.corpus else 0

    @property
    def state(self) -> MirrorState:
        if self.corpus is not None:
            return MirrorState.MIRRORED
        return MirrorState.TOO_LARGE if self.too_large else MirrorState.NOT_LOADED


class MirrorSnapshot:
    """A mirrored corpus; its rows are read from PostgreSQL, by a transaction of its own or, pinned, by the given one.

    Not pinned, it holds no connection, and raises SnapshotExpiredError where `chunks` finds that the tenant's revision
    was not this one when the snapshot was taken, or that a row asked for has changed since; `source_ids`, that a chunk
    has gone; `neighbors`, that anything at all has changed.
    """

    def __init__(
        self,
        store: MirroredChunkStore,
        tenant_id: TenantId,
        corpus: MirroredCorpus,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        self._store = store
        self._tenant_id = tenant_id
        self._corpus = corpus
        self._transaction = transaction
        self._turn = asyncio.Lock()
        self._asking: dict[Filter, asyncio.Task[Allowed]] = {}
        self._revision = None if transaction else asyncio.create_task(store.current_revision(tenant_id))

    @property
    def counts(self) -> CorpusCounts:
        """The revision and the counts at it."""
        return self._corpus.counts

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        return self._corpus.reader.index.dimension

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, where: Filter | None = None
    ) -> LexicalCandidates:
        """See LexicalCandidateSource."""
        return await self._corpus.reader.lexical_candidates(terms, limit, allowed=await self._allowed(where))

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, where: Filter | None = None
    ) -> Ranking:
        """See SemanticCandidateSource."""
        allowed = await self._allowed(where)
        return await self._corpus.reader.semantic_candidates(vector, limit, min_score=min_score, allowed=allowed)

    async def chunks(self, ids: Sequence[ChunkId], *, with_embeddings: bool = False) -> list[StoredChunk]:
        """See CorpusSnapshot."""
        await self.require_current()
        arguments = with_embeddings, packed_ids(ids), self.counts.revision
        return self._each(ids, chunk_of, await self._rows(ids, queries.CHUNKS_AS_OF, *arguments))

    async def source_ids(self, ids: Sequence[ChunkId]) -> list[str]:
        """See CorpusSnapshot. A chunk id is of one source for ever, so that it need not be proved of this revision."""
        return self._each(ids, source_of, await self._rows(ids, queries.SOURCES_OF_CHUNKS, packed_ids(ids)))

    async def neighbors(self, ids: Sequence[ChunkId], *, before: int, after: int) -> list[list[ChunkId]]:
        """See CorpusSnapshot."""
        rows = await self._rows(ids, queries.NEIGHBORS, packed_ids(ids), before, after)
        # No row that is left tells that another has gone, so the corpus itself must be as it was.
        if any(row["revision"] != self.counts.revision for row in rows):
            raise SnapshotExpiredError
        return self._each(ids, neighbors_of, rows)

    async def require_current(self) -> None:
        """Raise SnapshotExpiredError where the corpus was behind the database when the snapshot was taken."""
        if self._revision is not None and await self._revision != self.counts.revision:
            raise SnapshotExpiredError

    async def _allowed(self, where: Filter | None) -> Allowed | None:
        """The rows of the index whose chunks meet a filter, as of the corpus's revision."""
        if where is None or not self.counts.revision:
            return None
        allowed = self._corpus.known.get(where)
        if allowed is not None:
            return allowed
        if where not in self._asking:
            self._asking[where] = asyncio.create_task(self._asked(where))
        # A channel that is cancelled leaves the statement, and with it the transaction, to the others.
        return await asyncio.shield(self._asking[where])

    async def _asked(self, where: Filter) -> Allowed:
        if self._transaction is not None:
            async with self._turn:
                ids = await self._meeting(where, self._transaction)
        else:
            async with self._store.ranking() as transaction:
                ids = await self._meeting(where, transaction)
        allowed = await asyncio.to_thread(self._corpus.reader.index.allowed, ids)
        self._corpus.known.put(where, allowed)
        self._store.make_room(self._tenant_id)
        return allowed

    async def _rows(self, ids: Sequence[ChunkId], statement: str, *arguments: object) -> list[Record]:
        """The rows of a statement about `ids`; without any it is not run."""
        if not ids:
            return []
        if self._transaction is None:
            return await self._store.rows(statement, self._tenant_id, *arguments)
        async with self._turn:
            return await self._transaction.fetch(statement, self._tenant_id, *arguments)

    def _each(self, ids: Sequence[ChunkId], read: RowReader[ValueT], rows: Iterable[Record]) -> list[ValueT]:
        """What is read of each id in its row.

        Raises SnapshotExpiredError where that is gone, ChunkNotFoundError where the corpus does not hold the id.
        """
        found = dict(map(read, rows))
        missing = {*ids} - found.keys()
        if missing and self._corpus.reader.index.holds(missing):
            raise SnapshotExpiredError
        if missing:
            raise ChunkNotFoundError
        return [found[identifier] for identifier in ids]

    async def _meeting(self, where: Filter, transaction: Transaction) -> IdWords:
        """The chunks that meet a filter. Raises SnapshotExpiredError where that is known of another revision alone."""
        meets = condition(where, first=2)
        row = await transaction.fetch_row(queries.chunks_meeting(meets.sql), self._tenant_id, *meets.arguments)
        if row is None or row["revision"] != self.counts.revision:
            raise SnapshotExpiredError
        return id_words(row["ids"] or b"")

    async def close(self) -> None:
        """End what is under way."""
        tasks: list[asyncio.Task[Any]] = [*self._asking.values()]
        if self._revision is not None:
            tasks.append(self._revision)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class MirroredChunkStore(PostgresChunkStore):
    """PostgresChunkStore, but each hot tenant is ranked in memory, by an index that is caught up before it answers.

    A query ranks the index as it is while the tenant's revision is read; where that has moved on, the index takes in
    what has been written and removed since, and ranks again. Indexes of all tenants together take at most
    `mirror_memory` bytes: the least recently asked are dropped, and a tenant that does not fit is ranked in SQL.
    """

    def __init__(
        self, database: Database, *, dimension: int, analyzer: Analyzer, embedding_model: str | None = None
    ) -> None:
        super().__init__(database, dimension=dimension, analyzer=analyzer, embedding_model=embedding_model)
        self.mirror_memory = DEFAULT_MEMORY
        self._mirrors: OrderedDict[TenantId, _Mirror] = OrderedDict()

    @property
    def adapter(self) -> str:
        """The adapter's name."""
        return "postgres-mirror"

    @property
    def mirrored_tenants(self) -> tuple[TenantId, ...]:
        """The tenants in memory, the least recently asked first."""
        return tuple(tenant_id for tenant_id, mirror in self._mirrors.items() if mirror.corpus is not None)

    @property
    def mirrored_bytes(self) -> int:
        """Bytes of memory that their indexes take."""
        return sum(mirror.size for mirror in self._mirrors.values())

    def mirror_info(self, tenant_id: TenantId) -> MirrorInfo:
        """See ChunkStore."""
        mirror = self._mirrors.get(tenant_id, _Mirror())
        return MirrorInfo(
            memory_budget=self.mirror_memory,
            memory_used=self.mirrored_bytes,
            mirrored_tenant_count=len(self.mirrored_tenants),
            state=mirror.state,
            revision=mirror.corpus.counts.revision if mirror.corpus is not None else None,
            size=mirror.size,
        )

    @asynccontextmanager
    async def snapshot(
        self, tenant_id: TenantId, *, pinned: bool = False, ready: Awaitable[object] | None = None
    ) -> AsyncIterator[CorpusSnapshot]:
        """See ChunkStore."""
        mirror = self._mirror_of(tenant_id)
        if pinned or mirror.corpus is None:
            if ready is not None:
                await ready
            async with self._caught_up(tenant_id, mirror) as snapshot:
                yield snapshot
            return
        unpinned = MirrorSnapshot(self, tenant_id, mirror.corpus)
        try:
            yield unpinned
            await unpinned.require_current()
        finally:
            await unpinned.close()

    async def current_revision(self, tenant_id: TenantId) -> int:
        """The tenant's revision; 0 where it has never written. Raises StoreMismatchError after a migration."""
        rows = await self.rows(queries.CORPUS_AND_SETTINGS, tenant_id)
        if not rows:
            return 0
        require_match(settings_from(rows[0]), self._settings)
        return int(rows[0]["revision"])

    async def rows(self, statement: str, *arguments: object) -> list[Record]:
        """The rows of one reading statement."""
        return await self._database.fetch(statement, *arguments)

    def ranking(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that reads for a ranking."""
        return self._database.transaction(queries.BEGIN_SNAPSHOT)

    def make_room(self, keep: TenantId) -> None:
        """Drop the tenants asked least recently while all of them together take more memory than they may."""
        excess = self.mirrored_bytes - self.mirror_memory
        for tenant_id, mirror in list(self._mirrors.items()):
            crowded = len(self._mirrors) > _MOST_TENANTS
            if excess <= 0 and not crowded:
                return
            # Dropping a tenant that takes nothing makes no room, and forgets that it is too large.
            if tenant_id == keep or mirror.lock.locked() or not (mirror.size or crowded):
                continue
            excess -= mirror.size
            del self._mirrors[tenant_id]
            if mirror.corpus is not None:
                _log.info("mirror evicted", tenant=tenant_id, bytes=mirror.size)

    def _mirror_of(self, tenant_id: TenantId) -> _Mirror:
        mirror = self._mirrors.setdefault(tenant_id, _Mirror())
        self._mirrors.move_to_end(tenant_id)
        return mirror

    @asynccontextmanager
    async def _caught_up(self, tenant_id: TenantId, mirror: _Mirror) -> AsyncIterator[CorpusSnapshot]:
        """A snapshot of the corpus as of now, in a transaction that lasts as long; in SQL where it does not fit."""
        async with AsyncExitStack() as stack:
            # Whoever waits for the lock holds no connection.
            async with mirror.lock:
                transaction = await stack.enter_async_context(self.ranking())
                row = await transaction.fetch_row(queries.CORPUS_AND_SETTINGS, tenant_id)
                if row is not None:
                    require_match(settings_from(row), self._settings)
                mirror.corpus = await self._brought_to(row, tenant_id, mirror, transaction)
                self.make_room(tenant_id)
                corpus = mirror.corpus
            snapshot: MirrorSnapshot | PostgresSnapshot
            if corpus is not None:
                snapshot = MirrorSnapshot(self, tenant_id, corpus, transaction=transaction)
            else:
                snapshot = await self._sql_snapshot(transaction, tenant_id, row)
            try:
                yield snapshot
            finally:
                await snapshot.close()

    async def _brought_to(
        self, row: Record | None, tenant_id: TenantId, mirror: _Mirror, transaction: Transaction
    ) -> MirroredCorpus | None:
        """The corpus as the transaction sees it, by changes if they are known; None if it is to be ranked in SQL."""
        if row is None:
            return MirroredCorpus(IndexReader(TermKeys(tenant_id), CorpusIndex(self.dimension)), CorpusCounts())
        counts, held = counts_from(row), mirror.corpus
        if held is not None and held.counts.revision == counts.revision:
            return held
        if not self._fits(row, tenant_id, mirror):
            return None
        if held is not None and row["known_from"] <= held.counts.revision < counts.revision:
            since, started = held.counts.revision, time.perf_counter()
            index = await self._changed_since(since, tenant_id, held.reader.index, transaction)
            if not _agrees(index, row):
                _log.error("mirror disagrees with the corpus after catching up", tenant=tenant_id)
            # Loaded anew, an index takes less: nothing in it is dead.
            elif index.size <= self.mirror_memory:
                _log.debug("mirror caught up", tenant=tenant_id, since=since, **_figures(index, counts, started))
                return MirroredCorpus(IndexReader(held.reader.keys, index), counts, index.size)
        return await self._loaded(row, tenant_id, mirror, transaction)

    async def _loaded(
        self, row: Record, tenant_id: TenantId, mirror: _Mirror, transaction: Transaction
    ) -> MirroredCorpus | None:
        """The corpus as the transaction sees it, read whole; None if it is to be ranked in SQL."""
        counts, started = counts_from(row), time.perf_counter()
        index = await self._changed_since(0, tenant_id, CorpusIndex(self.dimension), transaction)
        if not _agrees(index, row):
            _log.error("mirror disagrees with the corpus after loading", tenant=tenant_id)
            return None
        mirror.underestimated = max(1.0, index.size / max(1, self._estimated_size(row)))
        if not self._fits(row, tenant_id, mirror):
            return None
        _log.info("mirror loaded", tenant=tenant_id, **_figures(index, counts, started), budget=self.mirror_memory)
        await _introduce(tenant_id, counts.chunk_count, transaction)
        return MirroredCorpus(IndexReader(TermKeys(tenant_id), index), counts, index.size)

    async def _changed_since(
        self, revision: int, tenant_id: TenantId, index: CorpusIndex, transaction: Transaction
    ) -> CorpusIndex:
        columns = ChunkColumns(self.dimension)
        loop = asyncio.get_running_loop()
        decoding: asyncio.Future[None] | None = None
        # One batch is decoded, in a thread, while the next is on its way.
        async for records in transaction.batches(_ROWS_AT_ONCE, queries.INDEXED_CHUNKS, tenant_id, revision):
            if decoding is not None:
                await decoding
            decoding = loop.run_in_executor(None, columns.extend, records)
        if decoding is not None:
            await decoding
        gone: list[bytes] = []
        if index.chunk_count:
            gone = [row["id"] for row in await transaction.fetch(queries.REMOVED_SINCE, tenant_id, revision)]
        return await asyncio.to_thread(_changed, index, gone, columns)

    def _fits(self, row: Record, tenant_id: TenantId, mirror: _Mirror) -> bool:
        """Whether the tenant may be in memory; that it may not is logged when it becomes so."""
        estimate = round(self._estimated_size(row) * mirror.underestimated)
        too_large, mirror.too_large = mirror.too_large, estimate > self.mirror_memory
        if mirror.too_large and not too_large:
            _log.warning("mirror does not fit", tenant=tenant_id, bytes=estimate, budget=self.mirror_memory)
        return not mirror.too_large

    def _estimated_size(self, row: Record) -> int:
        vectors = int(row["embedded_count"]) * (5 * self.dimension + _VECTOR_BYTES)
        return vectors + int(row["chunk_count"]) * _CHUNK_BYTES + int(row["total_length"]) * _POSTING_BYTES


async def _introduce(tenant_id: TenantId, chunk_count: int, transaction: Transaction) -> None:
    """Have the planner know a tenant: it walks all chunks of one that it does not know to find ten by their ids."""
    if await transaction.fetch_value(queries.IS_UNKNOWN_TO_PLANNER, tenant_id, chunk_count):
        await transaction.execute(queries.INTRODUCE_TENANTS)
        _log.info("tenant introduced to the planner", tenant=tenant_id)


def _changed(index: CorpusIndex, gone: Sequence[bytes], columns: ChunkColumns) -> CorpusIndex:
    removed = [ChunkId(identifier.hex()) for identifier in {*gone, *columns.ids}] if index.chunk_count else []
    index = index.without(removed) if removed else index
    index = index.with_segment(columns.segment()) if columns.ids else index
    return index.warmed()


def _figures(index: CorpusIndex, counts: CorpusCounts, started: float) -> dict[str, float]:
    """What is logged of an index: `seconds` since `started`."""
    seconds = round(time.perf_counter() - started, 6)
    return {"revision": counts.revision, "chunks": index.chunk_count, "bytes": index.size, "seconds": seconds}


def _agrees(index: CorpusIndex, row: Record) -> bool:
    """Whether an index counts what the database counts."""
    counted = (index.chunk_count, index.embedded_count, index.total_length)
    return counted == (row["chunk_count"], row["embedded_count"], row["total_length"])
