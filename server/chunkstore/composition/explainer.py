"""`ChunkExplainer`: what the store makes of a text."""

from __future__ import annotations

from dataclasses import dataclass

from chunkstore.composition.query import MAX_QUERY_BYTES
from chunkstore.composition.reading import read_corpus
from chunkstore.domain.analysis import Token
from chunkstore.domain.explanation import AnalyzedTerm, TextTerms
from chunkstore.domain.results import CorpusCounts
from chunkstore.domain.text import TenantId, checked_text
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot


@dataclass(frozen=True, slots=True)
class TextAnalysis:
    """A text's terms in text order, its distinct terms sorted, and the counts of the corpus of their frequencies."""

    tokens: tuple[Token, ...]
    terms: tuple[AnalyzedTerm, ...]
    corpus: CorpusCounts


class ChunkExplainer:
    """Explains what a chunk store does; safe for concurrent use."""

    def __init__(self, *, chunks: ChunkStore) -> None:
        self._chunks = chunks

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
