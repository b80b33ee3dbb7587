"""Ranking in SQL: exact to the bit, by tenant, and in one snapshot."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from tests.databases import connected

from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, DimensionMismatchError, InvalidFieldError
from chunkstore.domain.results import CorpusStatistics, LexicalCandidates, Ranking
from chunkstore.domain.similarity import Vector, cosine_scores
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import SourceReplacement

STANDARD = analyzer("standard")
TENANT = TenantId("acme")
OTHER = TenantId("other")
DIMENSION: Final = 64
# Of the texts of test_identical_vectors_tie_by_id, ascending.
TIED_IDS: Final = [
    "9d33733358181ce53d8d280bc02ad69db93a4dfccecd4863393aa0e731eeb99c",
    "b779d99b27888c0d283667b04e725fc189ac820624d31d30709b58f6d13038ef",
    "e295266acd8d5a6e878e8cf74ca5709a66c3d74256e1d84d0858d17348a1862e",
    "ee62910822507a7fbcf9ef944217e75c37b0745732e05b04745f8e84f1e45f0d",
]


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresChunkStore]:
    opened = await PostgresChunkStore.open(dsn, dimension=DIMENSION, analyzer=STANDARD, pool_size=2)
    yield opened
    await opened.aclose()


def a_chunk(text: str, vector: Vector | None = None, source_id: str = "source") -> StoredChunk:
    return StoredChunk(source_id, text, 0, 0, len(text), embedding=vector)


def unit(position: int) -> Vector:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[position] = 1
    return vector


async def semantic(
    store: PostgresChunkStore, vector: Vector, limit: int, **options: Any
) -> list[tuple[ChunkId, float]]:
    async with store.snapshot(TENANT) as corpus:
        found = await corpus.semantic_candidates(vector, limit, **options)
    return list(zip(found.ids, found.scores, strict=True))


async def lexical(
    store: PostgresChunkStore, terms: Iterable[str], limit: int = 100, tenant: TenantId = TENANT
) -> LexicalCandidates:
    async with store.snapshot(tenant) as corpus:
        return await corpus.lexical_candidates(terms, limit)


# --- semantic


def adversarial_vectors() -> list[Vector]:
    """Vectors among which float32 sums cannot tell the order, and many that tie exactly."""
    rng = np.random.default_rng(5)
    base = rng.normal(size=DIMENSION).astype(np.float32)
    vectors = [base] * 130
    for position in range(DIMENSION):
        last_bit = base.copy()
        last_bit[position] = np.nextafter(last_bit[position], np.float32(np.inf))
        vectors += [last_bit, unit(position), -unit(position)]
    vectors += [base * np.float32(scale) for scale in (2.0, 0.5, 3.7, 1e-9, 1e9)]
    vectors += [base + rng.normal(size=DIMENSION).astype(np.float32) * np.float32(1e-6) for _ in range(100)]
    vectors += [np.full(DIMENSION, value, dtype=np.float32) for value in (1, -1, 0.1, 1e-10, 1e10)]
    vectors += list(rng.normal(size=(60, DIMENSION)).astype(np.float32))
    return vectors


def brute_force(chunks: Sequence[StoredChunk], query: Vector) -> list[tuple[ChunkId, float]]:
    embedded = [(chunk.id, chunk.embedding) for chunk in chunks if chunk.embedding is not None]
    scores = cosine_scores(np.array([vector for _, vector in embedded]), query).tolist()
    found = [(identifier, score) for (identifier, _), score in zip(embedded, scores, strict=True)]
    return sorted(found, key=lambda candidate: (-candidate[1], candidate[0]))


async def test_the_nearest_are_those_of_brute_force_to_the_bit(store: PostgresChunkStore, dsn: str) -> None:
    vectors = adversarial_vectors()
    chunks = [a_chunk(f"text {n}", vector) for n, vector in enumerate(vectors)]
    await store.upsert_many(TENANT, [*chunks, *(a_chunk(f"unembedded {n}") for n in range(20))])
    await store.upsert_many(OTHER, chunks[:200])
    queries = [vectors[0], vectors[131], unit(3), np.ones(DIMENSION, np.float32), vectors[-1], vectors[0] * 1e6]
    for approximate in (False, True):
        if approximate:
            async with connected(dsn) as connection:
                await connection.execute(
                    "CREATE INDEX ON chunkstore.chunks USING hnsw (embedding vector_cosine_ops) WITH (m = 2)"
                )
                await connection.execute("ANALYZE chunkstore.chunks")
        for query in queries:
            expected = brute_force(chunks, query)
            for limit in (1, 2, 10, 129, 300, len(chunks), 5000):
                assert await semantic(store, query, limit) == expected[:limit]


async def test_identical_vectors_tie_by_id(store: PostgresChunkStore) -> None:
    texts = ["tie one", "tie two", "tie three", "tie four"]
    await store.upsert_many(TENANT, [a_chunk(text, unit(0)) for text in texts])
    ids = TIED_IDS
    assert [identifier for identifier, _ in await semantic(store, unit(0), 10)] == ids
    assert [identifier for identifier, _ in await semantic(store, unit(0), 2)] == ids[:2]
    assert {score for _, score in await semantic(store, unit(1), 10)} == {0.5}
    assert (await lexical(store, ["tie"])).ranking.ids == ids


async def test_min_score_comes_before_limit(store: PostgresChunkStore) -> None:
    await store.upsert_many(
        TENANT, [a_chunk("same", unit(0)), a_chunk("beside", unit(1)), a_chunk("against", -unit(0))]
    )
    assert [score for _, score in await semantic(store, unit(0), 10)] == [1.0, 0.5, 0.0]
    assert [score for _, score in await semantic(store, unit(0), 10, min_score=0.5)] == [1.0, 0.5]
    assert [score for _, score in await semantic(store, unit(0), 1, min_score=0.5)] == [1.0]
    assert await semantic(store, unit(2), 10, min_score=0.6) == []
    assert await semantic(store, unit(0), 0) == []


async def test_refuses_what_cannot_be_ranked(store: PostgresChunkStore) -> None:
    with pytest.raises(InvalidFieldError, match="limit must not be negative"):
        await semantic(store, unit(0), -1)
    with pytest.raises(InvalidFieldError, match="limit must not be negative"):
        await lexical(store, ["a"], -1)
    with pytest.raises(DimensionMismatchError) as caught:
        await semantic(store, np.ones(3, dtype=np.float32), 0)
    assert (caught.value.expected, caught.value.actual) == (DIMENSION, 3)
    async with store.snapshot(TENANT) as corpus:
        with pytest.raises(ChunkNotFoundError):
            await corpus.chunks([a_chunk("absent").id])


async def test_rows_of_another_tenant_do_not_use_up_the_limit(store: PostgresChunkStore, dsn: str) -> None:
    mine = [a_chunk(f"mine {n}", unit(1) + unit(2) * np.float32(n)) for n in range(10)]
    await store.upsert_many(TENANT, mine)
    async with connected(dsn) as connection:
        await connection.execute(
            """
            INSERT INTO chunkstore.chunks
                (tenant_id, id, source_id, text, chunk_index, start_char, end_char, embedding, doc_length, term_keys,
                 term_frequencies)
            SELECT 'other', sha256(n::text::bytea), 's', 'nearer', 0, 0, 6, $1::real[]::vector, 1, k.term_keys[:1],
                '{1}'
            FROM generate_series(1, 20000) n, (SELECT term_keys FROM chunkstore.chunks LIMIT 1) k
            """,
            unit(1).tolist(),
        )
        await connection.execute("ANALYZE chunkstore.chunks")
    assert [identifier for identifier, _ in await semantic(store, unit(1), 10)] == [chunk.id for chunk in mine]
    found = await lexical(store, ["mine"], 10)
    assert set(found.ranking.ids) == {chunk.id for chunk in mine}
    assert found.statistics == CorpusStatistics(10, 20, {"mine": 10})


# --- lexical


def bm25(texts: Sequence[str], terms: Sequence[str]) -> list[tuple[float, ChunkId]]:
    """The formula in plain floats, chunk by chunk; chunks without any of the terms are left out."""
    counted = [(a_chunk(text).id, Counter(STANDARD.terms(text))) for text in texts]
    average = sum(counts.total() for _, counts in counted) / len(counted)
    frequencies = {term: sum(1 for _, counts in counted if counts[term]) for term in sorted(set(terms))}
    ranked = []
    for identifier, counts in counted:
        score = 0.0
        for term, frequency in frequencies.items():
            idf = math.log(1.0 + (len(counted) - frequency + 0.5) / (frequency + 0.5))
            factor = 1.2 * (1.0 - 0.75 + 0.75 * (counts.total() / average))
            score += idf * (counts[term] * (1.2 + 1.0)) / (counts[term] + factor)
        if any(counts[term] for term in terms):
            ranked.append((score, identifier))
    return sorted(ranked, key=lambda pair: (-pair[0], pair[1]))


async def test_bm25_is_that_of_the_formula_to_the_bit(store: PostgresChunkStore) -> None:
    rng = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in rng.zipf(1.3, size=rng.integers(1, 40)) % 90) for _ in range(300)]
    texts = list(dict.fromkeys(texts))
    await store.upsert_many(TENANT, [a_chunk(text) for text in texts])
    # More terms than one statement takes, some of which no chunk holds.
    many = [f"w{n}" for n in range(80)] + [f"absent{n}" for n in range(20)]
    for terms in (["w1"], ["w1", "w2", "w2", "w45"], ["absent"], many):
        expected = bm25(texts, terms)
        for limit in (0, 1, 10, 1000):
            found = await lexical(store, terms, limit)
            assert list(zip(found.ranking.scores, found.ranking.ids, strict=True)) == expected[:limit]
            assert found.statistics.chunk_count == len(texts)
            assert found.statistics.doc_frequencies.keys() == set(terms)
            assert found.statistics.doc_frequencies.get("absent", 0) == 0
    best = await lexical(store, many, 1)
    counts = Counter(STANDARD.terms(next(text for text in texts if a_chunk(text).id == best.ranking.ids[0])))
    assert best.term_frequencies(0) == {term: counts[term] for term in many if counts[term]}
    assert best.lengths == [counts.total()]


async def test_an_empty_corpus_and_no_terms(store: PostgresChunkStore) -> None:
    assert await lexical(store, ["a"]) == LexicalCandidates(Ranking(), CorpusStatistics(0, 0, {"a": 0}))
    await store.upsert_many(TENANT, [a_chunk("a b"), a_chunk("!?")])
    assert await lexical(store, []) == LexicalCandidates(Ranking(), CorpusStatistics(2, 2, {}))


async def test_statistics_are_the_tenants_own_to_the_bit(store: PostgresChunkStore) -> None:
    texts = [f"apple {'banana ' * (n % 4)}cherry{n}" for n in range(20)]
    await store.upsert_many(TENANT, [a_chunk(text) for text in texts])
    await store.upsert_many(OTHER, [a_chunk(text) for text in texts])
    before = await lexical(store, ["apple", "banana", "cherry3"])
    await store.replace_sources(
        OTHER,
        [
            SourceReplacement(f"s{n}", [a_chunk(f"apple banana cherry{n} {'padding ' * 30}", source_id=f"s{n}")])
            for n in range(2000)
        ],
    )
    assert await lexical(store, ["apple", "banana", "cherry3"]) == before
    assert (await lexical(store, ["apple"], tenant=OTHER)).statistics.doc_frequencies == {"apple": 2020}


async def test_whatever_is_written_meanwhile_a_snapshot_stays_as_it_was(store: PostgresChunkStore) -> None:
    await store.upsert_many(TENANT, [a_chunk("alpha beta", unit(0)), a_chunk("alpha", unit(1))])
    async with store.snapshot(TENANT) as corpus:
        counts = corpus.counts
        before = await corpus.lexical_candidates(["alpha"], 10), await corpus.semantic_candidates(unit(0), 10)
        await store.replace_sources(TENANT, [SourceReplacement("source", [a_chunk("alpha gamma", unit(0))])])
        assert (await corpus.lexical_candidates(["alpha"], 10), await corpus.semantic_candidates(unit(0), 10)) == before
        assert len(await corpus.chunks(before[1].ids)) == 2
        assert corpus.counts == counts
    assert len((await lexical(store, ["alpha"])).ranking) == 1


async def test_channels_may_be_asked_at_once(store: PostgresChunkStore) -> None:
    chunks = [a_chunk(f"alpha w{n}", unit(n % DIMENSION)) for n in range(100)]
    await store.upsert_many(TENANT, chunks)
    async with store.snapshot(TENANT) as corpus:
        lexical, semantic, read = await asyncio.gather(
            asyncio.gather(*(corpus.lexical_candidates(["alpha", f"w{n}"], 5) for n in range(10))),
            asyncio.gather(*(corpus.semantic_candidates(unit(n), 5) for n in range(10))),
            corpus.chunks([chunk.id for chunk in reversed(chunks)], with_embeddings=True),
        )
    assert [found.ranking.ids[0] for found in lexical] == [chunks[n].id for n in range(10)]
    assert [set(found.ids[:2]) for found in semantic] == [{chunks[n].id, chunks[n + DIMENSION].id} for n in range(10)]
    assert read == list(reversed(chunks))
