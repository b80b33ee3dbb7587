"""Explanations by terms: shares that are the score, to the bit, and spans that are the words."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filters import SOURCES, filters, metadata_objects

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.explanation import (
    MAX_SPANS,
    Absence,
    TextTerms,
    channel_place,
    explained_terms,
    explanation,
    lexical_score,
)
from chunkstore.domain.filters import AnyOf, Filter, unmet
from chunkstore.domain.metadata import frozen_metadata
from chunkstore.domain.results import Channel, ChannelReport, ChannelScore, ChannelStatus, CorpusStatistics
from chunkstore.domain.text import TenantId

ENGLISH = analyzer("english")
TENANT = TenantId("tenant")
WORDS = ("alpha", "Beta", "the", "BX-7741", "time-sharing", "été", "中国人", "😀", "getUserName", "½")

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join)


def statistics(chunk_count: int, total_length: int, **frequencies: int) -> CorpusStatistics:
    return CorpusStatistics(chunk_count, total_length, frequencies)


@given(st.lists(texts, min_size=1, max_size=8, unique=True), texts)
@settings(max_examples=50)
def test_shares_in_their_order_are_the_stores_score_to_the_bit(corpus: list[str], query: str) -> None:
    """Excludes a formula of its own, another order, and a length or a frequency other than the ranking's."""
    chunks = [StoredChunk(f"source {n}", text, 0, 0, len(text)) for n, text in enumerate(corpus)]

    async def check() -> None:
        store = InMemoryChunkStore(dimension=2, analyzer=ENGLISH)
        await store.upsert_many(TENANT, chunks)
        async with store.snapshot(TENANT) as snapshot:
            found = await snapshot.lexical_candidates(ENGLISH.query_terms(query), 100)
        scores = dict(zip(found.ranking.ids, found.ranking.scores, strict=True))
        for chunk in chunks:
            terms = explained_terms(ENGLISH.tokens(chunk.text), found.statistics)
            assert lexical_score(terms) == scores.get(chunk.id)
            assert [term.term for term in terms] == ENGLISH.query_terms(query)

    asyncio.run(check())


def test_a_term_that_the_chunk_lacks_has_nothing_but_its_frequency_in_the_corpus() -> None:
    """Excludes leaving it out, and a share of 0 for one that is there."""
    present, absent = explained_terms(ENGLISH.tokens("alpha"), statistics(3, 5, alpha=2, omega=1))
    assert (present.frequency, present.spans) == (1, ((0, 5),))
    assert present.share > 0.0
    assert (absent.document_frequency, absent.frequency, absent.share, absent.spans) == (1, 0, 0.0, ())
    assert absent.idf > present.idf


def test_a_chunk_that_holds_no_term_has_no_score() -> None:
    """Excludes 0 for absent."""
    assert lexical_score(explained_terms(ENGLISH.tokens("beta"), statistics(3, 5, alpha=2))) is None
    assert lexical_score(()) is None


def test_spans_are_bounded_and_the_count_is_not() -> None:
    """Excludes an answer as long as the chunk, and a frequency cut with the spans."""
    text = "alpha " * (MAX_SPANS + 3)
    [term] = explained_terms(ENGLISH.tokens(text), statistics(1, MAX_SPANS + 3, alpha=1))
    assert term.frequency == MAX_SPANS + 3
    assert term.spans == tuple((6 * n, 6 * n + 5) for n in range(MAX_SPANS))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("😀 Refunds 😀", "Refunds"),
        ("e\u0301te\u0301 rE\u0301funds", "rE\u0301funds"),
        ("𝓡𝓮𝓯𝓾𝓷𝓭𝓼!", "𝓡𝓮𝓯𝓾𝓷𝓭𝓼"),
        ("ﬁx REFUND", "REFUND"),
    ],
)
def test_a_span_cuts_the_word_from_the_text_as_given(text: str, word: str) -> None:
    """Excludes spans of the normal form, in UTF-16 units, or in bytes."""
    [term] = explained_terms(ENGLISH.tokens(text), statistics(1, 2, refund=1))
    assert [text[start:end] for start, end in term.spans] == [word]


def test_a_text_has_the_terms_of_a_document_and_of_a_query() -> None:
    """Excludes an identifier that only a query joins, or only a document has, being lost."""
    terms = TextTerms.of("BX 7741", ENGLISH)
    assert terms.distinct == ["7741", "bx", "bx7741"]
    [number, letters, joined] = terms.explained(statistics(9, 9, **{"7741": 1, "bx": 1, "bx7741": 2}))
    assert (number.frequency, letters.frequency, joined.frequency) == (1, 1, 0)
    assert (joined.document_frequency, joined.query_term, joined.identifier) == (2, True, True)
    assert (number.query_term, number.identifier) == (True, False)


@given(filters, st.sampled_from(SOURCES), metadata_objects)
@settings(max_examples=300)
def test_the_conditions_that_keep_a_chunk_out_are_those_that_decide(
    where: Filter, source_id: str, values: dict[str, Any]
) -> None:
    """Excludes a path to a condition that does not matter, a path to none, and silence about a chunk that is out."""
    metadata = frozen_metadata(values)
    paths = unmet(where, source_id, metadata)
    assert (not paths) == where.meets(source_id, metadata)
    assert len(set(paths)) == len(paths)
    for path in paths:
        condition, in_none_of = _at(where, path)
        assert condition.meets(source_id, metadata) == in_none_of


def _at(where: Filter, path: str) -> tuple[Filter, bool]:
    """The condition at a path of a request, and whether it is one of a none_of; an any_of is its filter's whole."""
    field, *steps = re.sub(r"\.any_of$", "", path).split(".")
    assert field == "filter"
    found: Any = where
    for step in steps:
        group, place = re.fullmatch(r"(all_of|none_of)\[(\d+)]", step).groups()  # type: ignore[union-attr]
        assert type(found).__name__.lower() == group.replace("_", "")
        found = found.filters[int(place)]
    assert isinstance(found, AnyOf) or not path.endswith(".any_of")
    return found, bool(steps) and steps[-1].startswith("none_of") and not path.endswith(".any_of")


ANSWERED = ChannelReport(Channel.LEXICAL, ChannelStatus.ANSWERED)
SEMANTIC_ANSWERED = ChannelReport(Channel.SEMANTIC, ChannelStatus.ANSWERED)


@pytest.mark.parametrize(
    ("report", "score", "meets_filter", "absence"),
    [
        (ChannelReport(Channel.LEXICAL, ChannelStatus.NOT_REQUESTED), 2.0, False, Absence.NOT_REQUESTED),
        (ChannelReport(Channel.LEXICAL, ChannelStatus.FAILED), 2.0, False, Absence.NOT_ANSWERED),
        (ChannelReport(Channel.SEMANTIC, ChannelStatus.TIMED_OUT), 0.5, True, Absence.NOT_ANSWERED),
        (ChannelReport(Channel.SEMANTIC, ChannelStatus.NOT_CONFIGURED), None, True, Absence.NOT_ANSWERED),
        (ANSWERED, None, False, Absence.FILTERED_OUT),
        (ANSWERED, 2.0, False, Absence.FILTERED_OUT),
        (ANSWERED, None, True, Absence.NO_SHARED_TERM),
        (SEMANTIC_ANSWERED, None, True, Absence.NOT_EMBEDDED),
        (SEMANTIC_ANSWERED, 0.0, True, Absence.BELOW_POOL),
        (ANSWERED, 2.0, True, Absence.BELOW_POOL),
    ],
)
def test_the_first_reason_for_no_rank_is_told(
    report: ChannelReport, score: float | None, meets_filter: bool, absence: Absence
) -> None:
    """Excludes blaming the chunk for what the channel did not do, and a score of a channel that did not answer."""
    place = channel_place(report, None, score, meets_filter=meets_filter)
    assert (place.absence, place.opinion) == (absence, None)
    assert place.score == (score if report.status is ChannelStatus.ANSWERED else None)


def test_a_rank_needs_no_reason() -> None:
    """Excludes a score of its own beside the channel's."""
    opinion = ChannelScore(2.0, 3, 1 / 63)
    place = channel_place(ANSWERED, opinion, 2.5, meets_filter=True)
    assert (place.absence, place.opinion, place.score) == (None, opinion, 2.0)


def test_a_channel_that_did_not_answer_explains_nothing() -> None:
    """Excludes terms without the frequencies that they are weighed by."""
    tokens = ENGLISH.tokens("alpha BX-7741")
    assert explanation(tokens, None, None) == explanation([], None, None)
    found = explanation(tokens, None, statistics(200, 400, bx7741=1, covid19=150))
    assert (found.terms, found.telling) == ((), frozenset({"bx7741"}))
    assert [(term.term, term.frequency) for term in found.identifiers] == [("bx7741", 1), ("covid19", 0)]
