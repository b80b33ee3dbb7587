"""`IndexingSession`: order, bounds, and a stream that never conflicts with itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.composition.indexer import (
    Document,
    DocumentIndexed,
    DocumentIndexer,
    IndexOutcome,
    ReceivedDocument,
)
from chunkstore.composition.indexing_session import (
    BATCH_DOCUMENTS,
    MAX_BYTES_IN_FLIGHT,
    MAX_DOCUMENTS_IN_FLIGHT,
    IndexedInOrder,
    IndexingSession,
    RefusedDocument,
)
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.errors import InvalidFieldError, SourceChangedError, StoreUnavailableError
from chunkstore.domain.results import WriteCounts
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunker import DocumentFormat, Passage

TENANT = TenantId("tenant")
TIMEOUT_S = 10


class WholeChunker:
    """One passage for each document."""

    def split(self, text: str, document_format: DocumentFormat) -> Sequence[Passage]:
        return [Passage(0, text)] if text.strip() else []


class FakeIndexer(DocumentIndexer):
    """Keeps revisions alone; each step can be held up by a test."""

    def __init__(self) -> None:
        store = InMemoryChunkStore(dimension=2, analyzer=analyzer("english"))
        super().__init__(chunks=store, chunker=WholeChunker(), embeddings=None)
        self.revisions: dict[str, int] = {}
        self.batches: list[list[str]] = []
        self.noted: asyncio.Event | None = None
        self.may_return = asyncio.Event()
        self.may_return.set()
        self.may_index = asyncio.Event()
        self.may_index.set()

    async def receive(self, tenant_id: TenantId, documents: Sequence[Document]) -> list[ReceivedDocument]:
        received = [ReceivedDocument(each, self.revisions.get(each.source_id, 0)) for each in documents]
        if self.noted is not None:
            self.noted.set()
        await self.may_return.wait()
        return received

    async def index_documents(self, tenant_id: TenantId, received: Sequence[ReceivedDocument]) -> list[IndexOutcome]:
        await self.may_index.wait()
        self.batches.append([each.document.text for each in received])
        return [self._stored(each) for each in received]

    def _stored(self, received: ReceivedDocument) -> IndexOutcome:
        source = received.document.source_id
        actual = self.revisions.get(source, 0)
        if received.revision != actual:
            return SourceChangedError(expected=received.revision, actual=actual)
        self.revisions[source] = max(self.revisions.values(), default=0) + 1
        return DocumentIndexed(WriteCounts(written=1), self.revisions[source], blank=False)


@pytest.fixture
def indexer() -> FakeIndexer:
    return FakeIndexer()


@pytest.fixture
async def session(indexer: FakeIndexer) -> AsyncIterator[IndexingSession]:
    made = IndexingSession(indexer, TENANT)
    async with asyncio.timeout(TIMEOUT_S):
        yield made
        await made.close()


async def offered(session: IndexingSession, *documents: Document | RefusedDocument, size: int = 1) -> None:
    for document in documents:
        await session.offer(document, size)


async def everything(session: IndexingSession) -> list[IndexedInOrder]:
    await session.finish()
    return [outcome async for batch in session.outcomes() for outcome in batch]


async def settled() -> None:
    """Let every task go as far as it can without the test."""
    for _ in range(50):
        await asyncio.sleep(0)


def indexed(outcomes: Sequence[IndexedInOrder]) -> list[bool]:
    return [isinstance(each.outcome, DocumentIndexed) for each in outcomes]


async def test_outcomes_are_in_order_and_numbered(session: IndexingSession) -> None:
    """Excludes answering the refused ones first."""
    refused = RefusedDocument("", InvalidFieldError("document", "is missing"))
    await offered(session, Document("a", "1"), refused, Document("b", "2"), refused, Document("c", "3"))
    outcomes = await everything(session)
    assert [(each.ordinal, each.source_id) for each in outcomes] == [(0, "a"), (1, ""), (2, "b"), (3, ""), (4, "c")]
    assert indexed(outcomes) == [True, False, True, False, True]
    assert outcomes[1].outcome is refused.error


async def test_an_empty_stream_has_no_outcomes(session: IndexingSession) -> None:
    assert await everything(session) == []


async def test_documents_of_one_source_are_stored_in_order_and_never_conflict(
    session: IndexingSession, indexer: FakeIndexer
) -> None:
    """Excludes a stream that takes its own earlier writes for somebody else's: all were received before the first."""
    indexer.may_index.clear()
    await offered(session, *(Document("source", f"{n}") for n in range(20)), Document("other", "x"))
    await settled()
    indexer.may_index.set()
    outcomes = await everything(session)
    assert indexed(outcomes) == [True] * 21
    assert [text for batch in indexer.batches for text in batch] == [*(f"{n}" for n in range(20)), "x"]


async def test_a_batch_holds_a_source_once(session: IndexingSession, indexer: FakeIndexer) -> None:
    """Excludes two versions of a source in one transaction."""
    await offered(session, *(Document(f"source-{n % 3}", f"{n}") for n in range(7)))
    await everything(session)
    assert all(len({int(text) % 3 for text in batch}) == len(batch) for batch in indexer.batches)


async def test_somebody_elses_change_is_a_conflict(session: IndexingSession, indexer: FakeIndexer) -> None:
    """Excludes rebasing on a revision that this stream did not make."""
    indexer.may_index.clear()
    await offered(session, Document("source", "1"))
    await settled()
    indexer.revisions["source"] = 7
    indexer.may_index.set()
    [outcome] = await everything(session)
    assert isinstance(outcome.outcome, SourceChangedError)


async def test_a_document_noted_before_an_earlier_one_left_never_conflicts(
    session: IndexingSession, indexer: FakeIndexer
) -> None:
    """Excludes forgetting the stream's own write while a later document of the source is still being received.

    The second document's revision is noted before the first is stored, and becomes known only after the first has
    left.
    """
    outcomes = session.outcomes()
    indexer.may_index.clear()
    await offered(session, Document("source", "first"))
    await settled()
    indexer.noted = asyncio.Event()
    indexer.may_return.clear()
    await offered(session, Document("source", "second"))
    await indexer.noted.wait()
    indexer.may_index.set()
    [first] = await anext(outcomes)
    following = asyncio.ensure_future(anext(outcomes))
    await settled()
    indexer.may_return.set()
    [second] = await following
    assert indexed([first, second]) == [True, True]
    await outcomes.aclose()  # type: ignore[attr-defined]


async def test_no_more_documents_are_taken_in_than_the_bound(session: IndexingSession, indexer: FakeIndexer) -> None:
    """Excludes memory that grows with what a client sends and never reads."""
    indexer.may_index.clear()
    sending = asyncio.ensure_future(offered(session, *(Document(f"source-{n}", "x") for n in range(1000))))
    await settled()
    assert session.in_flight == MAX_DOCUMENTS_IN_FLIGHT
    outcomes = session.outcomes()
    indexer.may_index.set()
    batch = await anext(outcomes)
    await settled()
    assert session.in_flight == MAX_DOCUMENTS_IN_FLIGHT
    assert len(batch) <= BATCH_DOCUMENTS
    received = len(batch)
    async for batch in outcomes:
        received += len(batch)
        if received == 1000:
            await session.finish()
    await sending
    assert received == 1000
    assert session.in_flight == 0


async def test_no_more_bytes_are_taken_in_than_the_bound(session: IndexingSession, indexer: FakeIndexer) -> None:
    """Excludes a bound on the number alone."""
    indexer.may_index.clear()
    size = MAX_BYTES_IN_FLIGHT // 4
    sending = asyncio.ensure_future(offered(session, *(Document(f"s-{n}", "x") for n in range(9)), size=size))
    await settled()
    assert session.in_flight == 4
    indexer.may_index.set()
    received = 0
    async for batch in session.outcomes():
        received += len(batch)
        if received == 9:
            await session.finish()
    await sending
    assert received == 9


async def test_a_document_larger_than_the_bound_goes_alone(session: IndexingSession) -> None:
    """Excludes waiting for room that there can never be."""
    await offered(session, Document("large", "x"), size=MAX_BYTES_IN_FLIGHT * 2)
    assert indexed(await everything(session)) == [True]


async def test_a_store_that_is_down_when_documents_arrive_fails_them_one_by_one(
    session: IndexingSession, indexer: FakeIndexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes ending the stream for what may be over with the next document."""

    async def down(_: TenantId, __: Sequence[Document]) -> list[ReceivedDocument]:
        raise StoreUnavailableError

    monkeypatch.setattr(indexer, "receive", down)
    await offered(session, Document("a", "1"), Document("b", "2"))
    await settled()
    monkeypatch.undo()
    await offered(session, Document("c", "3"))
    outcomes = await everything(session)
    assert [type(each.outcome) for each in outcomes] == [StoreUnavailableError, StoreUnavailableError, DocumentIndexed]
    assert [each.source_id for each in outcomes] == ["a", "b", "c"]
