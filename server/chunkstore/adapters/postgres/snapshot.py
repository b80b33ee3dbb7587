"""`PostgresSnapshot`: a tenant's corpus in one repeatable-read transaction, ranked by the domain's functions.

SQL finds candidates and sends them packed; scores, their order and their bits are the domain's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.conditions import condition
from chunkstore.adapters.postgres.errors import DRIVER_ERRORS
from chunkstore.adapters.postgres.matches import Matches
from chunkstore.adapters.postgres.pool import Transaction
from chunkstore.adapters.postgres.rows import RowReader, chunk_of, neighbors_of, packed_ids, source_of
from chunkstore.domain.bm25 import IdWords, Scores, id_words, rank_chunks
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import (
    ChunkNotFoundError,
    DimensionMismatchError,
    InvalidFieldError,
    StoreUnavailableError,
)
from chunkstore.domain.filters import Filter
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.ranked_ids import RankedIds
from chunkstore.domain.results import CorpusCounts, LexicalCandidates, Ranking
from chunkstore.domain.similarity import Vector, cosine_scores, rounding_margin
from chunkstore.domain.text import TenantId

Packed = npt.NDArray[Any]
ValueT = TypeVar("ValueT")

# Terms of one statement: bounds its size and how many different statements there are.
_TERMS_AT_ONCE: Final = 32
_VECTOR_BYTES_AT_ONCE: Final = 32 << 20
_SPARE_NEIGHBOURS: Final = 64
_NEAREST_TYPE: Final = np.dtype([("id", "V32"), ("distance", ">f8")])


class PostgresSnapshot:
    """One tenant's corpus at one revision; see ports.chunk_store.CorpusSnapshot.

    Channels may be asked at once: their statements take turns on the one connection, their scoring does not wait. The
    scan of all vectors does not wait for its turn where `beside` gives the same snapshot on another connection, or
    None. A channel that is cancelled leaves the others as they were.
    """

    def __init__(
        self,
        transaction: Transaction,
        tenant_id: TenantId,
        counts: CorpusCounts,
        *,
        total_length: int,
        dimension: int,
        beside: Callable[[], AbstractAsyncContextManager[PostgresSnapshot | None]] | None = None,
    ) -> None:
        self._transaction = transaction
        self._tenant_id = tenant_id
        self._counts = counts
        self._total_length = total_length
        self._dimension = dimension
        self._beside = beside
        self._keys = TermKeys(tenant_id)
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def counts(self) -> CorpusCounts:
        """The revision and the counts at that revision."""
        return self._counts

    @property
    def dimension(self) -> int:
        """Width of every vector."""
        return self._dimension

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, where: Filter | None = None
    ) -> LexicalCandidates:
        """See LexicalCandidateSource."""
        _check_limit(limit)
        asked = sorted(set(terms))
        matches = await self._matching([self._keys.key(term) for term in asked], where)
        return await asyncio.to_thread(
            matches.ranked,
            asked,
            chunk_count=self._counts.chunk_count,
            total_length=self._total_length,
            limit=limit,
        )

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, where: Filter | None = None
    ) -> Ranking:
        """See SemanticCandidateSource."""
        _check_limit(limit)
        if vector.size != self._dimension:
            raise DimensionMismatchError(expected=self._dimension, actual=vector.size, field="vector")
        if limit == 0 or not self._counts.embedded_count:
            return Ranking()
        if self._beside is not None and self._turn.locked():
            async with self._beside() as other:
                if other is not None:
                    return await other.semantic_candidates(vector, limit, min_score=min_score, where=where)
        nearest = await self._nearest(vector, limit, where)
        if not nearest.size:
            return Ranking()
        ids, scores = await self._scored([bytes(identifier) for identifier in nearest["id"]], vector)
        best = rank_chunks(ids, scores, limit)
        if min_score is not None:
            # The best of all that score enough are the best of all, less those that do not.
            best = best[scores[best] >= min_score]
        return Ranking(RankedIds(ids[best]), scores[best].tolist())

    async def chunks(self, ids: Sequence[ChunkId], *, with_embeddings: bool = False) -> list[StoredChunk]:
        """See CorpusSnapshot. Raises ChunkNotFoundError for an id that the snapshot does not hold."""
        return await self._each(ids, chunk_of, queries.CHUNKS_BY_ID, with_embeddings, packed_ids(ids))

    async def source_ids(self, ids: Sequence[ChunkId]) -> list[str]:
        """See CorpusSnapshot. Raises as `chunks`."""
        return await self._each(ids, source_of, queries.SOURCES_OF_CHUNKS, packed_ids(ids))

    async def neighbors(self, ids: Sequence[ChunkId], *, before: int, after: int) -> list[list[ChunkId]]:
        """See CorpusSnapshot. Raises as `chunks`."""
        return await self._each(ids, neighbors_of, queries.NEIGHBORS, packed_ids(ids), before, after)

    async def close(self) -> None:
        """Wait for the statement that runs, and refuse further ones."""
        async with self._turn:
            self._closed = True

    async def _each(
        self, ids: Sequence[ChunkId], read: RowReader[ValueT], statement: str, *arguments: object
    ) -> list[ValueT]:
        """What is read of each id in a row of the statement, which has one for each chunk that there is."""
        if not ids:
            return []
        async with self._reading(queries.SAVEPOINT) as transaction:
            found = dict(map(read, await transaction.fetch(statement, self._tenant_id, *arguments)))
        try:
            return [found[identifier] for identifier in ids]
        except KeyError:
            raise ChunkNotFoundError from None

    @asynccontextmanager
    async def _reading(self, savepoint: str) -> AsyncIterator[Transaction]:
        async with self._turn:
            if self._closed:
                raise RuntimeError("the snapshot is closed")
            try:
                await self._transaction.execute(savepoint)
                yield self._transaction
            except BaseException:
                with contextlib.suppress(StoreUnavailableError, *DRIVER_ERRORS):
                    await asyncio.shield(self._transaction.execute(queries.TO_SAVEPOINT))
                raise

    async def _matching(self, keys: Sequence[int], where: Filter | None) -> Matches:
        blocks = []
        meets = condition(where, first=3)
        async with self._reading(queries.SAVEPOINT) as transaction:
            for start in range(0, len(keys), _TERMS_AT_ONCE):
                block = keys[start : start + _TERMS_AT_ONCE]
                statement = queries.matching_chunks(len(block), meets.sql)
                packed = await transaction.fetch_value(statement, self._tenant_id, block, *meets.arguments)
                blocks.append(await asyncio.to_thread(Matches.unpacked, packed or b"", len(block)))
        return await asyncio.to_thread(Matches.joined, blocks)

    async def _nearest(self, vector: Vector, limit: int, where: Filter | None) -> Packed:
        """Every chunk that may be among the `limit` nearest of those allowed, in no order: its id and distance.

        The distances are float32 sums, so a chunk within twice their error of the last one's may belong before it.
        """
        asked = vector.tolist()
        page = limit + limit // 4 + _SPARE_NEIGHBOURS
        meets = condition(where, first=4)
        async with self._reading(queries.SAVEPOINT_TO_SCAN) as transaction:
            packed = await transaction.fetch_value(
                queries.nearest_chunks(meets.sql), self._tenant_id, asked, page, *meets.arguments
            )
            rows = np.frombuffer(packed or b"", dtype=_NEAREST_TYPE)
            if len(rows) <= limit:
                return rows
            distances = rows["distance"].astype(np.float64)
            # A distance is twice as far as the score that it makes.
            farthest = float(np.partition(distances, limit - 1)[limit - 1]) + 4 * rounding_margin(self._dimension)
            if len(rows) < page or distances.max() > farthest:
                return rows[distances <= farthest]
            packed = await transaction.fetch_value(
                queries.chunks_within(meets.sql), self._tenant_id, asked, farthest, *meets.arguments
            )
            return np.frombuffer(packed, dtype=_NEAREST_TYPE)

    async def _scored(self, ids: Sequence[bytes], vector: Vector) -> tuple[IdWords, Scores]:
        """The chunks of `ids`, in another order, and their scores."""
        row_type = _vector_type(self._dimension)
        at_once = max(1, _VECTOR_BYTES_AT_ONCE // row_type.itemsize)
        words: list[IdWords] = []
        scores: list[Scores] = []
        for start in range(0, len(ids), at_once):
            async with self._reading(queries.SAVEPOINT) as transaction:
                packed = await transaction.fetch_value(queries.VECTORS, self._tenant_id, ids[start : start + at_once])
            rows = np.frombuffer(packed, dtype=row_type)
            words.append(id_words(rows["id"].tobytes()))
            scores.append(await asyncio.to_thread(_scores, rows, vector))
        return np.concatenate(words), np.concatenate(scores)


def _scores(rows: Packed, vector: Vector) -> Scores:
    return cosine_scores(rows["vector"].astype(np.float32), vector)


def _vector_type(dimension: int) -> np.dtype[Any]:
    """Rows of queries.VECTORS; `width` is what vector_send puts before the values."""
    return np.dtype([("id", "V32"), ("width", "V4"), ("vector", ">f4", (dimension,))])


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise InvalidFieldError("limit", "must not be negative")
