"""PurgeSource and PurgeTenant: what is removed is gone, and counted."""

from __future__ import annotations

import grpc
from tests.compliance.messages import chunk, counts, derived_id, stored
from tests.compliance.wire import Api, refusal

from chunkstore.v1.chunk_pb2 import Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest, PurgeTenantRequest
from chunkstore.v1.chunk_reader_service_pb2 import ListEntityChunksRequest, ListSourcesRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest

EAST = (1.0, 0.0, 0.0, 0.0)


def purge_source(api: Api, source_id: str) -> int:
    return api.purge.PurgeSource(PurgeSourceRequest(source_id=source_id)).removed


def purge_tenant(api: Api) -> int:
    return api.purge.PurgeTenant(PurgeTenantRequest()).removed


def visible(api: Api) -> list[int]:
    """How many rows each list and each channel shows."""
    lexical = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=["alpha"], limit=100))
    nearest = ListSemanticCandidatesRequest(vector=Vector(values=EAST), limit=100)
    return [
        len(api.reader.ListSources(ListSourcesRequest()).sources),
        len(api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id="entity")).chunks),
        len(lexical.candidates),
        lexical.statistics.chunk_count,
        lexical.statistics.total_length,
        len(api.semantic.ListSemanticCandidates(nearest).candidates),
        api.corpus().chunk_count,
        api.corpus().embedded_count,
    ]


def fill(api: Api) -> None:
    for source, number in (("one", 3), ("two", 2)):
        api.upsert(*(chunk(source, f"alpha {n}", index=n, entities=["entity"], vector=EAST) for n in range(number)))


def test_purge_source_removes_and_counts_its_chunks(api: Api) -> None:
    """Excludes rows that outlive their source in a list, a channel or a count."""
    fill(api)
    assert purge_source(api, "one") == 3
    assert api.chunks_of("one") == []
    assert visible(api) == [1, 2, 2, 2, 4, 2, 2, 2]
    assert refusal(lambda: api.get(derived_id("one", "alpha 0"))).code is grpc.StatusCode.NOT_FOUND


def test_purge_tenant_removes_and_counts_everything(api: Api) -> None:
    """Excludes counting sources, and anything that stays."""
    fill(api)
    assert purge_tenant(api) == 5
    assert visible(api) == [0] * 8


def test_purging_nothing_counts_0_and_changes_nothing(api: Api) -> None:
    """Excludes an error, and a revision for no change."""
    assert (purge_source(api, "absent"), purge_tenant(api)) == (0, 0)
    assert api.corpus().revision == 0
    fill(api)
    before = api.corpus()
    assert (purge_source(api, "absent"), purge_source(api, "on"), purge_source(api, "one%")) == (0, 0, 0)
    assert api.corpus() == before


def test_purging_twice_counts_once(api: Api) -> None:
    """Excludes a count of what was once there."""
    fill(api)
    assert [purge_source(api, "one"), purge_source(api, "one")] == [3, 0]
    assert [purge_tenant(api), purge_tenant(api)] == [2, 0]


def test_a_source_without_chunks_can_be_purged(api: Api) -> None:
    """Excludes a source that can never be got rid of, because it counts 0."""
    api.writer.ReplaceSource(ReplaceSourceRequest(source_id="blank"))
    assert purge_source(api, "blank") == 0
    assert list(api.reader.ListSources(ListSourcesRequest()).sources) == []
    assert api.corpus().revision == 2


def test_the_revision_goes_on(api: Api) -> None:
    """Excludes starting again from 0, by which a reader of an earlier revision would take the new for the old."""
    fill(api)
    assert api.corpus().revision == 2
    purge_tenant(api)
    assert api.corpus().revision == 3
    assert api.upsert(chunk("one", "text")).revision == 4
    purge_source(api, "one")
    assert api.corpus().revision == 5


def test_a_purged_source_is_at_revision_0(api: Api) -> None:
    """Excludes an expected revision that holds although the source is gone."""
    fill(api)
    purge_source(api, "one")
    request = ReplaceSourceRequest(source_id="one", chunks=[chunk("one", "text")], expected_revision=1)
    assert refusal(lambda: api.writer.ReplaceSource(request)).metadata == {"expected": "1", "actual": "0"}
    request.expected_revision = 0
    assert api.writer.ReplaceSource(request).counts == counts(written=1)


def test_what_was_purged_does_not_come_back(api: Api) -> None:
    """Excludes a vector, or any other field, that a later write of the same text finds again."""
    fill(api)
    purge_source(api, "one")
    assert api.upsert(chunk("one", "alpha 0")).counts == counts(written=1)
    assert api.chunks_of("one") == [stored(chunk("one", "alpha 0"))]
    purge_tenant(api)
    assert api.upsert(chunk("two", "alpha 0")).counts == counts(written=1)
    assert api.chunks_of("two") == [stored(chunk("two", "alpha 0"))]
    assert visible(api) == [1, 0, 1, 1, 2, 0, 1, 0]
