"""`ChunkExplainer`: why a chunk has its place in a ranking, or none, and what the store makes of a text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from chunkstore.composition.pool import Pool
from chunkstore.composition.query import MAX_QUERY_BYTES, Query
from chunkstore.composition.reading import read_corpus
from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.domain.analysis import Token
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.explanation import AnalyzedTerm, ChannelPlace, TextTerms, channel_place, lexical_score
from chunkstore.domain.filters import unmet
from chunkstore.domain.results import CorpusCounts, Explanation
from chunkstore.domain.similarity import Vector, cosine_scores
from chunkstore.domain.text import TenantId, checked_text
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot


@dataclass(frozen=True, slots=True)
class TextAnalysis:
    """A text's terms in text order, its distinct terms sorted, and the counts of the corpus of their frequencies."""

    tokens: tuple[Token, ...]
    terms: tuple[AnalyzedTerm, ...]
    corpus: CorpusCounts


@dataclass(frozen=True, slots=True)
class ChunkExplanation:
    """A chunk's place in the fused order of a query and in each channel, in the order of Channel.

    `rank` and `score` are None where no channel ranked it. `unmet` are the paths of the conditions that filter it out.
    """

    chunk: StoredChunk
    rank: int | None
    score: float | None
    channels: tuple[ChannelPlace, ...]
    unmet: tuple[str, ...]
    explanation: Explanation
    corpus: CorpusCounts


class ChunkExplainer:
    """Explains what a retriever and its chunk store do; safe for concurrent use."""

    def __init__(self, *, chunks: ChunkStore, retriever: ChunkRetriever) -> None:
        self._chunks = chunks
        self._retriever = retriever

    async def explain_chunk(self, query: Query, chunk_id: ChunkId, tenant_id: TenantId) -> ChunkExplanation:
        """Where a chunk is in the ranking of a query, to the depth of the channels, and why.

        Raises as ChunkRetriever.read, and ChunkNotFoundError for a chunk that the tenant does not have.
        """

        async def look_up(corpus: CorpusSnapshot, pool: Pool) -> tuple[StoredChunk, Pool, CorpusCounts]:
            [chunk] = await corpus.chunks([chunk_id], with_embeddings=True)
            return chunk, pool, corpus.counts

        chunk, pool, counts = await self._retriever.read(query, tenant_id, look_up)
        return await asyncio.to_thread(self._explained, query, chunk, pool, counts)

    async def analyze(self, text: str, tenant_id: TenantId) -> TextAnalysis:
        """The terms of a text, and how common each is in the tenant's corpus.

        Raises InvalidFieldError for a text that could not be stored, or longer than a query may be.
        """
        checked_text("text", text, max_bytes=MAX_QUERY_BYTES, blank=True)
        terms = TextTerms.of(text, self._chunks.analyzer)

        async def look_up(corpus: CorpusSnapshot) -> TextAnalysis:
            found = await corpus.lexical_candidates(terms.distinct, 0)
            return TextAnalysis(terms.tokens, terms.explained(found.statistics), corpus.counts)

        return await read_corpus(self._chunks, tenant_id, look_up)

    def _explained(self, query: Query, chunk: StoredChunk, pool: Pool, counts: CorpusCounts) -> ChunkExplanation:
        explanation = pool.explanation(self._chunks.analyzer.tokens(chunk.text))
        scores = (
            _semantic_score(chunk.embedding, pool.vector),
            lexical_score(explanation.terms),
            lexical_score(explanation.identifiers),
        )
        unmet_conditions = unmet(query.where, chunk.source_id, chunk.metadata) if query.where else []
        [opinions] = pool.opinions([chunk.id])
        places = tuple(
            channel_place(report, opinion, score, meets_filter=not unmet_conditions)
            for report, opinion, score in zip(pool.reports, opinions, scores, strict=True)
        )
        ranked = ((rank, score) for rank, (found, score) in enumerate(pool.best(), start=1) if found == chunk.id)
        rank, score = next(ranked, (None, None))
        return ChunkExplanation(chunk, rank, score, places, tuple(unmet_conditions), explanation, counts)


def _semantic_score(embedding: Vector | None, vector: Vector | None) -> float | None:
    if embedding is None or vector is None:
        return None
    return float(cosine_scores(embedding[np.newaxis], vector)[0])
