"""What is written, read back: values, counts, revisions, pages, and writers that meet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from tests.databases import connected

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.adapters.postgres.pool import Transaction
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import Occurrence, StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, DimensionMismatchError, SourceChangedError
from chunkstore.domain.results import CorpusCounts, Source, WriteCounts, WriteResult
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore, SourceReplacement

ENGLISH = analyzer("english")
TENANT = TenantId("acme")
OTHER = TenantId("other")
NORTH = np.array([0, 1, 0, 0], dtype=np.float32)
EAST = np.array([1, 0, 0, 0], dtype=np.float32)


@asynccontextmanager
async def opened(dsn: str, **options: Any) -> AsyncIterator[PostgresChunkStore]:
    arguments: dict[str, Any] = {"dimension": 4, "analyzer": ENGLISH, "pool_size": 4} | options
    store = await PostgresChunkStore.open(dsn, **arguments)
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresChunkStore]:
    async with opened(dsn) as opened_store:
        yield opened_store


def a_chunk(source_id: str, text: str, vector: Vector | None = None, *, index: int = 0, **fields: Any) -> StoredChunk:
    return StoredChunk(source_id, text, index, 0, len(text), embedding=vector, **fields)


async def test_values_come_back_as_they_were(any_dsn: str) -> None:
    text = "naïve cafe\u0301 😀 हिन्दी עברית 国際 \ufeff\u200d\u2028\t\r\n'\"\\{}%$1 \x01\x7f"
    chunk = StoredChunk(
        source_id="a/'\"\\{},%?#\n😀",
        text=text,
        chunk_index=3,
        start_char=7,
        end_char=7 + len(text),
        entity_ids=("NULL", "null", "{a,b}", '"', "\\", " ", "é", "😀"),
        metadata={
            "": "empty key",
            'quote"\\': "\n\t\u2028\x01",
            "numbers": [1e308, -1e308, 5e-324, 1e-320, -0.0, 0.1, 1 / 3, 2**53, 1.7976931348623157e308],
            "nested": {"ключ": [None, True, False, {"z": [], "a": {}}, "😀"]},
        },
        embedding=np.array([1.1754944e-38, -3.1e5, 1e-30, 0.1], dtype=np.float32),
        other_occurrences=(Occurrence(5, 100, 100 + len(text)), Occurrence(4, 50, 50 + len(text))),
    )
    async with opened(any_dsn) as store:
        await store.upsert_many(TENANT, [chunk])
        got = await store.get(TENANT, chunk.id, with_embedding=True)
        assert got == chunk
        assert repr(got.metadata) == repr(chunk.metadata)
        assert got.embedding is not None
        assert chunk.embedding is not None
        assert got.embedding.tobytes() == chunk.embedding.tobytes()
        assert (await store.upsert_many(TENANT, [chunk])).counts == WriteCounts(unchanged=1)
        for entity in chunk.entity_ids:
            assert await store.get_by_entity(TENANT, entity, limit=2) == [chunk.with_embedding(None)]
        assert await store.list_sources(TENANT, limit=2) == [Source(chunk.source_id, 1, 1)]


async def test_a_token_of_three_thousand_characters_is_found(any_dsn: str) -> None:
    token = "".join(random.Random(0).choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0123456789", k=3000))
    chunk = a_chunk("s", f"before {token} after")
    async with opened(any_dsn) as store:
        await store.upsert_many(TENANT, [chunk, a_chunk("s", "before and after")])
        async with store.snapshot(TENANT) as corpus:
            found = await corpus.lexical_candidates(ENGLISH.query_terms(token), 5)
            assert found.ranking.ids == [chunk.id]


async def test_a_write_without_a_vector_keeps_the_stored_one(store: PostgresChunkStore) -> None:
    await store.upsert_many(TENANT, [a_chunk("s", "alpha", NORTH), a_chunk("s", "beta", NORTH)])
    changed = a_chunk("s", "alpha", metadata={"v": 2})
    replacement = SourceReplacement("s", [changed, a_chunk("s", "beta")])
    result = (await store.replace_sources(TENANT, [replacement]))[0]
    assert result == WriteResult(WriteCounts(written=1, unchanged=1, embeddings_reused=2), 2)
    assert await store.get(TENANT, changed.id, with_embedding=True) == changed.with_embedding(NORTH)
    assert await store.embedded_ids(TENANT, [changed.id, a_chunk("s", "gone").id]) == {changed.id}
    assert (await store.upsert_many(TENANT, [changed.with_embedding(EAST)])).counts == WriteCounts(
        written=1, embedded=1
    )
    assert (await store.get(TENANT, changed.id, with_embedding=True)).embedding is not None
    assert (await store.counts(TENANT)).embedded_count == 2


async def test_many_sources_are_replaced_in_one_transaction(store: PostgresChunkStore) -> None:
    first = [SourceReplacement(f"s{n}", [a_chunk(f"s{n}", f"text {n}", NORTH)], 0) for n in range(100)]
    assert await store.replace_sources(TENANT, first) == [
        WriteResult(WriteCounts(written=1, embedded=1), 1) for _ in range(100)
    ]
    second = [
        SourceReplacement("s0", [a_chunk("s0", "text 0")], 1),
        SourceReplacement("s1", [a_chunk("s1", "new text")], 7),
        SourceReplacement("s2", [], 1),
        SourceReplacement("blank", []),
        SourceReplacement("s3", [a_chunk("s3", "text 3"), a_chunk("s3", "text 3", index=1), a_chunk("s3", "more")]),
    ]
    results = await store.replace_sources(TENANT, second)
    assert results[0] == WriteResult(WriteCounts(unchanged=1, embeddings_reused=1), 1)
    assert isinstance(results[1], SourceChangedError)
    assert (results[1].expected, results[1].actual) == (7, 1)
    assert results[2] == WriteResult(WriteCounts(removed=1), 2)
    assert results[3] == WriteResult(WriteCounts(), 2)
    assert results[4] == WriteResult(WriteCounts(written=2, duplicates_folded=1, embeddings_reused=1), 2)
    assert await store.counts(TENANT) == CorpusCounts(2, 100, 99, 101)
    assert await store.replace_sources(TENANT, [SourceReplacement("blank", [])]) == [WriteResult(WriteCounts(), 2)]
    assert await store.source_revisions(TENANT, ["s1", "s2", "absent"]) == {"s1": 1, "s2": 2}
    assert await store.source_revisions(OTHER, ["s1"]) == {}


async def test_a_write_takes_as_many_statements_for_a_hundred_sources_as_for_one(
    store: PostgresChunkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    for name in ("fetch", "fetch_row", "fetch_value", "execute", "copy"):
        original = getattr(Transaction, name)

        def counted(*arguments: Any, original: Any = original) -> Any:
            statements.append(arguments[1])
            return original(*arguments)

        monkeypatch.setattr(Transaction, name, counted)

    async def statements_of(first: int, number: int, word: str) -> int:
        statements.clear()
        names = [f"s{n}" for n in range(first, first + number)]
        await store.replace_sources(TENANT, [SourceReplacement(name, [a_chunk(name, word)]) for name in names])
        return len(statements)

    await statements_of(1000, 1, "first of the tenant")
    for word in ("new", "changed", "changed"):
        assert await statements_of(0, 1, word) == await statements_of(1, 100, word) <= 8


async def test_what_is_refused_leaves_everything_as_it_was(store: PostgresChunkStore) -> None:
    wide = np.ones(5, dtype=np.float32)
    with pytest.raises(DimensionMismatchError) as caught:
        await store.upsert_many(TENANT, [a_chunk("s", "alpha", NORTH), a_chunk("s", "beta", wide)])
    assert (caught.value.field, caught.value.expected, caught.value.actual) == ("chunks[1].embedding", 4, 5)
    twice = [SourceReplacement("s", [a_chunk("s", "alpha")]), SourceReplacement("s", [])]
    with pytest.raises(ValueError, match="twice"):
        await store.replace_sources(TENANT, twice)
    with pytest.raises(ValueError, match="another source"):
        await store.replace_sources(TENANT, [SourceReplacement("s", [a_chunk("t", "alpha")])])
    assert await store.counts(TENANT) == CorpusCounts()
    assert await store.replace_sources(TENANT, []) == []
    assert await store.upsert_many(TENANT, []) == WriteResult(WriteCounts(), 0)


async def test_purging(store: PostgresChunkStore) -> None:
    assert await store.purge_tenant(TENANT) == await store.purge_source(TENANT, "s") == 0
    assert await store.counts(TENANT) == CorpusCounts()
    chunks = [a_chunk("s", f"text {n}", NORTH) for n in range(3)]
    await store.upsert_many(TENANT, [*chunks, a_chunk("t", "alpha")])
    await store.upsert_many(OTHER, chunks)
    await store.replace_sources(TENANT, [SourceReplacement("blank", [])])
    assert await store.purge_source(TENANT, "s") == 3
    assert await store.counts(TENANT) == CorpusCounts(3, 1, 0, 2)
    assert await store.purge_source(TENANT, "blank") == 0
    assert await store.counts(TENANT) == CorpusCounts(4, 1, 0, 1)
    assert await store.purge_tenant(TENANT) == 1
    assert await store.purge_tenant(TENANT) == 0
    assert await store.counts(TENANT) == CorpusCounts(5)
    assert await store.counts(OTHER) == CorpusCounts(1, 3, 3, 1)
    with pytest.raises(ChunkNotFoundError):
        await store.get(TENANT, chunks[0].id)


async def test_pages_are_ordered_by_code_point_and_go_on_where_they_ended(any_dsn: str) -> None:
    names = ["Z", "a", "B", "é", "z", "ａ", "😀", "a b", "a-b", "a_b"]
    async with opened(any_dsn) as store:
        chunks = [a_chunk(name, f"text {n}", index=n % 2, entity_ids=("e",)) for name in names for n in range(3)]
        await store.upsert_many(TENANT, chunks)
        await store.upsert_many(OTHER, chunks[:5])
        sources: list[str] = []
        while page := await store.list_sources(TENANT, after=sources[-1] if sources else None, limit=3):
            sources += [source.source_id for source in page]
        assert sources == sorted(names)
        ordered = sorted(chunks, key=lambda chunk: (chunk.source_id, chunk.chunk_index, chunk.id))
        found: list[StoredChunk] = []
        while True:
            last = (found[-1].source_id, found[-1].chunk_index, found[-1].id) if found else None
            if not (part := await store.get_by_entity(TENANT, "e", after=last, limit=7)):
                break
            found += part
        assert found == ordered
        first = await store.get_by_source(TENANT, "é", limit=2)
        rest = await store.get_by_source(TENANT, "é", after=(first[-1].chunk_index, first[-1].id), limit=2)
        assert first + rest == [chunk for chunk in ordered if chunk.source_id == "é"]


async def test_of_two_writers_of_one_revision_one_wins(store: PostgresChunkStore) -> None:
    await store.replace_sources(TENANT, [SourceReplacement("s", [a_chunk("s", "first")])])
    for revision in range(1, 11):
        rivals = [[SourceReplacement("s", [a_chunk("s", f"{revision} by {name}")], revision)] for name in "abcd"]
        results = await asyncio.gather(*(store.replace_sources(TENANT, rival) for rival in rivals))
        won = [n for n, result in enumerate(results) if isinstance(result[0], WriteResult)]
        assert len(won) == 1
        assert [chunk.text for chunk in await store.get_by_source(TENANT, "s", limit=9)] == [
            f"{revision} by {'abcd'[won[0]]}"
        ]
    assert (await store.counts(TENANT)).revision == 11


async def test_writers_that_cross_do_not_deadlock(store: PostgresChunkStore) -> None:
    names = [f"s{n}" for n in range(8)]

    async def write(seed: int) -> None:
        rng = random.Random(seed)
        for turn in range(8):
            picked = rng.sample(names, 4)
            await store.replace_sources(
                TENANT, [SourceReplacement(name, [a_chunk(name, f"{seed} {turn} {name}")]) for name in picked]
            )

    await asyncio.gather(*(write(seed) for seed in range(6)))
    assert await store.counts(TENANT) == CorpusCounts(48, 8, 0, 8)
    revisions = [source.revision for source in await store.list_sources(TENANT, limit=9)]
    assert max(revisions) == 48


WORDS = [f"word{n}" for n in range(40)]


def random_chunks(rng: random.Random, source_id: str, vectors: list[Vector]) -> list[StoredChunk]:
    chunks = []
    for index in range(rng.randint(0, 5)):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
        start = rng.randint(0, 40)
        chunks.append(
            StoredChunk(
                source_id,
                text,
                index,
                start,
                start + len(text),
                entity_ids=tuple(rng.sample(["e1", "e2", "e3"], rng.randint(0, 2))),
                metadata={"n": rng.randint(0, 2)},
                embedding=rng.choice([*vectors, None]),
            )
        )
    return chunks


async def random_write(rng: random.Random, stores: tuple[ChunkStore, ...], vectors: list[Vector]) -> None:
    """One write of any kind, to each store; the outcomes must be equal."""
    tenant = rng.choice([TENANT, OTHER])
    names = [f"s{n}" for n in range(6)]
    kind = rng.random()
    outcomes: list[Any]
    if kind < 0.3:
        chunks = [chunk for name in rng.sample(names, 2) for chunk in random_chunks(rng, name, vectors)]
        chunks += chunks[:1]
        outcomes = [await store.upsert_many(tenant, chunks) for store in stores]
    elif kind < 0.9:
        replacements = [
            SourceReplacement(name, random_chunks(rng, name, vectors), rng.choice([None, None, 0, 3]))
            for name in rng.sample(names, rng.randint(1, 4))
        ]
        outcomes = [
            [
                (r.expected, r.actual) if isinstance(r, SourceChangedError) else r
                for r in await store.replace_sources(tenant, replacements)
            ]
            for store in stores
        ]
    elif kind < 0.97:
        name = rng.choice(names)
        outcomes = [await store.purge_source(tenant, name) for store in stores]
    else:
        outcomes = [await store.purge_tenant(tenant) for store in stores]
    assert all(outcome == outcomes[0] for outcome in outcomes)


async def everything(store: ChunkStore, tenant: TenantId, vector: Vector, terms: list[str], limit: int) -> list[Any]:
    """All that can be seen of a tenant's corpus, ranked and not."""
    async with store.snapshot(tenant) as corpus:
        lexical, semantic = await asyncio.gather(
            corpus.lexical_candidates(terms, limit), corpus.semantic_candidates(vector, limit)
        )
        chunks = await corpus.chunks(semantic.ids, with_embeddings=True)
        frequencies = [lexical.term_frequencies(position) for position in range(len(lexical.ranking))]
        seen = [corpus.counts, lexical, frequencies, semantic, chunks]
    sources = await store.list_sources(tenant, limit=99)
    by_source = [await store.get_by_source(tenant, source.source_id, limit=99) for source in sources]
    by_entity = [await store.get_by_entity(tenant, name, limit=99) for name in ("e1", "e2", "e3")]
    return [*seen, await store.counts(tenant), sources, by_source, by_entity]


RECOUNT = """
    SELECT c.chunk_count = count(k.id) AND c.embedded_count = count(k.embedding)
        AND c.total_length = coalesce(sum(k.doc_length), 0)
        AND c.source_count = (SELECT count(*) FROM chunkstore.sources s WHERE s.tenant_id = c.tenant_id)
    FROM chunkstore.corpora c LEFT JOIN chunkstore.chunks k USING (tenant_id)
    GROUP BY c.tenant_id
    UNION ALL
    SELECT s.chunk_count = count(k.id) AND s.revision >= coalesce(max(k.revision), 0)
    FROM chunkstore.sources s LEFT JOIN chunkstore.chunks k USING (tenant_id, source_id)
    GROUP BY s.tenant_id, s.source_id
    UNION ALL
    SELECT k.doc_length = (SELECT coalesce(sum(f), 0) FROM unnest(k.term_frequencies) f)
        AND cardinality(k.term_keys) = cardinality(k.term_frequencies)
        AND cardinality(k.entity_keys) = cardinality(k.entity_ids)
    FROM chunkstore.chunks k
"""


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_random_history_agrees_with_the_twin_and_with_a_recount(any_dsn: str, seed: int) -> None:
    rng = random.Random(seed)
    vectors = list(np.random.default_rng(seed).normal(size=(12, 4)).astype(np.float32))
    twin = InMemoryChunkStore(dimension=4, analyzer=ENGLISH)
    stems = [ENGLISH.terms(word)[0] for word in WORDS]
    async with opened(any_dsn) as store, connected(any_dsn) as connection:
        for _ in range(50):
            await random_write(rng, (store, twin), vectors)
            tenant, terms, limit = rng.choice([TENANT, OTHER]), rng.sample(stems, 5), rng.choice([1, 7, 100])
            vector = rng.choice(vectors)
            seen = [await everything(each, tenant, vector, terms, limit) for each in (store, twin)]
            assert seen[0] == seen[1]
        assert all(row[0] for row in await connection.fetch(RECOUNT))
        assert await store.backfill_lexical_index() == 0
