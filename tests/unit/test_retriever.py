"""`ChunkRetriever`: its guards, its channels, and what an answer says when a channel is missing."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.composition.pool import Pool
from chunkstore.composition.query import Fusion, Query
from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.composition.selection import Selection
from chunkstore.domain.analysis import Token, analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import (
    DimensionMismatchError,
    EmbeddingFailedError,
    EmbeddingQuotaError,
    EmbeddingRejectedError,
    InvalidFieldError,
    NoFreeConnectionError,
    RetrievalDegradedError,
    StoreUnavailableError,
)
from chunkstore.domain.filters import Filter
from chunkstore.domain.results import (
    Channel,
    ChannelReport,
    ChannelStatus,
    ChunkRetrievalResult,
    CorpusCounts,
    Explanation,
    FusionMethod,
    LexicalCandidates,
    Ranking,
)
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import CorpusSnapshot

TENANT = TenantId("tenant")
HYBRID, SEMANTIC = frozenset(Channel), frozenset({Channel.SEMANTIC})
LEXICAL = frozenset({Channel.LEXICAL, Channel.IDENTIFIER})
BY_RANK = Fusion(FusionMethod.RECIPROCAL_RANK)
EAST = checked_vector([1.0, 0.0], "vector")
NORTH = checked_vector([0.0, 1.0], "vector")

Rows = npt.NDArray[np.float32]


@dataclass
class SpySnapshot:
    """A snapshot that notes what it is asked; `before` runs before each channel."""

    inner: CorpusSnapshot
    calls: list[tuple[Any, ...]]
    before: Callable[[str], Any]

    @property
    def counts(self) -> CorpusCounts:
        return self.inner.counts

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, where: Filter | None = None
    ) -> LexicalCandidates:
        asked = list(terms)
        self.calls.append(("lexical", tuple(asked), limit))
        await self.before("lexical")
        return await self.inner.lexical_candidates(asked, limit, where=where)

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, where: Filter | None = None
    ) -> Ranking:
        self.calls.append(("semantic", limit))
        await self.before("semantic")
        return await self.inner.semantic_candidates(vector, limit, min_score=min_score, where=where)

    async def chunks(self, ids: Sequence[Any], *, with_embeddings: bool = False) -> list[StoredChunk]:
        self.calls.append(("chunks", len(ids)))
        return await self.inner.chunks(ids, with_embeddings=with_embeddings)

    async def source_ids(self, ids: Sequence[Any]) -> list[str]:
        self.calls.append(("source_ids", len(ids)))
        return await self.inner.source_ids(ids)

    async def neighbors(self, ids: Sequence[Any], *, before: int, after: int) -> list[list[Any]]:
        self.calls.append(("neighbors", len(ids), before, after))
        return await self.inner.neighbors(ids, before=before, after=after)


async def _at_once(_: str) -> None:
    """Wait for nothing."""


class SpyStore(InMemoryChunkStore):
    """A memory store that notes what it is asked, and holds something while it is read, as a connection."""

    def __init__(self) -> None:
        super().__init__(dimension=2, analyzer=analyzer("english"))
        self.calls: list[tuple[Any, ...]] = []
        self.before: Callable[[str], Any] = _at_once

    @asynccontextmanager
    async def snapshot(
        self, tenant_id: TenantId, *, ready: Awaitable[object] | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        if ready is not None:
            await ready
        self.calls.append(("snapshot", tenant_id))
        async with super().snapshot(tenant_id, **options) as corpus:
            yield SpySnapshot(corpus, self.calls, self.before)

    async def counts(self, tenant_id: TenantId) -> CorpusCounts:
        self.calls.append(("counts", tenant_id))
        return await super().counts(tenant_id)


@dataclass
class SpyProvider:
    """Answers every text with the same rows, or raises; notes what it is asked in the store's own list."""

    calls: list[tuple[Any, ...]]
    answer: Any = field(default_factory=lambda: np.array([[1.0, 0.0]], dtype=np.float32))
    model: str = "spy"
    dimension: int = 2

    async def embed(self, texts: Sequence[str]) -> Rows:
        self.calls.append(("embed", tuple(texts)))
        if isinstance(self.answer, Exception):
            raise self.answer
        rows: Rows = self.answer
        return rows

    async def aclose(self) -> None:
        """Nothing is held."""


@pytest.fixture
async def store() -> SpyStore:
    """Three chunks: one near, one with the words, and one with both but second in each."""
    spy = SpyStore()
    await spy.upsert_many(
        TENANT,
        [
            StoredChunk("near", "gamma", 0, 0, 5, embedding=EAST),
            StoredChunk("words", "alpha", 0, 0, 5),
            StoredChunk("both", "alpha beta", 0, 0, 10, embedding=NORTH),
        ],
    )
    spy.calls.clear()
    return spy


@pytest.fixture
def provider(store: SpyStore) -> SpyProvider:
    return SpyProvider(store.calls)


@pytest.fixture
def retriever(store: SpyStore, provider: SpyProvider) -> ChunkRetriever:
    return ChunkRetriever(chunks=store, embeddings=provider)


async def ask(
    retriever: ChunkRetriever, text: str, *, k: int = 10, with_embeddings: bool = False, **options: Any
) -> ChunkRetrievalResult:
    return await retriever.retrieve_chunks(
        Query(text, **{"fusion": BY_RANK, **options}), TENANT, Selection(k, with_embeddings=with_embeddings)
    )


def sources(result: ChunkRetrievalResult) -> list[str]:
    return [scored.chunk.source_id for scored in result.chunks]


def report(result: ChunkRetrievalResult, channel: Channel) -> ChannelReport:
    [found] = [report for report in result.channels if report.channel is channel]
    return found


def statuses(result: ChunkRetrievalResult) -> list[str]:
    assert [each.channel for each in result.channels] == list(Channel)
    return [each.status.value for each in result.channels]


class TestGuards:
    """Settled before anything is read, embedded or opened."""

    @pytest.mark.parametrize("k", [-1, -300, 301])
    async def test_a_k_out_of_bounds_makes_no_call(self, retriever: ChunkRetriever, store: SpyStore, k: int) -> None:
        """Excludes a check after the store, or the provider, was asked."""
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, "alpha", k=k)
        assert caught.value.field == "k"
        assert store.calls == []

    @pytest.mark.parametrize("query", ["", " ", "\r\n\t\u00a0", "\u3000"])
    @pytest.mark.parametrize("channels", [HYBRID, SEMANTIC, LEXICAL])
    async def test_a_blank_query_makes_no_call(
        self, retriever: ChunkRetriever, store: SpyStore, query: str, channels: frozenset[Channel]
    ) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, query, channels=channels)
        assert caught.value.field == "query"
        assert store.calls == []

    @pytest.mark.parametrize("query", ["a\0b", "a\ud800b", "x" * 40_000])
    async def test_a_query_that_is_no_text_makes_no_call(
        self, retriever: ChunkRetriever, store: SpyStore, query: str
    ) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, query)
        assert caught.value.field == "query"
        assert "xxx" not in str(caught.value)
        assert store.calls == []

    async def test_the_query_is_checked_before_k(self, retriever: ChunkRetriever) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, " ", k=-1)
        assert caught.value.field == "query"

    async def test_k_0_embeds_nothing_and_ranks_nothing(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        result = await ask(retriever, "alpha", k=0)
        assert sources(result) == []
        assert result.corpus == CorpusCounts(1, 3, 2, 3)
        assert statuses(result) == ["not_requested"] * 3
        assert store.calls == [("counts", TENANT)]

    @pytest.mark.parametrize(("overfetch", "max_k"), [(0, 10), (-1, 10), (3, 0), (3, -5)])
    def test_overfetch_and_max_k_are_at_least_1(self, store: SpyStore, overfetch: int, max_k: int) -> None:
        with pytest.raises(ValueError, match="overfetch"):
            ChunkRetriever(chunks=store, embeddings=None, overfetch=overfetch, max_k=max_k)

    def test_a_provider_of_another_width_is_refused(self, store: SpyStore) -> None:
        with pytest.raises(DimensionMismatchError) as caught:
            ChunkRetriever(chunks=store, embeddings=SpyProvider([], dimension=3))
        assert (caught.value.expected, caught.value.actual) == (2, 3)


class TestExplanations:
    """Made for the hits alone, and only where they are asked for."""

    @pytest.mark.parametrize("explain", [False, True])
    async def test_only_hits_are_explained_and_only_if_asked(
        self, retriever: ChunkRetriever, monkeypatch: pytest.MonkeyPatch, explain: bool
    ) -> None:
        """Excludes computing what is then left out, and explaining the whole pool."""
        explained: list[int] = []
        made = Pool.explanation

        def noting(pool: Pool, tokens: Sequence[Token]) -> Explanation:
            explained.append(len(tokens))
            return made(pool, tokens)

        monkeypatch.setattr(Pool, "explanation", noting)
        query = Query("alpha", fusion=BY_RANK)
        result = await retriever.retrieve_chunks(query, TENANT, Selection(k=2, explain=explain))
        assert sources(result) == ["both", "words"]
        assert explained == ([2, 1] if explain else [])
        assert [hit.explanation is not None for hit in result.chunks] == [explain] * 2

    async def test_explaining_asks_the_store_for_nothing_more(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        """Excludes another ranking, or another look at the chunks."""
        await retriever.retrieve_chunks(Query("alpha"), TENANT, Selection(explain=True))
        asked, store.calls[:] = list(store.calls), []
        await retriever.retrieve_chunks(Query("alpha"), TENANT, Selection())
        assert asked == store.calls


class TestChannels:
    """Which channels are asked, how deep, and in which order."""

    async def test_semantic_mode_asks_its_channel_alone(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        result = await ask(retriever, "alpha", channels=SEMANTIC)
        assert sources(result) == ["near", "both"]
        assert [call[0] for call in store.calls] == ["embed", "snapshot", "semantic", "chunks"]
        assert statuses(result) == ["answered", "not_requested", "not_requested"]
        assert all(scored.lexical is None and scored.identifier is None for scored in result.chunks)

    async def test_lexical_mode_never_asks_the_provider(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        result = await ask(retriever, "alpha", channels=LEXICAL)
        assert sources(result) == ["words", "both"]
        assert [call[0] for call in store.calls] == ["snapshot", "lexical", "chunks"]
        assert all(scored.semantic is None for scored in result.chunks)

    async def test_hybrid_fuses_both(self, retriever: ChunkRetriever) -> None:
        """Excludes one channel's answer with the other's behind it: two seconds beat one first."""
        result = await ask(retriever, "alpha", k=1)
        [best] = result.chunks
        assert best.chunk.source_id == "both"
        assert best.score == 1 / 62 + 1 / 62
        assert best.semantic is not None
        assert best.lexical is not None
        assert (best.semantic.rank, best.semantic.score, best.lexical.rank) == (2, 0.5, 2)
        assert best.identifier is None

    async def test_the_query_is_embedded_once_and_before_a_snapshot_is_held(
        self, retriever: ChunkRetriever, store: SpyStore
    ) -> None:
        """Excludes a database connection that waits for a model."""
        await ask(retriever, "alpha beta")
        assert store.calls[:2] == [("embed", ("alpha beta",)), ("snapshot", TENANT)]
        assert [call[0] for call in store.calls].count("embed") == 1

    @pytest.mark.parametrize("k", [1, 2, 10, 40])
    async def test_the_depth_is_fixed_whatever_the_k(self, store: SpyStore, provider: SpyProvider, k: int) -> None:
        """Excludes a depth of the request's own k, by which a larger k re-orders the answer."""
        retriever = ChunkRetriever(chunks=store, embeddings=provider, overfetch=2, max_k=40)
        await ask(retriever, "BX-7741", k=k)
        assert (retriever.depth, retriever.max_k) == (80, 40)
        limits = {call[0]: call[-1] for call in store.calls if call[0] in {"semantic", "lexical"}}
        assert limits == {"semantic": 80, "lexical": 80}

    @pytest.mark.parametrize(("channels", "asked"), [(HYBRID, 1), (SEMANTIC, 1), (LEXICAL, 0)])
    async def test_a_query_s_own_vector_asks_no_provider(
        self, retriever: ChunkRetriever, store: SpyStore, channels: frozenset[Channel], asked: int
    ) -> None:
        """Excludes paying a model for what the caller brings, and a channel that the mode does not ask for."""
        result = await ask(retriever, "alpha", channels=channels, vector=NORTH)
        called = [call[0] for call in store.calls]
        assert (called.count("embed"), called.count("semantic")) == (0, asked)
        scores = {each.chunk.source_id: each.semantic.score for each in result.chunks if each.semantic}
        assert scores == ({"both": 1.0, "near": 0.5} if asked else {})

    async def test_a_query_s_own_vector_of_another_width_is_refused(self, retriever: ChunkRetriever) -> None:
        with pytest.raises(DimensionMismatchError):
            await ask(retriever, "alpha", vector=checked_vector([1.0, 0.0, 0.0], "vector"))

    async def test_the_identifier_channel_asks_for_identifiers_alone(
        self, retriever: ChunkRetriever, store: SpyStore
    ) -> None:
        result = await ask(retriever, "booking BX-7741", channels=LEXICAL)
        asked = [call[1] for call in store.calls if call[0] == "lexical"]
        assert ("bx7741",) in asked
        assert len(asked) == 2
        assert statuses(result) == ["not_requested", "answered", "answered"]

    async def test_channels_run_at_the_same_time(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        """Excludes one after the other: each waits here until the other has begun."""
        begun = {"semantic": asyncio.Event(), "lexical": asyncio.Event()}

        async def wait_for_the_other(channel: str) -> None:
            begun[channel].set()
            await begun["lexical" if channel == "semantic" else "semantic"].wait()

        store.before = wait_for_the_other
        async with asyncio.timeout(10):
            result = await ask(retriever, "alpha")
        assert statuses(result)[:2] == ["answered", "answered"]

    async def test_vectors_are_left_out_unless_asked_for(self, retriever: ChunkRetriever) -> None:
        bare = await ask(retriever, "alpha")
        shown = await ask(retriever, "alpha", with_embeddings=True)
        assert [scored.chunk.embedding is None for scored in bare.chunks] == [True] * 3
        assert sorted(scored.chunk.embedding is None for scored in shown.chunks) == [False, False, True]

    async def test_an_unembedded_corpus_still_answers_lexically(self, provider: SpyProvider) -> None:
        """Excludes an error, and an answer called partial: "not embedded" is a fact of each chunk."""
        store = SpyStore()
        await store.upsert_many(TENANT, [StoredChunk("words", "alpha", 0, 0, 5)])
        result = await ask(ChunkRetriever(chunks=store, embeddings=provider), "alpha")
        assert sources(result) == ["words"]
        assert result.partial is False
        assert report(result, Channel.SEMANTIC).candidates == 0


FAILURES = [
    EmbeddingFailedError("it is down"),
    EmbeddingQuotaError("too many"),
    EmbeddingRejectedError("too long"),
    np.array([[np.nan, 1.0]], dtype=np.float32),
    np.zeros((1, 2), dtype=np.float32),
    np.ones((1, 3), dtype=np.float32),
    np.empty((0, 2), dtype=np.float32),
]


class TestFailures:
    """A channel that did not answer is named."""

    @pytest.mark.parametrize(
        "answer", FAILURES, ids=["failed", "quota", "rejected", "NaN", "zeros", "another width", "no row"]
    )
    async def test_a_failing_provider_leaves_the_answer_partial(
        self, retriever: ChunkRetriever, provider: SpyProvider, answer: Any
    ) -> None:
        """Excludes an answer that is silently of one channel, and an error where the other one answered."""
        provider.answer = answer
        result = await ask(retriever, "alpha")
        assert sources(result) == ["words", "both"]
        assert result.partial is True
        assert statuses(result) == ["failed", "answered", "not_requested"]
        semantic = report(result, Channel.SEMANTIC)
        assert (semantic.reason, semantic.candidates) == ("EMBEDDING_FAILED", 0)
        assert all(scored.semantic is None for scored in result.chunks)

    @pytest.mark.parametrize(
        "answer", FAILURES, ids=["failed", "quota", "rejected", "NaN", "zeros", "another width", "no row"]
    )
    async def test_where_no_channel_answers_it_is_an_error(
        self, retriever: ChunkRetriever, provider: SpyProvider, answer: Any
    ) -> None:
        """Excludes an empty answer that reads as "nothing was found"."""
        provider.answer = answer
        with pytest.raises(RetrievalDegradedError) as caught:
            await ask(retriever, "alpha", channels=SEMANTIC)
        assert caught.value.missing == ("semantic",)

    async def test_without_a_provider_the_channel_is_not_configured(self, store: SpyStore) -> None:
        retriever = ChunkRetriever(chunks=store, embeddings=None)
        result = await ask(retriever, "alpha")
        assert statuses(result) == ["not_configured", "answered", "not_requested"]
        assert report(result, Channel.SEMANTIC).reason == "NO_EMBEDDING_PROVIDER"
        assert result.partial is True
        lexical = await ask(retriever, "alpha", channels=LEXICAL)
        assert lexical.partial is False
        with pytest.raises(RetrievalDegradedError):
            await ask(retriever, "alpha", channels=SEMANTIC)

    def test_a_result_is_partial_exactly_where_a_requested_channel_is_missing(self) -> None:
        partial = {
            status: ChunkRetrievalResult((), (ChannelReport(Channel.SEMANTIC, status),), CorpusCounts()).partial
            for status in ChannelStatus
        }
        assert partial == {
            ChannelStatus.ANSWERED: False,
            ChannelStatus.FAILED: True,
            ChannelStatus.NOT_CONFIGURED: True,
            ChannelStatus.NOT_REQUESTED: False,
            ChannelStatus.TIMED_OUT: True,
        }


class TestTimeouts:
    """Each channel has its time, and what is late is cancelled and named."""

    @pytest.mark.parametrize(
        ("slow", "found", "reasons"),
        [
            ({"semantic"}, ["words", "both"], ["RANKING_TIMED_OUT", ""]),
            ({"lexical"}, ["near", "both"], ["", "RANKING_TIMED_OUT"]),
        ],
    )
    async def test_a_channel_that_is_late_is_left_out_and_named(
        self, retriever: ChunkRetriever, store: SpyStore, slow: set[str], found: list[str], reasons: list[str]
    ) -> None:
        cancelled = _held_up(store, slow)
        started = time.monotonic()
        result = await ask(retriever, "alpha", channel_timeout=0.2)
        assert 0.2 <= time.monotonic() - started < 0.2 + SPARE
        assert sources(result) == found
        assert result.partial is True
        assert [each.reason for each in result.channels[:2]] == reasons
        assert [each.status is ChannelStatus.TIMED_OUT for each in result.channels[:2]] == [bool(r) for r in reasons]
        assert all(each.elapsed >= 0.2 for each in result.channels[:2] if each.reason)
        assert cancelled == slow

    async def test_where_every_channel_is_late_it_is_an_error(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        cancelled = _held_up(store, {"semantic", "lexical"})
        with pytest.raises(RetrievalDegradedError) as caught:
            await ask(retriever, "booking BX-7741", channel_timeout=0.1)
        assert caught.value.missing == ("semantic", "lexical", "identifier")
        assert caught.value.answered == ()
        assert cancelled == {"semantic", "lexical"}

    async def test_embedding_and_ranking_share_the_semantic_channel_s_time(
        self, store: SpyStore, provider: SpyProvider
    ) -> None:
        """Excludes a channel that takes its time twice."""

        class SlowProvider(SpyProvider):
            async def embed(self, texts: Sequence[str]) -> Rows:
                await asyncio.sleep(0.3)
                return await super().embed(texts)

        _held_up(store, {"semantic"})
        started = time.monotonic()
        result = await ask(
            ChunkRetriever(chunks=store, embeddings=SlowProvider(store.calls)), "alpha", channel_timeout=0.5
        )
        assert time.monotonic() - started < 0.5 + SPARE
        assert report(result, Channel.SEMANTIC).reason == "RANKING_TIMED_OUT"

    async def test_a_sleeping_provider_costs_its_time_and_no_more(self, store: SpyStore) -> None:
        class SleepingProvider(SpyProvider):
            async def embed(self, texts: Sequence[str]) -> Rows:
                await asyncio.sleep(60)
                raise AssertionError("nobody waits for it")

        retriever = ChunkRetriever(chunks=store, embeddings=SleepingProvider([]), channel_timeout=0.2)
        started = time.monotonic()
        result = await ask(retriever, "alpha")
        assert time.monotonic() - started < 0.2 + SPARE
        semantic = report(result, Channel.SEMANTIC)
        assert (semantic.status, semantic.reason) == (ChannelStatus.TIMED_OUT, "EMBEDDING_TIMED_OUT")
        assert sources(result) == ["words", "both"]
        with pytest.raises(RetrievalDegradedError) as caught:
            await ask(retriever, "alpha", require=(Channel.SEMANTIC,))
        assert (caught.value.missing, caught.value.answered) == (("semantic",), ("lexical",))

    @pytest.mark.parametrize("seconds", [0.0, -1.0, 0.0009, 60.1, float("nan"), float("inf")])
    async def test_a_time_out_of_bounds_is_refused_before_any_call(
        self, retriever: ChunkRetriever, store: SpyStore, seconds: float
    ) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, "alpha", channel_timeout=seconds)
        assert caught.value.field == "channel_timeout"
        assert store.calls == []


class TestStoreFailures:
    """A channel that the store fails is named like one that the provider fails."""

    @pytest.mark.parametrize(
        ("error", "reason"),
        [(StoreUnavailableError(), "STORE_UNAVAILABLE"), (NoFreeConnectionError(1.0), "NO_FREE_CONNECTION")],
    )
    @pytest.mark.parametrize(("failing", "found"), [("semantic", ["words", "both"]), ("lexical", ["near", "both"])])
    async def test_the_other_channel_still_answers(
        self, retriever: ChunkRetriever, store: SpyStore, error: Exception, reason: str, failing: str, found: list[str]
    ) -> None:
        async def fail(channel: str) -> None:
            if channel == failing:
                raise error

        store.before = fail
        result = await ask(retriever, "alpha")
        assert sources(result) == found
        assert [each.reason for each in result.channels if each.status is ChannelStatus.FAILED] == [reason]

    async def test_a_defect_is_no_partial_answer(self, retriever: ChunkRetriever, store: SpyStore) -> None:
        """Excludes hiding a mistake of ours behind another channel's answer."""

        async def fail(_: str) -> None:
            raise ZeroDivisionError

        store.before = fail
        with pytest.raises(ZeroDivisionError):
            await ask(retriever, "alpha")


class TestRequire:
    """A required channel answers, or the call fails."""

    async def test_nothing_changes_where_it_answered(self, retriever: ChunkRetriever) -> None:
        required = await ask(retriever, "alpha", require=(Channel.SEMANTIC, Channel.LEXICAL))
        assert sources(required) == sources(await ask(retriever, "alpha"))

    async def test_a_required_channel_that_is_not_configured_is_an_error(self, store: SpyStore) -> None:
        retriever = ChunkRetriever(chunks=store, embeddings=None)
        with pytest.raises(RetrievalDegradedError) as caught:
            await ask(retriever, "alpha", require=(Channel.SEMANTIC,))
        assert (caught.value.missing, caught.value.answered) == (("semantic",), ("lexical",))
        assert (await ask(retriever, "alpha", require=(Channel.LEXICAL,))).partial is True

    @pytest.mark.parametrize(
        ("channels", "channel"),
        [(LEXICAL, Channel.SEMANTIC), (SEMANTIC, Channel.LEXICAL), (HYBRID, Channel.IDENTIFIER)],
    )
    async def test_a_channel_that_is_not_asked_cannot_be_required(
        self, retriever: ChunkRetriever, store: SpyStore, channels: frozenset[Channel], channel: Channel
    ) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, "alpha", channels=channels, require=(channel,))
        assert caught.value.field == "require[0]"
        assert store.calls == []


class TestFusion:
    """How the rankings become one, and what each channel gives."""

    @pytest.mark.parametrize(
        "fusion", [Fusion(), Fusion(FusionMethod.WEIGHTED_SUM), Fusion(FusionMethod.WEIGHTED_SUM, 0.25)]
    )
    async def test_the_shares_add_up_to_the_score_to_the_bit(self, retriever: ChunkRetriever, fusion: Fusion) -> None:
        result = await ask(retriever, "alpha BX-7741", fusion=fusion)
        assert len(result.chunks) == 3
        for scored in result.chunks:
            total = 0.0
            for opinion in (scored.semantic, scored.lexical, scored.identifier):
                total += opinion.share if opinion else 0.0
            assert total == scored.score

    async def test_the_weight_says_whose_word_counts(self, retriever: ChunkRetriever) -> None:
        for weight, order in ((1.0, ["near", "both", "words"]), (0.0, ["words", "both", "near"])):
            result = await ask(retriever, "alpha", fusion=Fusion(FusionMethod.WEIGHTED_SUM, weight))
            assert sources(result)[0] == order[0]

    @pytest.mark.parametrize(
        "fusion",
        [
            Fusion(FusionMethod.WEIGHTED_SUM, -0.1),
            Fusion(FusionMethod.WEIGHTED_SUM, 1.5),
            Fusion(FusionMethod.WEIGHTED_SUM, float("nan")),
            Fusion(FusionMethod.RECIPROCAL_RANK, 0.5),
        ],
    )
    async def test_a_bad_weight_is_refused_before_any_call(
        self, retriever: ChunkRetriever, store: SpyStore, fusion: Fusion
    ) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await ask(retriever, "alpha", fusion=fusion)
        assert caught.value.field == "fusion.semantic_weight"
        assert store.calls == []

    async def test_the_holder_of_the_identifier_is_first_whatever_the_other_channels_think(
        self, store: SpyStore, provider: SpyProvider
    ) -> None:
        text = "a long passage about many things that mentions BX-7741 once and is far from the query"
        held = StoredChunk("held", text, 0, 0, len(text), embedding=checked_vector([-1.0, 0.0], "vector"))
        near = [StoredChunk(f"near {n}", "bx 7741", 0, 0, 7, embedding=EAST) for n in range(4)]
        await store.upsert_many(TENANT, [held, *(dataclasses.replace(c, text=c.source_id, end_char=6) for c in near)])
        for fusion in (Fusion(), Fusion(FusionMethod.WEIGHTED_SUM, 1.0)):
            result = await ask(ChunkRetriever(chunks=store, embeddings=provider), "BX-7741", fusion=fusion)
            assert sources(result)[0] == "held"
            assert result.chunks[0].identifier is not None
            assert result.chunks[0].identifier.share == 2.0


# Seconds that a loaded machine may add to a timeout.
SPARE = 2.0


def _held_up(store: SpyStore, channels: set[str]) -> set[str]:
    """Hold those channels up for good; the set of those that were cancelled meanwhile, which fills as it happens."""
    cancelled: set[str] = set()

    async def wait(channel: str) -> None:
        if channel in channels:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.add(channel)
                raise

    store.before = wait
    return cancelled
