"""Filters: each condition on every store, below every limit, and each way in which one can be bad."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import grpc
import pytest
from google.protobuf import json_format
from tests.compliance.messages import chunk, derived_id, length_delimited
from tests.compliance.provider import turned
from tests.compliance.wire import Api, Refusal, refusal

from chunkstore.v1 import retrieval_service_pb2
from chunkstore.v1.chunk_pb2 import Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest

LEXICAL: Final = "LexicalCandidateService/ListLexicalCandidates"
SEMANTIC: Final = "SemanticCandidateService/ListSemanticCandidates"
RETRIEVE: Final = "RetrievalService/RetrieveChunks"

# The metadata of each source's one chunk.
CHUNKS: Final[dict[str, dict[str, Any]]] = {
    "one": {"n": 1, "lang": "de", "when": "2024-05-01T12:00:00Z", "author": {"name": "Ada"}},
    "two": {"n": 2.5, "lang": "DE", "when": "2024-05-01T12:00:00+02:00", "author": {"name": "Grace"}},
    "three": {"n": "1", "lang": ["en", "de"], "when": "2024-05-01T12:00:00.000000001Z", "author": [{"name": "Ada"}]},
    "four": {"n": True, "lang": None, "when": "2024-02-30T00:00:00Z", "author": {"name": None}},
    "five": {"n": [3, "x", [7]], "lang": [], "when": ["never", "2025-01-01t00:00:00z"], "author.name": "Ada"},
    "six": {},
    "sub/seven": {"n": -0.0, "lang": "", "when": 1714564800, "author": "Ada"},
    "sub/eight%": {"n": 9007199254740993, "lang": "e\u0301", "a\"'\\": {"": {"0": "deep"}}, "flag": False},
}


@dataclass(frozen=True)
class Case:
    """A filter as JSON, and the sources that meet it."""

    name: str
    filter: dict[str, Any]
    met_by: frozenset[str]


def case(name: str, condition: dict[str, Any], *met_by: str) -> Case:
    return Case(name, condition, frozenset(met_by))


def held(path: list[str] | str, **condition: Any) -> dict[str, Any]:
    return {"metadata": {"path": [path] if isinstance(path, str) else path, **condition}}


CASES: Final = (
    case("a number", held("n", equals=1), "one"),
    case("a text of digits", held("n", equals="1"), "three"),
    case("true", held("n", equals=True), "four"),
    case("false", held("flag", equals=False), "sub/eight%"),
    case("a number in an array", held("n", equals=3), "five"),
    case("a number in an array in an array", held("n", equals=7)),
    case("zero without a sign", held("n", equals=0), "sub/seven"),
    case("a number beyond 2^53", held("n", equals=9007199254740992), "sub/eight%"),
    case("a text", held("lang", equals="de"), "one", "three"),
    case("the empty text", held("lang", equals=""), "sub/seven"),
    case("a text of two code points", held("lang", equals="e\u0301"), "sub/eight%"),
    case("its composed form", held("lang", equals="\u00e9")),
    case("any of values of all kinds", held("n", equals_any=[1, "1", True, "x"]), "one", "three", "four", "five"),
    case("a path", held(["author", "name"], equals="Ada"), "one", "three"),
    case("a key with a full stop", held("author.name", equals="Ada"), "five"),
    case("keys of quotes, nothing and digits", held(["a\"'\\", "", "0"], equals="deep"), "sub/eight%"),
    case("a place in an array", held(["lang", "0"], equals="en")),
    case("a number above", held("n", range={"gt": 1}), "two", "five", "sub/eight%"),
    case("a number from", held("n", range={"gte": 1}), "one", "two", "five", "sub/eight%"),
    case("a number below", held("n", range={"lt": 1}), "sub/seven"),
    case("a number up to", held("n", range={"lte": 1}), "one", "sub/seven"),
    case("a number between", held("n", range={"gt": 1, "lte": 2.5}), "two"),
    case("a single number", held("n", range={"gte": 1, "lte": 1}), "one"),
    case("a time from", held("when", time_range={"gte": "2024-05-01T12:00:00Z"}), "one", "three", "five"),
    case("a time after", held("when", time_range={"gt": "2024-05-01T12:00:00Z"}), "three", "five"),
    case("a time up to", held("when", time_range={"lte": "2024-05-01T10:00:00Z"}), "two"),
    case(
        "a time between, with offsets",
        held("when", time_range={"gt": "2024-05-01T12:00:00+02:00", "lt": "2024-05-01T14:00:00.000000001+02:00"}),
        "one",
    ),
    case("a key that exists", held("n", exists={}), *(set(CHUNKS) - {"six"})),
    case("a key whose value may be null", held("lang", exists={}), *(set(CHUNKS) - {"four", "six"})),
    case("a path that exists", held(["author", "name"], exists={}), "one", "two", "three"),
    case("a source", {"source_id": {"equals": "one"}}, "one"),
    case("any of sources", {"source_id": {"equals_any": {"values": ["one", "six", "absent"]}}}, "one", "six"),
    case("a prefix", {"source_id": {"prefix": "sub/"}}, "sub/seven", "sub/eight%"),
    case("a prefix that is a pattern elsewhere", {"source_id": {"prefix": "sub/eight%"}}, "sub/eight%"),
    case("a prefix that is only a pattern", {"source_id": {"prefix": "%"}}),
    case("no such thing", {"none_of": [held("lang", equals="de")]}, *(set(CHUNKS) - {"one", "three"})),
    case("not a number, by negation", {"none_of": [held("n", range={"gte": -1e308})]}, "three", "four", "six"),
    case("no time, by negation", {"none_of": [held("when", time_range={"gte": "0001-01-01T00:00:00Z"})]},
         "four", "six", "sub/seven", "sub/eight%"),
    case("both", {"all_of": [held("lang", equals="de"), held("n", equals=1)]}, "one"),
    case("either", {"any_of": [held("n", equals=2.5), {"source_id": {"equals": "six"}}]}, "two", "six"),
    case("neither", {"none_of": [held("n", exists={}), held("lang", exists={})]}, "six"),
    case("nested",
         {"all_of": [{"any_of": [held("lang", equals="de"), held("lang", equals="DE")]},
                     {"none_of": [{"all_of": [held("n", equals="1")]}]}]}, "one", "two"),
    case("a double negation", {"none_of": [{"none_of": [held("lang", equals="de")]}]}, "one", "three"),
)  # fmt: skip


def filter_of(condition: dict[str, Any]) -> Filter:
    return json_format.ParseDict(condition, Filter())


def lexical(api: Api, where: Filter, limit: int = 100) -> list[str]:
    request = ListLexicalCandidatesRequest(terms=["alpha"], limit=limit, filter=where)
    return [candidate.chunk.source_id for candidate in api.lexical.ListLexicalCandidates(request).candidates]


def semantic(api: Api, where: Filter, limit: int = 100, min_score: float | None = None) -> list[str]:
    request = ListSemanticCandidatesRequest(
        vector=Vector(values=turned("alpha", 0)), limit=limit, min_score=min_score, filter=where
    )
    return [candidate.chunk.source_id for candidate in api.semantic.ListSemanticCandidates(request).candidates]


def retrieved(api: Api, where: Filter, **fields: Any) -> list[str]:
    request = RetrieveChunksRequest(query="alpha", filter=where, **fields)
    return [scored.chunk.source_id for scored in api.retrieval.RetrieveChunks(request).chunks]


def write(api: Api) -> None:
    api.upsert(
        *(
            chunk(source, f"alpha {source}", metadata=metadata, vector=turned("alpha", place))
            for place, (source, metadata) in enumerate(CHUNKS.items())
        )
    )


def test_every_condition_is_met_by_its_chunks_alone(api: Api) -> None:
    """Excludes, in each channel and in retrieval, kinds that are coerced, and a condition that errs on a row."""
    write(api)
    for one in CASES:
        where = filter_of(one.filter)
        for found in (lexical(api, where), semantic(api, where), retrieved(api, where)):
            assert sorted(found) == sorted(one.met_by), one.name


def test_ten_that_match_below_a_thousand_that_do_not(api: Api) -> None:
    """Excludes a filter after any limit: these ten are ranked below 1,200 others by every channel."""
    for start in range(0, 1200, 400):
        near = range(start, start + 400)
        api.upsert(*(chunk(f"near-{n}", "alpha alpha", vector=turned("alpha", 0.001 * n)) for n in near))
    far = [f"far-{n}" for n in range(10)]
    api.upsert(
        *(
            chunk(source, f"alpha {'omega ' * (10 + n)}", metadata={"kind": "far"}, vector=turned("alpha", 50 + n))
            for n, source in enumerate(far)
        )
    )
    where = filter_of(held("kind", equals="far"))
    assert lexical(api, where, limit=10) == far
    assert semantic(api, where, limit=10) == far
    for mode in ("HYBRID", "SEMANTIC", "LEXICAL"):
        value = retrieval_service_pb2.RetrievalMode.Value(f"RETRIEVAL_MODE_{mode}")
        assert retrieved(api, where, k=10, mode=value) == far
        assert retrieved(api, where, k=4, mode=value) == far[:4]


def test_scores_and_statistics_are_those_of_the_whole_corpus(api: Api) -> None:
    """Excludes frequencies, lengths and counts over the filtered rows, and scores with other bits."""
    write(api)
    terms = ["alpha", "two", "absent"]
    whole = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=terms, limit=100))
    where = filter_of({"source_id": {"equals_any": {"values": ["two", "four"]}}})
    some = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=terms, limit=100, filter=where))
    assert some.statistics == whole.statistics
    assert some.revision == whole.revision
    assert list(some.candidates) == [c for c in whole.candidates if c.chunk.source_id in ("two", "four")]
    vector = Vector(values=turned("alpha", 0))
    near = api.semantic.ListSemanticCandidates(ListSemanticCandidatesRequest(vector=vector, limit=100))
    request = ListSemanticCandidatesRequest(vector=vector, limit=100, filter=where)
    kept = [candidate for candidate in near.candidates if candidate.chunk.source_id in ("two", "four")]
    assert list(api.semantic.ListSemanticCandidates(request).candidates) == kept


def test_limit_and_min_score_apply_to_what_the_filter_leaves(api: Api) -> None:
    write(api)
    where = filter_of({"none_of": [{"source_id": {"equals": "one"}}]})
    assert semantic(api, where, limit=2) == ["two", "three"]
    assert semantic(api, where, limit=0) == []
    assert lexical(api, where, limit=0) == []
    assert semantic(api, where, min_score=0.9999) == ["two"]
    assert semantic(api, filter_of({"source_id": {"equals": "six"}}), min_score=0.9999) == []


def test_a_filter_that_nothing_meets_gives_an_answer_of_nothing(api: Api) -> None:
    """Excludes an error, a partial answer, and an answer without the filter."""
    where = filter_of(held("n", equals="absent"))
    assert retrieved(api, where) == []
    write(api)
    answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query="alpha", filter=where))
    assert (list(answer.chunks), answer.partial, answer.chunk_count) == ([], False, len(CHUNKS))
    assert [report.candidates for report in answer.channels] == [0, 0, 0]


def test_ties_are_broken_among_what_the_filter_leaves(api: Api) -> None:
    """Excludes a tie that is cut before the filter."""
    vector = turned("alpha", 10)
    api.upsert(*(chunk("s", f"alpha {n}", metadata={"n": n % 3}, vector=vector) for n in range(300)))
    expected = sorted(derived_id("s", f"alpha {n}") for n in range(300) if n % 3 == 1)
    where = filter_of(held("n", equals=1))
    for limit in (1, 7, 100):
        request = ListSemanticCandidatesRequest(vector=Vector(values=turned("alpha", 0)), limit=limit, filter=where)
        found = api.semantic.ListSemanticCandidates(request).candidates
        assert [candidate.chunk.id for candidate in found] == expected[:limit]


def test_a_filtered_answer_is_as_fresh_as_any(api: Api) -> None:
    """Excludes a set of matching chunks that outlives a write which changes it."""
    write(api)
    where = filter_of(held("n", equals=1))
    assert retrieved(api, where) == ["one"]
    api.upsert(chunk("six", "alpha six", metadata={"n": 1}))
    assert sorted(retrieved(api, where)) == ["one", "six"]
    api.upsert(chunk("one", "alpha one", metadata={"n": 2}))
    assert retrieved(api, where) == ["six"]
    api.upsert(chunk("new", "alpha new", metadata={"n": 1}))
    api.purge.PurgeSource(PurgeSourceRequest(source_id="six"))
    assert retrieved(api, where) == ["new"]


def test_metadata_may_hold_what_a_filter_would_have_to_escape(api: Api) -> None:
    """Excludes text that is put into a statement: each of these is a key, a value, and asked for."""
    texts = ["'", '"', "\\", "\\\\", "';--", "$1", "{}", "${dimension}", "%", "_", "\n\t\r", "\x01\x7f", "😀", "\u2028"]
    api.upsert(*(chunk("s", f"alpha {n}", index=n, metadata={text: text}) for n, text in enumerate(texts)))
    for n, text in enumerate(texts):
        request = ListLexicalCandidatesRequest(terms=["alpha"], limit=100, filter=filter_of(held(text, equals=text)))
        found = api.lexical.ListLexicalCandidates(request).candidates
        assert [candidate.chunk.chunk_index for candidate in found] == [n]


# --- refusals

ONE: Final = held("n", equals=1)


def nested(levels: int) -> dict[str, Any]:
    return ONE if levels == 1 else {"all_of": [nested(levels - 1)]}


BAD: Final[dict[str, tuple[Any, str]]] = {
    "nothing at all": ({}, "filter"),
    "two kinds": ({**ONE, "source_id": {"equals": "s"}}, "filter"),
    "a group with an empty filter": ({"all_of": [ONE, {}]}, "filter.all_of[1]"),
    "a deep fault": ({"any_of": [ONE, {"none_of": [held("n", range={})]}]},
                     "filter.any_of[1].none_of[0].metadata.range"),
    "9 filters deep": (nested(9), "filter"),
    "65 conditions": ({"any_of": [ONE] * 65}, "filter"),
    "1025 values": (held("n", equals_any=list(range(1025))), "filter"),
    "1025 values in two conditions": ({"any_of": [held("n", equals_any=list(range(513)))] * 2}, "filter"),
    "1025 sources": ({"source_id": {"equals_any": {"values": [f"s{n}" for n in range(1025)]}}}, "filter"),
    "no path": (held([], equals=1), "filter.metadata.path"),
    "17 keys": (held(["k"] * 17, equals=1), "filter.metadata.path"),
    "no condition": (held("n"), "filter.metadata"),
    "null": (held("n", equals=None), "filter.metadata.equals"),
    "an object": (held("n", equals={"a": 1}), "filter.metadata.equals"),
    "a list": (held("n", equals=[1]), "filter.metadata.equals"),
    "no values": (held("n", equals_any=[]), "filter.metadata.equals_any.values"),
    "a null among values": (held("n", equals_any=[1, None]), "filter.metadata.equals_any.values[1]"),
    "a list among values": (held("n", equals_any=[[1]]), "filter.metadata.equals_any.values[0]"),
    "a range without bounds": (held("n", range={}), "filter.metadata.range"),
    "a range that is NaN": (held("n", range={"gte": "NaN"}), "filter.metadata.range.gte"),
    "a range to infinity": ({"all_of": [ONE, held("n", range={"gte": 1, "lt": "Infinity"})]},
                            "filter.all_of[1].metadata.range.lt"),
    "a range from 2 to 1": (held("n", range={"gte": 2, "lte": 1}), "filter.metadata.range"),
    "a range with nothing between": (held("n", range={"gt": 1, "lte": 1}), "filter.metadata.range"),
    "a time range without bounds": (held("n", time_range={}), "filter.metadata.time_range"),
    "a time range backwards": (
        held("n", time_range={"gt": "2024-05-01T12:00:00Z", "lt": "2024-05-01T12:00:00+01:00"}),
        "filter.metadata.time_range",
    ),
    "no source condition": ({"source_id": {}}, "filter.source_id"),
    "an empty source": ({"source_id": {"equals": ""}}, "filter.source_id.equals"),
    "a source of 513 bytes": ({"source_id": {"equals": "s" * 513}}, "filter.source_id.equals"),
    "no sources": ({"source_id": {"equals_any": {}}}, "filter.source_id.equals_any.values"),
    "an empty source among others": (
        {"source_id": {"equals_any": {"values": ["s", ""]}}}, "filter.source_id.equals_any.values[1]"
    ),
    "an empty prefix": ({"source_id": {"prefix": ""}}, "filter.source_id.prefix"),
    "a prefix of 513 bytes": ({"source_id": {"prefix": "é" * 257}}, "filter.source_id.prefix"),
}  # fmt: skip


def refused_by_each(api: Api, where: Filter) -> Refusal:
    """The refusal of a filter, which is the same from each method that takes one."""
    vector = Vector(values=turned("alpha", 0))
    calls = (
        lambda: api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=["a"], limit=1, filter=where)),
        lambda: api.semantic.ListSemanticCandidates(
            ListSemanticCandidatesRequest(vector=vector, limit=1, filter=where)
        ),
        lambda: api.retrieval.RetrieveChunks(RetrieveChunksRequest(query="a", filter=where)),
    )
    refusals = [refusal(call) for call in calls]
    [first] = {(refused.code, refused.reason, refused.field, refused.message) for refused in refusals}
    assert first[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert refusals[0].metadata == {"field": refusals[0].field}
    assert refusals[0].message.startswith(f"{refusals[0].field} ")
    return refusals[0]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_filter_is_refused_by_the_path_of_its_fault(api: Api, name: str) -> None:
    """Excludes a filter that is partly heeded, and a fault that the caller has to look for."""
    condition, field = BAD[name]
    refused = refused_by_each(api, filter_of(condition))
    assert (refused.reason, refused.field) == ("INVALID_FIELD", field)


def test_what_json_cannot_say_is_refused_too(api: Api) -> None:
    """Excludes NaN that JSON cannot carry, times outside their years, and a null that is no value at all."""
    for value in (math.nan, math.inf):
        where = filter_of(ONE)
        where.metadata.equals.number_value = value
        assert refused_by_each(api, where).field == "filter.metadata.equals"
    where = filter_of(held("n", equals_any=[1]))
    where.metadata.equals_any.values.add()
    assert refused_by_each(api, where).field == "filter.metadata.equals_any.values[1]"
    for seconds, nanos in ((253402300800, 0), (-62135596801, 0), (0, -1), (0, 10**9)):
        where = Filter()
        where.metadata.path.append("when")
        where.metadata.time_range.gt.seconds, where.metadata.time_range.gt.nanos = seconds, nanos
        assert refused_by_each(api, where).field == "filter.metadata.time_range.gt"


def test_a_filter_may_be_as_large_as_the_contract_says(api: Api) -> None:
    """Excludes narrower limits, and a statement that the database refuses."""
    write(api)
    assert lexical(api, filter_of(nested(8))) == ["one"]
    assert lexical(api, filter_of({"any_of": [*[held("n", equals=-n) for n in range(1, 64)], ONE]})) == ["one"]
    assert lexical(api, filter_of(held("n", equals_any=[f"{n}" for n in range(1024)]))) == ["three"]
    sources = {"values": ["one", *(f"s{n}" for n in range(1023))]}
    assert lexical(api, filter_of({"source_id": {"equals_any": sources}})) == ["one"]
    assert lexical(api, filter_of(held(["k"] * 16, equals=1))) == []


@pytest.mark.parametrize("key", ["tenant", "tenant_id", "tenantId", "TENANT-ID", "Tenant Id", "x-tenant-id"])
def test_a_condition_on_the_tenant_is_refused(api: Api, key: str) -> None:
    """Excludes a tenant that the caller chooses, and one that is silently taken for the caller's own metadata."""
    api.upsert(chunk("s", "alpha", metadata={key: api.tenant}))
    for condition in (
        held(key, equals=api.tenant),
        held(key, equals_any=[api.tenant]),
        held([key, "id"], equals=api.tenant),
        held(key, exists={}),
        held(key, range={"gte": 1}),
    ):
        refused = refused_by_each(api, filter_of(condition))
        assert (refused.reason, refused.field) == ("TENANT_FILTER_REFUSED", "filter.metadata.path[0]")
        hidden = refused_by_each(api, filter_of({"none_of": [ONE, {"any_of": [condition]}]}))
        assert (hidden.reason, hidden.field) == (
            "TENANT_FILTER_REFUSED",
            "filter.none_of[1].any_of[0].metadata.path[0]",
        )
        assert api.tenant.encode() not in refused.everything


@pytest.mark.parametrize(
    ("at", "field"),
    [((), "filter"), ((4,), "filter.metadata"), ((4, 4), "filter.metadata.range"), ((1,), "filter.all_of[0]")],
)
def test_a_field_that_the_server_does_not_know_is_refused(api: Api, at: tuple[int, ...], field: str) -> None:
    """Excludes an answer without a condition that a newer client, or a caller by hand, has asked for."""
    where = filter_of({"all_of": [ONE]} if at == (1,) else held("n", range={"gte": 0}))
    if at == ():
        where = filter_of(ONE)
    unknown = length_delimited(15, b"tenant-a")
    content = where.SerializeToString()
    for number in reversed(at):
        unknown = length_delimited(number, unknown)
    if at == (1,):
        content, field = b"", "filter.all_of[0]"
    payload = RetrieveChunksRequest(query="a").SerializeToString() + length_delimited(6, content + unknown)
    refused = refusal(lambda: api.send(RETRIEVE, payload))
    assert (refused.reason, refused.field) == ("INVALID_FIELD", field)
