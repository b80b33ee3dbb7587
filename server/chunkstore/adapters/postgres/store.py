"""`PostgresChunkStore`: the chunk store on plain PostgreSQL with pgvector."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

from chunkstore.adapters.postgres import backfill, queries
from chunkstore.adapters.postgres.backfill import Progress
from chunkstore.adapters.postgres.pool import Database, Record, Transaction
from chunkstore.adapters.postgres.rows import EncodedChunk, chunk_from, encode_chunks, id_bytes
from chunkstore.adapters.postgres.schema import ensure_schema
from chunkstore.adapters.postgres.settings import (
    AnalyzerVersion,
    StoreSettings,
    recorded_dimension,
    require_match,
    settings_from,
    settle,
)
from chunkstore.adapters.postgres.snapshot import PostgresSnapshot
from chunkstore.adapters.postgres.writes import writing
from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk, fold_duplicates
from chunkstore.domain.errors import ChunkNotFoundError, SourceChangedError
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.results import CorpusCounts, MirrorInfo, Source, WriteCounts, WriteResult
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.domain.writes import require_dimension, require_sources
from chunkstore.ports.chunk_store import CorpusSnapshot, SourceReplacement

DEFAULT_POOL_SIZE = 8
DEFAULT_ACQUIRE_TIMEOUT = 5.0
DEFAULT_CONNECT_TIMEOUT = 10.0


class PostgresChunkStore:
    """The chunk store in PostgreSQL, ranked in SQL; see ports.chunk_store.ChunkStore for every method's contract.

    Safe for concurrent use, and for any number of processes on one database. A call whose database goes away under it
    raises StoreUnavailableError; whether a write that was being committed then holds is unknown.
    """

    def __init__(
        self, database: Database, *, dimension: int, analyzer: Analyzer, embedding_model: str | None = None
    ) -> None:
        """A store over connections to a database that holds the schema and these settings; `open` sees to both."""
        self._database = database
        self._analyzer = analyzer
        self._settings = StoreSettings(dimension, AnalyzerVersion.of(analyzer), embedding_model)

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        dimension: int | None,
        analyzer: Analyzer,
        embedding_model: str | None = None,
        pool_size: int = DEFAULT_POOL_SIZE,
        acquire_timeout: float = DEFAULT_ACQUIRE_TIMEOUT,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        migrate: bool = True,
        maintenance: bool = False,
    ) -> Self:
        """Connect, bring the schema up to date where `migrate`, and compare or record what the store is made with.

        `dimension` None: the recorded one, InvalidFieldError for a new store. `embedding_model` None: no vectors will
        be made, any recorded model will do. `maintenance` skips the comparison, for the commands that migrate. Raises
        StoreMismatchError (one line that names both and the command), DimensionMismatchError (expected: asked for,
        actual: the table's; one such line too), StoreUnavailableError. Timeouts in seconds.
        """
        database = await Database.open(
            dsn, size=pool_size, acquire_timeout=acquire_timeout, connect_timeout=connect_timeout
        )
        try:
            width = dimension or await recorded_dimension(database)
            if migrate:
                await ensure_schema(database, width)
            store = cls(database, dimension=width, analyzer=analyzer, embedding_model=embedding_model)
            if not maintenance:
                recorded = await settle(database, store._settings)
                store._settings = dataclasses.replace(store._settings, embedding_model=recorded.embedding_model)
        except BaseException:
            await database.close()
            raise
        return store

    @property
    def adapter(self) -> str:
        """The adapter's name."""
        return "postgres"

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        return self._settings.dimension

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of every text and query."""
        return self._analyzer

    @property
    def embedding_model(self) -> str | None:
        """The model of the stored vectors; None where none has been recorded."""
        return self._settings.embedding_model

    async def upsert_many(self, tenant_id: TenantId, chunks: Sequence[StoredChunk]) -> WriteResult:
        """See ChunkWriter."""
        require_dimension(chunks, self.dimension)
        if not chunks:
            return WriteResult(WriteCounts(), (await self.counts(tenant_id)).revision)
        encoded = await asyncio.to_thread(self._encoded, tenant_id, [chunks])
        async with writing(self._database, tenant_id, self._settings) as corpus:
            return await corpus.upsert(chunks, encoded)

    async def replace_sources(
        self, tenant_id: TenantId, replacements: Sequence[SourceReplacement]
    ) -> list[WriteResult | SourceChangedError]:
        """See ChunkWriter. A constant number of statements, however many sources and chunks."""
        require_sources((replacement.source_id, replacement.chunks) for replacement in replacements)
        for replacement in replacements:
            require_dimension(replacement.chunks, self.dimension)
        if not replacements:
            return []
        encoded = await asyncio.to_thread(self._encoded, tenant_id, [r.chunks for r in replacements])
        async with writing(self._database, tenant_id, self._settings) as corpus:
            return await corpus.replace(replacements, encoded)

    async def purge_source(self, tenant_id: TenantId, source_id: str) -> int:
        """See ChunkPurge."""
        async with writing(self._database, tenant_id, self._settings) as corpus:
            return await corpus.purge_source(source_id)

    async def purge_tenant(self, tenant_id: TenantId) -> int:
        """See ChunkPurge."""
        async with writing(self._database, tenant_id, self._settings) as corpus:
            return await corpus.purge()

    async def get(self, tenant_id: TenantId, chunk_id: ChunkId, *, with_embedding: bool = False) -> StoredChunk:
        """See ChunkReader."""
        found = await self._chunks(queries.CHUNKS_BY_ID, tenant_id, with_embedding, [id_bytes(chunk_id)])
        if not found:
            raise ChunkNotFoundError
        return found[0]

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
        index, identifier = after or (-1, ChunkId(""))
        return await self._chunks(
            queries.PAGE_OF_SOURCE, tenant_id, with_embeddings, source_id, index, id_bytes(identifier), limit
        )

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
        key = TermKeys(tenant_id).key(entity_id)
        source_id, index, identifier = after or ("", -1, ChunkId(""))
        place = (source_id, index, id_bytes(identifier))
        return await self._chunks(queries.PAGE_OF_ENTITY, tenant_id, with_embeddings, key, entity_id, *place, limit)

    async def list_sources(self, tenant_id: TenantId, *, after: str | None = None, limit: int) -> list[Source]:
        """See ChunkReader."""
        rows = await self._rows(queries.PAGE_OF_SOURCES, tenant_id, after or "", limit)
        return [Source(row["source_id"], row["revision"], row["chunk_count"]) for row in rows]

    async def source_revisions(self, tenant_id: TenantId, source_ids: Collection[str]) -> dict[str, int]:
        """See ChunkReader."""
        rows = await self._rows(queries.SOURCE_REVISIONS, tenant_id, list(source_ids))
        return {row["source_id"]: row["revision"] for row in rows}

    async def embedded_ids(self, tenant_id: TenantId, ids: Collection[ChunkId]) -> set[ChunkId]:
        """See ChunkReader."""
        if not ids:
            return set()
        rows = await self._rows(queries.EMBEDDED_IDS, tenant_id, [id_bytes(identifier) for identifier in ids])
        return {ChunkId(row["id"].hex()) for row in rows}

    async def counts(self, tenant_id: TenantId) -> CorpusCounts:
        """See ChunkReader."""
        rows = await self._rows(queries.CORPUS, tenant_id)
        return counts_from(rows[0]) if rows else CorpusCounts()

    @asynccontextmanager
    async def snapshot(
        self, tenant_id: TenantId, *, pinned: bool = False, ready: Awaitable[object] | None = None
    ) -> AsyncIterator[CorpusSnapshot]:
        """See ChunkStore. Always pinned: holds a connection and a read-only transaction until its end.

        While both channels rank, it holds another, if one is free.
        """
        if ready is not None:
            await ready
        async with self._database.transaction(queries.BEGIN_SNAPSHOT) as transaction:
            row = await transaction.fetch_row(queries.CORPUS_AND_SETTINGS, tenant_id)
            if row is not None:
                require_match(settings_from(row), self._settings)
            snapshot = await self._sql_snapshot(transaction, tenant_id, row)
            try:
                yield snapshot
            finally:
                await snapshot.close()

    def mirror_info(self, tenant_id: TenantId) -> MirrorInfo | None:
        """See ChunkStore: there are no mirrors."""
        return None

    async def ping(self) -> None:
        """See ChunkStore. Raises StoreMismatchError where the store has been migrated to something else meanwhile."""
        for row in await self._rows(queries.READ_SETTINGS):
            require_match(settings_from(row), self._settings)

    async def aclose(self) -> None:
        """See ChunkStore."""
        await self._database.close()

    async def backfill_lexical_index(
        self, *, analyzer: Analyzer | None = None, batch_size: int = 500, progress: Progress | None = None
    ) -> int:
        """Recompute the postings of every tenant from the stored texts, and recount; how many chunks changed.

        Done in batches, each its own transaction; one that was interrupted goes on where it was. With an `analyzer`,
        the store is changed over to it: until that is finished, it refuses to be opened, written or ranked otherwise.
        `progress` is told the chunks done in this run and their total. Idempotent: another run changes nothing.
        """
        target = analyzer or self._analyzer
        changed = await backfill.backfill_lexical_index(
            self._database, target, self._settings, batch_size=batch_size, progress=progress
        )
        self._analyzer = target
        self._settings = dataclasses.replace(self._settings, analyzer=AnalyzerVersion.of(target))
        return changed

    async def clear_embeddings(self, *, dimension: int, embedding_model: str | None) -> None:
        """Forget every vector of every tenant, and take up another width and model, in one transaction."""
        settings = dataclasses.replace(self._settings, dimension=dimension, embedding_model=embedding_model)
        await backfill.clear_embeddings(self._database, settings)
        self._settings = settings

    async def count_unembedded(self) -> int:
        """How many chunks of all tenants have no vector."""
        return await backfill.count_unembedded(self._database)

    def unembedded(self, batch_size: int = 256) -> AsyncIterator[tuple[TenantId, list[StoredChunk]]]:
        """Every chunk without a vector, by tenant and in batches of one tenant; no connection is held in between."""
        return backfill.unembedded(self._database, batch_size)

    async def fill_embeddings(self, tenant_id: TenantId, vectors: Mapping[ChunkId, Vector]) -> int:
        """Set the vectors of those chunks that are still there and still have none; how many, in one transaction.

        Unlike upsert_many it never brings back a chunk that was removed meanwhile. Raises DimensionMismatchError.
        """
        return await backfill.fill_embeddings(self._database, tenant_id, vectors, self._settings)

    async def _sql_snapshot(
        self, transaction: Transaction, tenant_id: TenantId, row: Record | None
    ) -> PostgresSnapshot:
        """The corpus as a transaction sees it, given its row of queries.CORPUS_AND_SETTINGS."""
        counts, total_length = (counts_from(row), row["total_length"]) if row is not None else (CorpusCounts(), 0)
        snapshot = partial(
            PostgresSnapshot, tenant_id=tenant_id, counts=counts, total_length=total_length, dimension=self.dimension
        )
        exported = await transaction.fetch_value(queries.EXPORT_SNAPSHOT)

        @asynccontextmanager
        async def beside() -> AsyncIterator[PostgresSnapshot | None]:
            if not self._database.has_free:
                yield None
                return
            async with self._database.transaction(queries.begin_with_snapshot(exported)) as other:
                yield snapshot(other)

        return snapshot(transaction, beside=beside)

    def _encoded(self, tenant_id: TenantId, groups: Sequence[Sequence[StoredChunk]]) -> dict[ChunkId, EncodedChunk]:
        folded = (chunk for group in groups for chunk in fold_duplicates(group)[0])
        return encode_chunks(tenant_id, folded, self._analyzer)

    async def _chunks(self, statement: str, *arguments: object) -> list[StoredChunk]:
        return [chunk_from(row) for row in await self._rows(statement, *arguments)]

    async def _rows(self, statement: str, *arguments: object) -> list[Record]:
        async with self._database.transaction(queries.BEGIN_READ) as transaction:
            return await transaction.fetch(statement, *arguments)


def counts_from(row: Record) -> CorpusCounts:
    """The counts in a row of corpora."""
    return CorpusCounts(row["revision"], row["chunk_count"], row["embedded_count"], row["source_count"])
