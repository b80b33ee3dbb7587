"""A tenant's writes, one transaction at a time, and the counters kept with them.

The row lock on the tenant's row of `corpora` puts its writers in order, so that revisions are in the order of commits
and nobody deadlocks. What costs time is done before: analysis, hashing, encoding.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.pool import Database, Record, Transaction
from chunkstore.adapters.postgres.rows import COPY_COLUMNS, EncodedChunk, chunk_from, copy_stream, id_bytes
from chunkstore.adapters.postgres.settings import StoreSettings, require_match, settings_from
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import SourceChangedError
from chunkstore.domain.results import WriteResult
from chunkstore.domain.text import TenantId
from chunkstore.domain.writes import WritePlan, plan_write
from chunkstore.ports.chunk_store import SourceReplacement

Encoded = Mapping[ChunkId, EncodedChunk]

# For how many revisions, at least, removals are remembered: a mirror further behind loads the tenant anew.
REMOVALS_KEPT: Final = 10_000


@dataclass(slots=True)
class LockedCorpus:
    """A tenant's corpus, locked for this transaction: its revision, and the changes to it."""

    transaction: Transaction
    tenant_id: TenantId
    revision: int

    async def upsert(self, chunks: Sequence[StoredChunk], encoded: Encoded) -> WriteResult:
        """Insert or update chunks, given encoded by id."""
        rows = await self._stored(queries.CHUNKS_BY_ID, [id_bytes(identifier) for identifier in encoded])
        plan = await asyncio.to_thread(_plan_upsert, chunks, rows)
        if plan.changes_anything:
            added = Counter(chunk.source_id for chunk in plan.inserted)
            await self._apply([plan], {chunk.source_id: added[chunk.source_id] for chunk in _written(plan)}, encoded)
        return WriteResult(plan.counts, self.revision)

    async def replace(
        self, replacements: Sequence[SourceReplacement], encoded: Encoded
    ) -> list[WriteResult | SourceChangedError]:
        """Replace those sources whose expected revision holds; a result for each."""
        names = [replacement.source_id for replacement in replacements]
        found = await self.transaction.fetch(queries.SOURCE_REVISIONS, self.tenant_id, names)
        revisions = {row["source_id"]: int(row["revision"]) for row in found}
        conflicts = _conflicts(replacements, revisions)
        going = [replacement for replacement in replacements if replacement.source_id not in conflicts]
        existing = [replacement.source_id for replacement in going if replacement.source_id in revisions]
        rows = await self._stored(queries.CHUNKS_OF_SOURCES, existing)
        plans = await asyncio.to_thread(_plan_replacements, going, rows)
        changing = {name: p for name, p in plans.items() if p.changes_anything or name not in revisions}
        if changing:
            added = {name: len(plan.inserted) - len(plan.removed) for name, plan in changing.items()}
            await self._apply(changing.values(), added, encoded)
            revisions |= dict.fromkeys(changing, self.revision)
        return [conflicts.get(name) or WriteResult(plans[name].counts, revisions[name]) for name in names]

    async def purge_source(self, source_id: str) -> int:
        """Remove a source and its chunks; how many chunks there were."""
        gone = await self.transaction.fetch_row(
            queries.DELETE_SOURCE_CHUNKS, self.tenant_id, source_id, self.revision + 1
        )
        sources = await self.transaction.fetch_value(queries.DELETE_SOURCE, self.tenant_id, source_id)
        assert gone is not None
        if sources or gone["chunk_count"]:
            await self.change(
                -gone["chunk_count"], -gone["embedded_count"], -gone["total_length"], source_count=-sources
            )
        return int(gone["chunk_count"])

    async def purge(self) -> int:
        """Remove everything; how many chunks there were."""
        chunks = await self.transaction.fetch_value(queries.DELETE_ALL_CHUNKS, self.tenant_id)
        sources = await self.transaction.fetch_value(queries.DELETE_ALL_SOURCES, self.tenant_id)
        if chunks or sources:
            await self.transaction.execute(queries.EMPTY_CORPUS, self.tenant_id)
        return int(chunks)

    async def _stored(self, statement: str, keys: Collection[object]) -> list[Record]:
        return await self.transaction.fetch(statement, self.tenant_id, True, keys) if keys else []

    async def _apply(self, plans: Collection[WritePlan], added: Mapping[str, int], encoded: Encoded) -> None:
        """Carry plans out, all of them under the next revision; `added` is each changed source's gain of chunks.

        An updated chunk is deleted and inserted anew: the database does the same for an UPDATE, one by one.
        """
        gone = [id_bytes(identifier) for plan in plans for identifier in _deleted(plan)]
        rows = [(encoded[chunk.id], chunk.embedding) for plan in plans for chunk in _written(plan)]
        chunk_count = len(rows)
        embedded_count = sum(embedding is not None for _, embedding in rows)
        total_length = sum(chunk.length for chunk, _ in rows)
        if gone:
            before = await self.transaction.fetch_row(queries.DELETE_CHUNKS, self.tenant_id, gone, self.revision + 1)
            assert before is not None
            chunk_count -= before["chunk_count"]
            embedded_count -= before["embedded_count"]
            total_length -= before["total_length"]
        if rows:
            stream = await asyncio.to_thread(copy_stream, rows, self.revision + 1)
            await self.transaction.copy("chunkstore", "chunks", COPY_COLUMNS, stream)
        new_sources = await self.transaction.fetch_value(
            queries.CHANGE_SOURCES, self.tenant_id, list(added), list(added.values()), self.revision + 1
        )
        await self.change(chunk_count, embedded_count, total_length, source_count=new_sources)

    async def change(self, chunk_count: int, embedded_count: int, total_length: int, *, source_count: int) -> None:
        """Move to the next revision, the counts by those numbers."""
        self.revision += 1
        if self.revision % REMOVALS_KEPT == 0:
            await self.transaction.execute(queries.FORGET_REMOVALS, self.tenant_id, self.revision - REMOVALS_KEPT)
        await self.transaction.execute(
            queries.CHANGE_CORPUS,
            self.tenant_id,
            self.revision,
            chunk_count,
            embedded_count,
            total_length,
            source_count,
        )


@asynccontextmanager
async def writing(database: Database, tenant_id: TenantId, asked: StoreSettings) -> AsyncIterator[LockedCorpus]:
    """The tenant's corpus in a write transaction, committed at the end of the body.

    Raises StoreMismatchError where the store has been migrated to something else than `asked` meanwhile.
    """
    async with database.transaction(queries.BEGIN_WRITE) as transaction:
        row = await lock_corpus(transaction, tenant_id)
        require_match(settings_from(row), asked)
        yield LockedCorpus(transaction, tenant_id, row["revision"])


async def lock_corpus(transaction: Transaction, tenant_id: TenantId) -> Record:
    """Lock the tenant's row of corpora, made if missing; the row of queries.LOCK_CORPUS."""
    row = await transaction.fetch_row(queries.LOCK_CORPUS, tenant_id)
    if row is None:
        await transaction.execute(queries.CREATE_CORPUS, tenant_id)
        row = await transaction.fetch_row(queries.LOCK_CORPUS, tenant_id)
    assert row is not None
    return row


def _plan_upsert(chunks: Sequence[StoredChunk], rows: Iterable[Record]) -> WritePlan:
    stored = {chunk.id: chunk for chunk in map(chunk_from, rows)}
    return plan_write(chunks, stored, replace=False)


def _plan_replacements(replacements: Iterable[SourceReplacement], rows: Iterable[Record]) -> dict[str, WritePlan]:
    stored: dict[str, dict[ChunkId, StoredChunk]] = {}
    for chunk in map(chunk_from, rows):
        stored.setdefault(chunk.source_id, {})[chunk.id] = chunk
    return {r.source_id: plan_write(r.chunks, stored.get(r.source_id, {}), replace=True) for r in replacements}


def _conflicts(
    replacements: Iterable[SourceReplacement], revisions: Mapping[str, int]
) -> dict[str, SourceChangedError]:
    conflicts = {}
    for replacement in replacements:
        actual = revisions.get(replacement.source_id, 0)
        if replacement.expected_revision is not None and replacement.expected_revision != actual:
            error = SourceChangedError(expected=replacement.expected_revision, actual=actual)
            conflicts[replacement.source_id] = error
    return conflicts


def _deleted(plan: WritePlan) -> list[ChunkId]:
    return [*plan.removed, *(chunk.id for chunk in plan.updated)]


def _written(plan: WritePlan) -> tuple[StoredChunk, ...]:
    return plan.inserted + plan.updated
