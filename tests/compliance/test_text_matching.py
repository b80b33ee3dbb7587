"""Which words of a query find which words of a passage: identifiers, scripts, case, normal forms, and any signs."""

from __future__ import annotations

import base64
import random
import unicodedata

import pytest
from tests.compliance.messages import PLAIN_TEXT, document
from tests.compliance.wire import Api

from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.retrieval_service_pb2 import RetrievalMode, RetrieveChunksRequest, ScoredChunk

HYBRID = pb.RETRIEVAL_MODE_HYBRID
LEXICAL = pb.RETRIEVAL_MODE_LEXICAL
every_mode_with_words = pytest.mark.parametrize("mode", [LEXICAL, HYBRID], ids=["lexical", "hybrid"])

HANDBOOK = {
    "booking": "Booking BX-7741 was confirmed for the spring tour.",
    "next booking": "Booking BX-7742 was confirmed for the spring tour.",
    "room": "Room 7741 is on the seventh floor of the annex.",
    "desks": "7741 7741 7741: desk BX, counter BX, gate BX.",
    "rule": "RULE-A002 forbids smoking in hired cars.",
    "next rule": "RULE-A003 forbids pets in hired cars.",
    "annex": "A rule of annex A has 002 exceptions; a rule, a rule, a rule.",
    "column": "The column user_id names the account.",
    "columns": "The column user_ids names many accounts.",
    "card": "Each user has an id card; a user without an id is no user.",
    "function": "Call getUserName before the greeting.",
    "functions": "Call getUserNames before the greetings.",
    "guest": "The user told us the name of a hotel, and the hotel told us the user's name. Get a name.",
}


def store(api: Api, **passages: str) -> None:
    """Index each as a passage of its own source."""
    done = api.index(*(document(source, text) for source, text in passages.items()))
    assert done.summary.failed == 0


# The vectors of these tests know nothing of a text's meaning, and their cosines are no evidence.
BY_RANK = pb.Fusion(method=pb.FUSION_METHOD_RECIPROCAL_RANK)


def retrieve(api: Api, query: str, mode: RetrievalMode.ValueType = LEXICAL) -> list[ScoredChunk]:
    request = RetrieveChunksRequest(query=query, k=20, mode=mode, fusion=BY_RANK)
    return list(api.retrieval.RetrieveChunks(request).chunks)


def sources(chunks: list[ScoredChunk]) -> list[str]:
    return [scored.chunk.source_id for scored in chunks]


class TestIdentifiers:
    """Booking references, rule numbers and names in code, however they are written."""

    @pytest.mark.parametrize(
        ("query", "holder"),
        [
            ("BX-7741", "booking"),
            ("bx7741", "booking"),
            ("BX 7741", "booking"),
            ("what became of booking bx-7741?", "booking"),
            ("BX-7742", "next booking"),
            ("RULE-A002", "rule"),
            ("rule-a002", "rule"),
            ("a002", "rule"),
            ("A003", "next rule"),
            ("user_id", "column"),
            ("USER_ID", "column"),
            ("user_ids", "columns"),
            ("getUserName", "function"),
            ("getUserNames", "functions"),
        ],
    )
    @every_mode_with_words
    def test_the_passage_that_holds_it_exactly_is_first(
        self, api: Api, mode: RetrievalMode.ValueType, query: str, holder: str
    ) -> None:
        """Excludes parts that outweigh the whole: others hold the parts more often, or almost the same identifier."""
        store(api, **HANDBOOK)
        found = retrieve(api, query, mode)
        assert sources(found)[0] == holder
        assert found[0].HasField("lexical")

    @pytest.mark.parametrize(
        ("query", "holders"),
        [
            ("7741", {"booking", "room", "desks"}),
            ("user name", {"function", "functions", "guest", "column", "card"}),
            ("rule", {"rule", "next rule", "annex"}),
            ("getusername", {"function"}),
            ("bx", {"booking", "next booking", "desks"}),
        ],
    )
    def test_a_part_of_it_finds_it(self, api: Api, query: str, holders: set[str]) -> None:
        """Excludes identifiers that are terms only as a whole."""
        store(api, **HANDBOOK)
        assert holders <= set(sources(retrieve(api, query)))

    def test_another_identifier_does_not_find_it(self, api: Api) -> None:
        """Excludes matching by prefix or by likeness."""
        store(api, one="Booking BX-7741 was confirmed.", two="user_id")
        for query in ("BX7", "774", "77410", "XBX", "user_", "ser_id"):
            assert "one" not in sources(retrieve(api, query)), query


class TestScripts:
    """Scripts without spaces, and marks that belong to their letters."""

    @pytest.mark.parametrize(
        ("held", "distractor", "query"),
        [
            ("国際標準化に関する動向", "国際会議に関する動向", "標準化"),
            ("退改签政策适用于所有机票", "行李政策适用于所有旅客", "机票"),
            ("यह हिन्दी में लिखा है।", "यह हनद में लिखा है।", "हिन्दी"),
            ("ฉันเรียนภาษาไทยทุกวัน", "ฉันเรียนดนตรีทุกวัน", "ภาษาไทย"),
            ("저는 한국어를 배웁니다", "저는 영어를 배웁니다", "한국어"),
            ("คืนเงินภายในห้าวัน", "ชำระเงินภายในห้าวัน", "คืนเงิน"),
        ],
        ids=["Japanese", "Chinese", "Hindi", "Thai", "Korean", "Thai with shared words"],
    )
    @every_mode_with_words
    def test_a_word_within_a_clause_is_found(
        self, api: Api, mode: RetrievalMode.ValueType, held: str, distractor: str, query: str
    ) -> None:
        """Excludes a clause that is one term, and letters without their marks."""
        store(api, held=held, distractor=distractor, english="Nothing of the kind.")
        found = retrieve(api, query, mode)
        assert sources(found)[0] == "held"
        assert found[0].HasField("lexical")

    def test_marks_are_kept(self, api: Api) -> None:
        """Excludes Hindi words cut at their combining marks, whose pieces every other word shares."""
        store(api, held="हिन्दी", without_marks="हनद", letters="ह न द", other_word="हिन्दू")
        assert sources(retrieve(api, "हिन्दी")) == ["held"]
        assert sources(retrieve(api, "हनद")) == ["without_marks"]


class TestForms:
    """Case and normal form, in either direction."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("İstanbul", "istanbul"),
            ("Straße", "STRASSE"),
            (unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")),
            ("café", "CAFE"),
            ("ﬁnance", "FINANCE"),
            ("ＢＸ７７４１", "bx7741"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("co\u00adoperate", "cooperate"),
        ],
        ids=["dotted I", "sharp s", "normal forms", "accents", "ligature", "full width", "final sigma", "soft hyphen"],
    )
    def test_each_finds_the_other(self, api: Api, one: str, other: str) -> None:
        """Excludes folding on one side only."""
        passages = {"one": f"To {one} by train", "other": f"To {other} by train"}
        store(api, **passages, neither="To Ankara by train")
        for query in (one, other):
            found = retrieve(api, query)
            assert set(sources(found)) == {"one", "other"}
            assert {scored.chunk.source_id: scored.chunk.text for scored in found} == passages

    def test_offsets_stay_those_of_the_original_text(self, api: Api) -> None:
        """Excludes offsets of the folded text, whose length differs at nearly every word here."""
        line = "İstanbul, Straße, cafe\u0301, ﬁnance, 👩‍👩‍👧, ½, Ǆ: "
        text = "".join(f"{line}place{n}. " for n in range(60))
        api.index(document("source", text, cut=PLAIN_TEXT))
        chunks = api.chunks_of("source")
        assert len(chunks) > 2
        assert all(chunk.text == text[chunk.start_char : chunk.end_char] for chunk in chunks)
        found = retrieve(api, "place59 istanbul")[0].chunk
        assert "place59" in text[found.start_char : found.end_char]


class TestAnyText:
    """A query has no syntax, and no text is too odd."""

    @pytest.mark.parametrize(
        "signs",
        [
            "foo & | ! :* ( \" '",
            "foo:*",
            "foo <-> bar",
            '"foo',
            "foo\\",
            "(((((foo",
            "'; DROP TABLE chunks; -- foo",
            "%foo_%",
            "$1 foo {} {0} %s",
            "foo* ?foo ~foo^2",
            "foo\tAND\nNOT foo OR",
            "[foo] /foo/ <foo>",
            "foo 👩‍👩‍👧 \u202e \ufeff \u0301",
        ],
    )
    @every_mode_with_words
    def test_signs_are_plain_text(self, api: Api, mode: RetrievalMode.ValueType, signs: str) -> None:
        """Excludes a query that is handed to a parser: an answer every time, and the word in it found."""
        store(api, held="The word foo is here.", other="Nothing here at all.")
        found = {scored.chunk.source_id: scored for scored in retrieve(api, signs, mode)}
        assert found["held"].HasField("lexical")
        assert found["held"].lexical_rank == 1

    @pytest.mark.parametrize("signs", ["& | ! :*", '"', "()", "\\", "%", "-", "👍", "\u200b", "..."])
    def test_signs_alone_are_no_error(self, api: Api, signs: str) -> None:
        """Excludes an error for a query without any word, which is not blank."""
        store(api, held="The word foo is here.")
        assert retrieve(api, signs) == []

    def test_a_query_of_stop_words_is_answered(self, api: Api) -> None:
        """Excludes dropping all of a query's words."""
        store(api, held="To be or not to be", other="Nothing of that kind")
        assert sources(retrieve(api, "to be or not to be"))[0] == "held"

    def test_a_token_of_3000_characters_is_accepted_and_found(self, api: Api) -> None:
        """Excludes the limit of an index's row, and a token that is cut: another with the same start is not found."""
        randomly = random.Random(2704)
        token = base64.b64encode(randomly.randbytes(2250)).decode()
        assert len(token) == 3000
        store(api, held=f"The key is {token} and nothing else.", other="The key is lost.")
        assert sources(retrieve(api, token))[0] == "held"
        plain = "".join(randomly.choices("abcdefghijklmnopqrstuvwxyz", k=3000))
        store(api, plain=plain)
        assert sources(retrieve(api, plain)) == ["plain"]
        assert sources(retrieve(api, plain[:-1] + ("a" if plain[-1] != "a" else "b"))) == []
