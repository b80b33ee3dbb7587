"""Bringing stored rows up to date: postings after a change of the analyzer, vectors after a change of the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.pool import Database, Record, Transaction
from chunkstore.adapters.postgres.rows import chunk_from, id_bytes
from chunkstore.adapters.postgres.schema import check_dimension, vector_storage
from chunkstore.adapters.postgres.settings import AnalyzerVersion, StoreSettings, record_settings
from chunkstore.adapters.postgres.writes import lock_corpus, writing
from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import DimensionMismatchError, StoreMismatchError
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Place:
    """The last chunk that a backfill has done; nothing is before the empty one."""

    tenant_id: TenantId
    id: bytes = b""


_START: Final = _Place(TenantId(""))


async def backfill_lexical_index(
    database: Database, analyzer: Analyzer, settings: StoreSettings, *, batch_size: int, progress: Progress | None
) -> int:
    """Recompute every chunk's postings, length and entity keys by `analyzer`; how many chunks changed.

    See PostgresChunkStore.backfill_lexical_index.
    """
    place = await _begun(database, analyzer, settings)
    async with database.transaction(queries.BEGIN_READ) as transaction:
        total = await transaction.fetch_value(queries.CHUNKS_LEFT, place.tenant_id, place.id)
    changed = done = 0
    if not place.tenant_id:
        place = await _next_tenant(database, place)
    while place.tenant_id:
        rows = await _texts(database, place, batch_size)
        while rows:
            place = _Place(place.tenant_id, rows[-1]["id"])
            changed += await _reindexed(database, analyzer, place, rows)
            done += len(rows)
            if progress is not None:
                progress(done, max(done, total))
            rows = await _texts(database, place, batch_size)
        await _recounted(database, place.tenant_id)
        place = await _next_tenant(database, place)
    async with database.transaction(queries.BEGIN_EXCLUSIVE) as transaction:
        await _require_target(transaction, analyzer)
        await transaction.execute(queries.FINISH_BACKFILL, analyzer.name, analyzer.version)
    return changed


async def count_unembedded(database: Database) -> int:
    """How many chunks of all tenants have no vector."""
    async with database.transaction(queries.BEGIN_READ) as transaction:
        return int(await transaction.fetch_value(queries.COUNT_UNEMBEDDED))


async def unembedded(database: Database, batch_size: int) -> AsyncIterator[tuple[TenantId, list[StoredChunk]]]:
    """The chunks without a vector, tenant by tenant, at most `batch_size` at a time; no connection is held between."""
    tenant_id = ""
    while tenant_id := await _next_unembedded(database, tenant_id):
        after = b""
        while True:
            async with database.transaction(queries.BEGIN_READ) as transaction:
                rows = await transaction.fetch(queries.PAGE_OF_UNEMBEDDED, tenant_id, False, after, batch_size)
            if not rows:
                break
            after = rows[-1]["id"]
            yield TenantId(tenant_id), [chunk_from(row) for row in rows]


async def fill_embeddings(
    database: Database, tenant_id: TenantId, vectors: Mapping[ChunkId, Vector], settings: StoreSettings
) -> int:
    """Set the vectors of chunks that have none; how many. Chunks that are gone meanwhile stay gone."""
    for vector in vectors.values():
        if vector.size != settings.dimension:
            raise DimensionMismatchError(expected=settings.dimension, actual=vector.size)
    ids = [id_bytes(identifier) for identifier in vectors]
    values = await asyncio.to_thread(lambda: np.concatenate(list(vectors.values())).tolist() if vectors else [])
    async with writing(database, tenant_id, settings) as corpus:
        filled = await corpus.transaction.fetch_value(
            queries.FILL_EMBEDDINGS, tenant_id, ids, values, settings.dimension, corpus.revision + 1
        )
        if filled:
            await corpus.change(0, filled, 0, source_count=0)
    return int(filled)


async def clear_embeddings(database: Database, settings: StoreSettings) -> None:
    """Forget every vector, and take up the width and the model of `settings`, in one transaction."""
    dimension = settings.dimension
    check_dimension(dimension)
    async with database.transaction(queries.BEGIN_EXCLUSIVE) as transaction:
        await record_settings(transaction, settings)
        await transaction.execute(queries.DROP_EMBEDDINGS)
        await transaction.execute(queries.add_embeddings(dimension, vector_storage(dimension)))
        await transaction.execute(queries.FORGET_EMBEDDINGS)
        await transaction.execute(queries.RECORD_MODEL, dimension, settings.embedding_model)


async def _begun(database: Database, analyzer: Analyzer, settings: StoreSettings) -> _Place:
    """Record the target, which keeps others from writing by another analyzer, and find where to go on."""
    async with database.transaction(queries.BEGIN_EXCLUSIVE) as transaction:
        await record_settings(transaction, settings)
        await transaction.execute(queries.BEGIN_BACKFILL, analyzer.name, analyzer.version)
        row = await transaction.fetch_row(queries.READ_SETTINGS)
    if row is None or row["backfill_tenant_id"] is None:
        return _START
    return _Place(TenantId(row["backfill_tenant_id"]), row["backfill_id"])


async def _next_tenant(database: Database, place: _Place) -> _Place:
    async with database.transaction(queries.BEGIN_READ) as transaction:
        return _Place(TenantId(await transaction.fetch_value(queries.NEXT_TENANT, place.tenant_id) or ""))


async def _texts(database: Database, place: _Place, batch_size: int) -> list[Record]:
    async with database.transaction(queries.BEGIN_READ) as transaction:
        return await transaction.fetch(queries.TEXTS, place.tenant_id, place.id, batch_size)


async def _reindexed(database: Database, analyzer: Analyzer, place: _Place, rows: Sequence[Record]) -> int:
    """Update those of `rows` whose postings differ, and note the place, in one transaction."""
    batch = await asyncio.to_thread(_batch, place.tenant_id, analyzer, rows)
    async with database.transaction(queries.BEGIN_WRITE) as transaction:
        await _require_target(transaction, analyzer)
        corpus = await lock_corpus(transaction, place.tenant_id)
        revision = corpus["revision"] + 1
        changed = await transaction.fetch_row(queries.UPDATE_POSTINGS, place.tenant_id, *batch, revision)
        assert changed is not None
        if changed["chunk_count"]:
            await transaction.execute(queries.CHANGE_CORPUS, place.tenant_id, revision, 0, 0, changed["grown"], 0)
        await transaction.execute(queries.SAVE_PLACE, place.tenant_id, place.id)
    return int(changed["chunk_count"])


async def _recounted(database: Database, tenant_id: TenantId) -> None:
    """Make the tenant's rows of corpora and sources agree with its chunks."""
    async with database.transaction(queries.BEGIN_WRITE) as transaction:
        corpus = await lock_corpus(transaction, tenant_id)
        revision = corpus["revision"] + 1
        sources = await transaction.fetch_value(queries.RECOUNT_SOURCES, tenant_id, revision)
        await transaction.execute(queries.RECOUNT_CORPUS, tenant_id, revision, sources > 0)


async def _require_target(transaction: Transaction, analyzer: Analyzer) -> None:
    row = await transaction.fetch_row(queries.LOCK_SETTINGS)
    target = AnalyzerVersion.of(analyzer)
    if row is None or (row["backfill_analyzer_name"], row["backfill_analyzer_version"]) != target:
        raise StoreMismatchError(f"another lexical backfill has overtaken the one to {target}: run only one at a time")


async def _next_unembedded(database: Database, tenant_id: str) -> str:
    async with database.transaction(queries.BEGIN_READ) as transaction:
        return await transaction.fetch_value(queries.NEXT_UNEMBEDDED_TENANT, tenant_id) or ""


def _batch(tenant_id: TenantId, analyzer: Analyzer, rows: Sequence[Record]) -> tuple[Sequence[object], ...]:
    """Arguments of queries.UPDATE_POSTINGS between the tenant and the revision."""
    keys = TermKeys(tenant_id)
    postings = keys.joined_postings([analyzer.terms(row["text"]) for row in rows])
    entities = [[keys.key(entity) for entity in sorted(row["entity_ids"])] for row in rows]
    entity_ends = list(accumulate(map(len, entities)))
    return (
        [row["id"] for row in rows],
        postings.lengths,
        _first_places(postings.ends),
        postings.ends,
        postings.keys.tolist(),
        postings.frequencies.tolist(),
        _first_places(entity_ends),
        entity_ends,
        [key for found in entities for key in found],
    )


def _first_places(ends: Sequence[int]) -> list[int]:
    """Where, counted from 1, the parts of an array begin that end at these places."""
    return [1, *(end + 1 for end in ends[:-1])]
