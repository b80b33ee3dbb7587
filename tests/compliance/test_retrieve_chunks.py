"""RetrieveChunks: both channels, their fusion, and what the answer says of itself."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest
from tests.compliance import ties
from tests.compliance.brute_force import as_float32, bm25_score, cosine_score, fused, rank_shares
from tests.compliance.messages import chunk, stored, without_vector
from tests.compliance.provider import embedded, turned
from tests.compliance.wire import Api, refusal

from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.retrieval_service_pb2 import (
    FUSION_METHOD_RECIPROCAL_RANK,
    ChannelReport,
    Fusion,
    RetrievalMode,
    RetrieveChunksRequest,
    RetrieveChunksResponse,
    ScoredChunk,
)

HYBRID = pb.RETRIEVAL_MODE_HYBRID
SEMANTIC = pb.RETRIEVAL_MODE_SEMANTIC
LEXICAL = pb.RETRIEVAL_MODE_LEXICAL
QUERY = "alpha"

# Two texts of one source, the shorter one first; the smaller id is once the longer text's, once the shorter one's.
TIE_WON_BY_LONG = (
    ties.A_A3,
    ties.Tied("tie-a", "alpha beta beta", "0f8c499060fe1e83fb9743220308b63dbaed3a2baac75ae61f1098931108708f"),
)
TIE_WON_BY_SHORT = (
    ties.C_78,
    ties.Tied("tie-c", "alpha beta beta", "9c8252a1526a7a2afd7f86c90e1f62c398fd5223f5f7303738d3618081464f47"),
)


def retrieve(
    api: Api,
    query: str = QUERY,
    k: int | None = None,
    mode: RetrievalMode.ValueType = HYBRID,
    include_embeddings: bool = False,
    vector: Sequence[float] | None = None,
) -> RetrieveChunksResponse:
    by_rank = Fusion(method=FUSION_METHOD_RECIPROCAL_RANK)
    request = RetrieveChunksRequest(query=query, k=k, mode=mode, include_embeddings=include_embeddings, fusion=by_rank)
    if vector is not None:
        request.query_vector.CopyFrom(Vector(values=vector))
    return api.retrieval.RetrieveChunks(request)


def sources(answer: RetrieveChunksResponse) -> list[str]:
    return [scored.chunk.source_id for scored in answer.chunks]


def ranks(scored: ScoredChunk) -> tuple[int | None, int | None, int | None]:
    """The semantic, lexical and identifier rank; None where unset."""
    semantic = scored.semantic_rank if scored.HasField("semantic_rank") else None
    lexical = scored.lexical_rank if scored.HasField("lexical_rank") else None
    identifier = scored.identifier_rank if scored.HasField("identifier_rank") else None
    return semantic, lexical, identifier


def statuses(answer: RetrieveChunksResponse) -> list[str]:
    """The channels' statuses without their prefix, in the order of the enum, which must be that of the reports."""
    assert [report.channel for report in answer.channels] == [
        pb.CHANNEL_SEMANTIC,
        pb.CHANNEL_LEXICAL,
        pb.CHANNEL_IDENTIFIER,
    ]
    return [pb.ChannelStatus.Name(report.status).removeprefix("CHANNEL_STATUS_") for report in answer.channels]


def channel(answer: RetrieveChunksResponse, wanted: pb.Channel.ValueType) -> ChannelReport:
    [report] = [report for report in answer.channels if report.channel == wanted]
    return report


def ranked(source: str, *, semantic: int | None = None, lexical: int | None = None) -> Chunk:
    """A chunk that both channels rank as told among chunks made alike, for the query `alpha`.

    The further its vector is turned from the query's, and the longer its text, the lower it ranks.
    """
    text = " ".join([QUERY] + ["filler"] * lexical) if lexical else "filler"
    return chunk(source, text, vector=turned(QUERY, 10.0 * semantic) if semantic else None)


class TestArguments:
    """Guards, before anything is read."""

    @pytest.mark.parametrize("query", ["", " ", "\r\n\t", " \r\n\t\u00a0", "\u2003\u3000"])
    @pytest.mark.parametrize("mode", [HYBRID, SEMANTIC, LEXICAL])
    def test_a_blank_query_is_refused(self, api: Api, query: str, mode: RetrievalMode.ValueType) -> None:
        """Excludes an empty answer to a mistake."""
        refused = refusal(lambda: retrieve(api, query, mode=mode))
        assert (refused.code, refused.reason, refused.field) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_FIELD",
            "query",
        )

    @pytest.mark.parametrize("k", [-1, -(2**31)])
    def test_a_negative_k_is_refused(self, api: Api, k: int) -> None:
        """Excludes reading it as none, or as a slice from the end."""
        refused = refusal(lambda: retrieve(api, k=k))
        assert (refused.code, refused.reason, refused.field) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_FIELD",
            "k",
        )

    def test_the_largest_k_is_the_one_that_the_store_tells(self, api: Api) -> None:
        """Excludes cutting a k that is too large without saying so."""
        most = api.limits().max_k
        assert sources(retrieve(api, k=most)) == []
        assert refusal(lambda: retrieve(api, k=most + 1)).field == "k"

    def test_k_0_returns_nothing_and_asks_no_channel(self, api: Api) -> None:
        """Excludes reading 0 as absent."""
        revision = api.upsert(chunk("one", QUERY, vector=embedded(QUERY)), chunk("two", QUERY)).revision
        answer = retrieve(api, k=0)
        assert sources(answer) == []
        assert statuses(answer) == ["NOT_REQUESTED"] * 3
        assert (answer.partial, answer.revision, answer.chunk_count, answer.embedded_count) == (False, revision, 2, 1)

    def test_an_absent_k_is_10(self, api: Api) -> None:
        """Excludes reading absent as 0."""
        api.upsert(*(chunk(f"source-{n}", f"alpha {n}") for n in range(12)))
        assert len(retrieve(api).chunks) == 10
        assert len(retrieve(api, k=11).chunks) == 11
        assert len(retrieve(api, k=100).chunks) == 12

    def test_a_mode_that_is_none_is_refused(self, api: Api) -> None:
        """Excludes taking a number of a later contract for hybrid."""
        refused = refusal(lambda: api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=QUERY, mode=9)))  # type: ignore[arg-type]
        assert (refused.reason, refused.field) == ("INVALID_FIELD", "mode")

    def test_an_unspecified_mode_is_hybrid(self, api: Api) -> None:
        """Excludes a default of one channel."""
        api.upsert(ranked("one", semantic=1), ranked("two", lexical=1))
        answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=QUERY))
        assert statuses(answer) == ["ANSWERED", "ANSWERED", "NOT_REQUESTED"]
        assert len(answer.chunks) == 2


class TestChannels:
    """Which channels rank, and what the answer says of them."""

    def test_semantic_mode_uses_its_channel_alone(self, api: Api) -> None:
        """Excludes a lexical opinion, and a lexical candidate, in a semantic answer."""
        api.upsert(ranked("near", semantic=1), ranked("far", semantic=2, lexical=1), ranked("words", lexical=1))
        answer = retrieve(api, mode=SEMANTIC)
        assert sources(answer) == ["near", "far"]
        assert [ranks(scored) for scored in answer.chunks] == [(1, None, None), (2, None, None)]
        assert not any(scored.HasField("lexical") for scored in answer.chunks)
        assert statuses(answer) == ["ANSWERED", "NOT_REQUESTED", "NOT_REQUESTED"]
        assert answer.partial is False

    def test_lexical_mode_uses_its_channel_alone(self, api: Api) -> None:
        """Excludes a semantic opinion, and a call of the model, in a lexical answer."""
        api.upsert(ranked("near", semantic=1), ranked("far", semantic=2, lexical=1), ranked("words", lexical=2))
        answer = retrieve(api, mode=LEXICAL)
        assert sources(answer) == ["far", "words"]
        assert [ranks(scored) for scored in answer.chunks] == [(None, 1, None), (None, 2, None)]
        assert not any(scored.HasField("semantic") for scored in answer.chunks)
        assert statuses(answer) == ["NOT_REQUESTED", "ANSWERED", "NOT_REQUESTED"]
        assert answer.partial is False

    def test_hybrid_fuses_both(self, api: Api) -> None:
        """Excludes one channel's order with the other's appended, and a sum of the channels' scores.

        Ranks (semantic, lexical): both (1, 2), words (-, 1), near (2, -).
        """
        api.upsert(ranked("near", semantic=2), ranked("both", semantic=1, lexical=2), ranked("words", lexical=1))
        answer = retrieve(api)
        assert sources(answer) == ["both", "words", "near"]
        assert [ranks(scored) for scored in answer.chunks] == [(1, 2, None), (None, 1, None), (2, None, None)]
        assert [scored.score for scored in answer.chunks] == [1 / 61 + 1 / 62, 1 / 61, 1 / 62]
        assert statuses(answer) == ["ANSWERED", "ANSWERED", "NOT_REQUESTED"]

    def test_an_identifier_in_the_query_asks_its_channel(self, api: Api) -> None:
        """Excludes a channel that is never asked, and one that ranks parts of the identifier."""
        api.upsert(chunk("held", "Booking BX-7741 is confirmed."), chunk("near", "Booking BX-7742 is confirmed."))
        for mode in (LEXICAL, HYBRID):
            answer = retrieve(api, "BX-7741", mode=mode)
            assert statuses(answer)[1:] == ["ANSWERED", "ANSWERED"]
            assert channel(answer, pb.CHANNEL_IDENTIFIER).candidates == 1
            assert [ranks(scored) for scored in answer.chunks] == [(None, 1, 1), (None, 2, None)]
            assert answer.chunks[0].HasField("identifier")
            assert not answer.chunks[1].HasField("identifier")
        assert statuses(retrieve(api, "BX-7741", mode=SEMANTIC))[2] == "NOT_REQUESTED"
        assert statuses(retrieve(api, "booking confirmed"))[2] == "NOT_REQUESTED"

    def test_hybrid_over_an_unembedded_corpus_still_answers_lexically(self, api: Api) -> None:
        """Excludes an error, an empty answer and a partial one: "not embedded" is a fact of each chunk."""
        api.upsert(chunk("one", "alpha"), chunk("two", "beta"))
        answer = retrieve(api)
        assert sources(answer) == ["one"]
        assert statuses(answer) == ["ANSWERED", "ANSWERED", "NOT_REQUESTED"]
        assert channel(answer, pb.CHANNEL_SEMANTIC).candidates == 0
        assert (answer.partial, answer.chunk_count, answer.embedded_count) == (False, 2, 0)
        assert sources(retrieve(api, mode=SEMANTIC)) == []

    def test_reports_count_candidates_and_time(self, api: Api) -> None:
        """Excludes counting what was returned, and a channel that is never timed."""
        api.upsert(*(ranked(f"both-{n}", semantic=n, lexical=n) for n in range(1, 4)), ranked("near", semantic=4))
        answer = retrieve(api, k=1)
        assert [report.candidates for report in answer.channels] == [4, 3, 0]
        assert all(report.reason == "" for report in answer.channels)
        assert channel(answer, pb.CHANNEL_SEMANTIC).elapsed.ToNanoseconds() > 0
        assert channel(answer, pb.CHANNEL_LEXICAL).elapsed.ToNanoseconds() > 0

    def test_the_answer_tells_what_it_ranked(self, api: Api) -> None:
        """Excludes counts of the candidates, and of another revision."""
        api.upsert(chunk("one", "alpha", vector=embedded(QUERY)), chunk("two", "beta"), chunk("three", "gamma"))
        answer = retrieve(api)
        assert (answer.revision, answer.chunk_count, answer.embedded_count) == (1, 3, 1)
        api.upsert(chunk("four", "alpha"))
        answer = retrieve(api)
        assert (answer.revision, answer.chunk_count, answer.embedded_count) == (2, 4, 1)
        assert set(sources(answer)) == {"one", "four"}

    def test_an_empty_corpus_answers_with_nothing(self, api: Api) -> None:
        """Excludes an error for a tenant that has never written."""
        answer = retrieve(api)
        assert sources(answer) == []
        assert statuses(answer) == ["ANSWERED", "ANSWERED", "NOT_REQUESTED"]
        assert (answer.revision, answer.chunk_count, answer.embedded_count) == (0, 0, 0)


class TestWithoutProvider:
    """A server that has no embedding provider says so."""

    def test_hybrid_is_partial_and_names_the_channel(self, plain_api: Api) -> None:
        """Excludes an answer that is silently of one channel, also where the corpus is embedded."""
        plain_api.upsert(chunk("one", "alpha", vector=(1.0, 0.0, 0.0, 0.0)), chunk("two", "beta"))
        answer = retrieve(plain_api)
        assert sources(answer) == ["one"]
        assert statuses(answer) == ["NOT_CONFIGURED", "ANSWERED", "NOT_REQUESTED"]
        assert channel(answer, pb.CHANNEL_SEMANTIC).reason == "NO_EMBEDDING_PROVIDER"
        assert (answer.partial, answer.embedded_count) == (True, 1)
        assert not answer.chunks[0].HasField("semantic")

    def test_lexical_mode_is_whole(self, plain_api: Api) -> None:
        """Excludes calling an answer partial for what nobody asked."""
        plain_api.upsert(chunk("one", "alpha"))
        answer = retrieve(plain_api, mode=LEXICAL)
        assert (sources(answer), answer.partial) == (["one"], False)
        assert statuses(answer) == ["NOT_REQUESTED", "ANSWERED", "NOT_REQUESTED"]

    def test_semantic_mode_is_an_error(self, plain_api: Api) -> None:
        """Excludes an empty answer where no channel answered."""
        plain_api.upsert(chunk("one", "alpha", vector=(1.0, 0.0, 0.0, 0.0)))
        refused = refusal(lambda: retrieve(plain_api, mode=SEMANTIC))
        assert (refused.code, refused.reason, refused.domain) == (
            grpc.StatusCode.UNAVAILABLE,
            "RETRIEVAL_DEGRADED",
            "chunkstore",
        )
        assert refused.metadata == {"missing": "semantic", "answered": ""}

    def test_a_blank_query_is_refused_first(self, plain_api: Api) -> None:
        """Excludes telling the caller to try again with what can never work."""
        assert refusal(lambda: retrieve(plain_api, " ", mode=SEMANTIC)).field == "query"


class TestOwnVector:
    """A query may bring the vector that it was embedded as."""

    def test_is_what_the_semantic_channel_ranks_by(self, api: Api) -> None:
        """Excludes embedding the query all the same."""
        api.upsert(ranked("query's", semantic=1), chunk("vector's", "filler", vector=turned(QUERY, 90)))
        assert sources(retrieve(api, mode=SEMANTIC)) == ["query's", "vector's"]
        answer = retrieve(api, mode=SEMANTIC, vector=turned(QUERY, 90))
        assert sources(answer) == ["vector's", "query's"]
        assert answer.chunks[0].semantic == 1.0

    def test_needs_no_provider(self, plain_api: Api) -> None:
        """Excludes an answer called partial although every channel answered."""
        plain_api.upsert(ranked("near", semantic=2), ranked("both", semantic=1, lexical=2), ranked("words", lexical=1))
        answer = retrieve(plain_api, vector=embedded(QUERY))
        assert sources(answer) == ["both", "words", "near"]
        assert statuses(answer) == ["ANSWERED", "ANSWERED", "NOT_REQUESTED"]
        assert (answer.partial, channel(answer, pb.CHANNEL_SEMANTIC).reason) == (False, "")
        assert sources(retrieve(plain_api, mode=SEMANTIC, vector=embedded(QUERY))) == ["both", "near"]

    def test_gives_the_answer_that_the_provider_s_would(self, api: Api) -> None:
        """Excludes a vector that is rounded or normalised on its way."""
        api.upsert(*(ranked(f"source-{n}", semantic=1 + n % 4, lexical=1 + n % 3) for n in range(12)))
        answer, own = retrieve(api), retrieve(api, vector=embedded(QUERY))
        assert list(own.chunks) == list(answer.chunks)

    def test_asks_no_channel_that_the_mode_does_not(self, api: Api) -> None:
        """Excludes a vector that turns a lexical query into a hybrid one."""
        api.upsert(ranked("near", semantic=1), ranked("words", lexical=1))
        answer = retrieve(api, mode=LEXICAL, vector=embedded(QUERY))
        assert sources(answer) == ["words"]
        assert statuses(answer) == ["NOT_REQUESTED", "ANSWERED", "NOT_REQUESTED"]

    def test_does_not_stand_for_the_query(self, api: Api) -> None:
        """Excludes a query that is blank for one channel."""
        assert refusal(lambda: retrieve(api, " ", vector=embedded(QUERY))).field == "query"


class TestFusion:
    """By rank alone, in a total order that no k changes."""

    def test_a_chunk_outside_k_in_both_channels_beats_a_first_place(self, api: Api) -> None:
        """Excludes a depth of k: the winner is second, then third, in both channels."""
        api.upsert(ranked("near", semantic=1), ranked("words", lexical=1), ranked("both", semantic=2, lexical=2))
        assert sources(retrieve(api, k=1)) == ["both"]
        api.upsert(ranked("near-2", semantic=1), ranked("words-2", lexical=1))
        [best] = retrieve(api, k=1).chunks
        assert (best.chunk.source_id, ranks(best)) == ("both", (3, 3, None))
        assert best.score == 2 / 63

    @pytest.mark.parametrize(("short", "long"), [TIE_WON_BY_LONG, TIE_WON_BY_SHORT])
    def test_ties_break_on_the_id_ascending(self, api: Api, short: ties.Tied, long: ties.Tied) -> None:
        """Excludes the order of either channel: the shorter text is first in one, the longer one in the other."""
        api.upsert(chunk(short.source_id, short.text, vector=turned(QUERY, 20)))
        api.upsert(chunk(long.source_id, long.text, vector=turned(QUERY, 10)))
        answer = retrieve(api)
        assert {scored.chunk.id: ranks(scored) for scored in answer.chunks} == {
            short.id: (2, 1, None),
            long.id: (1, 2, None),
        }
        assert len({scored.score for scored in answer.chunks}) == 1
        assert [scored.chunk.id for scored in answer.chunks] == sorted([short.id, long.id])

    def test_a_channel_that_did_not_rank_a_chunk_adds_nothing(self, api: Api) -> None:
        """Excludes a made-up last rank: third in both channels beats a first place and no other."""
        api.upsert(
            *(ranked("x", semantic=1), ranked("a", semantic=2)),
            *(ranked("b", lexical=1), ranked("c", lexical=2)),
            ranked("y", semantic=3, lexical=3),
        )
        answer = retrieve(api)
        assert sources(answer)[0] == "y"
        scores = {scored.chunk.source_id: scored.score for scored in answer.chunks}
        assert scores == {"y": 1 / 63 + 1 / 63, "x": 1 / 61, "b": 1 / 61, "a": 1 / 62, "c": 1 / 62}

    def test_a_component_of_0_is_not_an_absent_one(self, api: Api) -> None:
        """Excludes one default for both: the opposite vector scores 0, and no vector scores nothing."""
        opposite = [-value for value in embedded(QUERY)]
        api.upsert(chunk("opposite", "filler", vector=opposite), chunk("words", "alpha"))
        by_source = {scored.chunk.source_id: scored for scored in retrieve(api).chunks}
        assert by_source["opposite"].HasField("semantic")
        assert by_source["opposite"].semantic == 0.0
        assert not by_source["opposite"].HasField("lexical")
        assert not by_source["words"].HasField("semantic")

    def test_a_smaller_answer_is_the_beginning_of_a_larger_one(self, api: Api) -> None:
        """Excludes a depth that grows with k, by which a larger k re-orders the ranking."""
        chunks = []
        for number in range(60):
            words = " ".join(["alpha"] * (number % 3) + ["filler"] * (number % 7) + [f"word{number}"])
            vector = turned(QUERY, (number * 37) % 90) if number % 4 else None
            chunks.append(chunk(f"source-{number % 11}", words, index=number, vector=vector))
        api.upsert(*chunks)
        largest = list(retrieve(api, k=60).chunks)
        assert len(largest) > 50
        for k in (1, 2, 5, 10, 11, 33):
            assert list(retrieve(api, k=k).chunks) == largest[:k]

    def test_scores_are_those_of_the_documented_formulas(self, api: Api) -> None:
        """Excludes scores of the answer's rows alone, and any rounding on the way: all are compared by bits."""
        passages = {
            "one": ("alpha beta", (0.3, -0.1, 0.9, 0.2)),
            "two": ("alpha alpha gamma beta delta", (0.1, 0.1, 0.1, 0.1)),
            "three": ("delta epsilon", (1e-3, 2.0, -7.0, 1 / 3)),
            "four": ("beta alpha alpha alpha", None),
            "five": ("zeta", (-0.3, 0.1, -0.9, -0.2)),
        }
        api.upsert(*(chunk(source, text, vector=vector) for source, (text, vector) in passages.items()))
        query = as_float32(embedded("alpha beta"))
        words = {source: text.split() for source, (text, _) in passages.items()}
        frequencies = {term: sum(term in text for text in words.values()) for term in ("alpha", "beta")}
        total = sum(map(len, words.values()))
        lexical = {
            source: bm25_score({term: text.count(term) for term in frequencies}, len(text), frequencies, 5, total)
            for source, text in words.items()
            if "alpha" in text or "beta" in text
        }
        semantic = {
            source: cosine_score(as_float32(vector), query) for source, (_, vector) in passages.items() if vector
        }
        rankings = [sorted(scores.items(), key=lambda item: -item[1]) for scores in (semantic, lexical)]
        answer = retrieve(api, "alpha beta")
        got = {scored.chunk.source_id: scored for scored in answer.chunks}
        assert {source: got[source].semantic for source in semantic} == semantic
        assert {source: got[source].lexical for source in lexical} == lexical
        assert {source: scored.score for source, scored in got.items()} == dict(fused([*map(rank_shares, rankings)]))
        assert not got["four"].HasField("semantic")
        assert not got["five"].HasField("lexical")

    def test_the_same_query_gives_the_same_answer(self, api: Api) -> None:
        """Excludes an order of hashing or of threads."""
        api.upsert(*(ranked(f"source-{n}", semantic=1 + n % 4, lexical=1 + n % 3) for n in range(30)))
        answers = [retrieve(api, k=30) for _ in range(5)]
        for answer in answers:
            for report in answer.channels:
                report.ClearField("elapsed")
        assert all(answer == answers[0] for answer in answers)


class TestResults:
    """What an answer carries."""

    def test_chunks_are_the_stored_ones(self, api: Api) -> None:
        """Excludes a snippet, or a row without its further fields."""
        sent = chunk(
            "one",
            "alpha",
            index=3,
            start=7,
            entities=["person/ada"],
            metadata={"page": 4, "tags": ["a", None]},
            vector=(0.1, 0.2, 0.3, 0.4),
            others=[(5, 40, 45)],
        )
        api.upsert(sent)
        [scored] = retrieve(api).chunks
        assert scored.chunk == without_vector(stored(sent))

    def test_vectors_are_left_out_unless_asked_for(self, api: Api) -> None:
        """Excludes answers too large to be received, and a null vector as zeros."""
        sent = [chunk("one", "alpha", vector=(0.1, 0.2, 0.3, 1e-9)), chunk("two", "alpha")]
        api.upsert(*sent)
        shown = {scored.chunk.source_id: scored.chunk for scored in retrieve(api, include_embeddings=True).chunks}
        assert shown == {message.source_id: stored(message) for message in sent}
        assert not any(scored.chunk.HasField("embedding") for scored in retrieve(api).chunks)

    def test_an_answer_that_is_too_large_is_an_error_that_says_so(self, plain_api: Api) -> None:
        """Excludes a message that the client's own limit refuses, and an answer that is cut."""
        plain_api.upsert(*(chunk("source", f"alpha {n} " + "x" * 20_000, index=n) for n in range(4)))
        assert len(retrieve(plain_api, k=3, mode=LEXICAL).chunks) == 3
        refused = refusal(lambda: retrieve(plain_api, k=4, mode=LEXICAL))
        assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESULT_TOO_LARGE")
        assert refused.metadata["limit"] == str(64 * 1024)
        assert int(refused.metadata["actual"]) > 4 * 20_000
