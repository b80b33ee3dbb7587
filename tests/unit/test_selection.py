"""What an answer takes from a ranking: its beginnings, pages, a cap for each source, and the chunks around hits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.adapters.memory.store import InMemoryChunkStore, MemorySnapshot
from chunkstore.composition.query import Fusion, Query
from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.composition.selection import MAX_NEIGHBORS, Selection
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import (
    CorpusChangedError,
    EmbeddingFailedError,
    InvalidFieldError,
    RankingChangedError,
    RetrievalDegradedError,
    SnapshotExpiredError,
)
from chunkstore.domain.filters import Equals, SourceIn
from chunkstore.domain.results import (
    Channel,
    ChunkRetrievalResult,
    CorpusCounts,
    FusionMethod,
    PageStart,
    ScoredChunk,
)
from chunkstore.domain.text import TenantId

TENANT = TenantId("tenant")
DIMENSION = 2
WORDS = ("alpha", "beta", "gamma", "BX-7741")
LEXICAL = frozenset({Channel.LEXICAL, Channel.IDENTIFIER})
FUSIONS = (
    Fusion(FusionMethod.RECIPROCAL_RANK),
    Fusion(FusionMethod.WEIGHTED_SUM),
    Fusion(FusionMethod.WEIGHTED_SUM, 0.9),
)
FILTERS = (None, SourceIn(frozenset({"s0", "s1", "s2"})), Equals(("even",), bools=frozenset({True})))

_numbers = st.randoms(use_true_random=False)


@dataclass
class Provider:
    """Embeds every text as `vector`, or raises it."""

    vector: Any = field(default_factory=lambda: [1.0, 0.5])
    model: str = "fixed"
    dimension: int = DIMENSION

    async def embed(self, texts: Sequence[str]) -> Any:
        if isinstance(self.vector, Exception):
            raise self.vector
        return np.array([self.vector for _ in texts], dtype=np.float32)

    async def aclose(self) -> None:
        """Nothing is held."""


class CountingStore(InMemoryChunkStore):
    """A memory store that notes how many chunks it was asked about, and whether with vectors."""

    def __init__(self) -> None:
        super().__init__(dimension=DIMENSION, analyzer=analyzer("english"))
        self.calls: list[tuple[Any, ...]] = []

    @asynccontextmanager
    async def snapshot(self, tenant_id: TenantId, **options: Any) -> AsyncIterator[MemorySnapshot]:
        calls = self.calls

        class Counting(MemorySnapshot):
            async def chunks(self, ids: Sequence[ChunkId], *, with_embeddings: bool = False) -> list[StoredChunk]:
                calls.append(("chunks", len(ids), with_embeddings))
                return await MemorySnapshot.chunks(self, ids, with_embeddings=with_embeddings)

            async def source_ids(self, ids: Sequence[ChunkId]) -> list[str]:
                calls.append(("source_ids", len(ids)))
                return await MemorySnapshot.source_ids(self, ids)

            async def neighbors(self, ids: Sequence[ChunkId], *, before: int, after: int) -> list[list[ChunkId]]:
                calls.append(("neighbors", len(ids), before, after))
                return await MemorySnapshot.neighbors(self, ids, before=before, after=after)

        async with super().snapshot(tenant_id, **options) as corpus:
            yield Counting(corpus.corpus)


def random_chunks(randomly: random.Random) -> list[StoredChunk]:
    """Chunks of a few sources, many of them alike, some without a vector."""
    chunks = []
    for n in range(randomly.randrange(60)):
        text = " ".join([*randomly.choices(WORDS, k=randomly.randrange(1, 5)), f"n{n}"])
        vector = None if randomly.random() < 0.3 else np.array([1.0, randomly.randrange(-3, 4)], dtype=np.float32)
        source, index = f"s{randomly.randrange(6)}", randomly.randrange(20)
        metadata = {"even": n % 2 == 0}
        chunks.append(StoredChunk(source, text, index, 0, len(text), metadata=metadata, embedding=vector))
    return chunks


def random_query(randomly: random.Random) -> Query:
    return Query(
        " ".join(randomly.sample(WORDS, randomly.randrange(1, 4))),
        channels=randomly.choice([frozenset(Channel), frozenset({Channel.SEMANTIC}), LEXICAL]),
        fusion=randomly.choice(FUSIONS),
        where=randomly.choice(FILTERS),
    )


async def opened(chunks: Sequence[StoredChunk], max_k: int = 100) -> tuple[CountingStore, Provider, ChunkRetriever]:
    store, provider = CountingStore(), Provider()
    await store.upsert_many(TENANT, chunks)
    return store, provider, ChunkRetriever(chunks=store, embeddings=provider, max_k=max_k)


def described(hits: Sequence[ScoredChunk]) -> list[Any]:
    """The hits with all of their scores, ranks and shares."""
    return [(hit.chunk.id, hit.score, hit.semantic, hit.lexical, hit.identifier) for hit in hits]


@given(_numbers, st.integers(1, 70), st.integers(0, 30), st.sampled_from([None, 1, 2, 5]))
def test_the_top_k_begin_the_top_of_more(randomly: random.Random, k: int, n: int, cap: int | None) -> None:
    """Excludes a depth, or a cap, that depends on how many are asked for."""

    async def run() -> None:
        _, _, retriever = await opened(random_chunks(randomly))
        query = random_query(randomly)
        few = await retriever.retrieve_chunks(query, TENANT, Selection(k, max_per_source=cap))
        more = await retriever.retrieve_chunks(query, TENANT, Selection(k + n, max_per_source=cap))
        assert described(few.chunks) == described(more.chunks)[:k]
        assert (few.next_page is None) == (len((await _all(retriever, query, cap)).chunks) <= k)

    asyncio.run(run())


@given(_numbers, st.integers(1, 6))
def test_a_cap_passes_over_and_changes_nothing_else(randomly: random.Random, cap: int) -> None:
    """Excludes ranks and scores of a ranking that has been thinned out."""

    async def run() -> None:
        _, _, retriever = await opened(random_chunks(randomly))
        query = random_query(randomly)
        expected: list[ScoredChunk] = []
        for hit in (await _all(retriever, query, None)).chunks:
            if [other.chunk.source_id for other in expected].count(hit.chunk.source_id) < cap:
                expected.append(hit)
        assert described((await _all(retriever, query, cap)).chunks) == described(expected)

    asyncio.run(run())


@given(_numbers, st.sampled_from([None, 1, 3]))
def test_pages_one_after_the_other_are_the_answer(randomly: random.Random, cap: int | None) -> None:
    """Excludes what is skipped, repeated or reordered between pages, and an end that is told too early or late."""

    async def run() -> None:
        _, _, retriever = await opened(random_chunks(randomly))
        query = random_query(randomly)
        found: list[ScoredChunk] = []
        start: PageStart | None = None
        while not found or start is not None:
            k = randomly.randrange(1, 12)
            page = await retriever.retrieve_chunks(query, TENANT, Selection(k, start, cap))
            found += page.chunks
            start = page.next_page
            assert start is None or len(page.chunks) == k
            if not page.chunks:
                break
        assert described(found) == described((await _all(retriever, query, cap)).chunks)

    asyncio.run(run())


async def test_pages_go_on_to_the_depth_of_the_channels() -> None:
    """Excludes an end at the largest k, where the pool is three times as deep."""
    _, _, retriever = await opened([_chunk("s", f"alpha n{n}", n) for n in range(20)], max_k=2)
    query = Query("alpha", channels=LEXICAL)
    page = await retriever.retrieve_chunks(query, TENANT, Selection(2))
    lengths = [len(page.chunks)]
    while page.next_page is not None:
        page = await retriever.retrieve_chunks(query, TENANT, Selection(2, page.next_page))
        lengths.append(len(page.chunks))
    assert lengths == [2, 2, 2]


@given(_numbers, st.integers(0, 4), st.integers(0, 4), st.integers(1, 10))
def test_contexts_are_what_stands_around_the_hits(randomly: random.Random, before: int, after: int, k: int) -> None:
    """Against marking places in each document; what the filter leaves out is in no context, and ends one."""

    async def run() -> None:
        chunks, query = random_chunks(randomly), random_query(randomly)
        _, _, retriever = await opened(chunks)
        selection = Selection(k, neighbors_before=before, neighbors_after=after)
        answer = await retriever.retrieve_chunks(query, TENANT, selection)
        hits = [hit.chunk.id for hit in answer.chunks]
        expected = _contexts(chunks, query, hits, before, after) if before or after else []
        assert [([c.id for c in context.chunks], list(context.hit_ids)) for context in answer.contexts] == expected
        assert [context.source_id for context in answer.contexts] == [
            {chunk.id: chunk.source_id for chunk in chunks}[run_hits[0]] for _, run_hits in expected
        ]
        plain = await retriever.retrieve_chunks(query, TENANT, Selection(k))
        assert described(answer.chunks) == described(plain.chunks)

    asyncio.run(run())


class TestReading:
    """No more is read than the answer needs."""

    async def test_without_a_cap_or_neighbours_only_the_hits_are_read(self) -> None:
        store, _, retriever = await opened([_chunk("s", f"alpha n{n}", n) for n in range(20)])
        await retriever.retrieve_chunks(Query("alpha"), TENANT, Selection(3))
        assert store.calls == [("chunks", 3, False)]

    async def test_sources_are_read_until_the_cap_has_let_enough_through(self) -> None:
        store, _, retriever = await opened([_chunk(f"s{n}", "alpha", 0) for n in range(40)])
        await retriever.retrieve_chunks(Query("alpha"), TENANT, Selection(3, max_per_source=1))
        assert store.calls == [("source_ids", 8), ("chunks", 3, False)]

    async def test_sources_are_read_further_where_one_crowds_the_top(self) -> None:
        crowd = [_chunk("s", f"alpha n{n}", n) for n in range(40)]
        store, _, retriever = await opened([*crowd, _chunk("t", "alpha beta gamma delta epsilon", 0)])
        query = Query("alpha", channels=LEXICAL)
        answer = await retriever.retrieve_chunks(query, TENANT, Selection(3, max_per_source=1))
        assert [hit.chunk.source_id for hit in answer.chunks] == ["s", "t"]
        assert store.calls == [*(("source_ids", n) for n in (8, 8, 16, 9)), ("chunks", 2, False)]

    async def test_vectors_of_neighbours_are_read_where_asked_for(self) -> None:
        east = np.array([1.0, 0.0], dtype=np.float32)
        store, _, retriever = await opened([_chunk("s", "alpha", 0, east), _chunk("s", "beta", 1, east)])
        query = Query("alpha", channels=LEXICAL)
        for asked in (False, True):
            selection = Selection(1, neighbors_after=1, with_embeddings=asked)
            [context] = (await retriever.retrieve_chunks(query, TENANT, selection)).contexts
            assert [chunk.embedding is not None for chunk in context.chunks] == [asked, asked]
            assert store.calls == [("neighbors", 1, 0, 2), ("chunks", 2, asked)]
            store.calls.clear()

    async def test_an_answer_of_nothing_has_no_context(self) -> None:
        store, _, retriever = await opened([_chunk("s", "alpha", 0)])
        query = Query("beta", channels=LEXICAL)
        answer = await retriever.retrieve_chunks(query, TENANT, Selection(neighbors_before=1, max_per_source=1))
        assert (answer.chunks, answer.contexts, answer.next_page) == ((), (), None)
        assert store.calls == [("chunks", 0, False)]


class TestBounds:
    """Settled before anything is asked."""

    @pytest.mark.parametrize("most", [0, -1, -(2**31)])
    def test_a_cap_is_at_least_1(self, most: int) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            Selection(max_per_source=most)
        assert caught.value.field == "max_per_source"

    @pytest.mark.parametrize("count", [-(2**31), -1, MAX_NEIGHBORS + 1, 2**31 - 1])
    @pytest.mark.parametrize("field", ["neighbors_before", "neighbors_after"])
    def test_neighbours_are_between_0_and_10(self, field: str, count: int) -> None:
        options: dict[str, Any] = {field: count}
        with pytest.raises(InvalidFieldError) as caught:
            Selection(**options)
        assert (caught.value.field, caught.value.problem) == (field, "must be within [0, 10]")


class TestWhatPagesHaveInCommon:
    """A page that would be of another ranking than those before it is refused."""

    QUERY = Query("alpha")

    async def test_a_write_ends_the_pages(self) -> None:
        store, _, retriever, start = await self._first_page()
        await store.upsert_many(TENANT, [_chunk("t", "gamma", 0)])
        with pytest.raises(CorpusChangedError) as caught:
            await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert (caught.value.expected, caught.value.actual) == (1, 2)

    async def test_a_channel_that_fails_later_is_an_error_that_may_pass(self) -> None:
        """Excludes pages of which some lack a channel's opinion."""
        _, provider, retriever, start = await self._first_page()
        provider.vector, vector = EmbeddingFailedError("it is away"), provider.vector
        with pytest.raises(RetrievalDegradedError) as caught:
            await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert (caught.value.missing, caught.value.answered) == (("semantic",), ("lexical",))
        provider.vector = vector
        page = await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert (len(page.chunks), page.partial) == (1, False)

    async def test_a_channel_that_comes_back_ends_the_pages(self) -> None:
        _, provider, retriever, start = await self._first_page(EmbeddingFailedError("it is away"))
        page = await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert (len(page.chunks), page.partial) == (1, True)
        provider.vector = [1.0, 0.5]
        with pytest.raises(RankingChangedError) as caught:
            await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert caught.value.channels == ("semantic",)

    async def test_a_query_that_is_embedded_otherwise_ends_the_pages(self) -> None:
        """Excludes pages of two rankings by a provider that does not give the same vector again."""
        _, provider, retriever, start = await self._first_page()
        provider.vector = [1.0, 0.5000001]
        with pytest.raises(RankingChangedError) as caught:
            await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert caught.value.channels == ("semantic",)
        lexical = replace(self.QUERY, channels=LEXICAL)
        first = await retriever.retrieve_chunks(lexical, TENANT, Selection(1))
        provider.vector = [0.0, 1.0]
        await retriever.retrieve_chunks(lexical, TENANT, Selection(1, first.next_page))

    async def test_k_0_asks_nothing_also_of_a_page(self) -> None:
        store, _, retriever, start = await self._first_page()
        page = await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(0, start))
        assert (page.chunks, page.next_page, store.calls) == ((), None, [])

    async def test_a_snapshot_that_turns_out_stale_does_not_end_the_pages(self) -> None:
        """Excludes taking an index that is behind the pages' revision for a corpus that has changed."""
        store, provider, _, start = await self._first_page()

        class Behind(MemorySnapshot):
            @property
            def counts(self) -> CorpusCounts:
                return CorpusCounts()

            async def chunks(self, ids: Sequence[ChunkId], *, with_embeddings: bool = False) -> list[StoredChunk]:
                raise SnapshotExpiredError

        class Lagging(InMemoryChunkStore):
            @asynccontextmanager
            async def snapshot(self, tenant_id: TenantId, **options: Any) -> AsyncIterator[MemorySnapshot]:
                async with store.snapshot(tenant_id) as corpus:
                    yield corpus if options.get("pinned") else Behind(corpus.corpus)

        lagging = Lagging(dimension=DIMENSION, analyzer=store.analyzer)
        retriever = ChunkRetriever(chunks=lagging, embeddings=provider, max_k=100)
        page = await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1, start))
        assert (len(page.chunks), page.corpus.revision) == (1, 1)

    async def _first_page(self, vector: Any = (1.0, 0.5)) -> tuple[CountingStore, Provider, ChunkRetriever, PageStart]:
        east = np.array([1.0, 0.0], dtype=np.float32)
        store, provider, retriever = await opened([_chunk("s", f"alpha n{n}", n, east) for n in range(4)])
        provider.vector = vector
        page = await retriever.retrieve_chunks(self.QUERY, TENANT, Selection(1))
        assert page.next_page is not None
        store.calls.clear()
        return store, provider, retriever, page.next_page


async def _all(retriever: ChunkRetriever, query: Query, cap: int | None) -> ChunkRetrievalResult:
    answer = await retriever.retrieve_chunks(query, TENANT, Selection(100, max_per_source=cap))
    assert answer.next_page is None
    return answer


def _chunk(source_id: str, text: str, index: int, vector: Any = None) -> StoredChunk:
    return StoredChunk(source_id, text, index, 0, len(text), embedding=vector)


def _contexts(
    chunks: Sequence[StoredChunk], query: Query, hits: Sequence[ChunkId], before: int, after: int
) -> list[tuple[list[ChunkId], list[ChunkId]]]:
    """Each run of chunks around hits, and its hits, in the order of the best of them."""
    runs = []
    for source in {chunk.source_id for chunk in chunks}:
        document = sorted((c for c in chunks if c.source_id == source), key=lambda c: (c.chunk_index, c.id))
        wanted: set[int] = set()
        for at, chunk in enumerate(document):
            if chunk.id in hits:
                wanted |= {n for n in range(at - before, at + after + 1) if 0 <= n < len(document)}
        run: list[ChunkId] = []
        for at, chunk in enumerate(document):
            if at in wanted and (query.where is None or query.where.meets(chunk.source_id, chunk.metadata)):
                run.append(chunk.id)
            elif run:
                runs.append(run)
                run = []
        runs.append(run)
    found = [(run, [hit for hit in hits if hit in run]) for run in runs]
    return sorted((pair for pair in found if pair[1]), key=lambda pair: hits.index(pair[1][0]))
