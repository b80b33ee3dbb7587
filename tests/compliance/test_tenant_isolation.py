"""No method reaches another tenant's rows, counts or statistics; a gate holds every method to a case of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from tests.compliance.contract import METHODS
from tests.compliance.messages import chunk, counts, derived_id, document, index_counts, stored, without_vector
from tests.compliance.provider import turned
from tests.compliance.wire import Api, refusal

from chunkstore.v1 import retrieval_service_pb2
from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest, PurgeTenantRequest
from chunkstore.v1.chunk_reader_service_pb2 import (
    ListEntityChunksRequest,
    ListSourceChunksRequest,
    ListSourcesRequest,
)
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.explanation_service_pb2 import ExplainChunkResponse
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest, ListLexicalCandidatesResponse
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest, RetrieveChunksResponse
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest
from chunkstore.v1.store_service_pb2 import GetStoreInfoRequest, GetStoreInfoResponse

QUERY: Final = "alpha"
SHARED: Final = "shared"
ONLY_OTHERS: Final = "only the other's"
ENTITY: Final = "entity"

# What each tenant stores under SHARED: the same passages, so that only the tenant tells them apart.
PASSAGES: Final = (
    chunk(SHARED, "alpha beta", index=0, entities=[ENTITY], metadata={"n": 1}, vector=turned(QUERY, 20)),
    chunk(SHARED, "alpha alpha gamma", index=1, start=11, entities=[ENTITY], vector=turned(QUERY, 40)),
    chunk(SHARED, "delta", index=2, start=29),
)
OTHERS: Final = tuple(
    chunk(ONLY_OTHERS, f"alpha omega {n}", index=n, entities=[ENTITY], vector=turned(QUERY, n)) for n in range(10)
)
CASES: Final[dict[str, Callable[[Api, Api], None]]] = {}


def never_crosses_tenants(method: str) -> Callable[[Callable[[Api, Api], None]], Callable[[Api, Api], None]]:
    """Register the case of a method: it gets a tenant, and another that holds the same passages and ten better ones."""

    def register(case: Callable[[Api, Api], None]) -> Callable[[Api, Api], None]:
        assert method not in CASES
        CASES[method] = case
        return case

    return register


@pytest.fixture
def neighbours(api: Api, other: Api) -> tuple[Api, Api]:
    """Two tenants; both hold PASSAGES, the second one OTHERS too, at further revisions."""
    api.upsert(*PASSAGES)
    for message in (*PASSAGES, *OTHERS):
        other.upsert(message)
    return api, other


def test_every_method_has_its_case() -> None:
    """Fails for a method that is new, renamed or gone; fails also where no methods are found to check."""
    assert len(METHODS) >= 13
    assert {method.split("/")[0] for method in METHODS} >= {
        "ChunkWriterService",
        "ChunkReaderService",
        "LexicalCandidateService",
        "SemanticCandidateService",
        "ChunkPurgeService",
        "RetrievalService",
        "ExplanationService",
        "IndexingService",
        "StoreService",
    }
    assert set(CASES) == set(METHODS)


def everything(api: Api) -> tuple[bytes, ...]:
    """All that a tenant can see of its corpus, as bytes."""
    answers: list[Message] = [
        api.reader.ListSources(ListSourcesRequest()),
        api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id=ENTITY, include_embeddings=True)),
        *(
            api.reader.ListSourceChunks(ListSourceChunksRequest(source_id=source, include_embeddings=True))
            for source in (SHARED, ONLY_OTHERS)
        ),
        lexical(api),
        retrieve(api),
        store_info(api),
    ]
    return tuple(answer.SerializeToString(deterministic=True) for answer in answers)


def lexical(api: Api) -> ListLexicalCandidatesResponse:
    request = ListLexicalCandidatesRequest(terms=["alpha", "gamma", "omega"], limit=100)
    return api.lexical.ListLexicalCandidates(request)


def retrieve(api: Api, k: int = 50) -> RetrieveChunksResponse:
    """The answer to the query, without the times that it took."""
    answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=QUERY, k=k))
    for report in answer.channels:
        report.ClearField("elapsed")
    return answer


def store_info(api: Api) -> GetStoreInfoResponse:
    """What the store tells a tenant, without what the mirrors of all tenants take together."""
    answer = api.store.GetStoreInfo(GetStoreInfoRequest())
    if answer.HasField("mirror"):
        answer.mirror.ClearField("memory_used_bytes")
        answer.mirror.ClearField("mirrored_tenant_count")
    return answer


def shown(*messages: Chunk) -> list[Chunk]:
    return [without_vector(stored(message)) for message in messages]


@never_crosses_tenants("ChunkWriterService/UpsertChunks")
def _upsert_chunks(api: Api, other: Api) -> None:
    before = everything(other)
    changed = chunk(SHARED, "alpha beta", entities=["mine"], metadata={"mine": True}, vector=turned(QUERY, 80))
    assert api.upsert(changed).counts == counts(written=1, embedded=1)
    assert api.upsert(*OTHERS[:2]).counts == counts(written=2, embedded=2)
    assert everything(other) == before


@never_crosses_tenants("ChunkWriterService/ReplaceSource")
def _replace_source(api: Api, other: Api) -> None:
    before = everything(other)
    creation = ReplaceSourceRequest(source_id=ONLY_OTHERS, chunks=OTHERS[:1], expected_revision=0)
    assert api.writer.ReplaceSource(creation).counts == counts(written=1, embedded=1)
    theirs = other.reader.ListSources(ListSourcesRequest()).sources[1].revision
    stale = ReplaceSourceRequest(source_id=SHARED, expected_revision=theirs)
    assert refusal(lambda: api.writer.ReplaceSource(stale)).metadata == {"expected": str(theirs), "actual": "1"}
    assert api.writer.ReplaceSource(ReplaceSourceRequest(source_id=SHARED)).counts == counts(removed=3)
    assert everything(other) == before


@never_crosses_tenants("ChunkReaderService/GetChunk")
def _get_chunk(api: Api, other: Api) -> None:
    identifier = derived_id(ONLY_OTHERS, OTHERS[0].text)
    assert other.get(identifier).source_id == ONLY_OTHERS
    theirs, absent = refusal(lambda: api.get(identifier)), refusal(lambda: api.get("0" * 64))
    assert theirs.code is grpc.StatusCode.NOT_FOUND
    assert theirs == absent
    api.upsert(chunk(SHARED, "alpha beta", metadata={"mine": True}))
    assert other.get(derived_id(SHARED, "alpha beta")) == stored(PASSAGES[0])


@never_crosses_tenants("ChunkReaderService/ListSourceChunks")
def _list_source_chunks(api: Api, other: Api) -> None:
    theirs = other.reader.ListSourceChunks(ListSourceChunksRequest(source_id=ONLY_OTHERS, page_size=1))
    assert theirs.next_page_token
    for token in ("", theirs.next_page_token):
        request = ListSourceChunksRequest(source_id=ONLY_OTHERS, page_token=token)
        answer = api.reader.ListSourceChunks(request)
        assert (list(answer.chunks), answer.next_page_token) == ([], "")
    answer = api.reader.ListSourceChunks(ListSourceChunksRequest(source_id=SHARED))
    assert (list(answer.chunks), answer.next_page_token) == (shown(*PASSAGES), "")


@never_crosses_tenants("ChunkReaderService/ListEntityChunks")
def _list_entity_chunks(api: Api, other: Api) -> None:
    theirs = other.reader.ListEntityChunks(ListEntityChunksRequest(entity_id=ENTITY, page_size=1))
    mine = api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id=ENTITY))
    assert (list(mine.chunks), mine.next_page_token) == (shown(*PASSAGES[:2]), "")
    request = ListEntityChunksRequest(entity_id=ENTITY, page_token=theirs.next_page_token)
    rest = api.reader.ListEntityChunks(request)
    assert (list(rest.chunks), rest.next_page_token) == (shown(*PASSAGES[:2]), "")


@never_crosses_tenants("ChunkReaderService/ListSources")
def _list_sources(api: Api, other: Api) -> None:
    assert len(other.reader.ListSources(ListSourcesRequest()).sources) == 2
    theirs = other.reader.ListSources(ListSourcesRequest(page_size=1))
    [mine] = api.reader.ListSources(ListSourcesRequest()).sources
    assert (mine.source_id, mine.revision, mine.chunk_count) == (SHARED, 1, 3)
    rest = api.reader.ListSources(ListSourcesRequest(page_token=theirs.next_page_token))
    assert list(rest.sources) == [mine]


@never_crosses_tenants("LexicalCandidateService/ListLexicalCandidates")
def _list_lexical_candidates(api: Api, other: Api) -> None:
    answer = lexical(api)
    assert {candidate.chunk.text for candidate in answer.candidates} == {"alpha beta", "alpha alpha gamma"}
    assert answer.revision == 1
    assert (answer.statistics.chunk_count, answer.statistics.total_length) == (3, 6)
    assert dict(answer.statistics.document_frequencies) == {"alpha": 2, "gamma": 1, "omega": 0}
    other.purge.PurgeTenant(PurgeTenantRequest())
    assert lexical(api) == answer


@never_crosses_tenants("SemanticCandidateService/ListSemanticCandidates")
def _list_semantic_candidates(api: Api, other: Api) -> None:
    request = ListSemanticCandidatesRequest(vector=Vector(values=turned(QUERY, 0)), limit=5)
    assert len(other.semantic.ListSemanticCandidates(request).candidates) == 5
    answer = api.semantic.ListSemanticCandidates(request)
    assert [candidate.chunk for candidate in answer.candidates] == shown(*PASSAGES[:2])
    assert answer.revision == 1
    other.purge.PurgeTenant(PurgeTenantRequest())
    assert api.semantic.ListSemanticCandidates(request) == answer


@never_crosses_tenants("ChunkPurgeService/PurgeSource")
def _purge_source(api: Api, other: Api) -> None:
    before = everything(other)
    assert api.purge.PurgeSource(PurgeSourceRequest(source_id=ONLY_OTHERS)).removed == 0
    assert api.purge.PurgeSource(PurgeSourceRequest(source_id=SHARED)).removed == 3
    assert everything(other) == before


@never_crosses_tenants("ChunkPurgeService/PurgeTenant")
def _purge_tenant(api: Api, other: Api) -> None:
    before = everything(other)
    assert api.purge.PurgeTenant(PurgeTenantRequest()).removed == 3
    assert everything(other) == before


@never_crosses_tenants("RetrievalService/RetrieveChunks")
def _retrieve_chunks(api: Api, other: Api) -> None:
    answer = retrieve(api)
    assert [scored.chunk for scored in answer.chunks] == shown(*PASSAGES[:2])
    assert (answer.revision, answer.chunk_count, answer.embedded_count) == (1, 3, 2)
    assert [report.candidates for report in answer.channels] == [2, 2, 0]
    other.purge.PurgeTenant(PurgeTenantRequest())
    assert retrieve(api) == answer


@never_crosses_tenants("ExplanationService/ExplainChunk")
def _explain_chunk(api: Api, other: Api) -> None:
    theirs = derived_id(ONLY_OTHERS, OTHERS[0].text)
    assert other.explain(QUERY, theirs).HasField("rank")
    refused = refusal(lambda: api.explain(QUERY, theirs))
    assert refused.code is grpc.StatusCode.NOT_FOUND
    assert refused == refusal(lambda: api.explain(QUERY, "0" * 64))

    def explained() -> ExplainChunkResponse:
        answer = api.explain(QUERY, derived_id(SHARED, "alpha beta"))
        for channel in answer.channels:
            channel.report.ClearField("elapsed")
        return answer

    answer = explained()
    assert (answer.rank, answer.revision, answer.chunk_count, answer.embedded_count) == (1, 1, 3, 2)
    assert [term.document_frequency for term in answer.explanation.terms] == [2]
    assert [channel.report.candidates for channel in answer.channels] == [2, 2, 0]
    other.purge.PurgeTenant(PurgeTenantRequest())
    assert explained() == answer


@never_crosses_tenants("ExplanationService/Analyze")
def _analyze(api: Api, other: Api) -> None:
    theirs = other.analyze("alpha gamma omega")
    assert [term.document_frequency for term in theirs.terms] == [12, 1, 10]
    answer = api.analyze("alpha gamma omega")
    assert [term.document_frequency for term in answer.terms] == [2, 1, 0]
    assert (answer.chunk_count, answer.revision) == (3, 1)
    other.purge.PurgeTenant(PurgeTenantRequest())
    assert api.analyze("alpha gamma omega") == answer


@never_crosses_tenants("IndexingService/IndexDocuments")
def _index_documents(api: Api, other: Api) -> None:
    before = everything(other)
    text = OTHERS[0].text
    indexed = api.index(document(ONLY_OTHERS, text), document(SHARED, "something else"))
    assert indexed.outcomes[0].indexed.counts == index_counts(written=1, embedded=1)
    assert indexed.outcomes[1].indexed.counts == index_counts(written=1, removed=3, embedded=1)
    assert list(api.get(derived_id(ONLY_OTHERS, text)).embedding.values) != list(OTHERS[0].embedding.values)
    assert everything(other) == before


@never_crosses_tenants("StoreService/GetStoreInfo")
def _get_store_info(api: Api, other: Api) -> None:
    retrieve(api)
    retrieve(other)
    info = store_info(api)
    corpus = info.corpus
    assert (corpus.revision, corpus.chunk_count, corpus.embedded_count, corpus.source_count) == (1, 3, 2, 1)
    assert info.mirror.revision in (0, corpus.revision)
    assert other.tenant not in str(api.store.GetStoreInfo(GetStoreInfoRequest()))
    other.purge.PurgeTenant(PurgeTenantRequest())
    retrieve(other)
    assert store_info(api) == info


@pytest.mark.parametrize("method", sorted(METHODS))
def test_never_crosses_tenants(neighbours: tuple[Api, Api], method: str) -> None:
    """Excludes a query without its tenant, a filter after a limit, and what one tenant can learn of another."""
    CASES[method](*neighbours)


def test_nearer_rows_of_others_do_not_starve_a_tenant(api: Api, other: Api) -> None:
    """Excludes a tenant's filter after the nearest rows of all were taken: 1,500 others are nearer than these ten."""
    for start in range(0, 1500, 500):
        other.upsert(*(chunk(f"near-{n}", "alpha", vector=turned(QUERY, 0.001 * n)) for n in range(start, start + 500)))
    api.upsert(*(chunk(f"far-{n}", "alpha omega", vector=turned(QUERY, 60 + n)) for n in range(10)))
    expected = [f"far-{n}" for n in range(10)]
    request = ListSemanticCandidatesRequest(vector=Vector(values=turned(QUERY, 0)), limit=10)
    found = api.semantic.ListSemanticCandidates(request).candidates
    assert [candidate.chunk.source_id for candidate in found] == expected
    semantic = retrieval_service_pb2.RETRIEVAL_MODE_SEMANTIC
    answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=QUERY, k=10, mode=semantic))
    assert [scored.chunk.source_id for scored in answer.chunks] == expected
    assert len(lexical(api).candidates) == 10


def test_a_tie_longer_than_any_page_is_of_one_tenant(api: Api, other: Api) -> None:
    """Excludes a second look at what is as near as the last one, without its tenant: all of both score alike."""
    vector = turned(QUERY, 20)
    for tenant, name in ((api, "mine"), (other, "theirs")):
        tenant.upsert(*(chunk(name, f"alpha {n}", index=n, vector=vector) for n in range(300)))
    expected = sorted(derived_id("mine", f"alpha {n}") for n in range(300))
    for limit in (1, 10, 290):
        request = ListSemanticCandidatesRequest(vector=Vector(values=turned(QUERY, 0)), limit=limit)
        found = api.semantic.ListSemanticCandidates(request).candidates
        assert [candidate.chunk.id for candidate in found] == expected[:limit]


def test_scores_are_bit_identical_while_another_tenant_grows(api: Api, other: Api) -> None:
    """Excludes frequencies, lengths and counts over all tenants: the other grows a hundredfold."""
    api.upsert(*PASSAGES)
    before = (lexical(api), retrieve(api), api.corpus())
    other.upsert(*PASSAGES)
    for size in (30, 300):
        other.upsert(*(chunk(f"source-{n}", "alpha gamma omega " * (n % 5 + 1)) for n in range(size)))
        assert (lexical(api), retrieve(api), api.corpus()) == before
    scores = [candidate.score for candidate in before[0].candidates]
    assert all(score > 0 and math.isfinite(score) for score in scores)


@pytest.mark.parametrize(
    "condition",
    [
        {"metadata": {"path": ["n"], "equals": 1}},
        {"none_of": [{"metadata": {"path": ["absent"], "exists": {}}}]},
        {"none_of": [{"source_id": {"equals": "absent"}}]},
        {"source_id": {"prefix": "s"}},
        {"any_of": [{"source_id": {"equals_any": {"values": [SHARED, ONLY_OTHERS]}}}]},
    ],
    ids=["equals", "a negation that all meet", "a negation of a source", "prefix", "sources"],
)
def test_a_filter_never_reaches_another_tenant(neighbours: tuple[Api, Api], condition: dict[str, Any]) -> None:
    """Excludes an OR or a negation that escapes the tenant's condition, and a set of rows kept for somebody else."""
    api, other = neighbours
    where = json_format.ParseDict(condition, Filter())
    requests = (
        ListLexicalCandidatesRequest(terms=["alpha", "omega"], limit=100, filter=where),
        ListSemanticCandidatesRequest(vector=Vector(values=turned(QUERY, 0)), limit=100, filter=where),
    )
    # The other one asks first, so that what it is told could be remembered.
    for tenant in (other, api):
        lexical_candidates = tenant.lexical.ListLexicalCandidates(requests[0]).candidates
        semantic_candidates = tenant.semantic.ListSemanticCandidates(requests[1]).candidates
        assert lexical_candidates
        assert semantic_candidates
    own = {derived_id(SHARED, passage.text) for passage in PASSAGES}
    assert {candidate.chunk.id for candidate in lexical_candidates} <= own
    assert {candidate.chunk.id for candidate in semantic_candidates} <= own
    assert {scored.chunk.id for scored in _filtered(api, where).chunks} <= own
    before = _filtered(api, where)
    other.purge.PurgeTenant(PurgeTenantRequest())
    assert _filtered(api, where) == before


def _filtered(api: Api, where: Filter) -> RetrieveChunksResponse:
    answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=QUERY, k=50, filter=where))
    for report in answer.channels:
        report.ClearField("elapsed")
    return answer
