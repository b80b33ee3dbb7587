"""The memory store where the wire cannot see it: copies, snapshots, and arguments of callers in the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, DimensionMismatchError, SourceChangedError
from chunkstore.domain.results import CorpusCounts, Ranking, WriteResult
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import SourceReplacement

TENANT = TenantId("tenant")
EAST = checked_vector([1.0, 0.0], "vector")
NORTH = checked_vector([0.0, 1.0], "vector")


def chunk(
    text: str = "alpha", source_id: str = "source", embedding: Vector | None = EAST, **fields: Any
) -> StoredChunk:
    return StoredChunk(source_id, text, 0, 0, len(text), embedding=embedding, **fields)


@pytest.fixture
def store() -> InMemoryChunkStore:
    return InMemoryChunkStore(dimension=2, analyzer=analyzer("english"))


def spoil(returned: StoredChunk) -> None:
    """Try to change what was returned; each attempt must fail, or change a copy."""
    assert returned.embedding is not None
    with pytest.raises(ValueError, match="read-only"):
        returned.embedding[0] = 99.0
    metadata: Any = returned.metadata
    changes: list[Callable[[], object]] = [
        lambda: metadata.__setitem__("new", 1),
        lambda: metadata["object"].__setitem__("a", 99),
        lambda: metadata["list"].append(99),
        lambda: delattr(metadata, "object"),
    ]
    for change in changes:
        with pytest.raises((AttributeError, TypeError)):
            change()
    with pytest.raises(AttributeError):
        returned.text = "spoilt"  # type: ignore[misc]


async def test_what_is_returned_cannot_change_the_store(store: InMemoryChunkStore) -> None:
    """Excludes a shallow copy that shares the vector or the metadata, by every method that returns chunks."""
    original = chunk(metadata={"object": {"a": 1}, "list": [1]}, entity_ids=("entity",))
    await store.upsert_many(TENANT, [original])
    spoil(await store.get(TENANT, original.id, with_embedding=True))
    spoil((await store.get_by_source(TENANT, "source", limit=5, with_embeddings=True))[0])
    spoil((await store.get_by_entity(TENANT, "entity", limit=5, with_embeddings=True))[0])
    async with store.snapshot(TENANT) as corpus:
        spoil((await corpus.chunks([original.id], with_embeddings=True))[0])
        assert (await corpus.semantic_candidates(EAST, 5)).scores[0] == 1.0
    assert await store.get(TENANT, original.id, with_embedding=True) == original


async def test_what_was_written_does_not_change_with_the_callers_objects(store: InMemoryChunkStore) -> None:
    """Excludes keeping the caller's array, list or dict."""
    vector, metadata = np.array([1.0, 0.0], dtype=np.float32), {"list": [1]}
    written = chunk(embedding=vector, metadata=metadata)
    chunks = [written]
    await store.upsert_many(TENANT, chunks)
    vector[:] = (0.0, 1.0)
    metadata["list"].append(2)
    chunks.clear()
    async with store.snapshot(TENANT) as corpus:
        assert (await corpus.semantic_candidates(EAST, 5)).scores[0] == 1.0
    assert (await store.get(TENANT, written.id)).metadata == {"list": (1.0,)}


async def test_a_snapshot_stays_at_its_revision(store: InMemoryChunkStore) -> None:
    """Excludes channels that disagree on what there was, when somebody writes between them."""
    await store.upsert_many(TENANT, [chunk("alpha"), chunk("alpha beta")])
    async with store.snapshot(TENANT) as corpus:
        lexical = await corpus.lexical_candidates(["alpha"], 10)
        await store.upsert_many(TENANT, [chunk("alpha gamma"), chunk("alpha", embedding=NORTH)])
        await store.purge_source(TENANT, "source")
        assert await corpus.lexical_candidates(["alpha"], 10) == lexical
        assert (await corpus.semantic_candidates(EAST, 10)).scores == [1.0, 1.0]
        ids = lexical.ranking.ids
        assert [each.id for each in await corpus.chunks(ids)] == ids
        assert corpus.counts == CorpusCounts(1, 2, 2, 1)
    assert await store.counts(TENANT) == CorpusCounts(3, 0, 0, 0)


async def test_a_chunk_that_a_snapshot_lacks_is_not_found(store: InMemoryChunkStore) -> None:
    """Excludes a KeyError, and an answer without it."""
    await store.upsert_many(TENANT, [chunk("alpha")])
    async with store.snapshot(TENANT) as corpus:
        with pytest.raises(ChunkNotFoundError):
            await corpus.chunks([chunk("alpha").id, chunk("absent").id])


async def test_vectors_are_read_only_where_asked_for(store: InMemoryChunkStore) -> None:
    await store.upsert_many(TENANT, [chunk()])
    assert (await store.get(TENANT, chunk().id)).embedding is None
    assert (await store.get_by_source(TENANT, "source", limit=1))[0].embedding is None


@pytest.mark.parametrize("limit", [-1, -100])
async def test_a_negative_limit_is_a_value_error(store: InMemoryChunkStore, limit: int) -> None:
    """Pinned, not left to a sampler; over a corpus that has what could be returned."""
    await store.upsert_many(TENANT, [chunk()])
    async with store.snapshot(TENANT) as corpus:
        with pytest.raises(ValueError, match="limit"):
            await corpus.lexical_candidates(["alpha"], limit)
        with pytest.raises(ValueError, match="limit"):
            await corpus.semantic_candidates(EAST, limit)


async def test_a_limit_of_0_is_nothing(store: InMemoryChunkStore) -> None:
    await store.upsert_many(TENANT, [chunk()])
    async with store.snapshot(TENANT) as corpus:
        assert await corpus.semantic_candidates(EAST, 0) == Ranking()
        found = await corpus.lexical_candidates(["alpha"], 0)
    assert (found.ranking, found.statistics.doc_frequencies) == (Ranking(), {"alpha": 1})


async def test_another_width_is_refused_before_anything_is_written(store: InMemoryChunkStore) -> None:
    wide = chunk("beta", embedding=checked_vector([1.0, 0.0, 0.0], "vector"))
    with pytest.raises(DimensionMismatchError):
        await store.upsert_many(TENANT, [chunk(), wide])
    with pytest.raises(DimensionMismatchError):
        await store.replace_sources(TENANT, [SourceReplacement("source", [chunk(), wide])])
    async with store.snapshot(TENANT) as corpus:
        with pytest.raises(DimensionMismatchError):
            await corpus.semantic_candidates(checked_vector([1.0], "vector"), 1)
    assert await store.counts(TENANT) == CorpusCounts()


@pytest.mark.parametrize("dimension", [0, -1])
def test_a_width_is_at_least_1(dimension: int) -> None:
    with pytest.raises(ValueError, match="dimension"):
        InMemoryChunkStore(dimension=dimension, analyzer=analyzer("english"))


async def test_a_conflict_in_a_batch_leaves_the_other_sources_to_be_written(store: InMemoryChunkStore) -> None:
    """Excludes an error raised for all, and a conflict that is carried out all the same."""
    await store.upsert_many(TENANT, [chunk("old", "stale"), chunk("old", "right")])
    results = await store.replace_sources(
        TENANT,
        [
            SourceReplacement("stale", [chunk("new", "stale")], expected_revision=7),
            SourceReplacement("right", [chunk("new", "right")], expected_revision=1),
            SourceReplacement("absent", [], expected_revision=0),
        ],
    )
    conflict, *done = results
    assert isinstance(conflict, SourceChangedError)
    assert (conflict.expected, conflict.actual) == (7, 1)
    assert [result.revision for result in done if isinstance(result, WriteResult)] == [2, 2]
    assert [each.text for each in await store.get_by_source(TENANT, "stale", limit=5)] == ["old"]
    assert [each.text for each in await store.get_by_source(TENANT, "right", limit=5)] == ["new"]


async def test_a_source_twice_in_a_batch_is_a_value_error(store: InMemoryChunkStore) -> None:
    twice = [SourceReplacement("source", [chunk()]), SourceReplacement("source", [])]
    with pytest.raises(ValueError, match="source"):
        await store.replace_sources(TENANT, twice)
    with pytest.raises(ValueError, match="source"):
        await store.replace_sources(TENANT, [SourceReplacement("other", [chunk()])])
    assert await store.counts(TENANT) == CorpusCounts()


async def test_embedded_ids_are_those_with_a_vector(store: InMemoryChunkStore) -> None:
    """Excludes the ids that are merely stored, and another tenant's."""
    embedded, bare = chunk("a"), chunk("b", embedding=None)
    await store.upsert_many(TENANT, [embedded, bare])
    asked = [embedded.id, bare.id, chunk("absent").id]
    assert await store.embedded_ids(TENANT, asked) == {embedded.id}
    assert await store.embedded_ids(TenantId("other"), asked) == set()


async def test_an_absent_chunk_is_not_found(store: InMemoryChunkStore) -> None:
    await store.upsert_many(TenantId("other"), [chunk()])
    with pytest.raises(ChunkNotFoundError):
        await store.get(TENANT, chunk().id)
