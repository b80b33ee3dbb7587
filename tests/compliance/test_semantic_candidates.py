"""ListSemanticCandidates: exact cosine, a total order, and who is no candidate."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import grpc
import pytest
from tests.compliance import ties
from tests.compliance.brute_force import as_float32, cosine_score
from tests.compliance.messages import chunk, stored, without_vector
from tests.compliance.wire import Api, refusal

from chunkstore.v1.chunk_pb2 import Vector
from chunkstore.v1.semantic_candidate_service_pb2 import (
    ListSemanticCandidatesRequest,
    ListSemanticCandidatesResponse,
    SemanticCandidate,
)

EAST = (1.0, 0.0, 0.0, 0.0)
NORTH = (0.0, 1.0, 0.0, 0.0)
WEST = (-1.0, 0.0, 0.0, 0.0)
NORTH_EAST = (1.0, 1.0, 0.0, 0.0)


def nearest(
    api: Api, vector: Sequence[float], limit: int = 100, min_score: float | None = None
) -> list[SemanticCandidate]:
    return list(_answer(api, vector, limit, min_score).candidates)


def sources(candidates: Sequence[SemanticCandidate]) -> list[str]:
    return [candidate.chunk.source_id for candidate in candidates]


def _answer(
    api: Api, vector: Sequence[float], limit: int, min_score: float | None = None
) -> ListSemanticCandidatesResponse:
    request = ListSemanticCandidatesRequest(vector=Vector(values=vector), limit=limit, min_score=min_score)
    return api.semantic.ListSemanticCandidates(request)


def test_orders_by_score_descending(api: Api) -> None:
    """Excludes an order of insertion, of ids, or of distance without its sign: written worst first."""
    for source, vector in (("west", WEST), ("north", NORTH), ("north-east", NORTH_EAST), ("east", EAST)):
        api.upsert(chunk(source, "passage", vector=vector))
    found = nearest(api, EAST)
    assert sources(found) == ["east", "north-east", "north", "west"]
    assert [found[0].score, found[2].score, found[3].score] == [1.0, 0.5, 0.0]
    assert found[1].score == pytest.approx(0.5 + math.sqrt(0.5) / 2, rel=1e-15)


def test_scores_do_not_depend_on_length(api: Api) -> None:
    """Excludes a dot product, and float32 sums of squares, which overflow or vanish at these lengths."""
    for source, length in (("long", 1e11), ("unit", 1.0), ("short", 1e-11)):
        api.upsert(chunk(source, "passage", vector=(length, 0.0, 0.0, 0.0)))
    assert [candidate.score for candidate in nearest(api, EAST)] == [1.0, 1.0, 1.0]
    assert [candidate.score for candidate in nearest(api, (1e-11, 0.0, 0.0, 0.0))] == [1.0, 1.0, 1.0]


def test_a_vector_is_exactly_1_from_itself(api: Api) -> None:
    """Excludes rounding past 1 or short of it: these components are not exact in binary."""
    vectors = [(0.1, 0.2, 0.3, 0.4), (1 / 3, -2 / 3, 1e-3, 7.7), (1e-9, 3e-9, -5e-9, 7e-9)]
    for number, vector in enumerate(vectors):
        api.upsert(chunk(f"source-{number}", "passage", vector=vector))
    for number, vector in enumerate(vectors):
        best = nearest(api, vector, limit=1)
        assert (sources(best), best[0].score) == ([f"source-{number}"], 1.0)


def test_breaks_ties_on_id_ascending(api: Api) -> None:
    """Excludes an order of insertion or of sources among chunks whose vectors, and so their scores, are the same."""
    for tied in ties.AS_WRITTEN:
        api.upsert(chunk(tied.source_id, tied.text, vector=NORTH_EAST))
    found = nearest(api, EAST)
    assert len({candidate.score for candidate in found}) == 1
    assert [candidate.chunk.id for candidate in found] == [tied.id for tied in ties.BY_ID]


def test_breaks_ties_on_id_ascending_when_written_in_one_call(api: Api) -> None:
    """Excludes a bulk write's own order."""
    api.upsert(*(chunk(tied.source_id, tied.text, vector=EAST) for tied in reversed(ties.BY_ID)))
    assert [candidate.chunk.id for candidate in nearest(api, EAST)] == [tied.id for tied in ties.BY_ID]


def test_a_limit_within_a_tie_keeps_the_smallest_ids(api: Api) -> None:
    """Excludes cutting at the limit before the tie is broken."""
    for tied in ties.AS_WRITTEN:
        api.upsert(chunk(tied.source_id, tied.text, vector=NORTH_EAST))
    for limit in range(1, 5):
        found = [candidate.chunk.id for candidate in nearest(api, EAST, limit)]
        assert found == [tied.id for tied in ties.BY_ID[:limit]]


def test_ranks_by_differences_too_small_for_float32(api: Api) -> None:
    """Excludes an order, or a choice of candidates, by float32 distances: these all round to the same one."""
    randomly = random.Random(20)
    vectors = {f"near-{n:02}": (1.0, 1e-4 + n * 1e-9, 0.0, 0.0) for n in range(40)}
    for source in randomly.sample(sorted(vectors), len(vectors)):
        api.upsert(chunk(source, "passage", vector=vectors[source]))
    expected = {source: cosine_score(as_float32(vector), as_float32(EAST)) for source, vector in vectors.items()}
    best = sorted(expected.values(), reverse=True)
    assert best[0] > best[4] > best[39]
    found = nearest(api, EAST, limit=5)
    assert [candidate.score for candidate in found] == best[:5]
    assert all(candidate.score == expected[candidate.chunk.source_id] for candidate in found)


def test_skips_unembedded_chunks(api: Api) -> None:
    """Excludes scoring them 0, which would put them level with the opposite vector, or above it."""
    api.upsert(chunk("unembedded", "passage"), chunk("opposite", "passage", vector=WEST))
    found = nearest(api, EAST)
    assert [(candidate.chunk.source_id, candidate.score) for candidate in found] == [("opposite", 0.0)]


def test_a_corpus_without_vectors_has_no_candidates(api: Api) -> None:
    """Excludes an error: a corpus is half embedded, or not at all, during a roll-out."""
    api.upsert(chunk("one", "passage"), chunk("two", "passage"))
    assert nearest(api, EAST) == []


def test_applies_min_score_before_limit(api: Api) -> None:
    """Excludes taking `limit` rows first and filtering them, in any order but that of the scores."""
    for number in range(5):
        api.upsert(chunk(f"far-{number}", "passage", vector=NORTH), chunk(f"near-{number}", "passage", vector=EAST))
    near = {f"near-{number}" for number in range(5)}
    assert set(sources(nearest(api, EAST, limit=5, min_score=0.75))) == near
    assert set(sources(nearest(api, EAST, limit=7, min_score=0.75))) == near
    assert len(nearest(api, EAST, limit=3, min_score=0.75)) == 3


def test_min_score_keeps_what_reaches_it_exactly(api: Api) -> None:
    """Excludes "greater than", and a comparison with a score that is rounded otherwise than the one returned."""
    api.upsert(chunk("one", "passage", vector=(0.1, 0.7, -0.3, 0.2)))
    [candidate] = nearest(api, NORTH_EAST)
    assert sources(nearest(api, NORTH_EAST, min_score=candidate.score)) == ["one"]
    assert nearest(api, NORTH_EAST, min_score=math.nextafter(candidate.score, 1.0)) == []


@pytest.mark.parametrize(("min_score", "kept"), [(0.0, 2), (-math.inf, 2), (1.0, 1), (1.5, 0), (math.inf, 0)])
def test_min_score_may_be_any_number(api: Api, min_score: float, kept: int) -> None:
    """Excludes failing, or a bound of its own, outside the range of scores."""
    api.upsert(chunk("east", "passage", vector=EAST), chunk("west", "passage", vector=WEST))
    assert len(nearest(api, EAST, min_score=min_score)) == kept


def test_a_zero_limit_returns_nothing(api: Api) -> None:
    """Excludes reading 0 as "no limit"."""
    revision = api.upsert(chunk("one", "passage", vector=EAST)).revision
    answer = _answer(api, EAST, limit=0)
    assert list(answer.candidates) == []
    assert answer.revision == revision


def test_rejects_a_negative_limit(api: Api) -> None:
    """Excludes reading a negative limit as none, or as a slice from the end."""
    api.upsert(chunk("one", "passage", vector=EAST))
    refused = refusal(lambda: nearest(api, EAST, limit=-1))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "limit",
    )


def test_the_largest_limit_is_the_one_that_the_store_tells(api: Api) -> None:
    """Excludes cutting a limit that is too large without saying so."""
    most = api.limits().max_candidates
    assert nearest(api, EAST, limit=most) == []
    assert refusal(lambda: nearest(api, EAST, limit=most + 1)).field == "limit"


def test_candidates_are_the_stored_chunks_without_their_vectors(api: Api) -> None:
    """Excludes candidates that lack a field, or that ship every vector."""
    sent = chunk(
        "one",
        "passage",
        index=3,
        start=7,
        entities=["person/ada"],
        metadata={"page": 4},
        vector=EAST,
        others=[(5, 40, 47)],
    )
    revision = api.upsert(sent).revision
    answer = _answer(api, EAST, limit=1)
    assert answer.candidates[0].chunk == without_vector(stored(sent))
    assert answer.revision == revision


def test_an_answer_that_is_too_large_is_an_error_that_says_so(plain_api: Api) -> None:
    """Excludes a message that the client's own limit refuses, and an answer that is cut."""
    plain_api.upsert(*(chunk("source", f"{n} " + "x" * 20_000, index=n, vector=EAST) for n in range(4)))
    assert len(nearest(plain_api, EAST, limit=3)) == 3
    refused = refusal(lambda: nearest(plain_api, EAST, limit=4))
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESULT_TOO_LARGE")
    assert refused.metadata["limit"] == str(64 * 1024)


def test_a_new_vector_replaces_the_old_one_in_the_ranking(api: Api) -> None:
    """Excludes an index that keeps a row's first vector."""
    api.upsert(chunk("one", "passage", vector=EAST), chunk("two", "passage", vector=NORTH))
    api.upsert(chunk("one", "passage", vector=WEST))
    assert [(c.chunk.source_id, c.score) for c in nearest(api, EAST)] == [("two", 0.5), ("one", 0.0)]
