"""Bad input, for every field that can be bad: refused by name, nothing written, nothing of it echoed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from tests.compliance.contract import METHODS, declared_strings, is_stream, present_strings, strings_in
from tests.compliance.messages import (
    PASSAGE,
    chunk,
    derived_id,
    document,
    length_delimited,
    nested_struct,
    occurrence,
    struct,
)
from tests.compliance.wire import TENANT_KEY, Api, Metadata, Payload, refusal, refusal_of_request, send

from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest, PurgeTenantRequest
from chunkstore.v1.chunk_reader_service_pb2 import (
    GetChunkRequest,
    ListEntityChunksRequest,
    ListSourceChunksRequest,
    ListSourcesRequest,
)
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest, UpsertChunksRequest
from chunkstore.v1.explanation_service_pb2 import AnalyzeRequest, ExplainChunkRequest
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.indexing_service_pb2 import IndexDocumentsRequest
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.retrieval_service_pb2 import FUSION_METHOD_WEIGHTED_SUM, Fusion, RetrieveChunksRequest
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest
from chunkstore.v1.store_service_pb2 import GetStoreInfoRequest

INVALID = grpc.StatusCode.INVALID_ARGUMENT
EAST = (1.0, 0.0, 0.0, 0.0)

UPSERT = "ChunkWriterService/UpsertChunks"
REPLACE = "ChunkWriterService/ReplaceSource"
SEMANTIC = "SemanticCandidateService/ListSemanticCandidates"
LEXICAL = "LexicalCandidateService/ListLexicalCandidates"
INDEX = "IndexingService/IndexDocuments"
RETRIEVE = "RetrievalService/RetrieveChunks"
EXPLAIN = "ExplanationService/ExplainChunk"
ANALYZE = "ExplanationService/Analyze"

SOURCE: Final = "canary source"
TEXT: Final = "canary text"
ENTITY: Final = "canary entity"
METADATA: Final = {
    "canary key": "canary value",
    "canary object": {"canary inner key": "canary of an inner value"},
    "canary list": ["canary of an item", ["canary of an inner item"]],
}


def _full_chunk() -> Chunk:
    message = chunk(SOURCE, TEXT, entities=[ENTITY], metadata=METADATA, vector=EAST)
    message.id = derived_id(SOURCE, TEXT)
    return message


def _full_replacement() -> ReplaceSourceRequest:
    message = _full_chunk()
    message.source_id = ""
    return ReplaceSourceRequest(source_id=SOURCE, chunks=[message])


def _full_document() -> IndexDocumentsRequest:
    return document(SOURCE, TEXT, cut=PASSAGE, metadata=METADATA, entities=[ENTITY])


TOO_HEAVY: Final = Fusion(method=FUSION_METHOD_WEIGHTED_SUM, semantic_weight=1.5)

# Every string that a filter may hold; operands of equals are no objects.
FILTER: Final = json_format.ParseDict(
    {
        "any_of": [
            {"metadata": {"path": ["canary path of one"], "equals": "canary operand"}},
            {"metadata": {"path": ["canary path of any"], "equals_any": ["canary of any operand"]}},
            {"source_id": {"equals": "canary of a source"}},
            {"source_id": {"equals_any": {"values": ["canary of any source"]}}},
            {"source_id": {"prefix": "canary prefix"}},
        ]
    },
    Filter(),
)

# A good request for each method, with every string set; one that a page token belongs to gets a real one when sent.
REQUESTS: Final[dict[str, Message]] = {
    UPSERT: UpsertChunksRequest(chunks=[_full_chunk()]),
    REPLACE: _full_replacement(),
    "ChunkReaderService/GetChunk": GetChunkRequest(id=derived_id(SOURCE, TEXT)),
    "ChunkReaderService/ListSourceChunks": ListSourceChunksRequest(source_id=SOURCE, page_token="token"),
    "ChunkReaderService/ListEntityChunks": ListEntityChunksRequest(entity_id=ENTITY, page_token="token"),
    "ChunkReaderService/ListSources": ListSourcesRequest(page_token="token"),
    LEXICAL: ListLexicalCandidatesRequest(terms=["canary term"], limit=1, filter=FILTER),
    SEMANTIC: ListSemanticCandidatesRequest(vector=Vector(values=EAST), limit=1, filter=FILTER),
    "ChunkPurgeService/PurgeSource": PurgeSourceRequest(source_id="canary absent"),
    "ChunkPurgeService/PurgeTenant": PurgeTenantRequest(),
    RETRIEVE: RetrieveChunksRequest(query="canary query", filter=FILTER, page_token="token"),
    EXPLAIN: ExplainChunkRequest(query="canary query", chunk_id=derived_id(SOURCE, TEXT), filter=FILTER),
    ANALYZE: AnalyzeRequest(text="canary text to analyze"),
    INDEX: _full_document(),
    "StoreService/GetStoreInfo": GetStoreInfoRequest(),
}

# A chunk of a ReplaceSource names its source in its request, and where it does not, by itself.
_OTHERWISE_SET: Final = {REPLACE: {"chunks.source_id"}}

every_method = pytest.mark.parametrize("method", sorted(METHODS))


def filled(api: Api) -> None:
    """Sources of two chunks each, one that meets the filter among them, so that every list has a second page."""
    sources = (SOURCE, "other", "canary of a source")
    api.upsert(*(chunk(source, f"{TEXT} {n}", index=n, entities=[ENTITY]) for source in sources for n in (0, 1)))


def good_request(api: Api, method: str) -> Message:
    """The method's good request, with a page token that its list has issued to this tenant."""
    request = type(REQUESTS[method])()
    request.CopyFrom(REQUESTS[method])
    fields = request.DESCRIPTOR.fields_by_name
    if "page_token" in fields:
        request.ClearField("page_token")
        setattr(request, "k" if "k" in fields else "page_size", 1)
        request.page_token = api.send(method, request).next_page_token  # type: ignore[attr-defined]
        assert request.page_token  # type: ignore[attr-defined]
    return request


def strings_of_every_request() -> Iterator[tuple[str, int, str]]:
    """Each string of each good request: the method, its place among the strings, its path."""
    for method, request in sorted(REQUESTS.items()):
        for place, (path, _) in enumerate(strings_in(request)):
            yield method, place, ".".join(path)


every_string = pytest.mark.parametrize(
    ("method", "place", "path"),
    list(strings_of_every_request()),
    ids=[f"{method}:{place}:{path}" for method, place, path in strings_of_every_request()],
)


def with_bytes(request: Message, place: int, changed: bytes) -> tuple[bytes, str]:
    """The request's bytes with the first bytes of one of its strings changed, and the rest of that string."""
    _, value = list(strings_in(request))[place]
    content, original = request.SerializeToString(), value.encode()
    assert content.count(original) == 1
    return content.replace(original, changed + original[len(changed) :]), value[len(changed) :]


def named(path: str) -> str:
    """The name of a field in an error: no indices, and metadata as a whole."""
    return re.sub(r"(\.metadata)\..*", r"\1", re.sub(r"\[\d+]", "", path))


class TestStrings:
    """NUL and bytes that are no UTF-8, in every string of every request."""

    def test_the_good_requests_hold_every_string_of_the_contract(self) -> None:
        """Guards the tests below: a new method, or a new string in a request, fails here until it is covered."""
        assert set(REQUESTS) == set(METHODS)
        for method, request in REQUESTS.items():
            missing = declared_strings(method) - present_strings(request) - _OTHERWISE_SET.get(method, set())
            assert missing == set(), method
        assert len(list(strings_of_every_request())) > 30

    @every_method
    def test_the_good_requests_are_good(self, api: Api, method: str) -> None:
        """Guards the tests below: what they refuse is refused for the change alone."""
        if method in ("ChunkReaderService/GetChunk", EXPLAIN):
            api.upsert(_full_chunk())
        filled(api)
        answer = api.send(method, good_request(api, method))
        if is_stream(method):
            assert answer[-1].summary.failed == 0

    @every_string
    def test_nul_is_refused(self, api: Api, method: str, place: int, path: str) -> None:
        """Excludes what one store keeps and another cannot, and ids whose preimage is ambiguous."""
        filled(api)
        before = api.corpus()
        payload, rest = with_bytes(good_request(api, method), place, b"\0")
        refused = refusal_of_request(api, method, payload)
        reason = "CHUNK_ID_MISMATCH" if path == "chunks.id" else "INVALID_FIELD"
        assert (refused.code, refused.reason, refused.domain) == (INVALID, reason, "chunkstore")
        assert named(refused.field) == named(path)
        assert rest.encode() not in refused.everything
        assert api.corpus() == before

    @every_string
    def test_a_lone_surrogate_is_refused(self, api: Api, method: str, place: int, path: str) -> None:
        """Excludes an internal error for bytes that cannot be decoded, with the field named all the same."""
        filled(api)
        before = api.corpus()
        payload, rest = with_bytes(good_request(api, method), place, b"\xed\xa0\x80")
        refused = refusal_of_request(api, method, payload)
        assert (refused.code, refused.reason, refused.domain) == (INVALID, "MALFORMED_REQUEST", "chunkstore")
        assert named(refused.field) == named(path)
        assert rest.encode() not in refused.everything
        assert api.corpus() == before

    @every_method
    @pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x7fab"], ids=["no tag", "cut short"])
    def test_bytes_that_are_no_message_are_refused(self, api: Api, method: str, content: bytes) -> None:
        """Excludes an internal error for a request that is no message at all."""
        refused = refusal_of_request(api, method, content)
        assert (refused.code, refused.reason) == (INVALID, "MALFORMED_REQUEST")
        assert refused.field
        assert api.corpus().revision == 0


class TestTenants:
    """The tenant of the call, on every method."""

    @every_method
    @pytest.mark.parametrize(
        "tenants",
        [(), ("",), ("-canary",), (".canary",), ("can ary",), ("can/ary",), ("a" * 129,), ("canary", "canary")],
        ids=["missing", "empty", "hyphen first", "full stop first", "space", "slash", "too long", "twice"],
    )
    def test_a_missing_or_malformed_tenant_is_refused(self, api: Api, method: str, tenants: Sequence[str]) -> None:
        """Excludes a default tenant, a choice between two, and a method that does not ask."""
        metadata: Metadata = tuple((TENANT_KEY, tenant) for tenant in tenants)
        refused = refusal(lambda: api.send(method, REQUESTS[method], metadata))
        assert (refused.code, refused.reason, refused.domain) == (INVALID, "INVALID_TENANT", "chunkstore")
        assert (refused.field, refused.metadata) == (TENANT_KEY, {"field": TENANT_KEY})
        assert b"canary" not in refused.everything

    @pytest.mark.parametrize("tenant", ["0", "A.b_c:d-e", "a" * 128, "Z..", "9:9"])
    def test_every_well_formed_tenant_is_served(self, api: Api, tenant: str) -> None:
        """Excludes a narrower rule."""
        answer = send(api.channel, "StoreService/GetStoreInfo", GetStoreInfoRequest(), ((TENANT_KEY, tenant),))
        assert answer.dimension == 4

    def test_tenants_that_differ_in_case_are_two(self, api: Api) -> None:
        """Excludes folding."""
        upper = Api(api.channel, api.tenant.upper())
        upper.upsert(chunk("source", "text"))
        assert api.corpus().chunk_count == 0


@dataclass(frozen=True)
class Bad:
    """A request that must be refused: by which method, naming which field, for which reason."""

    name: str
    method: str
    payload: Payload
    field: str
    reason: str = "INVALID_FIELD"


def _writes(name: str, field: str, bad: Chunk, reason: str = "INVALID_FIELD") -> Iterator[Bad]:
    """A bad chunk, behind a good one, by each way of writing."""
    good = chunk(SOURCE, "good", index=1)
    yield Bad(f"{name} (upsert)", UPSERT, UpsertChunksRequest(chunks=[good, bad]), f"chunks[1].{field}", reason)
    if bad.source_id == SOURCE:
        replacement = ReplaceSourceRequest(source_id=SOURCE, chunks=[good, bad])
        yield Bad(f"{name} (replace)", REPLACE, replacement, f"chunks[1].{field}", reason)


def _changed(**fields: Any) -> Chunk:
    message = chunk(SOURCE, TEXT)
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def _bad_vectors() -> Iterator[Bad]:
    mismatch, invalid = "DIMENSION_MISMATCH", "INVALID_VECTOR"
    for name, vector, reason in (
        ("a width of 3", (1.0, 0.0, 0.0), mismatch),
        ("a width of 5", (1.0, 0.0, 0.0, 0.0, 0.0), mismatch),
        ("a width of 0", (), mismatch),
        ("a zero vector", (0.0, 0.0, 0.0, 0.0), invalid),
        ("negative zeros", (-0.0, 0.0, -0.0, 0.0), invalid),
        ("NaN", (1.0, math.nan, 0.0, 0.0), invalid),
        ("infinity", (math.inf, 0.0, 0.0, 0.0), invalid),
        ("minus infinity", (1.0, 0.0, 0.0, -math.inf), invalid),
        ("a norm of 1e25", (1e25, 0.0, 0.0, 0.0), invalid),
        ("a norm of 1e-30", (1e-30, 1e-30, 0.0, 0.0), invalid),
        ("a norm just too large", (8e11, 8e11, 0.0, 0.0), invalid),
        ("a norm just too small", (6e-13, 6e-13, 0.0, 0.0), invalid),
    ):
        yield from _writes(f"{name}, stored", "embedding", chunk(SOURCE, TEXT, vector=vector), reason)
        query = ListSemanticCandidatesRequest(vector=Vector(values=vector), limit=1)
        yield Bad(f"{name}, queried", SEMANTIC, query, "vector", reason)
        brought = RetrieveChunksRequest(query="alpha", query_vector=Vector(values=vector))
        yield Bad(f"{name}, brought with a query", RETRIEVE, brought, "query_vector", reason)
        explained = ExplainChunkRequest(query="alpha", chunk_id="0" * 64, query_vector=Vector(values=vector))
        yield Bad(f"{name}, brought to be explained", EXPLAIN, explained, "query_vector", reason)


def _bad_places() -> Iterator[Bad]:
    most = 2**31 - 1
    length = len(TEXT)
    yield from _writes("a negative index", "chunk_index", _changed(chunk_index=-1))
    yield from _writes("a negative start", "start_char", _changed(start_char=-1))
    yield from _writes("a start too late for the text", "start_char", _changed(start_char=most - length + 1))
    for end in (0, length - 1, length + 1, -1, most):
        yield from _writes(f"an end of {end}", "end_char", _changed(end_char=end))
    yield from _writes("an end in bytes", "end_char", _changed(text="é" * 4, end_char=8))
    yield from _writes("an end in UTF-16 units", "end_char", _changed(text="😀", end_char=2))
    for name, place, field in (
        ("an end too early", (1, 10, 10 + length - 1), "end_char"),
        ("a negative index", (-1, 10, 10 + length), "chunk_index"),
        ("a negative start", (1, -10, length - 10), "start_char"),
    ):
        bad = chunk(SOURCE, TEXT, others=[(1, 50, 50 + length), place])
        yield from _writes(f"another occurrence with {name}", f"other_occurrences[1].{field}", bad)


def _bad_metadata() -> Iterator[Bad]:
    objects: dict[str, Any] = {"level": 17}
    lists: list[Any] = []
    for _ in range(16):
        objects, lists = {"in": objects}, [lists]
    for name, value in (
        ("17 levels of objects", objects),
        ("17 levels of lists", {"in": lists}),
        ("more than 64 KiB", {"k": "x" * 65_536}),
        ("more than 64 KiB in multi-byte characters", {"k": "é" * 32_768}),
        ("more than 64 KiB of keys", {f"key-{n:06}": None for n in range(4_200)}),
        ("NaN", {"a": [{"b": math.nan}]}),
        ("infinity", {"a": math.inf}),
        ("minus infinity", {"a": -math.inf}),
    ):
        yield from _writes(f"metadata of {name}", "metadata", chunk(SOURCE, TEXT, metadata=value))
    for levels in (120, 2_000):
        deep = chunk(SOURCE, TEXT).SerializeToString() + length_delimited(8, nested_struct(levels))
        replacement = ReplaceSourceRequest(source_id=SOURCE).SerializeToString() + length_delimited(2, deep)
        passage = _full_document().document.SerializeToString() + length_delimited(4, nested_struct(levels))
        name = f"metadata of {levels} levels on the wire"
        yield Bad(f"{name} (upsert)", UPSERT, length_delimited(1, deep), "chunks.metadata", "MALFORMED_REQUEST")
        yield Bad(f"{name} (replace)", REPLACE, replacement, "chunks.metadata", "MALFORMED_REQUEST")
        yield Bad(f"{name} (index)", INDEX, length_delimited(1, passage), "document.metadata", "MALFORMED_REQUEST")


def _bad_names() -> Iterator[Bad]:
    yield from _writes("no text", "text", _changed(text=""))
    yield from _writes("no source", "source_id", _changed(source_id=""))
    yield Bad("no source to replace", REPLACE, ReplaceSourceRequest(chunks=[chunk("", TEXT)]), "source_id")
    for name, source_id in (("513 bytes", "s" * 513), ("513 bytes in 257 characters", "é" * 256 + "s")):
        yield from _writes(f"a source id of {name}", "source_id", _changed(source_id=source_id))
        yield Bad(f"a source of {name} to replace", REPLACE, ReplaceSourceRequest(source_id=source_id), "source_id")
        for method, request in (
            ("ChunkReaderService/ListSourceChunks", ListSourceChunksRequest(source_id=source_id)),
            ("ChunkPurgeService/PurgeSource", PurgeSourceRequest(source_id=source_id)),
        ):
            yield Bad(f"a source id of {name} ({method})", method, request, "source_id")
    yield Bad(
        "no source to list", "ChunkReaderService/ListSourceChunks", ListSourceChunksRequest(page_size=1), "source_id"
    )
    yield Bad("no source to purge", "ChunkPurgeService/PurgeSource", PurgeSourceRequest(), "source_id")
    for name, entity in (("no characters", ""), ("257 bytes", "e" * 257), ("257 bytes in 129", "é" * 128 + "e")):
        bad = chunk(SOURCE, TEXT, entities=["fine", entity])
        yield from _writes(f"an entity id of {name}", "entity_ids[1]", bad)
        listed = ListEntityChunksRequest(entity_id=entity)
        yield Bad(f"an entity id of {name}, listed", "ChunkReaderService/ListEntityChunks", listed, "entity_id")


def _bad_queries() -> Iterator[Bad]:
    vector = Vector(values=EAST)
    yield Bad("an empty term", LEXICAL, ListLexicalCandidatesRequest(terms=["fine", ""], limit=1), "terms[1]")
    yield Bad("a lexical limit below 0", LEXICAL, ListLexicalCandidatesRequest(terms=["fine"], limit=-(2**31)), "limit")
    yield Bad("a semantic limit below 0", SEMANTIC, ListSemanticCandidatesRequest(vector=vector, limit=-1), "limit")
    not_a_number = ListSemanticCandidatesRequest(vector=vector, limit=1, min_score=math.nan)
    yield Bad("a min_score that is NaN", SEMANTIC, not_a_number, "min_score")
    yield from _bad_explanations()
    for name, text in (("a byte", "x" * 32_769), ("a byte in multi-byte characters", "é" * 16_384 + "x")):
        yield Bad(f"a text to analyze that is {name} too long", ANALYZE, AnalyzeRequest(text=text), "text")


def _bad_explanations() -> Iterator[Bad]:
    identifier = derived_id(SOURCE, TEXT)
    for name, chunk_id in (
        ("no chunk", ""),
        ("a short id", identifier[1:]),
        ("an upper-case id", identifier.upper()),
        ("a long id", f"{identifier}0"),
    ):
        yield Bad(f"{name} to explain", EXPLAIN, ExplainChunkRequest(query="alpha", chunk_id=chunk_id), "chunk_id")
    for name, field, bad in (
        ("a blank query", "query", ExplainChunkRequest(query=" \t")),
        ("a query that is too long", "query", ExplainChunkRequest(query="x" * 32_769)),
        ("an unknown mode", "mode", ExplainChunkRequest(query="alpha", mode=99)),  # type: ignore[arg-type]
        ("a weight above 1", "fusion.semantic_weight", ExplainChunkRequest(query="alpha", fusion=TOO_HEAVY)),
        ("a filter of nothing", "filter", ExplainChunkRequest(query="alpha", filter=Filter())),
        ("a time of 0", "channel_timeout", ExplainChunkRequest(query="alpha", channel_timeout=Duration())),
    ):
        bad.chunk_id = identifier
        yield Bad(f"{name}, explained", EXPLAIN, bad, field)


TABLE: Final = [*_bad_vectors(), *_bad_places(), *_bad_metadata(), *_bad_names(), *_bad_queries()]


class TestTable:
    """Everything else that can be bad about a request."""

    @pytest.mark.parametrize("bad", TABLE, ids=[bad.name for bad in TABLE])
    def test_is_refused_by_name_and_writes_nothing(self, api: Api, bad: Bad) -> None:
        """Excludes a bound that is not kept, a wrong name, a write of what came before, and an echo."""
        filled(api)
        before = api.corpus()
        refused = refusal_of_request(api, bad.method, bad.payload)
        assert (refused.code, refused.reason, refused.domain) == (INVALID, bad.reason, "chunkstore")
        # What cannot be decoded is named as far as it can be.
        field = re.sub(r"(\.metadata).*", r"\1", refused.field) if bad.reason == "MALFORMED_REQUEST" else refused.field
        assert field == bad.field or (bad.reason == "MALFORMED_REQUEST" and named(field) == bad.field)
        assert b"canary" not in refused.everything
        assert b"xxxx" not in refused.everything
        assert refused.message.startswith(refused.field)
        assert api.corpus() == before

    @pytest.mark.parametrize(("width", "vector"), [(3, (1.0, 0.0, 0.0)), (5, (1.0,) * 5)])
    def test_a_width_is_told_with_the_one_expected(self, api: Api, width: int, vector: Sequence[float]) -> None:
        """Excludes one type of error for every way in which a vector can be wrong."""
        stored = refusal(lambda: api.upsert(chunk("a", "b"), chunk("a", "c", vector=vector)))
        query = ListSemanticCandidatesRequest(vector=Vector(values=vector), limit=1)
        asked = refusal(lambda: api.semantic.ListSemanticCandidates(query))
        assert stored.metadata == {"field": "chunks[1].embedding", "expected": "4", "actual": str(width)}
        assert asked.metadata == {"field": "vector", "expected": "4", "actual": str(width)}
        assert {stored.reason, asked.reason} == {"DIMENSION_MISMATCH"}

    def test_the_first_bad_field_of_the_first_bad_chunk_is_named(self, api: Api) -> None:
        """Excludes naming the last one, or the chunk by a number of its own."""
        refused = refusal(lambda: api.upsert(chunk("a", "fine"), chunk("a", ""), chunk("", "x")))
        assert (refused.field, refused.metadata) == ("chunks[1].text", {"field": "chunks[1].text"})

    @pytest.mark.parametrize("vector", [(7e11, 7e11, 0.0, 0.0), (8e-13, 8e-13, 0.0, 0.0), (1e-12, 1e-12, 0.0, 0.0)])
    def test_norms_within_the_bounds_are_accepted(self, api: Api, vector: Sequence[float]) -> None:
        """Excludes narrower bounds than the contract's."""
        api.upsert(chunk("source", "text", vector=vector))
        query = ListSemanticCandidatesRequest(vector=Vector(values=vector), limit=1)
        assert api.semantic.ListSemanticCandidates(query).candidates[0].score == 1.0

    def test_metadata_may_be_of_any_kind_of_value(self, api: Api) -> None:
        """Excludes an error for a Value of no kind, which is null."""
        message = chunk("source", "text")
        message.metadata.CopyFrom(struct({"list": [1]}))
        message.metadata.fields["none"].Clear()
        api.upsert(message)
        assert api.chunks_of("source")[0].metadata.fields["none"].WhichOneof("kind") == "null_value"

    def test_a_query_without_a_vector_is_refused(self, api: Api) -> None:
        """Excludes an internal error, and an answer to no question."""
        refused = refusal(lambda: api.semantic.ListSemanticCandidates(ListSemanticCandidatesRequest(limit=1)))
        assert (refused.code, refused.field) == (INVALID, "vector")

    def test_an_occurrence_of_nothing_is_refused(self, api: Api) -> None:
        """Excludes taking an empty Occurrence for a place."""
        message = chunk("source", "text")
        message.other_occurrences.append(occurrence((0, 0, 0)))
        assert refusal(lambda: api.upsert(message)).field == "chunks[0].other_occurrences[0].end_char"
