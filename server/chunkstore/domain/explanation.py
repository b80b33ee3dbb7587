"""Why a chunk has its BM25 score, term by term, and where in the text the terms are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chunkstore.domain.analysis import Analyzer, Token
from chunkstore.domain.bm25 import inverse_document_frequency, length_factors, term_scores
from chunkstore.domain.results import CorpusStatistics

MAX_SPANS: Final = 32

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TermExplanation:
    """What one term of a query gives to a chunk's BM25 score.

    `frequency` is how often the chunk holds it, and `spans` the first 32 places in the chunk's text, half open, in code
    points, in text order; both are nothing where it does not hold it, and so is the `share`.
    """

    term: str
    document_frequency: int
    idf: float
    frequency: int
    share: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AnalyzedTerm:
    """A distinct term of a text: how often it occurs there, and in how many of the corpus's chunks.

    `query_term` and `identifier` say whether the text, asked as a query, asks for it in the lexical and in the
    identifier channel.
    """

    term: str
    frequency: int
    document_frequency: int
    idf: float
    query_term: bool
    identifier: bool


@dataclass(frozen=True, slots=True)
class TextTerms:
    """The terms of a text as a document has them, in text order, and as a query asks for them."""

    tokens: tuple[Token, ...]
    query_terms: frozenset[str]
    identifiers: frozenset[str]

    @staticmethod
    def of(text: str, analyzer: Analyzer) -> TextTerms:
        """The terms of `text`."""
        query_terms, identifiers = analyzer.query_terms(text), analyzer.query_identifiers(text)
        return TextTerms(tuple(analyzer.tokens(text)), frozenset(query_terms), frozenset(identifiers))

    @property
    def distinct(self) -> list[str]:
        """All of them, sorted."""
        return sorted({token.term for token in self.tokens} | self.query_terms | self.identifiers)

    def explained(self, statistics: CorpusStatistics) -> tuple[AnalyzedTerm, ...]:
        """Each of the `distinct` terms, which are those of `statistics`."""
        spans = _spans(self.tokens, statistics.doc_frequencies)
        return tuple(
            AnalyzedTerm(
                term,
                len(spans[term]),
                frequency,
                inverse_document_frequency(statistics.chunk_count, frequency),
                term in self.query_terms,
                term in self.identifiers,
            )
            for term, frequency in statistics.doc_frequencies.items()
        )


def explained_terms(tokens: Sequence[Token], statistics: CorpusStatistics) -> tuple[TermExplanation, ...]:
    """What each term of `statistics`, in their order, gives to the BM25 score of the chunk of these tokens.

    The shares added in that order, from 0.0, are the score to the bit; see `lexical_score`.
    """
    spans = _spans(tokens, statistics.doc_frequencies)
    lengths = np.array([len(tokens)], dtype=np.int32)
    factors = length_factors(lengths, statistics.chunk_count, statistics.total_length)
    explained = []
    for term, document_frequency in statistics.doc_frequencies.items():
        idf = inverse_document_frequency(statistics.chunk_count, document_frequency)
        found = spans[term]
        share = float(term_scores(idf, np.array([len(found)]), factors)[0]) if found else 0.0
        explained.append(TermExplanation(term, document_frequency, idf, len(found), share, tuple(found[:MAX_SPANS])))
    return tuple(explained)


def lexical_score(terms: Sequence[TermExplanation]) -> float | None:
    """The sum of the terms' shares; None where the chunk holds none of them."""
    held = [term.share for term in terms if term.frequency]
    score = 0.0
    for share in held:
        score += share
    return score if held else None


def _spans(tokens: Sequence[Token], terms: Mapping[str, int]) -> dict[str, list[Span]]:
    """Where each of `terms` is, in text order."""
    spans: dict[str, list[Span]] = {term: [] for term in terms}
    for token in tokens:
        if token.term in spans:
            spans[token.term].append((token.start, token.end))
    return spans
