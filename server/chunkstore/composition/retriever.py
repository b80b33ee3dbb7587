"""`ChunkRetriever`: each channel ranks the corpus, the rankings are fused, and the answer says how it came about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chunkstore.composition.reading import read_corpus
from chunkstore.domain.errors import (
    DimensionMismatchError,
    EmbeddingFailedError,
    InvalidFieldError,
    RetrievalDegradedError,
)
from chunkstore.domain.filters import Filter
from chunkstore.domain.fusion import reciprocal_rank_fusion
from chunkstore.domain.results import (
    Channel,
    ChannelReport,
    ChannelScore,
    ChannelStatus,
    ChunkRetrievalResult,
    Ranking,
    RetrievalMode,
    ScoredChunk,
)
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import TenantId, checked_text
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot
from chunkstore.ports.embedding_provider import EmbeddingProvider

MAX_QUERY_BYTES = 32 * 1024
DEFAULT_K = 10
DEFAULT_MAX_K = 300
DEFAULT_OVERFETCH = 3
# Seconds that a query waits for its embedding; a provider may try for longer, which suits indexing alone.
QUERY_EMBEDDING_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a channel found, and its report."""

    report: ChannelReport
    ranking: Ranking = field(default_factory=Ranking)


class ChunkRetriever:
    """Answers queries over a chunk store; safe for concurrent use.

    Each channel ranks `overfetch * max_k` candidates whatever the request's k, so an answer is always a prefix of a
    larger one. Two limits a caller could read as bugs: a chunk below that depth in every channel is not found, and a
    corpus without embeddings answers the semantic channel with nothing, as "not embedded" is a fact of each chunk.
    Raises DimensionMismatchError where provider and store differ in width, ValueError for overfetch or max_k below 1.
    """

    def __init__(
        self,
        *,
        chunks: ChunkStore,
        embeddings: EmbeddingProvider | None,
        overfetch: int = DEFAULT_OVERFETCH,
        max_k: int = DEFAULT_MAX_K,
    ) -> None:
        if embeddings is not None and embeddings.dimension != chunks.dimension:
            raise DimensionMismatchError(expected=chunks.dimension, actual=embeddings.dimension)
        if overfetch < 1 or max_k < 1:
            raise ValueError("overfetch and max_k must be at least 1")
        self._chunks = chunks
        self._embeddings = embeddings
        self._max_k = max_k
        self._depth = overfetch * max_k

    @property
    def max_k(self) -> int:
        """Largest k of a request."""
        return self._max_k

    @property
    def depth(self) -> int:
        """How many candidates of each channel are fused."""
        return self._depth

    async def retrieve_chunks(
        self,
        query: str,
        tenant_id: TenantId,
        *,
        k: int = DEFAULT_K,
        mode: RetrievalMode = RetrievalMode.HYBRID,
        with_embeddings: bool = False,
        query_vector: Vector | None = None,
        where: Filter | None = None,
    ) -> ChunkRetrievalResult:
        """The k best chunks, fused score descending, ties by id ascending; k 0 asks no channel and returns none.

        Each channel ranks only chunks that meet `where`. Raises InvalidFieldError for a blank query or a k outside
        [0, max_k]; RetrievalDegradedError where no requested channel answered. A channel without provider, or whose
        provider fails, leaves the answer partial; with a `query_vector`, as wide as the store's, no provider is asked.
        """
        self._check(query, k)
        if k == 0:
            return await self._nothing(tenant_id)
        started = time.monotonic()
        vector = await self._query_vector(query, mode) if query_vector is None else _asked_for(query_vector, mode)

        terms, identifiers = self._terms(query, mode), self._identifiers(query, mode)

        async def rank(corpus: CorpusSnapshot) -> ChunkRetrievalResult:
            answers: Sequence[_Answer] = await asyncio.gather(
                self._semantic(corpus, vector, where, started),
                self._lexical(Channel.LEXICAL, corpus, terms, where),
                self._lexical(Channel.IDENTIFIER, corpus, None if identifiers == terms else identifiers, where),
            )
            if identifiers is not None and identifiers == terms:
                answers = [*answers[:2], _same_as(answers[1], Channel.IDENTIFIER)]
            _require_an_answer(answers)
            chunks = await _winners(corpus, answers, k, with_embeddings)
            return ChunkRetrievalResult(chunks, tuple(answer.report for answer in answers), corpus.counts)

        return await read_corpus(self._chunks, tenant_id, rank)

    def _check(self, query: str, k: int) -> None:
        checked_text("query", query, max_bytes=MAX_QUERY_BYTES, blank=True)
        if not query.strip():
            raise InvalidFieldError("query", "must not be blank")
        if not 0 <= k <= self._max_k:
            raise InvalidFieldError("k", f"must be within [0, {self._max_k}]")

    async def _nothing(self, tenant_id: TenantId) -> ChunkRetrievalResult:
        counts = await self._chunks.counts(tenant_id)
        return ChunkRetrievalResult((), tuple(_not_requested(channel).report for channel in Channel), counts)

    def _terms(self, query: str, mode: RetrievalMode) -> list[str] | None:
        return None if mode is RetrievalMode.SEMANTIC else self._chunks.analyzer.query_terms(query)

    def _identifiers(self, query: str, mode: RetrievalMode) -> list[str] | None:
        return None if mode is RetrievalMode.SEMANTIC else self._chunks.analyzer.query_identifiers(query) or None

    async def _query_vector(self, query: str, mode: RetrievalMode) -> Vector | ChannelReport:
        """The query's vector, or the report of why there is none. No connection is held meanwhile."""
        if mode is RetrievalMode.LEXICAL:
            return _not_requested(Channel.SEMANTIC).report
        if self._embeddings is None:
            return ChannelReport(Channel.SEMANTIC, ChannelStatus.NOT_CONFIGURED, "NO_EMBEDDING_PROVIDER")
        started = time.monotonic()
        try:
            async with asyncio.timeout(QUERY_EMBEDDING_TIMEOUT):
                vectors = await self._embeddings.embed([query])
            if len(vectors) != 1:
                raise EmbeddingFailedError("the provider returned another number of vectors than texts")
            return checked_vector(vectors[0], "query", self._chunks.dimension)
        except (EmbeddingFailedError, InvalidFieldError, DimensionMismatchError, TimeoutError):
            elapsed = time.monotonic() - started
            return ChannelReport(Channel.SEMANTIC, ChannelStatus.FAILED, "EMBEDDING_FAILED", elapsed=elapsed)

    async def _semantic(
        self, corpus: CorpusSnapshot, vector: Vector | ChannelReport, where: Filter | None, started: float
    ) -> _Answer:
        if isinstance(vector, ChannelReport):
            return _Answer(vector)
        return _answered(Channel.SEMANTIC, await corpus.semantic_candidates(vector, self._depth, where=where), started)

    async def _lexical(
        self, channel: Channel, corpus: CorpusSnapshot, terms: list[str] | None, where: Filter | None
    ) -> _Answer:
        if terms is None:
            return _not_requested(channel)
        started = time.monotonic()
        found = await corpus.lexical_candidates(terms, self._depth, where=where)
        return _answered(channel, found.ranking, started)


def _asked_for(vector: Vector, mode: RetrievalMode) -> Vector | ChannelReport:
    return _not_requested(Channel.SEMANTIC).report if mode is RetrievalMode.LEXICAL else vector


def _not_requested(channel: Channel) -> _Answer:
    return _Answer(ChannelReport(channel, ChannelStatus.NOT_REQUESTED))


def _answered(channel: Channel, ranking: Ranking, started: float) -> _Answer:
    elapsed = time.monotonic() - started
    return _Answer(ChannelReport(channel, ChannelStatus.ANSWERED, candidates=len(ranking), elapsed=elapsed), ranking)


def _same_as(answer: _Answer, channel: Channel) -> _Answer:
    """The answer of a channel that ranks by the same terms as another."""
    return replace(answer, report=replace(answer.report, channel=channel))


def _require_an_answer(answers: Sequence[_Answer]) -> None:
    if not any(answer.report.status is ChannelStatus.ANSWERED for answer in answers):
        asked = [answer.report for answer in answers if answer.report.status is not ChannelStatus.NOT_REQUESTED]
        raise RetrievalDegradedError(tuple(report.channel.value for report in asked))


async def _winners(
    corpus: CorpusSnapshot, answers: Sequence[_Answer], k: int, with_embeddings: bool
) -> tuple[ScoredChunk, ...]:
    """Fuse the channels' rankings and read the k best chunks, each with every channel's opinion of it."""
    fused = reciprocal_rank_fusion([answer.ranking.ids for answer in answers], k)
    chunks = await corpus.chunks([identifier for identifier, _ in fused], with_embeddings=with_embeddings)
    places = [{identifier: place for place, identifier in enumerate(answer.ranking.ids)} for answer in answers]
    return tuple(
        ScoredChunk(chunk, score, *map(_opinion, answers, (known.get(chunk.id) for known in places)))
        for chunk, (_, score) in zip(chunks, fused, strict=True)
    )


def _opinion(answer: _Answer, place: int | None) -> ChannelScore | None:
    return None if place is None else ChannelScore(answer.ranking.scores[place], place + 1)
