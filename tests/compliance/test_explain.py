"""Answers that explain themselves: by the query's terms, and why a chunk has its place or none."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

import grpc
import pytest
from google.protobuf import json_format
from tests.compliance.brute_force import as_float32, bm25_score, cosine_score, inverse_document_frequency
from tests.compliance.messages import chunk, derived_id, without_vector
from tests.compliance.provider import embedded, turned
from tests.compliance.wire import Api, refusal

from chunkstore.v1 import explanation_service_pb2 as pb
from chunkstore.v1 import retrieval_service_pb2 as retrieval
from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.explanation_pb2 import Explanation, TermExplanation
from chunkstore.v1.explanation_service_pb2 import ChannelExplanation, ExplainChunkResponse
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.retrieval_service_pb2 import Fusion, RetrieveChunksRequest, ScoredChunk

HYBRID: Final = retrieval.RETRIEVAL_MODE_HYBRID
SEMANTIC: Final = retrieval.RETRIEVAL_MODE_SEMANTIC
LEXICAL: Final = retrieval.RETRIEVAL_MODE_LEXICAL
WEIGHTED: Final = Fusion(method=retrieval.FUSION_METHOD_WEIGHTED_SUM, semantic_weight=0.25)


def hits(api: Api, query: str, *, explain: bool = True, k: int = 300, **fields: Any) -> list[ScoredChunk]:
    request = RetrieveChunksRequest(query=query, k=k, explain=explain, **fields)
    return list(api.retrieval.RetrieveChunks(request).chunks)


def absences(answer: ExplainChunkResponse) -> list[str]:
    """Each channel's reason for no rank, empty where it gave one."""
    names = (pb.AbsenceReason.Name(channel.absence) for channel in answer.channels)
    return [name.removeprefix("ABSENCE_REASON_").replace("UNSPECIFIED", "") for name in names]


def a_filter(value: dict[str, Any]) -> Filter:
    return json_format.ParseDict(value, Filter())


def has(message: Any, field: str) -> bool:
    return bool(message.HasField(field))


def total(terms: Iterable[TermExplanation]) -> float:
    """The shares, added in the order in which they come."""
    score = 0.0
    for term in terms:
        score += term.share
    return score


def spans(term: TermExplanation) -> list[tuple[int, int, int, int]]:
    return [(at.start, at.end, at.start_char, at.end_char) for at in term.spans]


def words(message: Chunk, terms: Iterable[TermExplanation]) -> dict[str, list[str]]:
    """What of the chunk's text the spans of each term cut out."""
    return {term.term: [message.text[at.start : at.end] for at in term.spans] for term in terms}


class TestRetrieveChunks:
    """explain on RetrieveChunks."""

    def test_nothing_is_explained_unless_it_is_asked(self, api: Api) -> None:
        """Excludes an explanation in every answer, and another ranking for its sake."""
        api.upsert(chunk("one", "alpha beta"), chunk("two", "alpha"))
        plain, explained = hits(api, "alpha", explain=False), hits(api, "alpha")
        assert not any(hit.HasField("explanation") for hit in plain)
        assert all(hit.HasField("explanation") for hit in explained)
        for hit in explained:
            hit.ClearField("explanation")
        assert explained == plain

    def test_a_score_is_taken_apart_by_terms(self, api: Api) -> None:
        """Excludes a term left out because the chunk lacks it, and a frequency of the corpus for one of the chunk."""
        api.upsert(chunk("one", "refund refund fee"), chunk("two", "refund"), chunk("three", "other words here"))
        by_source = {hit.chunk.source_id: hit for hit in hits(api, "fee refund absent", mode=LEXICAL)}
        terms = by_source["one"].explanation.terms
        frequencies = {"absent": 0, "fee": 1, "refund": 2}
        found = {term.term: (term.document_frequency, term.frequency) for term in terms}
        assert found == {"absent": (0, 0), "fee": (1, 1), "refund": (2, 2)}
        assert [term.term for term in terms] == sorted(found)
        assert [term.idf for term in terms] == [inverse_document_frequency(3, n) for n in (0, 1, 2)]
        assert total(terms) == bm25_score({"fee": 1, "refund": 2}, 3, frequencies, 3, 7) == by_source["one"].lexical
        assert [(t.frequency, t.share, len(t.spans)) for t in by_source["two"].explanation.terms[:2]] == [
            (0, 0.0, 0)
        ] * 2
        assert total(by_source["two"].explanation.terms) == by_source["two"].lexical

    def test_spans_are_of_the_text_as_it_is_and_of_its_document(self, api: Api) -> None:
        """Excludes offsets in UTF-16 units, in bytes, in the composed form, or from the chunk's start alone."""
        text = "😀 Refunds, re\u0301fund 𝓇𝑒𝒻𝓊𝓃𝒹 ﬀ refund"
        api.upsert(chunk("one", text, start=100))
        [hit] = hits(api, "refund", mode=LEXICAL)
        [term] = hit.explanation.terms
        assert spans(term) == [(2, 9, 102, 109), (11, 18, 111, 118), (19, 25, 119, 125), (28, 34, 128, 134)]
        assert words(hit.chunk, [term]) == {"refund": ["Refunds", "re\u0301fund", "𝓇𝑒𝒻𝓊𝓃𝒹", "refund"]}
        assert term.frequency == 4

    def test_spans_are_bounded_and_frequencies_are_not(self, api: Api) -> None:
        """Excludes an answer as long as the chunk."""
        api.upsert(chunk("one", "alpha " * 40))
        [hit] = hits(api, "alpha", mode=LEXICAL)
        [term] = hit.explanation.terms
        assert (term.frequency, len(term.spans)) == (40, 32)
        assert spans(term)[31] == (186, 191, 186, 191)

    @pytest.mark.parametrize("query", ["BX-7741", "bx7741", "BX 7741"])
    def test_identifiers_are_explained_by_themselves(self, api: Api, query: str) -> None:
        """Excludes identifiers by another spelling than the chunk's, and a score of parts for one of the whole."""
        api.upsert(chunk("held", "Booking BX-7741"), chunk("joined", "bx7741"), chunk("near", "BX-7742"))
        by_source = {hit.chunk.source_id: hit for hit in hits(api, query, mode=LEXICAL)}
        for source, word in (("held", "BX-7741"), ("joined", "bx7741")):
            hit = by_source[source]
            [identifier] = hit.explanation.identifiers
            assert (identifier.term, identifier.document_frequency, identifier.frequency) == ("bx7741", 2, 1)
            assert words(hit.chunk, [identifier]) == {"bx7741": [word]}
            assert total(hit.explanation.identifiers) == hit.identifier
            assert list(hit.explanation.telling_identifiers) == ["bx7741"]
            assert hit.identifier_share == 2.0
        [identifier] = by_source["near"].explanation.identifiers
        assert (identifier.frequency, identifier.share) == (0, 0.0)
        assert not by_source["near"].HasField("identifier")

    def test_an_identifier_that_many_hold_is_not_telling(self, api: Api) -> None:
        """Excludes calling telling whatever the chunk holds."""
        api.upsert(*(chunk(f"source {n}", f"COVID-19 number{n}") for n in range(11)))
        [*_, hit] = hits(api, "COVID-19 BX-1", mode=LEXICAL)
        assert [(t.term, t.document_frequency) for t in hit.explanation.identifiers] == [("bx1", 0), ("covid19", 11)]
        assert list(hit.explanation.telling_identifiers) == []
        assert hit.identifier_share == 0.0

    def test_a_channel_that_is_not_asked_explains_nothing(self, api: Api) -> None:
        """Excludes terms of a channel that had no say in the answer."""
        api.upsert(chunk("one", "alpha BX-7741", vector=turned("alpha", 20)))
        [hit] = hits(api, "alpha BX-7741", mode=SEMANTIC)
        assert hit.HasField("explanation")
        assert hit.explanation == Explanation()

    def test_a_chunk_that_shares_no_term_is_explained_too(self, api: Api) -> None:
        """Excludes an explanation of what was ranked by words alone."""
        api.upsert(chunk("near", "beta", vector=turned("alpha", 10)), chunk("named", "alpha"))
        near = next(hit for hit in hits(api, "alpha") if hit.chunk.source_id == "near")
        assert [(t.term, t.frequency, t.document_frequency) for t in near.explanation.terms] == [("alpha", 0, 1)]

    def test_document_frequencies_are_of_the_whole_corpus_whatever_the_filter(self, api: Api) -> None:
        """Excludes statistics of the filtered chunks, by which the shares would not be those of the score."""
        api.upsert(chunk("one", "alpha"), chunk("two", "alpha beta"))
        [hit] = hits(api, "alpha", mode=LEXICAL, filter=a_filter({"source_id": {"equals": "one"}}))
        [term] = hit.explanation.terms
        assert (term.document_frequency, term.share) == (2, hit.lexical)


class TestReasons:
    """Why a chunk has no rank."""

    def test_a_ranked_chunk_has_none(self, api: Api) -> None:
        """Excludes a place other than that of the answer."""
        sent = chunk("one", "alpha BX-7741", vector=turned("alpha", 20), start=7, metadata={"n": 1})
        api.upsert(sent, chunk("two", "alpha"))
        [first, _] = hits(api, "alpha BX-7741")
        answer = api.explain("alpha BX-7741", first.chunk.id)
        assert absences(answer) == ["", "", ""]
        assert answer.chunk == first.chunk == without_vector(answer.chunk)
        assert (answer.rank, answer.score) == (1, first.score)
        assert answer.explanation == first.explanation
        assert (answer.partial, answer.revision, answer.chunk_count, answer.embedded_count) == (False, 1, 2, 1)
        assert [channel.report.candidates for channel in answer.channels] == [1, 2, 1]
        assert list(answer.unmet_conditions) == []

    def test_no_shared_term_and_not_embedded(self, api: Api) -> None:
        """Excludes a score of 0 for one that is absent, and a place among none."""
        api.upsert(chunk("one", "beta"), chunk("two", "alpha", vector=turned("alpha", 20)))
        answer = api.explain("alpha BX-7741", derived_id("one", "beta"))
        assert absences(answer) == ["NOT_EMBEDDED", "NO_SHARED_TERM", "NO_SHARED_TERM"]
        assert not answer.HasField("rank")
        assert not answer.HasField("score")
        for channel in answer.channels:
            assert not any(has(channel, name) for name in ("rank", "score", "share"))
        assert [term.frequency for term in answer.explanation.terms] == [0] * len(answer.explanation.terms)

    def test_half_embedded(self, api: Api) -> None:
        """Excludes one reason for all channels: each chunk is in the ranking of the channel that can see it."""
        api.upsert(chunk("words", "alpha"), chunk("meaning", "beta", vector=turned("alpha", 20)))
        by_words = api.explain("alpha", derived_id("words", "alpha"))
        by_meaning = api.explain("alpha", derived_id("meaning", "beta"))
        assert absences(by_words) == ["NOT_EMBEDDED", "", "NOT_REQUESTED"]
        assert absences(by_meaning) == ["", "NO_SHARED_TERM", "NOT_REQUESTED"]
        assert sorted([by_words.rank, by_meaning.rank]) == [1, 2]
        assert (by_words.chunk_count, by_words.embedded_count) == (2, 1)

    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            (SEMANTIC, ["", "NOT_REQUESTED", "NOT_REQUESTED"]),
            (LEXICAL, ["NOT_REQUESTED", "", "NOT_REQUESTED"]),
            (HYBRID, ["", "", "NOT_REQUESTED"]),
        ],
    )
    def test_not_requested(self, api: Api, mode: retrieval.RetrievalMode.ValueType, expected: list[str]) -> None:
        """Excludes a reason about the chunk from a channel that was not asked."""
        api.upsert(chunk("one", "alpha", vector=turned("alpha", 20)))
        assert absences(api.explain("alpha", derived_id("one", "alpha"), mode=mode)) == expected

    def test_a_channel_that_does_not_answer(self, plain_api: Api) -> None:
        """Excludes "not embedded" of a chunk that is, because nobody embedded the query."""
        plain_api.upsert(chunk("one", "alpha", vector=turned("alpha", 20)))
        answer = plain_api.explain("alpha", derived_id("one", "alpha"))
        assert absences(answer) == ["NOT_ANSWERED", "", "NOT_REQUESTED"]
        report = answer.channels[0].report
        assert (report.status, report.reason) == (retrieval.CHANNEL_STATUS_NOT_CONFIGURED, "NO_EMBEDDING_PROVIDER")
        assert not answer.channels[0].HasField("score")
        assert answer.partial

    def test_where_no_channel_answers_the_call_fails_as_retrieval_does(self, plain_api: Api) -> None:
        """Excludes an explanation of an answer that there is not."""
        plain_api.upsert(chunk("one", "alpha"))
        refused = refusal(lambda: plain_api.explain("alpha", derived_id("one", "alpha"), mode=SEMANTIC))
        assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "RETRIEVAL_DEGRADED")

    def test_a_chunk_that_is_not_there(self, api: Api) -> None:
        """Excludes an internal error, before the first write and after."""
        for _ in range(2):
            refused = refusal(lambda: api.explain("alpha", derived_id("one", "absent")))
            assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "CHUNK_NOT_FOUND")
            api.upsert(chunk("one", "alpha"))

    def test_a_chunk_that_has_gone(self, api: Api) -> None:
        """Excludes an explanation of what a store still has in memory."""
        api.upsert(chunk("one", "alpha"))
        assert api.explain("alpha", derived_id("one", "alpha")).rank == 1
        api.upsert(chunk("one", "beta"))
        assert api.explain("alpha", derived_id("one", "beta")).revision == 2
        api.send("ChunkPurgeService/PurgeSource", b"\x0a\x03one")
        assert refusal(lambda: api.explain("alpha", derived_id("one", "alpha"))).code is grpc.StatusCode.NOT_FOUND


class TestBelowPool:
    """Chunks that score, but too many others score better."""

    def test_a_chunk_below_the_depth_of_each_channel(self, api: Api) -> None:
        """Excludes calling it unrelated, and a score by another formula than the ranking's."""
        depth = api.limits().channel_depth
        better = [chunk(f"better {n}", "alpha alpha", vector=turned("alpha", 0.01 * n)) for n in range(depth)]
        for start in range(0, depth, 300):
            api.upsert(*better[start : start + 300])
        vector = turned("alpha", 50)
        api.upsert(chunk("last", "alpha and other words", vector=vector))
        identifier = derived_id("last", "alpha and other words")
        answer = api.explain("alpha", identifier)
        assert absences(answer) == ["BELOW_POOL", "BELOW_POOL", "NOT_REQUESTED"]
        assert not answer.HasField("rank")
        semantic, lexical, _ = answer.channels
        assert semantic.score == cosine_score(as_float32(vector), embedded("alpha"))
        statistics = {"alpha": depth + 1}
        assert lexical.score == bm25_score({"alpha": 1}, 4, statistics, depth + 1, 2 * depth + 4)
        assert not any(channel.HasField("rank") or channel.HasField("share") for channel in answer.channels)
        only = a_filter({"source_id": {"equals": "last"}})
        [hit] = hits(api, "alpha", filter=only)
        assert (hit.semantic, hit.lexical) == (semantic.score, lexical.score)


class TestFilters:
    """Which condition keeps a chunk out."""

    @pytest.fixture
    def article(self, api: Api) -> str:
        sent = chunk("docs/one", "alpha", metadata={"lang": "en", "year": 2020}, vector=turned("alpha", 20))
        api.upsert(sent, chunk("docs/two", "alpha", metadata={"lang": "de", "year": 2024}))
        return derived_id("docs/one", "alpha")

    @pytest.mark.parametrize(
        ("value", "unmet"),
        [
            ({"source_id": {"prefix": "mail/"}}, ["filter"]),
            (
                {"none_of": [{"source_id": {"prefix": "mail/"}}, {"source_id": {"prefix": "docs/"}}]},
                ["filter.none_of[1]"],
            ),
            (
                {
                    "any_of": [
                        {"source_id": {"equals": "docs/two"}},
                        {"metadata": {"path": ["lang"], "equals": "de"}},
                    ]
                },
                ["filter.any_of"],
            ),
            (
                {
                    "all_of": [
                        {"metadata": {"path": ["lang"], "equals": "en"}},
                        {"metadata": {"path": ["year"], "range": {"gte": 2024}}},
                        {"metadata": {"path": ["topic"], "exists": {}}},
                    ]
                },
                ["filter.all_of[1]", "filter.all_of[2]"],
            ),
            (
                {
                    "all_of": [
                        {"source_id": {"prefix": "docs/"}},
                        {
                            "all_of": [
                                {"any_of": [{"source_id": {"equals": "docs/one"}}]},
                                {"none_of": [{"metadata": {"path": ["lang"], "equals": "en"}}]},
                            ]
                        },
                    ]
                },
                ["filter.all_of[1].all_of[1].none_of[0]"],
            ),
        ],
        ids=["one condition", "none of", "any of", "all of", "nested"],
    )
    def test_the_conditions_that_are_not_met_are_named(
        self, api: Api, article: str, value: dict[str, Any], unmet: Sequence[str]
    ) -> None:
        """Excludes a reason without its place, and one that its neighbours are blamed with."""
        answer = api.explain("alpha", article, filter=a_filter(value))
        assert absences(answer) == ["FILTERED_OUT", "FILTERED_OUT", "NOT_REQUESTED"]
        assert list(answer.unmet_conditions) == list(unmet)
        assert not answer.HasField("rank")
        found = [hit.chunk.id for hit in hits(api, "alpha", filter=a_filter(value))]
        assert article not in found

    def test_a_chunk_that_is_filtered_out_tells_what_it_would_score(self, api: Api, article: str) -> None:
        """Excludes other statistics for the sake of the filter."""
        without = api.explain("alpha", article)
        filtered = api.explain("alpha", article, filter=a_filter({"source_id": {"equals": "docs/two"}}))
        assert [channel.score for channel in filtered.channels] == [channel.score for channel in without.channels]
        assert filtered.explanation == without.explanation

    def test_a_filter_that_is_met_is_no_reason(self, api: Api, article: str) -> None:
        """Excludes naming conditions that hold."""
        answer = api.explain("alpha", article, filter=a_filter({"source_id": {"equals": "docs/one"}}))
        assert (absences(answer), list(answer.unmet_conditions)) == (["", "", "NOT_REQUESTED"], [])
        assert answer.rank == 1


WORDS: Final = ("alpha", "beta", "gamma", "delta", "BX-7741", "user_id", "the", "naïve", "中国人", "😀")


def a_text(choice: random.Random) -> str:
    return " ".join(choice.choices(WORDS, k=choice.randint(1, 8)))


def test_two_hundred_explanations_agree_with_the_answers(api: Api) -> None:
    """Excludes a second ranking: each place is that of RetrieveChunks for every chunk, and absent where that is."""
    choice = random.Random(7741)
    texts = [(f"source {n % 7}", f"{a_text(choice)} {n}") for n in range(60)]
    api.upsert(
        *(
            chunk(
                source,
                text,
                index=n,
                start=10 * n,
                metadata={"n": n % 4},
                vector=turned("alpha", choice.uniform(0, 180)) if n % 2 else None,
            )
            for n, (source, text) in enumerate(texts)
        )
    )
    ranked = unranked = 0
    for _ in range(200):
        query, fields = a_text(choice), _random_fields(choice)
        source, text = choice.choice(texts)
        identifier = derived_id(source, text)
        answer = api.explain(query, identifier, **fields)
        found = {hit.chunk.id: (rank, hit) for rank, hit in enumerate(hits(api, query, **fields), start=1)}
        rank, hit = found.get(identifier, (None, None))
        assert (answer.rank if answer.HasField("rank") else None) == rank
        if hit is None:
            unranked += 1
            assert not answer.HasField("score")
            assert all(absences(answer))
            continue
        ranked += 1
        assert (answer.score, answer.explanation, answer.chunk) == (hit.score, hit.explanation, hit.chunk)
        for name, channel in zip(("semantic", "lexical", "identifier"), answer.channels, strict=True):
            assert _place(channel) == _opinion(hit, name)
            assert bool(channel.absence) == (not has(hit, name))
        # Of a channel that was not asked, and of a chunk that shares no term, both are 0.
        assert hit.lexical == total(hit.explanation.terms)
        assert hit.identifier == total(hit.explanation.identifiers)
    assert min(ranked, unranked) > 20


def _random_fields(choice: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"mode": choice.choice((HYBRID, HYBRID, LEXICAL, SEMANTIC))}
    if choice.random() < 0.5:
        fields["fusion"] = WEIGHTED
    if choice.random() < 0.5:
        fields["filter"] = a_filter({"metadata": {"path": ["n"], "range": {"gte": choice.randint(0, 3)}}})
    if choice.random() < 0.5:
        fields["query_vector"] = Vector(values=turned("alpha", choice.uniform(0, 180)))
    return fields


def _place(channel: ChannelExplanation) -> tuple[float, int, float] | None:
    return (channel.score, channel.rank, channel.share) if channel.HasField("rank") else None


def _opinion(hit: ScoredChunk, name: str) -> tuple[float, int, float] | None:
    if not has(hit, name):
        return None
    return getattr(hit, name), getattr(hit, f"{name}_rank"), getattr(hit, f"{name}_share")
