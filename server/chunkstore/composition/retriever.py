"""`ChunkRetriever`: each channel ranks the corpus, the rankings are fused, and the answer says how it came about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from chunkstore.composition.channels import ask_channels, embed_query
from chunkstore.composition.pool import Pool
from chunkstore.composition.query import DEFAULT_CHANNEL_TIMEOUT, DEFAULT_FUSION, Plan, Query, planned
from chunkstore.composition.reading import read_corpus
from chunkstore.composition.selection import Selection, read_selected, select_chunks
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError, RetrievalDegradedError
from chunkstore.domain.filters import Filter
from chunkstore.domain.pages import require_same_ranking
from chunkstore.domain.results import (
    Channel,
    ChannelReport,
    ChannelStatus,
    ChunkRetrievalResult,
    FusionMethod,
    PageStart,
    ScoredChunk,
)
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot
from chunkstore.ports.embedding_provider import EmbeddingProvider

DEFAULT_MAX_K = 300
DEFAULT_OVERFETCH = 3

ResultT = TypeVar("ResultT")


class ChunkRetriever:
    """Answers queries over a chunk store; safe for concurrent use.

    Each channel ranks `overfetch * max_k` candidates whatever the request's k, so an answer is always a prefix of a
    larger one. Two limits a caller could read as bugs: a chunk below that depth in every channel is not found, and a
    corpus without embeddings answers the semantic channel with nothing, as "not embedded" is a fact of each chunk.
    `fusion` and `channel_timeout`, in seconds, are for queries that name none. Raises
    DimensionMismatchError where provider and store differ in width, ValueError for overfetch or max_k below 1.
    """

    def __init__(
        self,
        *,
        chunks: ChunkStore,
        embeddings: EmbeddingProvider | None,
        overfetch: int = DEFAULT_OVERFETCH,
        max_k: int = DEFAULT_MAX_K,
        fusion: FusionMethod = DEFAULT_FUSION,
        channel_timeout: float = DEFAULT_CHANNEL_TIMEOUT,
    ) -> None:
        if embeddings is not None and embeddings.dimension != chunks.dimension:
            raise DimensionMismatchError(expected=chunks.dimension, actual=embeddings.dimension)
        if overfetch < 1 or max_k < 1:
            raise ValueError("overfetch and max_k must be at least 1")
        self._chunks = chunks
        self._embeddings = embeddings
        self._max_k = max_k
        self._depth = overfetch * max_k
        self._fusion = fusion
        self._channel_timeout = channel_timeout

    @property
    def max_k(self) -> int:
        """Largest k of a request."""
        return self._max_k

    @property
    def depth(self) -> int:
        """How many candidates of each channel are fused."""
        return self._depth

    @property
    def fusion(self) -> FusionMethod:
        """How the channels are fused where a query does not say."""
        return self._fusion

    @property
    def channel_timeout(self) -> float:
        """Seconds that each channel may take where a query does not say."""
        return self._channel_timeout

    async def retrieve_chunks(self, query: Query, tenant_id: TenantId, selection: Selection) -> ChunkRetrievalResult:
        """The selected chunks, fused score descending, ties by id ascending; k 0 asks no channel and returns none.

        Raises as `read`, InvalidFieldError for a k outside [0, max_k], and as `require_same_ranking` where the
        selection starts on a page of another ranking. A channel that did not answer leaves the answer partial.
        """
        plan = self._planned(query)
        if not 0 <= selection.k <= self._max_k:
            raise InvalidFieldError("k", f"must be within [0, {self._max_k}]")
        if selection.k == 0:
            return await self._nothing(tenant_id)

        async def answer(corpus: CorpusSnapshot, pool: Pool) -> tuple[ChunkRetrievalResult, Pool]:
            return await _answer(corpus, pool, selection, query.where), pool

        result, pool = await self._read(plan, tenant_id, answer)
        # Not before: only what has been read whole is known to be of the last revision.
        if selection.start is not None:
            require_same_ranking(selection.start.basis, pool.basis(result.corpus.revision))
        # In a thread, and once no connection is held: texts are long.
        return await asyncio.to_thread(self._explained, result, pool) if selection.explain else result

    async def read(
        self, query: Query, tenant_id: TenantId, work: Callable[[CorpusSnapshot, Pool], Awaitable[ResultT]]
    ) -> ResultT:
        """What `work` makes of the query's pool and of the corpus that was ranked, both of one revision.

        The query is embedded meanwhile, or first where a connection would be held. Raises InvalidFieldError for a query
        that no answer could be given to, before any channel is asked; DimensionMismatchError for a vector of another
        width than the store's; RetrievalDegradedError where no channel answered, or a required one did not.
        """
        return await self._read(self._planned(query), tenant_id, work)

    def _planned(self, query: Query) -> Plan:
        return planned(query, self._chunks.analyzer, self._fusion, self._channel_timeout)

    async def _read(
        self, plan: Plan, tenant_id: TenantId, work: Callable[[CorpusSnapshot, Pool], Awaitable[ResultT]]
    ) -> ResultT:
        vector, dimension = plan.query.vector, self._chunks.dimension
        if vector is not None and vector.size != dimension:
            raise DimensionMismatchError(expected=dimension, actual=vector.size, field="query_vector")
        embed = self._embeddings.embed if self._embeddings else None
        embedding = asyncio.create_task(embed_query(plan, embed, dimension))

        async def rank(corpus: CorpusSnapshot) -> ResultT:
            answers = await ask_channels(corpus, plan, embedding, self._depth)
            vector = embedding.result().vector
            pool = Pool(answers, plan.fusion, None if isinstance(vector, ChannelReport) else vector)
            _require_answers(pool.reports, plan.query.require)
            return await work(corpus, pool)

        try:
            return await read_corpus(self._chunks, tenant_id, rank, ready=embedding)
        finally:
            if not embedding.done():
                embedding.cancel()
                await asyncio.wait([embedding])

    def _explained(self, result: ChunkRetrievalResult, pool: Pool) -> ChunkRetrievalResult:
        tokens = self._chunks.analyzer.tokens
        explained = (replace(hit, explanation=pool.explanation(tokens(hit.chunk.text))) for hit in result.chunks)
        return replace(result, chunks=tuple(explained))

    async def _nothing(self, tenant_id: TenantId) -> ChunkRetrievalResult:
        counts = await self._chunks.counts(tenant_id)
        reports = tuple(ChannelReport(channel, ChannelStatus.NOT_REQUESTED) for channel in Channel)
        return ChunkRetrievalResult((), reports, counts)


async def _answer(
    corpus: CorpusSnapshot, pool: Pool, selection: Selection, where: Filter | None
) -> ChunkRetrievalResult:
    selected = await select_chunks(corpus, pool, selection)
    chunks, contexts = await read_selected(corpus, selected.ids, selection, where)
    scored = tuple(
        ScoredChunk(chunk, score, *opinions)
        for chunk, score, opinions in zip(chunks, selected.scores, pool.opinions(selected.ids), strict=True)
    )
    basis = pool.basis(corpus.counts.revision)
    next_page = PageStart(selection.offset + len(scored), basis) if selected.more else None
    return ChunkRetrievalResult(scored, pool.reports, corpus.counts, contexts, next_page)


def _require_answers(reports: tuple[ChannelReport, ...], required: tuple[Channel, ...]) -> None:
    missing = tuple(report.channel for report in reports if report.missing)
    answered = tuple(report.channel for report in reports if report.status is ChannelStatus.ANSWERED)
    if not answered or any(channel in missing for channel in required):
        raise RetrievalDegradedError(
            missing=tuple(channel.value for channel in missing), answered=tuple(channel.value for channel in answered)
        )
