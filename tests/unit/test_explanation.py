"""Explanations by terms: shares that are the score, to the bit, and spans that are the words."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.explanation import MAX_SPANS, TextTerms, explained_terms, lexical_score
from chunkstore.domain.results import CorpusStatistics
from chunkstore.domain.text import TenantId

ENGLISH = analyzer("english")
TENANT = TenantId("tenant")
WORDS = ("alpha", "Beta", "the", "BX-7741", "time-sharing", "été", "中国人", "😀", "getUserName", "½")

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join)


def statistics(chunk_count: int, total_length: int, **frequencies: int) -> CorpusStatistics:
    return CorpusStatistics(chunk_count, total_length, frequencies)


@given(st.lists(texts, min_size=1, max_size=8, unique=True), texts)
@settings(max_examples=100, deadline=None)
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
