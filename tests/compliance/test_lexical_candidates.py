"""ListLexicalCandidates: exact BM25, a total order, and statistics of the whole corpus."""

from __future__ import annotations

import math
from collections.abc import Sequence

import grpc
import pytest
from tests.compliance import ties
from tests.compliance.messages import chunk, stored, without_vector
from tests.compliance.wire import Api, refusal

from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.lexical_candidate_service_pb2 import (
    CorpusStatistics,
    ListLexicalCandidatesRequest,
    ListLexicalCandidatesResponse,
)


def matching(api: Api, terms: Sequence[str], limit: int = 100) -> ListLexicalCandidatesResponse:
    return api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=terms, limit=limit))


def sources(answer: ListLexicalCandidatesResponse) -> list[str]:
    return [candidate.chunk.source_id for candidate in answer.candidates]


def ids(answer: ListLexicalCandidatesResponse) -> list[str]:
    return [candidate.chunk.id for candidate in answer.candidates]


def write(api: Api, **texts: str) -> None:
    """One chunk for each source."""
    for source, text in texts.items():
        api.upsert(chunk(source, text))


def statistics(chunk_count: int, total_length: int, **document_frequencies: int) -> CorpusStatistics:
    return CorpusStatistics(
        chunk_count=chunk_count, total_length=total_length, document_frequencies=document_frequencies
    )


def test_scores_are_those_computed_by_hand(api: Api) -> None:
    """Excludes another idf, a length that is not the average's, and an average of the matching chunks alone.

    N = 3, lengths 2, 3 and 1, average 2; "alpha" is in two chunks: idf = ln(1 + 1.5 / 2.5) = ln 1.6. In "one" tf = 1
    and the length factor 1.2; in "two" tf = 2 and the factor 1.2 * (0.25 + 0.75 * 1.5) = 1.65.
    """
    write(api, one="alpha beta", two="alpha alpha gamma", three="delta")
    answer = matching(api, ["alpha"])
    assert sources(answer) == ["two", "one"]
    two, one = answer.candidates
    assert two.score == pytest.approx(math.log(1.6) * 2 * 2.2 / (2 + 1.65), rel=1e-14)
    assert one.score == pytest.approx(math.log(1.6) * 2.2 / (1 + 1.2), rel=1e-14)
    assert one.score == pytest.approx(0.4700036292457356, rel=1e-14)


def test_orders_by_score_and_not_by_matched_terms(api: Api) -> None:
    """Excludes a cut by the number of matched terms: the rare term outweighs the two that everybody has."""
    for number in range(8):
        api.upsert(chunk(f"common-{number}", "alpha beta"))
    write(api, rare="gamma delta")
    assert sources(matching(api, ["alpha", "beta", "gamma"], limit=1)) == ["rare"]


def test_breaks_ties_on_id_ascending(api: Api) -> None:
    """Excludes an order of insertion or of sources among chunks of equal frequencies and lengths."""
    for tied in ties.AS_WRITTEN:
        api.upsert(chunk(tied.source_id, tied.text))
    answer = matching(api, ["alpha"])
    assert len({candidate.score for candidate in answer.candidates}) == 1
    assert ids(answer) == [tied.id for tied in ties.BY_ID]


def test_a_limit_within_a_tie_keeps_the_smallest_ids(api: Api) -> None:
    """Excludes cutting at the limit before the tie is broken."""
    api.upsert(*(chunk(tied.source_id, tied.text) for tied in ties.AS_WRITTEN))
    for limit in range(1, 5):
        assert ids(matching(api, ["beta"], limit)) == [tied.id for tied in ties.BY_ID[:limit]]


def test_a_zero_limit_returns_no_candidates_but_full_statistics(api: Api) -> None:
    """Excludes reading 0 as "no limit", and statistics of the returned rows."""
    write(api, one="alpha beta", two="alpha")
    answer = matching(api, ["alpha", "absent"], limit=0)
    assert list(answer.candidates) == []
    assert answer.statistics == statistics(2, 3, alpha=2, absent=0)
    assert answer.revision == api.corpus().revision


def test_rejects_a_negative_limit(api: Api) -> None:
    """Excludes reading a negative limit as none, or as a slice from the end."""
    write(api, one="alpha")
    refused = refusal(lambda: matching(api, ["alpha"], limit=-1))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "limit",
    )


def test_the_largest_limit_is_the_one_that_the_store_tells(api: Api) -> None:
    """Excludes cutting a limit that is too large without saying so."""
    write(api, one="alpha")
    most = api.limits().max_candidates
    assert sources(matching(api, ["alpha"], limit=most)) == ["one"]
    assert refusal(lambda: matching(api, ["alpha"], limit=most + 1)).field == "limit"


def test_doc_frequencies_cover_exactly_the_asked_terms(api: Api) -> None:
    """Excludes leaving out a term that no chunk holds, and adding others that the chunks do hold."""
    write(api, one="alpha beta", two="alpha gamma")
    answer = matching(api, ["gamma", "alpha", "absent"])
    assert dict(answer.statistics.document_frequencies) == {"alpha": 2, "gamma": 1, "absent": 0}


def test_no_terms_give_neither_candidates_nor_frequencies(api: Api) -> None:
    """Excludes returning the whole corpus for an empty query."""
    write(api, one="alpha", two="beta")
    answer = matching(api, [])
    assert list(answer.candidates) == []
    assert dict(answer.statistics.document_frequencies) == {}


def test_a_term_that_no_chunk_holds_gives_no_candidates(api: Api) -> None:
    """Excludes candidates of score 0."""
    write(api, one="alpha")
    assert list(matching(api, ["absent"]).candidates) == []


def test_statistics_are_of_the_whole_corpus(api: Api) -> None:
    """Excludes counting the candidates, or the chunks that hold a term, for N and the lengths."""
    write(api, one="alpha", two="alpha alpha", three="beta beta beta", four="gamma", five="... !")
    assert matching(api, ["alpha"], limit=1).statistics == statistics(5, 7, alpha=2)


def test_an_empty_corpus_has_empty_statistics(api: Api) -> None:
    """Excludes dividing by its number of chunks."""
    answer = matching(api, ["alpha"])
    assert list(answer.candidates) == []
    assert answer.statistics == statistics(0, 0, alpha=0)
    assert answer.revision == 0


def test_repeated_terms_count_once(api: Api) -> None:
    """Excludes adding a term's share for each time that it is asked."""
    write(api, one="alpha beta", two="beta beta")
    once, repeated = matching(api, ["alpha", "beta"]), matching(api, ["beta", "alpha", "beta", "alpha"])
    assert repeated == once


def test_scores_do_not_depend_on_the_order_of_the_terms(api: Api) -> None:
    """Excludes a sum in the order of the request: these shares do not add up alike in every order."""
    terms = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    for number in range(12):
        api.upsert(chunk(f"source-{number}", " ".join(terms[n % 6] for n in range(number + 2) for _ in range(n % 3))))
    answers = [matching(api, order) for order in (terms, terms[::-1], terms[3:] + terms[:3])]
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
    assert len(answers[0].candidates) > 6


def test_candidates_carry_the_counts_behind_their_score(api: Api) -> None:
    """Excludes frequencies of 0, those of terms not asked for, and a length without the repeats."""
    write(api, one="alpha alpha beta gamma", two="beta")
    answer = matching(api, ["alpha", "beta", "absent"])
    one = next(candidate for candidate in answer.candidates if candidate.chunk.source_id == "one")
    assert dict(one.term_frequencies) == {"alpha": 2, "beta": 1}
    assert one.length == 4


def test_candidates_are_the_stored_chunks_without_their_vectors(api: Api) -> None:
    """Excludes candidates that lack a field, or that ship every vector."""
    sent = chunk(
        "one",
        "alpha",
        index=3,
        start=7,
        entities=["person/ada"],
        metadata={"page": 4},
        vector=(1.0, 0.0, 0.0, 0.0),
        others=[(5, 40, 45)],
    )
    revision = api.upsert(sent).revision
    answer = matching(api, ["alpha"])
    assert answer.candidates[0].chunk == without_vector(stored(sent))
    assert answer.revision == revision


def test_an_answer_that_is_too_large_is_an_error_that_says_so(plain_api: Api) -> None:
    """Excludes a message that the client's own limit refuses, and an answer that is cut."""
    plain_api.upsert(*(chunk("source", f"alpha {n} " + "x" * 20_000, index=n) for n in range(4)))
    assert len(matching(plain_api, ["alpha"], limit=3).candidates) == 3
    refused = refusal(lambda: matching(plain_api, ["alpha"], limit=4))
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESULT_TOO_LARGE")
    assert refused.metadata["limit"] == str(64 * 1024)


def test_statistics_follow_every_kind_of_write(api: Api) -> None:
    """Excludes statistics that only grow, and ones that count an updated chunk twice."""
    write(api, one="alpha beta", two="alpha")
    api.upsert(chunk("one", "alpha beta", metadata={"updated": True}))
    assert matching(api, ["alpha"], 0).statistics == statistics(2, 3, alpha=2)
    api.writer.ReplaceSource(ReplaceSourceRequest(source_id="one", chunks=[chunk("one", "gamma gamma gamma")]))
    assert matching(api, ["alpha", "gamma"], 0).statistics == statistics(2, 4, alpha=1, gamma=1)
    api.purge.PurgeSource(PurgeSourceRequest(source_id="two"))
    assert matching(api, ["alpha", "gamma"], 0).statistics == statistics(1, 3, alpha=0, gamma=1)


def test_a_chunk_without_words_counts_but_is_never_a_candidate(api: Api) -> None:
    """Excludes a division by an average length of 0."""
    write(api, one="... !", two="— —")
    assert matching(api, ["alpha"]).statistics == statistics(2, 0, alpha=0)
    write(api, three="alpha")
    assert sources(matching(api, ["alpha"])) == ["three"]
