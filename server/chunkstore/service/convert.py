"""Between the wire's messages and the domain's values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np
from google.protobuf import duration_pb2, json_format, struct_pb2

from chunkstore.composition.indexer import Document
from chunkstore.composition.query import Fusion, Query
from chunkstore.composition.selection import DEFAULT_K, Selection
from chunkstore.domain.chunk import Occurrence, StoredChunk, require_id
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError
from chunkstore.domain.metadata import EMPTY, Metadata, frozen_metadata, metadata_json
from chunkstore.domain.results import (
    Channel,
    ChannelReport,
    ChannelStatus,
    CorpusCounts,
    CorpusStatistics,
    Explanation,
    FusionMethod,
    LexicalCandidates,
    MirrorInfo,
    MirrorState,
    PageStart,
    Ranking,
    ScoredChunk,
    Source,
    SourceContext,
    TermExplanation,
    WriteCounts,
)
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.ports.chunker import DocumentFormat
from chunkstore.service.filters import filter_from
from chunkstore.v1 import (
    chunk_pb2,
    chunk_reader_service_pb2,
    chunk_writer_service_pb2,
    explanation_pb2,
    explanation_service_pb2,
    indexing_service_pb2,
    lexical_candidate_service_pb2,
    retrieval_service_pb2,
    semantic_candidate_service_pb2,
    store_service_pb2,
)

ResultT = TypeVar("ResultT")

_MODES = {
    retrieval_service_pb2.RETRIEVAL_MODE_UNSPECIFIED: frozenset(Channel),
    retrieval_service_pb2.RETRIEVAL_MODE_HYBRID: frozenset(Channel),
    retrieval_service_pb2.RETRIEVAL_MODE_SEMANTIC: frozenset({Channel.SEMANTIC}),
    retrieval_service_pb2.RETRIEVAL_MODE_LEXICAL: frozenset({Channel.LEXICAL, Channel.IDENTIFIER}),
}
_CHANNELS = {
    Channel.SEMANTIC: retrieval_service_pb2.CHANNEL_SEMANTIC,
    Channel.LEXICAL: retrieval_service_pb2.CHANNEL_LEXICAL,
    Channel.IDENTIFIER: retrieval_service_pb2.CHANNEL_IDENTIFIER,
}
_STATUSES = {
    ChannelStatus.ANSWERED: retrieval_service_pb2.CHANNEL_STATUS_ANSWERED,
    ChannelStatus.FAILED: retrieval_service_pb2.CHANNEL_STATUS_FAILED,
    ChannelStatus.NOT_CONFIGURED: retrieval_service_pb2.CHANNEL_STATUS_NOT_CONFIGURED,
    ChannelStatus.NOT_REQUESTED: retrieval_service_pb2.CHANNEL_STATUS_NOT_REQUESTED,
    ChannelStatus.TIMED_OUT: retrieval_service_pb2.CHANNEL_STATUS_TIMED_OUT,
}
_CHANNELS_BY_NUMBER = {number: channel for channel, number in _CHANNELS.items()}
_FUSIONS = {
    FusionMethod.RECIPROCAL_RANK: retrieval_service_pb2.FUSION_METHOD_RECIPROCAL_RANK,
    FusionMethod.WEIGHTED_SUM: retrieval_service_pb2.FUSION_METHOD_WEIGHTED_SUM,
}
_FUSIONS_BY_NUMBER = {
    retrieval_service_pb2.FUSION_METHOD_UNSPECIFIED: None,
    **{number: method for method, number in _FUSIONS.items()},
}
_MIRROR_STATES = {
    MirrorState.NOT_LOADED: store_service_pb2.MIRROR_STATE_NOT_LOADED,
    MirrorState.MIRRORED: store_service_pb2.MIRROR_STATE_MIRRORED,
    MirrorState.TOO_LARGE: store_service_pb2.MIRROR_STATE_TOO_LARGE,
}
_FORMATS = {
    indexing_service_pb2.DOCUMENT_FORMAT_UNSPECIFIED: DocumentFormat.PLAIN_TEXT,
    indexing_service_pb2.DOCUMENT_FORMAT_PLAIN_TEXT: DocumentFormat.PLAIN_TEXT,
    indexing_service_pb2.DOCUMENT_FORMAT_MARKDOWN: DocumentFormat.MARKDOWN,
    indexing_service_pb2.DOCUMENT_FORMAT_PASSAGE: DocumentFormat.PASSAGE,
}


def chunks_from(messages: Iterable[chunk_pb2.Chunk], dimension: int, source_id: str | None = None) -> list[StoredChunk]:
    """The chunks of a request. With `source_id`, each is of that source, named by its message or not.

    Raises InvalidFieldError or DimensionMismatchError naming the field of the first bad one, as `chunks[n].field`.
    """
    return [
        _within(f"chunks[{position}]", partial(_chunk_from, message, dimension, source_id))
        for position, message in enumerate(messages)
    ]


def vector_from(message: chunk_pb2.Vector, field: str, dimension: int) -> Vector:
    """The vector of a message; raises InvalidVectorError or DimensionMismatchError naming `field`."""
    return checked_vector(message.values, field, dimension)


def document_from(message: indexing_service_pb2.Document) -> Document:
    """The document of a message. Raises InvalidFieldError naming its field."""
    return Document(
        source_id=message.source_id,
        text=message.text,
        format=_chosen(_FORMATS, message.format, "format"),
        metadata=frozen_metadata(_plain(message.metadata)),
        entity_ids=tuple(message.entity_ids),
    )


def query_from(
    message: retrieval_service_pb2.RetrieveChunksRequest | explanation_service_pb2.ExplainChunkRequest,
    dimension: int,
    require: Iterable[retrieval_service_pb2.Channel.ValueType] = (),
) -> Query:
    """The query of a request. Raises InvalidFieldError for a number that is none of an enum's, naming the field."""
    vector = None
    if message.HasField("query_vector"):
        vector = vector_from(message.query_vector, "query_vector", dimension)
    weight = message.fusion.semantic_weight if message.fusion.HasField("semantic_weight") else None
    return Query(
        text=message.query,
        channels=_channels_from(message),
        vector=vector,
        fusion=Fusion(_chosen(_FUSIONS_BY_NUMBER, message.fusion.method, "fusion.method"), weight),
        channel_timeout=_seconds(message.channel_timeout) if message.HasField("channel_timeout") else None,
        require=_named_channels(require, "require"),
        where=filter_from(message.filter) if message.HasField("filter") else None,
    )


def selection_from(message: retrieval_service_pb2.RetrieveChunksRequest, start: PageStart | None) -> Selection:
    """The part of the ranking that a request asks for, from `start` on. Raises InvalidFieldError naming a field."""
    return Selection(
        k=message.k if message.HasField("k") else DEFAULT_K,
        start=start,
        max_per_source=message.max_per_source if message.HasField("max_per_source") else None,
        neighbors_before=message.neighbors_before,
        neighbors_after=message.neighbors_after,
        with_embeddings=message.include_embeddings,
        explain=message.explain,
    )


def fusion_method_to(method: FusionMethod) -> retrieval_service_pb2.FusionMethod.ValueType:
    """The number of a fusion method."""
    return _FUSIONS[method]


def chunk_to(chunk: StoredChunk) -> chunk_pb2.Chunk:
    """The message of a chunk; its vector is set where the chunk carries one."""
    message = chunk_pb2.Chunk(
        id=chunk.id,
        source_id=chunk.source_id,
        text=chunk.text,
        chunk_index=chunk.chunk_index,
        start_char=chunk.start_char,
        end_char=chunk.end_char,
        entity_ids=chunk.entity_ids,
        other_occurrences=[
            chunk_pb2.Occurrence(chunk_index=at.chunk_index, start_char=at.start_char, end_char=at.end_char)
            for at in chunk.other_occurrences
        ],
    )
    if chunk.metadata:
        message.metadata.CopyFrom(_struct(chunk.metadata))
    if chunk.embedding is not None:
        message.embedding.values.extend(chunk.embedding.tolist())
    return message


def scored_chunk_to(scored: ScoredChunk) -> retrieval_service_pb2.ScoredChunk:
    """The message of a retrieved chunk; a channel that did not rank it leaves its fields unset."""
    message = retrieval_service_pb2.ScoredChunk(chunk=chunk_to(scored.chunk), score=scored.score)
    opinions = {"semantic": scored.semantic, "lexical": scored.lexical, "identifier": scored.identifier}
    for name, opinion in opinions.items():
        if opinion is not None:
            setattr(message, name, opinion.score)
            setattr(message, f"{name}_rank", opinion.rank)
            setattr(message, f"{name}_share", opinion.share)
    if scored.explanation is not None:
        message.explanation.CopyFrom(explanation_to(scored.explanation, scored.chunk.start_char))
    return message


def context_to(context: SourceContext) -> retrieval_service_pb2.SourceContext:
    """The message of the chunks around hits."""
    return retrieval_service_pb2.SourceContext(
        source_id=context.source_id, chunks=map(chunk_to, context.chunks), hit_ids=context.hit_ids
    )


def explanation_to(explanation: Explanation, start_char: int) -> explanation_pb2.Explanation:
    """The message of an explanation of a chunk that starts there in its document."""
    return explanation_pb2.Explanation(
        terms=[_term_explanation_to(term, start_char) for term in explanation.terms],
        identifiers=[_term_explanation_to(term, start_char) for term in explanation.identifiers],
        telling_identifiers=sorted(explanation.telling),
    )


def channel_report_to(report: ChannelReport, corpus: CorpusCounts) -> retrieval_service_pb2.ChannelReport:
    """The message of a channel's report on a corpus of those counts."""
    message = retrieval_service_pb2.ChannelReport(
        channel=_CHANNELS[report.channel],
        status=_STATUSES[report.status],
        reason=report.reason,
        candidates=report.candidates,
        elapsed=duration_to(report.elapsed),
    )
    if report.status is ChannelStatus.ANSWERED:
        message.chunk_count = corpus.chunk_count
        message.rankable_count = corpus.embedded_count if report.channel is Channel.SEMANTIC else corpus.chunk_count
    return message


def duration_to(seconds: float) -> duration_pb2.Duration:
    """The message of a time in seconds."""
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


def lexical_candidates_to(
    found: LexicalCandidates, chunks: Iterable[StoredChunk]
) -> Iterator[lexical_candidate_service_pb2.LexicalCandidate]:
    """The messages of lexical candidates, whose chunks are `chunks`."""
    for position, (chunk, score, length) in enumerate(zip(chunks, found.ranking.scores, found.lengths, strict=True)):
        yield lexical_candidate_service_pb2.LexicalCandidate(
            chunk=chunk_to(chunk), score=score, length=length, term_frequencies=found.term_frequencies(position)
        )


def semantic_candidates_to(
    found: Ranking, chunks: Iterable[StoredChunk]
) -> Iterator[semantic_candidate_service_pb2.SemanticCandidate]:
    """The messages of semantic candidates, whose chunks are `chunks`."""
    for chunk, score in zip(chunks, found.scores, strict=True):
        yield semantic_candidate_service_pb2.SemanticCandidate(chunk=chunk_to(chunk), score=score)


def statistics_to(statistics: CorpusStatistics) -> lexical_candidate_service_pb2.CorpusStatistics:
    """The message of corpus statistics."""
    return lexical_candidate_service_pb2.CorpusStatistics(
        chunk_count=statistics.chunk_count,
        total_length=statistics.total_length,
        document_frequencies=statistics.doc_frequencies,
    )


def source_to(source: Source) -> chunk_reader_service_pb2.Source:
    """The message of a source."""
    return chunk_reader_service_pb2.Source(
        source_id=source.source_id, revision=source.revision, chunk_count=source.chunk_count
    )


def corpus_counts_to(counts: CorpusCounts) -> store_service_pb2.CorpusCounts:
    """The message of a corpus's counts."""
    return store_service_pb2.CorpusCounts(
        revision=counts.revision,
        chunk_count=counts.chunk_count,
        embedded_count=counts.embedded_count,
        source_count=counts.source_count,
    )


def mirror_info_to(info: MirrorInfo) -> store_service_pb2.MirrorInfo:
    """The message of what mirrors take; the revision is set where the tenant is mirrored."""
    return store_service_pb2.MirrorInfo(
        memory_budget_bytes=info.memory_budget,
        memory_used_bytes=info.memory_used,
        mirrored_tenant_count=info.mirrored_tenant_count,
        state=_MIRROR_STATES[info.state],
        revision=info.revision,
        size_bytes=info.size,
    )


def write_counts_to(counts: WriteCounts) -> chunk_writer_service_pb2.WriteCounts:
    """The message of what a write did."""
    return chunk_writer_service_pb2.WriteCounts(**_count_fields(counts))


def index_counts_to(counts: WriteCounts) -> indexing_service_pb2.IndexCounts:
    """The message of what indexing did."""
    return indexing_service_pb2.IndexCounts(**_count_fields(counts))


def _term_explanation_to(term: TermExplanation, start_char: int) -> explanation_pb2.TermExplanation:
    return explanation_pb2.TermExplanation(
        term=term.term,
        document_frequency=term.document_frequency,
        idf=term.idf,
        frequency=term.frequency,
        share=term.share,
        spans=[
            explanation_pb2.MatchedSpan(start=start, end=end, start_char=start_char + start, end_char=start_char + end)
            for start, end in term.spans
        ],
    )


def _count_fields(counts: WriteCounts) -> dict[str, int]:
    return {
        "written": counts.written,
        "unchanged": counts.unchanged,
        "removed": counts.removed,
        "embedded": counts.embedded,
        "embeddings_reused": counts.embeddings_reused,
        "duplicates_folded": counts.duplicates_folded,
    }


def _chunk_from(message: chunk_pb2.Chunk, dimension: int, source_id: str | None) -> StoredChunk:
    if source_id is not None and message.source_id not in ("", source_id):
        raise InvalidFieldError("source_id", "is not the request's source_id")
    embedding = None
    if message.HasField("embedding"):
        embedding = np.array(message.embedding.values, dtype=np.float32)
        if embedding.size != dimension:
            raise DimensionMismatchError(expected=dimension, actual=embedding.size, field="embedding")
    chunk = StoredChunk(
        source_id=message.source_id or source_id or "",
        text=message.text,
        chunk_index=message.chunk_index,
        start_char=message.start_char,
        end_char=message.end_char if message.HasField("end_char") else message.start_char + len(message.text),
        entity_ids=tuple(message.entity_ids),
        metadata=_plain(message.metadata) if message.HasField("metadata") else EMPTY,
        embedding=embedding,
        other_occurrences=tuple(
            Occurrence(at.chunk_index, at.start_char, at.end_char) for at in message.other_occurrences
        ),
    )
    return require_id(chunk, message.id)


def _within(parent: str, make: Callable[[], ResultT]) -> ResultT:
    try:
        return make()
    except (InvalidFieldError, DimensionMismatchError) as error:
        raise error.within(parent) from None


def _channels_from(
    message: retrieval_service_pb2.RetrieveChunksRequest | explanation_service_pb2.ExplainChunkRequest,
) -> frozenset[Channel]:
    if not message.channels:
        return _chosen(_MODES, message.mode, "mode")
    if message.mode != retrieval_service_pb2.RETRIEVAL_MODE_UNSPECIFIED:
        raise InvalidFieldError("channels", "cannot be named beside a mode")
    return frozenset(_named_channels(message.channels, "channels"))


def _named_channels(numbers: Iterable[int], field: str) -> tuple[Channel, ...]:
    return tuple(_chosen(_CHANNELS_BY_NUMBER, number, f"{field}[{at}]") for at, number in enumerate(numbers))


def _seconds(duration: duration_pb2.Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _chosen(choices: dict[Any, ResultT], value: int, field: str) -> ResultT:
    if value not in choices:
        raise InvalidFieldError(field, "is not one of the enum's values")
    return choices[value]


def _plain(struct: struct_pb2.Struct) -> dict[str, Any]:
    """The JSON object that a Struct is; a value without a kind is null. Non-finite numbers stay, to be refused."""
    return {key: _plain_value(value) for key, value in struct.fields.items()}


def _plain_value(value: struct_pb2.Value) -> object:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "struct_value":
        return _plain(value.struct_value)
    if kind == "list_value":
        return [_plain_value(item) for item in value.list_value.values]
    return getattr(value, kind)


def _struct(metadata: Metadata) -> struct_pb2.Struct:
    return json_format.ParseDict(json.loads(metadata_json(metadata)), struct_pb2.Struct())
