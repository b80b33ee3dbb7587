"""Measures a graded collection through a running server."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from chunkstore.cli.collection import Collection, EvaluationError
from chunkstore.cli.measures import DEPTH, MEASURES, Comparison, comparisons, interval, mean, measured
from chunkstore.client import ChunkstoreClient, Document, DocumentsFailedError
from chunkstore.v1 import indexing_service_pb2
from chunkstore.v1 import retrieval_service_pb2 as pb


class Way(NamedTuple):
    """A way of retrieving: which channels, and how they are fused."""

    channels: tuple[pb.Channel.ValueType, ...]
    fusion: pb.Fusion | None = None


_WORDS: Final = (pb.CHANNEL_LEXICAL, pb.CHANNEL_IDENTIFIER)
_HYBRID: Final = (pb.CHANNEL_SEMANTIC, *_WORDS)
_BY_RANK: Final = pb.Fusion(method=pb.FUSION_METHOD_RECIPROCAL_RANK)
_BY_SUM: Final = pb.Fusion(method=pb.FUSION_METHOD_WEIGHTED_SUM)
MODES: Final = {
    "lexical": Way(_WORDS),
    "semantic": Way((pb.CHANNEL_SEMANTIC,)),
    "reciprocal_rank": Way(_HYBRID, _BY_RANK),
    "weighted_sum": Way(_HYBRID, _BY_SUM),
}
# What the identifier channel is worth.
WITHOUT_IDENTIFIERS: Final = {
    "lexical_without_identifiers": Way((pb.CHANNEL_LEXICAL,)),
    "reciprocal_rank_without_identifiers": Way((pb.CHANNEL_SEMANTIC, pb.CHANNEL_LEXICAL), _BY_RANK),
    "weighted_sum_without_identifiers": Way((pb.CHANNEL_SEMANTIC, pb.CHANNEL_LEXICAL), _BY_SUM),
}
IDENTIFIER_QUERIES: Final = 200


class NotMeasurableError(EvaluationError):
    """The server did not store a document of the collection, or gave an answer that lacks a channel."""


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of each mode: each query's, their means by measure, the 95 % intervals of these, and the differences.

    `identifier_mrr` is the mean reciprocal rank, by mode, of the documents that alone hold an identifier, over
    `identifier_queries` queries of such; empty where the corpus has none. `missing` counts relevant documents that
    the corpus lacks.
    """

    collection: Collection
    per_query: Mapping[str, Mapping[str, Mapping[str, float]]]
    results: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    comparisons: Sequence[Comparison]
    identifier_queries: int
    identifier_mrr: Mapping[str, float]
    missing: int

    @property
    def measures(self) -> list[str]:
        """The names of the measures."""
        return list(MEASURES)


def measure(address: str, collection: Collection, *, has_embeddings: bool, quiet: bool) -> Report:
    """Index the collection as a tenant of its own, ask its queries in each way, and remove the tenant.

    Without embeddings there are the lexical ways alone. Raises NotMeasurableError, and ServiceError of the calls.
    """
    tenant = f"eval-{uuid.uuid4().hex}"
    ways = {
        name: way
        for name, way in (MODES | WITHOUT_IDENTIFIERS).items()
        if has_embeddings or pb.CHANNEL_SEMANTIC not in way.channels
    }
    console = Console(stderr=True, quiet=quiet)
    identifiers = collection.identifier_queries(IDENTIFIER_QUERIES)
    rankings, places = {}, {}
    with ChunkstoreClient(address, tenant, timeout=120.0) as client:
        try:
            _index(client, collection)
            for name, way in ways.items():
                asked = _Asked(client, way)
                queries = track(collection.queries.items(), name, console=console)
                rankings[name] = {query: asked.ranking(text) for query, text in queries}
                places[name] = [
                    _reciprocal_rank(asked.ranking(token), document) for token, document in identifiers.items()
                ]
        finally:
            client.purge_tenant()
    return _report(collection, rankings, places if identifiers else {})


def _report(
    collection: Collection, rankings: Mapping[str, Mapping[str, Sequence[str]]], places: Mapping[str, Sequence[float]]
) -> Report:
    per_query = {name: measured(collection, ranking) for name, ranking in rankings.items()}
    columns = {
        name: {measure: np.array([one[measure] for one in figures.values()]) for measure in MEASURES}
        for name, figures in per_query.items()
    }
    relevant = {doc for grades in collection.grades.values() for doc, grade in grades.items() if grade > 0}
    return Report(
        collection=collection,
        per_query=per_query,
        results={name: {of: float(column.mean()) for of, column in by.items()} for name, by in columns.items()},
        intervals={name: {of: interval(column) for of, column in by.items()} for name, by in columns.items()},
        comparisons=comparisons({name: by for name, by in columns.items() if name in MODES}),
        identifier_queries=max(map(len, places.values()), default=0),
        identifier_mrr={name: mean(values) for name, values in places.items()},
        missing=len(relevant - collection.documents.keys()),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """Asks a server in one way."""

    client: ChunkstoreClient
    way: Way

    def ranking(self, query: str) -> list[str]:
        answer = self.client.retrieve_chunks(query, k=DEPTH, channels=self.way.channels, fusion=self.way.fusion)
        if answer.partial:
            reasons = sorted({report.reason for report in answer.channels if report.reason})
            raise NotMeasurableError(f"an answer lacks a channel: {', '.join(reasons)}")
        return [hit.chunk.source_id for hit in answer.chunks]


def _index(client: ChunkstoreClient, collection: Collection) -> None:
    try:
        client.index_documents(_documents(collection))
    except DocumentsFailedError as error:
        first = error.report.failures[0]
        raise NotMeasurableError(f"{error}; the first is document {first.ordinal + 1}: {first.error.message}") from None


def _documents(collection: Collection) -> Iterable[Document]:
    passage = indexing_service_pb2.DOCUMENT_FORMAT_PASSAGE
    return (Document(identifier, text, passage) for identifier, text in collection.documents.items())


def _reciprocal_rank(ranking: Sequence[str], document: str) -> float:
    return 1.0 / (ranking.index(document) + 1) if document in ranking else 0.0
