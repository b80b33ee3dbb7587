"""Random writes, in the same sequences for every store, against a model that is too simple to be wrong.

Scores are compared by their bits, so stores that agree with the model agree with each other.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, itemgetter
from typing import Any, Final

import grpc
from google.protobuf import json_format
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from tests.compliance.brute_force import as_float32, cosine_score
from tests.compliance.conftest import Servers
from tests.compliance.corpus_model import CorpusModel, Hit, Meets, Opinion, Ranking, Row, anything, row_of
from tests.compliance.provider import embedded
from tests.compliance.wire import Api, refusal

from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.chunk_pb2 import Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest, PurgeTenantRequest
from chunkstore.v1.chunk_reader_service_pb2 import ListEntityChunksRequest, ListSourcesRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.retrieval_service_pb2 import RetrievalMode, RetrieveChunksRequest, ScoredChunk
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest

EXAMPLES: Final = 40
SOURCES: Final = ("source", "source-2", "Ünï")
ENTITY: Final = "entity"

# Every text with its terms. Several score alike for the queries below, in one source or in all of them.
TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "alpha beta": ("alpha", "beta"),
    "beta alpha": ("beta", "alpha"),
    "Beta; ALPHA.": ("beta", "alpha"),
    "alpha alpha gamma": ("alpha", "alpha", "gamma"),
    "gamma": ("gamma",),
    "delta gamma beta alpha": ("delta", "gamma", "beta", "alpha"),
    "BX-7741 alpha": ("bx-7741", "bx7741", "bx", "7741", "alpha"),
    "BX-7742 alpha": ("bx-7742", "bx7742", "bx", "7742", "alpha"),
    "...": (),
}

# Duplicates, multiples, opposites, and neighbours that float32 arithmetic cannot tell apart.
VECTORS: Final = (
    None,
    (1.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (4.0, 0.0, 0.0, 0.0),
    (-1.0, 0.0, 0.0, 0.0),
    (0.1, 0.2, 0.3, 0.4),
    (0.1, 0.2, 0.3, 0.40000004),
    (0.3, 0.6, 0.9, 1.2),
    (1e-7, 2e-7, 3e-7, 4e-7),
    (0.0, 0.0, 1.0, 1e-4),
    (-0.24099, 0.12383, 0.76562, -0.08094),
    (0.78104, -0.67765, 0.05266, 0.18827),
)

# Every query with its terms and its identifiers.
QUERIES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "alpha": (("alpha",), ()),
    "beta alpha": (("alpha", "beta"), ()),
    "gamma, delta? alpha!": (("alpha", "delta", "gamma"), ()),
    "zeta": (("zeta",), ()),
    "BX-7741": (("7741", "bx", "bx-7741", "bx7741"), ("bx7741",)),
}
QUERY_VECTORS: Final = ((0.1, 0.2, 0.3, 0.4), (1.0, 0.0, 0.0, 0.0), (0.57721, 0.70711, -0.26535, 0.11235))

WORDS: Final = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "rain",
    "river",
    "lamp",
    "moon",
    "salt",
    "wind",
    "bird",
    "fish",
    "gold",
    "iron",
    "kilo",
    "zeta",
]
DEPTH: Final = 900


def _page(row: Row) -> object:
    return dict(row.metadata).get("page")


# Filters as JSON, and what they are met by; True is 1 to Python, but not to JSON.
FILTERS: Final[tuple[tuple[dict[str, Any], Meets], ...]] = (
    ({"metadata": {"path": ["page"], "equals": 1}}, lambda row: repr(_page(row)) == "1.0"),
    ({"metadata": {"path": ["page"], "equals_any": [True, 7]}}, lambda row: repr(_page(row)) in ("True", "7.0")),
    ({"metadata": {"path": ["page"], "range": {"gt": 0.5, "lt": 5}}}, lambda row: repr(_page(row)) == "1.0"),
    ({"none_of": [{"metadata": {"path": ["page"], "exists": {}}}]}, lambda row: _page(row) is None),
    ({"source_id": {"prefix": "source-"}}, lambda row: row.source_id.startswith("source-")),
    (
        {"any_of": [{"source_id": {"equals": "source"}}, {"metadata": {"path": ["page"], "equals": 7}}]},
        lambda row: row.source_id == "source" or repr(_page(row)) == "7.0",
    ),
)
Only = tuple[dict[str, Any] | None, Meets]
ANYTHING: Final[Only] = (None, anything)

HYBRID: Final = pb.RETRIEVAL_MODE_HYBRID
SEMANTIC: Final = pb.RETRIEVAL_MODE_SEMANTIC
LEXICAL: Final = pb.RETRIEVAL_MODE_LEXICAL


@dataclass(frozen=True)
class Upsert:
    """UpsertChunks."""

    chunks: tuple[Row, ...]

    def carry_out(self, api: Api, model: CorpusModel) -> None:
        answer = api.upsert(*(row.message() for row in self.chunks))
        assert (answer.counts, answer.revision) == model.upsert(self.chunks)


@dataclass(frozen=True)
class Replace:
    """ReplaceSource; expecting nothing, the source's revision, or one that is `off` by some."""

    source_id: str
    chunks: tuple[Row, ...]
    off: int | None

    def carry_out(self, api: Api, model: CorpusModel) -> None:
        actual = model.sources.get(self.source_id, 0)
        expected = None if self.off is None else actual + self.off
        request = ReplaceSourceRequest(
            source_id=self.source_id, chunks=[row.message() for row in self.chunks], expected_revision=expected
        )
        if expected in (None, actual):
            answer = api.writer.ReplaceSource(request)
            assert (answer.counts, answer.revision) == model.replace(self.source_id, self.chunks)
        else:
            refused = refusal(lambda: api.writer.ReplaceSource(request))
            assert refused.code is grpc.StatusCode.ABORTED
            assert refused.metadata == {"expected": str(expected), "actual": str(actual)}


@dataclass(frozen=True)
class PurgeSource:
    """PurgeSource."""

    source_id: str

    def carry_out(self, api: Api, model: CorpusModel) -> None:
        answer = api.purge.PurgeSource(PurgeSourceRequest(source_id=self.source_id))
        assert answer.removed == model.purge([self.source_id])


@dataclass(frozen=True)
class PurgeTenant:
    """PurgeTenant."""

    def carry_out(self, api: Api, model: CorpusModel) -> None:
        answer = api.purge.PurgeTenant(PurgeTenantRequest())
        assert answer.removed == model.purge(list(model.sources))


Operation = Upsert | Replace | PurgeSource | PurgeTenant


def _fields(sources: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "source_id": sources,
            "text": st.sampled_from(sorted(TEXTS)),
            "index": st.integers(0, 2),
            "start": st.sampled_from([0, 10]),
            "entities": st.sampled_from([(), (ENTITY,), (ENTITY, "another")]),
            "metadata": st.sampled_from([(), (("page", 1.0),), (("page", True),), (("page", None),), (("page", 7.0),)]),
            "vector": st.sampled_from(VECTORS),
        }
    )


def _rows(sources: st.SearchStrategy[str], fewest: int = 0) -> st.SearchStrategy[tuple[Row, ...]]:
    return st.lists(_fields(sources).map(row_of), min_size=fewest, max_size=8).map(tuple)


_source_ids = st.sampled_from(SOURCES)
_upserts = _rows(_source_ids).map(Upsert)
_replacements = _source_ids.flatmap(
    lambda source: st.builds(Replace, st.just(source), _rows(st.just(source)), st.sampled_from([None, None, 0, 1]))
)
_operations: st.SearchStrategy[list[Operation]] = st.lists(
    st.one_of(_upserts, _replacements, st.builds(PurgeSource, _source_ids), st.just(PurgeTenant())), max_size=7
)
_endings: st.SearchStrategy[list[Operation]] = st.tuples(_rows(_source_ids, fewest=5).map(Upsert), _replacements).map(
    list
)


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(operations=st.builds(add, _operations, _endings))
def test_every_store_does_what_the_model_does(servers: Servers, operations: list[Operation]) -> None:
    """Excludes any difference in ids, order, score bits, counts or revisions, after any sequence of writes."""
    api = Api(servers.hashing, f"random-{uuid.uuid4().hex}")
    model = CorpusModel(TEXTS.__getitem__)
    for operation in operations:
        event(type(operation).__name__)
        operation.carry_out(api, model)
        _compare_counts(api, model)
        _compare_hybrid(api, model, "beta alpha", k=3)
        # The same filter after every write, so that what a store remembers of it is put to the test.
        _compare_hybrid(api, model, "beta alpha", k=3, only=FILTERS[0])
    event(f"rows at the end: {min(len(model.rows), 8)}")
    _compare_rows(api, model)
    for query, (terms, _) in QUERIES.items():
        _compare_lexical(api, model, terms)
        _compare_hybrid(api, model, query, k=50)
        _compare_semantic(api, model, embedded(query))
    for vector in QUERY_VECTORS:
        _compare_semantic(api, model, vector)
    _compare_modes(api, model, "beta alpha")
    for only in FILTERS:
        event(f"left by a filter: {min(sum(map(only[1], model.rows.values())), 4)}")
        _compare_lexical(api, model, ("alpha", "beta"), only=only)
        _compare_semantic(api, model, QUERY_VECTORS[0], only=only)
        _compare_hybrid(api, model, "BX-7741", k=50, only=only)


def test_a_larger_corpus_ranks_as_the_model_does(servers: Servers) -> None:
    """Excludes what only shows past a few rows: a cut before the order is known, and an index that ages with writes.

    Two thousand chunks are written in batches, and a third of them written anew, or removed, as it goes on.
    """
    randomly = random.Random(2009)
    api = Api(servers.hashing, f"random-{uuid.uuid4().hex}")
    model = CorpusModel(str.split)
    for _number in range(20):
        chunks = [_random_row(randomly) for _ in range(120)]
        Upsert(tuple(chunks)).carry_out(api, model)
        source = randomly.choice(chunks).source_id
        kept = [row for row in model.of_source(source) if randomly.random() < 0.5]
        Replace(source, tuple(kept), off=None).carry_out(api, model)
    assert len(model.rows) > 1500
    _compare_counts(api, model)
    for terms in (("alpha",), ("alpha", "beta", "rain"), ("iron", "lamp", "moon"), tuple(WORDS)):
        _compare_lexical(api, model, sorted(terms), limits=(900, 100, 10))
    for _ in range(6):
        _compare_semantic(api, model, _random_vector(randomly), limits=(900, 100, 10))
    for only in FILTERS[4:]:
        _compare_lexical(api, model, sorted(WORDS), limits=(900, 10), only=only)
        _compare_semantic(api, model, _random_vector(randomly), limits=(900, 10), only=only)
    hybrid = [model.semantic(embedded("alpha beta")), model.lexical(["alpha", "beta"]), []]
    _compare_retrieval(api, model, "alpha beta", 300, HYBRID, hybrid[0][:DEPTH], [each[:DEPTH] for each in hybrid[1:]])


def test_the_model_can_tell_stores_apart() -> None:
    """Guards the test above: what it draws from holds ties, near-ties, and sums whose order can be seen."""
    rows = [row_of({"source_id": source, "text": text, "vector": VECTORS[1]}) for source in SOURCES for text in TEXTS]
    model = CorpusModel(TEXTS.__getitem__, {row.id: row for row in rows})
    lexical = [score for _, score in model.lexical(["alpha", "beta"])]
    semantic = [score for _, score in model.semantic(QUERY_VECTORS[0])]
    assert (len(lexical), len(set(lexical))) == (21, 4)
    assert (len(semantic), len(set(semantic))) == (27, 1)

    query = as_float32(QUERY_VECTORS[0])
    near = {cosine_score(as_float32(vector), query) for vector in VECTORS[5:9] if vector}
    assert len(near) > 1
    assert max(near) - min(near) < 1e-7

    pairs = [(as_float32(vector), as_float32(query)) for vector in VECTORS if vector for query in QUERY_VECTORS]
    other_order = itemgetter(0, 2, 1, 3)
    assert any(
        cosine_score(other_order(vector), other_order(query)) != cosine_score(vector, query) for vector, query in pairs
    )


def _compare_counts(api: Api, model: CorpusModel) -> None:
    corpus = api.corpus()
    got = corpus.revision, corpus.chunk_count, corpus.embedded_count, corpus.source_count
    assert got == model.counts


def _compare_rows(api: Api, model: CorpusModel) -> None:
    listed = api.reader.ListSources(ListSourcesRequest()).sources
    got = [(source.source_id, source.revision, source.chunk_count) for source in listed]
    assert got == [(source, model.sources[source], len(model.of_source(source))) for source in sorted(model.sources)]
    for source in SOURCES:
        assert api.chunks_of(source) == [row.read() for row in model.of_source(source)]
    request = ListEntityChunksRequest(entity_id=ENTITY, include_embeddings=True)
    assert list(api.reader.ListEntityChunks(request).chunks) == [row.read() for row in model.of_entity(ENTITY)]


def _random_row(randomly: random.Random) -> Row:
    words = randomly.choices(WORDS, weights=range(len(WORDS), 0, -1), k=randomly.randint(1, 9))
    vector = None if randomly.random() < 0.2 else _random_vector(randomly)
    source = f"source-{randomly.randrange(40)}"
    return row_of(
        {
            "source_id": source,
            "text": " ".join(words),
            "index": randomly.randrange(9),
            "metadata": (("page", float(randomly.randrange(9))),),
            "vector": vector,
        }
    )


def _random_vector(randomly: random.Random) -> tuple[float, ...]:
    """One of a few directions, or close to one."""
    middle = randomly.choice(VECTORS[5:])
    assert middle is not None
    return tuple(value + randomly.choice([0.0, 0.0, 1e-7, 1e-3, 0.1]) * randomly.gauss(0, 1) for value in middle)


def _filter(only: Only) -> Filter | None:
    return None if only[0] is None else json_format.ParseDict(only[0], Filter())


def _compare_lexical(
    api: Api, model: CorpusModel, terms: Sequence[str], limits: Sequence[int] = (100, 2), only: Only = ANYTHING
) -> None:
    expected = model.lexical(terms, only[1])
    for limit in limits:
        request = ListLexicalCandidatesRequest(terms=terms, limit=limit, filter=_filter(only))
        answer = api.lexical.ListLexicalCandidates(request)
        assert [(candidate.chunk.id, candidate.score) for candidate in answer.candidates] == expected[:limit]
        statistics = answer.statistics
        got = statistics.chunk_count, statistics.total_length, dict(statistics.document_frequencies)
        assert got == model.statistics(terms)
        assert answer.revision == model.revision


def _compare_semantic(
    api: Api, model: CorpusModel, vector: Sequence[float], limits: Sequence[int] = (100, 2), only: Only = ANYTHING
) -> None:
    sent = Vector(values=vector)
    expected = model.semantic(tuple(sent.values), only[1])
    middle = expected[len(expected) // 2][1] if expected else 0.5
    for limit, min_score in itertools.product(limits, (None, middle)):
        request = ListSemanticCandidatesRequest(vector=sent, limit=limit, min_score=min_score, filter=_filter(only))
        answer = api.semantic.ListSemanticCandidates(request)
        kept = [item for item in expected if min_score is None or item[1] >= min_score]
        assert [(candidate.chunk.id, candidate.score) for candidate in answer.candidates] == kept[:limit]
        assert answer.revision == model.revision


def _compare_hybrid(api: Api, model: CorpusModel, query: str, k: int, only: Only = ANYTHING) -> None:
    semantic, lexical = model.semantic(embedded(query), only[1]), _lexical(model, query, only)
    _compare_retrieval(api, model, query, k, HYBRID, semantic, lexical, only)


def _compare_modes(api: Api, model: CorpusModel, query: str) -> None:
    _compare_retrieval(api, model, query, 4, SEMANTIC, model.semantic(embedded(query)), [[], []])
    _compare_retrieval(api, model, query, 4, LEXICAL, [], _lexical(model, query))


def _lexical(model: CorpusModel, query: str, only: Only = ANYTHING) -> list[Ranking]:
    """The lexical and the identifier channel's rankings."""
    terms, identifiers = QUERIES[query]
    return [model.lexical(terms, only[1]), model.lexical(identifiers, only[1])]


def _compare_retrieval(
    api: Api,
    model: CorpusModel,
    query: str,
    k: int,
    mode: RetrievalMode.ValueType,
    semantic: Ranking,
    lexical: Sequence[Ranking],
    only: Only = ANYTHING,
) -> None:
    identifiers = QUERIES.get(query, ((), ()))[1]
    for weight in (None, 0.5, 0.3):
        method = pb.FUSION_METHOD_RECIPROCAL_RANK if weight is None else pb.FUSION_METHOD_WEIGHTED_SUM
        fusion = pb.Fusion(method=method, semantic_weight=weight)
        request = RetrieveChunksRequest(query=query, k=k, mode=mode, fusion=fusion, filter=_filter(only))
        answer = api.retrieval.RetrieveChunks(request)
        expected = model.retrieve([semantic, *lexical], k, identifiers, weight)
        assert [_hit(scored) for scored in answer.chunks] == expected
    assert (answer.revision, answer.chunk_count, answer.embedded_count) == model.counts[:3]
    assert [report.candidates for report in answer.channels] == [len(semantic), *map(len, lexical)]
    assert answer.partial is False


def _hit(scored: ScoredChunk) -> Hit:
    opinions = (
        Opinion(scored.semantic, scored.semantic_rank, scored.semantic_share) if scored.HasField("semantic") else None,
        Opinion(scored.lexical, scored.lexical_rank, scored.lexical_share) if scored.HasField("lexical") else None,
        Opinion(scored.identifier, scored.identifier_rank, scored.identifier_share)
        if scored.HasField("identifier")
        else None,
    )
    return Hit(scored.chunk.id, scored.score, opinions)
