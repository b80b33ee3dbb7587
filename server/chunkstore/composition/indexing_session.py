"""`IndexingSession`: one stream of documents, received while earlier ones are stored, within bounds."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace

from chunkstore.composition.indexer import Document, DocumentIndexed, DocumentIndexer, IndexOutcome, ReceivedDocument
from chunkstore.domain.errors import ChunkstoreError
from chunkstore.domain.text import TenantId

MAX_DOCUMENTS_IN_FLIGHT = 256
MAX_BYTES_IN_FLIGHT = 8 * 1024 * 1024
BATCH_DOCUMENTS = 128
BATCH_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class IndexedInOrder:
    """What became of the `ordinal`-th document of a stream (from 0); source_id is empty where it was not valid."""

    ordinal: int
    source_id: str
    outcome: IndexOutcome


@dataclass(frozen=True, slots=True)
class RefusedDocument:
    """Stands in a stream for a document that is none, with its source id if that at least is valid, else empty."""

    source_id: str
    error: ChunkstoreError


@dataclass(frozen=True, slots=True)
class _Arrived:
    ordinal: int
    size: int
    document: Document | RefusedDocument


@dataclass(frozen=True, slots=True)
class _Waiting:
    ordinal: int
    source_id: str
    size: int
    received: ReceivedDocument | ChunkstoreError


class IndexingSession:
    """Documents of one stream, answered in the order in which they came, at most 256 of them or 8 MiB in flight.

    One task calls `offer` and at last `finish`, another reads `outcomes`. Documents of one source are stored in order,
    and only somebody else's change of the source makes one of them fail.
    """

    def __init__(self, indexer: DocumentIndexer, tenant_id: TenantId) -> None:
        self._indexer = indexer
        self._tenant_id = tenant_id
        self._arrived: list[_Arrived] = []
        self._receiving: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._waiting: deque[_Waiting] = deque()
        self._changed = asyncio.Condition()
        self._received = 0
        self._in_flight = 0
        self._bytes_in_flight = 0
        self._finished = False
        self._pending: Counter[str] = Counter()
        self._superseded: dict[str, dict[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """Documents received whose outcome has not been taken on from."""
        return self._in_flight

    async def offer(self, document: Document | RefusedDocument, size: int) -> None:
        """Take in the next document, of `size` bytes, or what stands for it; waits for room."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(size))
            self._in_flight += 1
            self._bytes_in_flight += size
            self._arrived.append(_Arrived(self._received, size, document))
            self._received += 1
            self._pending[document.source_id] += 1
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._receive())

    async def finish(self) -> None:
        """Say that no document follows."""
        async with self._changed:
            self._finished = True
            self._changed.notify_all()

    async def outcomes(self) -> AsyncIterator[list[IndexedInOrder]]:
        """Store what has come, as much at once as there is, and yield its outcomes in order, until all is answered.

        Documents leave the bound when the consumer comes back for more, so one that does not read holds them back.
        """
        while batch := await self._next_batch():
            outcomes = await self._index(batch)
            yield [
                IndexedInOrder(item.ordinal, item.source_id, outcome)
                for item, outcome in zip(batch, outcomes, strict=True)
            ]
            await self._leave(batch)

    async def close(self) -> None:
        """End whatever is under way; what has not been stored will not be."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)

    def _has_news(self) -> bool:
        return bool(self._waiting) or self._failure is not None or (self._finished and not self._in_flight)

    def _has_room(self, size: int) -> bool:
        if not self._in_flight:
            return True
        return self._in_flight < MAX_DOCUMENTS_IN_FLIGHT and self._bytes_in_flight + size <= MAX_BYTES_IN_FLIGHT

    async def _receive(self) -> None:
        """Note the sources' revisions of what has arrived, all at once, until nothing more has."""
        try:
            while arrived := self._arrived:
                self._arrived = []
                waiting = await self._received_now(arrived)
                async with self._changed:
                    self._waiting.extend(waiting)
                    self._changed.notify_all()
        except Exception as failure:
            async with self._changed:
                self._failure = failure
                self._changed.notify_all()
        finally:
            self._receiving = None

    async def _received_now(self, arrived: Sequence[_Arrived]) -> list[_Waiting]:
        documents = [item.document for item in arrived if isinstance(item.document, Document)]
        results: Iterator[ReceivedDocument | ChunkstoreError]
        try:
            results = iter(await self._indexer.receive(self._tenant_id, documents))
        except ChunkstoreError as error:
            results = itertools.repeat(error)
        return [
            _Waiting(
                item.ordinal,
                item.document.source_id,
                item.size,
                item.document.error if isinstance(item.document, RefusedDocument) else next(results),
            )
            for item in arrived
        ]

    async def _next_batch(self) -> list[_Waiting]:
        """The documents at the head of the line, of distinct sources; empty when finished."""
        async with self._changed:
            await self._changed.wait_for(self._has_news)
            if self._failure is not None:
                raise self._failure
            batch: list[_Waiting] = []
            sources: set[str] = set()
            size = 0
            while self._waiting and len(batch) < BATCH_DOCUMENTS and size < BATCH_BYTES:
                if self._waiting[0].source_id in sources:
                    break
                batch.append(self._waiting.popleft())
                size += batch[-1].size
                if batch[-1].source_id:
                    sources.add(batch[-1].source_id)
            return batch

    async def _index(self, batch: Sequence[_Waiting]) -> list[IndexOutcome]:
        received = [self._rebased(item.received) for item in batch if isinstance(item.received, ReceivedDocument)]
        indexed = iter(zip(received, await self._indexer.index_documents(self._tenant_id, received), strict=True))
        outcomes: list[IndexOutcome] = []
        for item in batch:
            if isinstance(item.received, ChunkstoreError):
                outcomes.append(item.received)
                continue
            document, outcome = next(indexed)
            if isinstance(outcome, DocumentIndexed) and outcome.revision != document.revision:
                self._superseded.setdefault(item.source_id, {})[document.revision] = outcome.revision
            outcomes.append(outcome)
        return outcomes

    def _rebased(self, received: ReceivedDocument) -> ReceivedDocument:
        """The document as received after this stream's own earlier writes of its source."""
        revision = received.revision
        superseded = self._superseded.get(received.document.source_id, {})
        while revision in superseded:
            revision = superseded[revision]
        return replace(received, revision=revision)

    async def _leave(self, batch: Sequence[_Waiting]) -> None:
        async with self._changed:
            for item in batch:
                self._in_flight -= 1
                self._bytes_in_flight -= item.size
                self._pending[item.source_id] -= 1
                if not self._pending[item.source_id]:
                    del self._pending[item.source_id]
                    self._superseded.pop(item.source_id, None)
            self._changed.notify_all()
