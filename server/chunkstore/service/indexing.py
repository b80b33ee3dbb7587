"""IndexingService: a stream of documents in, their outcomes out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from chunkstore.composition.indexer import Document, DocumentIndexed, DocumentIndexer
from chunkstore.composition.indexing_session import IndexedInOrder, IndexingSession, RefusedDocument
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.results import WriteCounts
from chunkstore.domain.text import checked_source_id
from chunkstore.service.convert import document_from, index_counts_to
from chunkstore.service.errors import ServerDrainingError, StreamIdleError, document_error
from chunkstore.service.interceptors.around import Context
from chunkstore.service.interceptors.decoding import MalformedRequest
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import indexing_service_pb2 as pb
from chunkstore.v1.indexing_service_pb2_grpc import IndexingServiceServicer


class IndexingServicer(IndexingServiceServicer):
    """Takes documents while storing earlier ones, and tells each one's outcome after its commit.

    A stream on which nothing moves for `idle_timeout` seconds ends with StreamIdleError. When `draining` is set, what
    has been received is stored and answered, and the stream ends with ServerDrainingError.
    """

    def __init__(self, indexer: DocumentIndexer, idle_timeout: float, draining: asyncio.Event) -> None:
        self._indexer = indexer
        self._idle_timeout = idle_timeout
        self._draining = draining

    async def IndexDocuments(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        """See the contract. Reads and writes through `context`, so that both can be bounded in time."""
        session = IndexingSession(self._indexer, current_tenant())
        receiving = asyncio.create_task(self._receive(session, context))
        try:
            summary = pb.IndexSummary()
            totals = WriteCounts()
            async for outcomes in session.outcomes():
                for outcome in outcomes:
                    await self._write(context, pb.IndexDocumentsResponse(outcome=_outcome_to(outcome)))
                totals = _summed(summary, totals, outcomes)
            await receiving
            summary.counts.CopyFrom(index_counts_to(totals))
            await self._write(context, pb.IndexDocumentsResponse(summary=summary))
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await session.close()

    async def _receive(self, session: IndexingSession, context: Context) -> None:
        """Offer every request to the session until the caller half-closes.

        Raises StreamIdleError or ServerDrainingError where the stream ends before that.
        """
        try:
            while (request := await self._next_request(session, context)) is not grpc.aio.EOF:
                await session.offer(*_document_of(request))
        finally:
            await session.finish()

    async def _next_request(self, session: IndexingSession, context: Context) -> Any:
        reading = asyncio.ensure_future(context.read())
        draining = asyncio.create_task(self._draining.wait())
        try:
            while not (reading.done() or draining.done()):
                done, _ = await asyncio.wait(
                    (reading, draining), timeout=self._idle_timeout, return_when=asyncio.FIRST_COMPLETED
                )
                if not done and not session.in_flight:
                    raise StreamIdleError(self._idle_timeout)
            if reading.done():
                return reading.result()
            raise ServerDrainingError
        finally:
            draining.cancel()
            reading.cancel()

    async def _write(self, context: Context, response: pb.IndexDocumentsResponse) -> None:
        try:
            await asyncio.wait_for(context.write(response), self._idle_timeout)
        except TimeoutError:
            raise StreamIdleError(self._idle_timeout) from None


def _document_of(request: pb.IndexDocumentsRequest | MalformedRequest) -> tuple[Document | RefusedDocument, int]:
    """The document of a request, or what stands for it, and the request's size in bytes."""
    if isinstance(request, MalformedRequest):
        return RefusedDocument("", request.error), request.size
    size = request.ByteSize()
    if not request.HasField("document"):
        return RefusedDocument("", InvalidFieldError("document", "is missing")), size
    try:
        return document_from(request.document), size
    except InvalidFieldError as error:
        return RefusedDocument(_valid_source_id(request.document.source_id), error.within("document")), size


def _valid_source_id(source_id: str) -> str:
    try:
        return checked_source_id(source_id)
    except InvalidFieldError:
        return ""


def _outcome_to(indexed: IndexedInOrder) -> pb.DocumentOutcome:
    message = pb.DocumentOutcome(ordinal=indexed.ordinal, source_id=indexed.source_id)
    if isinstance(indexed.outcome, DocumentIndexed):
        message.indexed.CopyFrom(
            pb.DocumentIndexed(
                counts=index_counts_to(indexed.outcome.counts),
                revision=indexed.outcome.revision,
                blank=indexed.outcome.blank,
            )
        )
    else:
        message.error.CopyFrom(document_error(indexed.outcome))
    return message


def _summed(summary: pb.IndexSummary, totals: WriteCounts, outcomes: Sequence[IndexedInOrder]) -> WriteCounts:
    """Add outcomes to the summary's numbers of documents, and to the counts."""
    for indexed in outcomes:
        summary.documents += 1
        if isinstance(indexed.outcome, DocumentIndexed):
            summary.indexed += 1
            summary.blank += indexed.outcome.blank
            totals += indexed.outcome.counts
        else:
            summary.failed += 1
    return totals
