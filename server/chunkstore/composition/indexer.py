"""`DocumentIndexer`: documents are cut, embedded where needed, and stored, each whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chunkstore.domain.chunk import ChunkId, StoredChunk, checked_entities, fold_duplicates
from chunkstore.domain.errors import (
    ChunkstoreError,
    DimensionMismatchError,
    EmbeddingFailedError,
    EmbeddingRejectedError,
    InvalidFieldError,
    SourceChangedError,
)
from chunkstore.domain.metadata import EMPTY, Metadata, frozen_metadata
from chunkstore.domain.results import WriteCounts, WriteResult
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.text import TenantId, checked_source_id, checked_text
from chunkstore.ports.chunk_store import ChunkStore, SourceReplacement
from chunkstore.ports.chunker import Chunker, DocumentFormat
from chunkstore.ports.embedding_provider import EmbeddingProvider

EMBEDDING_BATCH = 256


@dataclass(frozen=True, slots=True)
class Document:
    """A text to be stored as the chunks of a source; metadata and entities go with every chunk.

    Raises InvalidFieldError naming the field that cannot be stored.
    """

    source_id: str
    text: str
    format: DocumentFormat = DocumentFormat.PLAIN_TEXT
    metadata: Metadata = field(default_factory=lambda: EMPTY)
    entity_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_source_id(self.source_id)
        checked_text("text", self.text, blank=True)
        object.__setattr__(self, "entity_ids", checked_entities(self.entity_ids))
        object.__setattr__(self, "metadata", frozen_metadata(self.metadata))


@dataclass(frozen=True, slots=True)
class ReceivedDocument:
    """A document and its source's revision when it was received, which must still hold when it is stored."""

    document: Document
    revision: int


@dataclass(frozen=True, slots=True)
class DocumentIndexed:
    """What a document's transaction did, and the source's revision after it. `blank`: it had no text to store."""

    counts: WriteCounts
    revision: int
    blank: bool


IndexOutcome = DocumentIndexed | ChunkstoreError


@dataclass(slots=True)
class _Work:
    """A received document on its way: its chunks, or the error that ended it."""

    received: ReceivedDocument
    chunks: list[StoredChunk] = field(default_factory=list)
    folded: int = 0
    error: ChunkstoreError | None = None


class DocumentIndexer:
    """Stores documents over a chunk store; safe for concurrent use.

    Without a provider, chunks are stored unembedded and no model is called. With one, only chunks whose stored vector
    is missing are embedded. Raises DimensionMismatchError where provider and store differ in width.
    """

    def __init__(self, *, chunks: ChunkStore, chunker: Chunker, embeddings: EmbeddingProvider | None) -> None:
        if embeddings is not None and embeddings.dimension != chunks.dimension:
            raise DimensionMismatchError(expected=chunks.dimension, actual=embeddings.dimension)
        self._chunks = chunks
        self._chunker = chunker
        self._embeddings = embeddings

    async def receive(self, tenant_id: TenantId, documents: Sequence[Document]) -> list[ReceivedDocument]:
        """Note the revisions that the documents' sources have now."""
        names = {document.source_id for document in documents}
        revisions = await self._chunks.source_revisions(tenant_id, names) if names else {}
        return [ReceivedDocument(document, revisions.get(document.source_id, 0)) for document in documents]

    async def index_documents(self, tenant_id: TenantId, received: Sequence[ReceivedDocument]) -> list[IndexOutcome]:
        """Store documents of distinct sources; one outcome each, in order, all of them committed on return.

        A document whose embedding fails, or whose source somebody else changed since it was received
        (SourceChangedError), leaves its source as it was; the others are stored. No connection is held while embedding.
        """
        work = await asyncio.to_thread(lambda: [self._cut(document) for document in received])
        try:
            await self._embed(tenant_id, work)
            return await self._store(tenant_id, work)
        except ChunkstoreError as error:
            return [item.error or error for item in work]

    def _cut(self, received: ReceivedDocument) -> _Work:
        document = received.document
        work = _Work(received)
        try:
            chunks = [
                StoredChunk(
                    source_id=document.source_id,
                    text=passage.text,
                    chunk_index=index,
                    start_char=passage.start_char,
                    end_char=passage.start_char + len(passage.text),
                    entity_ids=document.entity_ids,
                    metadata=document.metadata,
                )
                for index, passage in enumerate(self._chunker.split(document.text, document.format))
            ]
            work.chunks, work.folded = fold_duplicates(chunks)
        except InvalidFieldError as error:
            work.error = error.within("document")
        return work

    async def _embed(self, tenant_id: TenantId, work: Sequence[_Work]) -> None:
        if self._embeddings is None:
            return
        ids = [chunk.id for item in work for chunk in item.chunks]
        stored = await self._chunks.embedded_ids(tenant_id, ids) if ids else set()
        missing = [(item, chunk) for item in work for chunk in item.chunks if chunk.id not in stored]
        vectors: dict[ChunkId, Vector] = {}
        for start in range(0, len(missing), EMBEDDING_BATCH):
            await self._embed_batch(missing[start : start + EMBEDDING_BATCH], vectors)
        for item in work:
            item.chunks = [chunk.with_embedding(vectors.get(chunk.id)) for chunk in item.chunks]

    async def _embed_batch(self, batch: Sequence[tuple[_Work, StoredChunk]], vectors: dict[ChunkId, Vector]) -> None:
        """Embed a batch in one call; where its texts are refused, by document, so that only the bad one fails."""
        batch = [(item, chunk) for item, chunk in batch if item.error is None]
        owners = list({id(item): item for item, _ in batch}.values())
        try:
            vectors.update(await self._vectors([chunk for _, chunk in batch]))
        except EmbeddingRejectedError as error:
            if len(owners) == 1:
                owners[0].error = error
                return
            for owner in owners:
                await self._embed_batch([(item, chunk) for item, chunk in batch if item is owner], vectors)
        except ChunkstoreError as error:
            for owner in owners:
                owner.error = error

    async def _vectors(self, chunks: Sequence[StoredChunk]) -> dict[ChunkId, Vector]:
        assert self._embeddings is not None
        if not chunks:
            return {}
        rows = await self._embeddings.embed([chunk.text for chunk in chunks])
        if len(rows) != len(chunks):
            raise EmbeddingFailedError("the provider returned another number of vectors than texts")
        dimension = self._chunks.dimension
        try:
            return {c.id: checked_vector(row, "embedding", dimension) for c, row in zip(chunks, rows, strict=True)}
        except InvalidFieldError as error:
            raise EmbeddingFailedError("the provider returned a vector that cannot be stored") from error

    async def _store(self, tenant_id: TenantId, work: Sequence[_Work]) -> list[IndexOutcome]:
        replacements = [
            SourceReplacement(item.received.document.source_id, item.chunks, item.received.revision)
            for item in work
            if item.error is None
        ]
        results = iter(await self._chunks.replace_sources(tenant_id, replacements) if replacements else ())
        return [item.error or _outcome(item, next(results)) for item in work]


def _outcome(item: _Work, result: WriteResult | SourceChangedError) -> IndexOutcome:
    if isinstance(result, SourceChangedError):
        return result
    counts = replace(result.counts, duplicates_folded=item.folded)
    return DocumentIndexed(counts, result.revision, blank=not item.chunks)
