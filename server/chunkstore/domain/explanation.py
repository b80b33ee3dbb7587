"""Why a chunk has its scores, or none: term by term, and channel by channel."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chunkstore.domain.analysis import Analyzer, Token
from chunkstore.domain.bm25 import inverse_document_frequency, length_factors, term_scores
from chunkstore.domain.fusion import telling_identifiers
from chunkstore.domain.results import (
    Channel,
    ChannelReport,
    ChannelScore,
    ChannelStatus,
    CorpusStatistics,
    Explanation,
    TermExplanation,
)

MAX_SPANS: Final = 32

Span = tuple[int, int]


class Absence(enum.Enum):
    """Why a channel gives a chunk no rank; of several reasons, the first."""

    NOT_REQUESTED = "not_requested"
    NOT_ANSWERED = "not_answered"
    FILTERED_OUT = "filtered_out"
    NOT_EMBEDDED = "not_embedded"
    NO_SHARED_TERM = "no_shared_term"
    BELOW_POOL = "below_pool"


@dataclass(frozen=True, slots=True)
class ChannelPlace:
    """What a channel makes of a chunk: an `opinion` where it ranked it, the reason where it did not.

    `score` is what the chunk scores whether it was ranked or not, None where it scores nothing or nobody answered.
    """

    report: ChannelReport
    opinion: ChannelScore | None
    score: float | None
    absence: Absence | None


def channel_place(
    report: ChannelReport, opinion: ChannelScore | None, score: float | None, *, meets_filter: bool
) -> ChannelPlace:
    """The place of a chunk in a channel, given the channel's `opinion`, if it ranked it, and its `score`, if any."""
    if report.status is not ChannelStatus.ANSWERED:
        asked = report.status is not ChannelStatus.NOT_REQUESTED
        return ChannelPlace(report, None, None, Absence.NOT_ANSWERED if asked else Absence.NOT_REQUESTED)
    if opinion is not None:
        return ChannelPlace(report, opinion, opinion.score, None)
    if not meets_filter:
        absence = Absence.FILTERED_OUT
    elif score is not None:
        absence = Absence.BELOW_POOL
    elif report.channel is Channel.SEMANTIC:
        absence = Absence.NOT_EMBEDDED
    else:
        absence = Absence.NO_SHARED_TERM
    return ChannelPlace(report, None, score, absence)


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


def explanation(
    tokens: Sequence[Token], lexical: CorpusStatistics | None, identifier: CorpusStatistics | None
) -> Explanation:
    """Of the chunk of these tokens, by the terms of the channels' statistics; None for one that did not answer."""
    return Explanation(
        terms=explained_terms(tokens, lexical) if lexical else (),
        identifiers=explained_terms(tokens, identifier) if identifier else (),
        telling=telling_identifiers(identifier) if identifier else frozenset(),
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
