"""`DocumentIndexer`: whole documents, few calls of the model, and counts that mean what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.composition import indexer as indexer_module
from chunkstore.composition.indexer import Document, DocumentIndexed, DocumentIndexer, IndexOutcome
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import (
    DimensionMismatchError,
    EmbeddingFailedError,
    EmbeddingQuotaError,
    EmbeddingRejectedError,
    InvalidFieldError,
    SourceChangedError,
    StoreUnavailableError,
)
from chunkstore.domain.results import WriteCounts
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import SourceReplacement
from chunkstore.ports.chunker import DocumentFormat, Passage

TENANT = TenantId("tenant")
BLANKS = ("", " \r\n\t\u00a0", "\u3000")
EAST = checked_vector([1.0, 0.0], "vector")


class LineChunker:
    """One passage for each line that is not blank."""

    def split(self, text: str, document_format: DocumentFormat) -> Sequence[Passage]:
        starts = [0]
        lines = text.split("\n")
        for line in lines[:-1]:
            starts.append(starts[-1] + len(line) + 1)
        return [Passage(start, line) for start, line in zip(starts, lines, strict=True) if line.strip()]


@dataclass
class SpyProvider:
    """Vectors by the length of a text; notes every call, and refuses what `refuse` raises for."""

    refuse: Callable[[Sequence[str]], None] = lambda _: None
    calls: list[list[str]] = field(default_factory=list)
    rows: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]] = lambda rows: rows
    model: str = "spy"
    dimension: int = 2

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.calls.append(list(texts))
        assert all(text.strip() for text in texts)
        self.refuse(texts)
        return self.rows(np.array([vector_of(text) for text in texts], dtype=np.float32).reshape(-1, 2))

    async def aclose(self) -> None:
        """Nothing is held."""


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0]


def refusing(word: str, error: Exception) -> Callable[[Sequence[str]], None]:
    """Raises `error` for texts that hold `word`."""

    def refuse(texts: Sequence[str]) -> None:
        if any(word in text for text in texts):
            raise error

    return refuse


def lines(name: str, count: int) -> str:
    return "\n".join(f"{name} line {number}" for number in range(count))


@pytest.fixture
def store() -> InMemoryChunkStore:
    return InMemoryChunkStore(dimension=2, analyzer=analyzer("english"))


@pytest.fixture
def provider() -> SpyProvider:
    return SpyProvider()


@pytest.fixture
def indexer(store: InMemoryChunkStore, provider: SpyProvider) -> DocumentIndexer:
    return DocumentIndexer(chunks=store, chunker=LineChunker(), embeddings=provider)


async def index(indexer: DocumentIndexer, *documents: Document) -> list[IndexOutcome]:
    return await indexer.index_documents(TENANT, await indexer.receive(TENANT, documents))


async def stored(store: InMemoryChunkStore, source_id: str = "source") -> list[StoredChunk]:
    return await store.get_by_source(TENANT, source_id, limit=1000, with_embeddings=True)


def done(outcome: IndexOutcome) -> DocumentIndexed:
    assert isinstance(outcome, DocumentIndexed)
    return outcome


async def write(
    store: InMemoryChunkStore, *texts: str, source_id: str = "source", vector: Vector | None = None
) -> None:
    await store.upsert_many(
        TENANT, [StoredChunk(source_id, text, n, 0, len(text), embedding=vector) for n, text in enumerate(texts)]
    )


class TestDocument:
    """Checked by construction."""

    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"source_id": ""}, "source_id"),
            ({"source_id": "é" * 257}, "source_id"),
            ({"text": "a\0b"}, "text"),
            ({"text": "\ud800"}, "text"),
            ({"entity_ids": ("fine", "\0")}, "entity_ids[1]"),
            ({"entity_ids": tuple(f"{n}" for n in range(257))}, "entity_ids"),
            ({"metadata": {"k": float("nan")}}, "metadata"),
        ],
    )
    def test_names_the_field_that_is_bad(self, fields: dict[str, Any], name: str) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            Document(**{"source_id": "source", "text": "text", **fields})
        assert caught.value.field == name

    def test_a_blank_text_is_no_mistake(self) -> None:
        assert [Document("source", blank).text for blank in BLANKS] == list(BLANKS)


class TestEmbedding:
    """The model is called for what is missing, a batch at a time, and for nothing else."""

    async def test_without_a_provider_no_chunk_is_embedded(self, store: InMemoryChunkStore) -> None:
        """Excludes a vector made up for want of a model."""
        indexer = DocumentIndexer(chunks=store, chunker=LineChunker(), embeddings=None)
        [outcome] = await index(indexer, Document("source", lines("a", 3)))
        assert done(outcome).counts == WriteCounts(written=3)
        assert [chunk.embedding for chunk in await stored(store)] == [None] * 3

    async def test_with_a_provider_every_chunk_carries_its_own_vector(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore
    ) -> None:
        """Excludes vectors shifted against their texts, within a document and across documents."""
        await index(indexer, Document("one", "a\nbb\nccc"), Document("two", "dddd\neeeee"))
        for source in ("one", "two"):
            for chunk in await stored(store, source):
                assert chunk.embedding is not None
                assert chunk.embedding.tolist() == vector_of(chunk.text)

    async def test_a_batch_of_documents_is_one_call(self, indexer: DocumentIndexer, provider: SpyProvider) -> None:
        """Excludes a call for each chunk, and one for each document."""
        await index(indexer, *(Document(f"source-{n}", lines(f"{n}", n + 1)) for n in range(4)))
        assert [len(call) for call in provider.calls] == [1 + 2 + 3 + 4]

    async def test_many_chunks_are_embedded_in_batches(self, indexer: DocumentIndexer, provider: SpyProvider) -> None:
        """Excludes a call of any size, and a batch that ends with its document."""
        await index(indexer, Document("one", lines("one", 200)), Document("two", lines("two", 400)))
        assert [len(call) for call in provider.calls] == [256, 256, 88]

    async def test_only_what_has_no_vector_is_embedded(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore, provider: SpyProvider
    ) -> None:
        """Excludes embedding anew what is stored, and leaving a half-embedded source as it is."""
        await write(store, "embedded", vector=EAST)
        await write(store, "embedded", "bare")
        [outcome] = await index(indexer, Document("source", "embedded\nbare\nnew"))
        assert provider.calls == [["bare", "new"]]
        assert done(outcome).counts == WriteCounts(written=2, unchanged=1, embedded=2, embeddings_reused=1)
        vectors = {c.text: c.embedding.tolist() for c in await stored(store) if c.embedding is not None}
        assert vectors == {"embedded": [1.0, 0.0], "bare": vector_of("bare"), "new": vector_of("new")}

    async def test_an_unchanged_document_calls_no_model(self, indexer: DocumentIndexer, provider: SpyProvider) -> None:
        """Excludes paying again for what is there."""
        await index(indexer, Document("source", lines("a", 3)))
        provider.calls.clear()
        [outcome] = await index(indexer, Document("source", lines("a", 3)))
        assert done(outcome).counts == WriteCounts(unchanged=3, embeddings_reused=3)
        assert provider.calls == []

    async def test_a_repeated_text_is_embedded_once(self, indexer: DocumentIndexer, provider: SpyProvider) -> None:
        [outcome] = await index(indexer, Document("source", "disclaimer\nbody\ndisclaimer\ndisclaimer"))
        assert provider.calls == [["disclaimer", "body"]]
        assert done(outcome).counts == WriteCounts(written=2, embedded=2, duplicates_folded=2)

    @pytest.mark.parametrize("blank", BLANKS)
    async def test_blanks_are_never_sent(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore, provider: SpyProvider, blank: str
    ) -> None:
        """Excludes one blank text that fails the batch, and a blank document that leaves the old version."""
        await write(store, "old version", source_id="blank")
        outcomes = await index(indexer, Document("fees", "Fees are 2%."), Document("blank", blank))
        assert provider.calls == [["Fees are 2%."]]
        assert [done(outcome).blank for outcome in outcomes] == [False, True]
        assert done(outcomes[1]).counts == WriteCounts(removed=1)
        assert await stored(store, "blank") == []

    async def test_nothing_to_embed_calls_no_model(self, indexer: DocumentIndexer, provider: SpyProvider) -> None:
        await index(indexer, *(Document(f"source-{n}", blank) for n, blank in enumerate(BLANKS)))
        assert provider.calls == []

    def test_a_provider_of_another_width_is_refused(self, store: InMemoryChunkStore) -> None:
        with pytest.raises(DimensionMismatchError) as caught:
            DocumentIndexer(chunks=store, chunker=LineChunker(), embeddings=SpyProvider(dimension=3))
        assert (caught.value.expected, caught.value.actual) == (2, 3)


class TestFailures:
    """A document that fails leaves its source as it was, and the others are stored."""

    @pytest.mark.parametrize("batch", [256, 25])
    async def test_a_model_that_dies_on_the_way_leaves_the_old_version_whole(
        self,
        indexer: DocumentIndexer,
        store: InMemoryChunkStore,
        provider: SpyProvider,
        monkeypatch: pytest.MonkeyPatch,
        batch: int,
    ) -> None:
        """Excludes removing the old chunks first, and storing the batches that came before."""
        monkeypatch.setattr(indexer_module, "EMBEDDING_BATCH", batch)
        await index(indexer, Document("source", lines("first", 100)))
        before, counts = await stored(store), await store.counts(TENANT)
        provider.refuse = refusing("second line 60", EmbeddingFailedError("it died"))
        [outcome] = await index(indexer, Document("source", lines("second", 100)))
        assert isinstance(outcome, EmbeddingFailedError)
        assert await stored(store) == before
        assert len(before) == 100
        assert await store.counts(TENANT) == counts

    async def test_a_refused_text_fails_its_own_document_alone(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore, provider: SpyProvider
    ) -> None:
        """Excludes failing the whole batch for one text, which no new attempt would mend."""
        provider.refuse = refusing("bad", EmbeddingRejectedError("too long"))
        outcomes = await index(
            indexer, Document("one", "fine\nwell"), Document("two", "good\nbad"), Document("three", "nice")
        )
        assert [type(outcome) for outcome in outcomes] == [DocumentIndexed, EmbeddingRejectedError, DocumentIndexed]
        assert (await store.counts(TENANT)).source_count == 2
        assert (await store.counts(TENANT)).embedded_count == 3

    @pytest.mark.parametrize("error", [EmbeddingFailedError("down"), EmbeddingQuotaError("too many")])
    async def test_a_model_that_is_down_fails_every_document_that_needs_it(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore, provider: SpyProvider, error: Exception
    ) -> None:
        """Excludes storing chunks unembedded without a word; what needs no model is stored."""
        await write(store, "stored", source_id="known", vector=EAST)
        provider.refuse = refusing("", error)
        outcomes = await index(
            indexer, Document("new", "new text"), Document("known", "stored"), Document("blank", " ")
        )
        assert outcomes[0] is error
        assert done(outcomes[1]).counts == WriteCounts(unchanged=1, embeddings_reused=1)
        assert done(outcomes[2]).blank
        assert (await store.counts(TENANT)).source_count == 2

    async def test_a_failed_batch_is_not_followed_by_calls_for_its_documents(
        self, indexer: DocumentIndexer, provider: SpyProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Excludes paying for the rest of a document that cannot be stored any more."""
        monkeypatch.setattr(indexer_module, "EMBEDDING_BATCH", 10)
        provider.refuse = refusing("one line 5", EmbeddingFailedError("down"))
        outcomes = await index(indexer, Document("one", lines("one", 25)), Document("two", lines("two", 5)))
        assert isinstance(outcomes[0], EmbeddingFailedError)
        assert done(outcomes[1]).counts == WriteCounts(written=5, embedded=5)
        sent = [text for call in provider.calls[1:] for text in call]
        assert sent == lines("two", 5).split("\n")

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda rows: rows[:-1],
            lambda rows: np.vstack([rows, rows[:1]]),
            lambda rows: rows * np.float32("nan"),
            lambda rows: rows * np.float32(0),
        ],
        ids=["too few", "too many", "NaN", "zeros"],
    )
    async def test_vectors_that_cannot_be_stored_are_a_failure_of_the_model(
        self,
        indexer: DocumentIndexer,
        store: InMemoryChunkStore,
        provider: SpyProvider,
        spoil: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]],
    ) -> None:
        """Excludes blaming the document, and vectors given to the wrong texts."""
        provider.rows = spoil
        outcomes = await index(indexer, Document("one", "a\nb"), Document("two", "c"))
        assert [type(outcome) for outcome in outcomes] == [EmbeddingFailedError] * 2
        assert (await store.counts(TENANT)).revision == 0

    async def test_vectors_of_another_width_than_told_are_no_success(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore, provider: SpyProvider
    ) -> None:
        provider.rows = lambda rows: np.hstack([rows, rows])
        [outcome] = await index(indexer, Document("one", "a"))
        assert isinstance(outcome, EmbeddingFailedError | DimensionMismatchError)
        assert (await store.counts(TENANT)).revision == 0

    async def test_a_passage_that_cannot_be_stored_fails_its_document_alone(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore
    ) -> None:
        outcomes = await index(indexer, Document("large", "x" * 300_000), Document("fine", "text"))
        assert isinstance(outcomes[0], InvalidFieldError)
        assert outcomes[0].field == "document.text"
        assert done(outcomes[1]).counts.written == 1
        assert await stored(store, "large") == []

    async def test_a_store_that_is_down_fails_what_it_should_have_stored(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Excludes an error that ends the stream, and an outcome that says stored."""

        async def down(_: TenantId, __: Sequence[SourceReplacement]) -> Any:
            raise StoreUnavailableError

        monkeypatch.setattr(store, "replace_sources", down)
        outcomes = await index(indexer, Document("one", "a"), Document("two", "b"))
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 2


class TestRevisions:
    """What was received before somebody else's change does not overwrite it."""

    async def test_an_older_version_that_comes_late_is_refused(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore
    ) -> None:
        """Excludes the last commit winning over the newer text."""
        slow = await indexer.receive(TENANT, [Document("source", "older version"), Document("other", "other")])
        await index(indexer, Document("source", "newer version"))
        refused, stored_other = await indexer.index_documents(TENANT, slow)
        assert isinstance(refused, SourceChangedError)
        assert (refused.expected, refused.actual) == (0, 1)
        assert done(stored_other).counts.written == 1
        assert [chunk.text for chunk in await stored(store)] == ["newer version"]

    async def test_a_purged_source_is_a_changed_one(self, indexer: DocumentIndexer, store: InMemoryChunkStore) -> None:
        await index(indexer, Document("source", "first"))
        received = await indexer.receive(TENANT, [Document("source", "second")])
        await store.purge_source(TENANT, "source")
        [outcome] = await indexer.index_documents(TENANT, received)
        assert isinstance(outcome, SourceChangedError)
        assert (outcome.expected, outcome.actual) == (1, 0)

    async def test_outcomes_carry_the_sources_revision(self, indexer: DocumentIndexer) -> None:
        first = await index(indexer, Document("one", "a"), Document("two", "b"))
        again = await index(indexer, Document("one", "a"), Document("two", "c"))
        assert [done(outcome).revision for outcome in (*first, *again)] == [1, 1, 1, 2]


class TestCounts:
    """Each counter counts its own condition."""

    async def test_all_counters_differ_under_the_conditions_that_they_count(
        self, indexer: DocumentIndexer, store: InMemoryChunkStore
    ) -> None:
        """Excludes two counters wired to one expression: a counter is asserted under the condition it counts."""
        same = [
            StoredChunk("source", f"same {n}", n, n * 7, n * 7 + 6, entity_ids=("entity",), embedding=EAST)
            for n in range(5)
        ]
        gone = [StoredChunk("source", f"gone {n}", n, 0, 6) for n in range(6)]
        bare = [StoredChunk("source", f"bare {n}", n, 0, 6) for n in range(1)]
        await store.upsert_many(TENANT, [*same, *gone, *bare])
        texts = [*(chunk.text for chunk in same), "bare 0", "new 0", "new 1", *["new 1"] * 4]
        [outcome] = await index(indexer, Document("source", "\n".join(texts), entity_ids=("entity",)))
        counts = done(outcome).counts
        assert counts == WriteCounts(
            written=3, unchanged=5, removed=6, embedded=3, embeddings_reused=5, duplicates_folded=4
        )
        assert counts.written + counts.unchanged == len(await stored(store))

    async def test_embedded_is_not_written(self, store: InMemoryChunkStore) -> None:
        """Excludes counting every chunk as embedded, with a provider or without."""
        without = DocumentIndexer(chunks=store, chunker=LineChunker(), embeddings=None)
        [outcome] = await index(without, Document("source", "a\nb"))
        assert done(outcome).counts == WriteCounts(written=2)
        with_one = DocumentIndexer(chunks=store, chunker=LineChunker(), embeddings=SpyProvider())
        [outcome] = await index(with_one, Document("source", "a\nb", metadata={"k": 1}))
        assert done(outcome).counts == WriteCounts(written=2, embedded=2)
        [outcome] = await index(with_one, Document("source", "a\nb", metadata={"k": 2}))
        assert done(outcome).counts == WriteCounts(written=2, embeddings_reused=2)
