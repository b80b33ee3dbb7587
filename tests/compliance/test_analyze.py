"""Analyze: the terms of a text, where they are, how common they are, and what a query of it would ask for."""

from __future__ import annotations

import pytest
from tests.compliance.brute_force import inverse_document_frequency
from tests.compliance.messages import chunk
from tests.compliance.wire import Api

from chunkstore.v1.explanation_service_pb2 import AnalyzeResponse


def tokens(answer: AnalyzeResponse) -> list[tuple[str, int, int]]:
    return [(token.term, token.start, token.end) for token in answer.tokens]


def asked(answer: AnalyzeResponse) -> dict[str, tuple[int, bool, bool]]:
    """Of each term its frequency, and whether it is asked for as a term and as an identifier."""
    return {term.term: (term.frequency, term.query_term, term.identifier) for term in answer.terms}


class TestTokens:
    """Terms and their spans, in code points."""

    def test_terms_come_in_text_order_with_their_spans(self, api: Api) -> None:
        """Excludes spans of the normal form, and a term for each place instead of each form."""
        assert tokens(api.analyze("The Refunds of BX-7741")) == [
            ("the", 0, 3),
            ("refund", 4, 11),
            ("of", 12, 14),
            ("bx-7741", 15, 22),
            ("bx7741", 15, 22),
            ("bx", 15, 17),
            ("7741", 18, 22),
        ]

    def test_spans_count_code_points_beyond_the_bmp(self, api: Api) -> None:
        """Excludes offsets in UTF-16 units or in bytes."""
        assert tokens(api.analyze("😀 refund 𝒞𝒶𝓉")) == [("refund", 2, 8), ("cat", 9, 12)]

    def test_a_span_covers_the_marks_of_its_word(self, api: Api) -> None:
        """Excludes offsets in the composed form, which is shorter."""
        text = "e\u0301te\u0301 refund"
        assert tokens(api.analyze(text)) == [("ete", 0, 5), ("refund", 6, 12)]

    @pytest.mark.parametrize("text", ["", " \n\t", "?!", "\u200d"])
    def test_a_text_without_words_has_no_terms(self, api: Api, text: str) -> None:
        """Excludes an error for what is no fault of the caller's."""
        answer = api.analyze(text)
        assert (list(answer.tokens), list(answer.terms)) == ([], [])


class TestTerms:
    """Distinct terms, and what the corpus knows of them."""

    def test_document_frequencies_are_of_the_corpus_at_a_revision(self, api: Api) -> None:
        """Excludes counting occurrences, and a term that is left out because no chunk holds it."""
        api.upsert(chunk("one", "refund refund fee"), chunk("two", "a refund"), chunk("three", "nothing"))
        answer = api.analyze("Refund the fees, absent fee")
        assert (answer.chunk_count, answer.revision) == (3, 1)
        found = {term.term: (term.document_frequency, term.idf) for term in answer.terms}
        expected = {"absent": 0, "fee": 1, "refund": 2, "the": 0}
        assert found == {term: (n, inverse_document_frequency(3, n)) for term, n in expected.items()}
        assert [term.term for term in answer.terms] == sorted(expected)

    def test_an_empty_corpus_has_no_frequencies(self, api: Api) -> None:
        """Excludes an error for a tenant that has never written."""
        answer = api.analyze("refund")
        assert [(term.document_frequency, term.idf) for term in answer.terms] == [(0, inverse_document_frequency(0, 0))]
        assert (answer.chunk_count, answer.revision) == (0, 0)

    def test_a_query_leaves_out_stop_words_unless_it_has_no_others(self, api: Api) -> None:
        """Excludes calling every term of the text one that a query asks for."""
        assert asked(api.analyze("the refund, the fee")) == {
            "the": (2, False, False),
            "refund": (1, True, False),
            "fee": (1, True, False),
        }
        assert asked(api.analyze("the")) == {"the": (1, True, False)}

    @pytest.mark.parametrize("text", ["BX-7741", "bx7741", "BX 7741"])
    def test_an_identifier_is_one_in_every_spelling(self, api: Api, text: str) -> None:
        """Excludes missing what only a query joins: in a document, BX 7741 is two words."""
        api.upsert(chunk("one", "Booking BX-7741"))
        answer = api.analyze(text)
        by_term = asked(answer)
        assert by_term["bx7741"] == (0 if " " in text else 1, True, True)
        assert [term for term, (_, _, identifier) in by_term.items() if identifier] == ["bx7741"]
        assert {term.term: term.document_frequency for term in answer.terms}["bx7741"] == 1

    def test_an_identifier_need_not_be_a_term_of_the_query(self, api: Api) -> None:
        """Excludes taking the identifier channel's terms for some of the lexical channel's."""
        assert asked(api.analyze("time-sharing")) == {
            "share": (1, True, False),
            "time": (1, True, False),
            "timeshar": (1, False, True),
        }

    def test_a_text_of_the_largest_size_is_analyzed(self, api: Api) -> None:
        """Excludes a bound below the one that is stated, and a bound in characters."""
        text = "é " * (32 * 1024 // 3) + "x" * (32 * 1024 % 3)
        assert len(text.encode()) == api.limits().max_query_bytes
        assert len(api.analyze(text).tokens) == 32 * 1024 // 3 + 1
