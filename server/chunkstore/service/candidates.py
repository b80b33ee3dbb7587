"""LexicalCandidateService and SemanticCandidateService: each channel by itself."""

from __future__ import annotations

import math

from chunkstore.composition.reading import read_corpus
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.text import checked_text
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot
from chunkstore.service.convert import lexical_candidates_to, semantic_candidates_to, statistics_to, vector_from
from chunkstore.service.filters import filter_from
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import lexical_candidate_service_pb2 as lexical_pb
from chunkstore.v1 import semantic_candidate_service_pb2 as semantic_pb
from chunkstore.v1.lexical_candidate_service_pb2_grpc import LexicalCandidateServiceServicer
from chunkstore.v1.semantic_candidate_service_pb2_grpc import SemanticCandidateServiceServicer


class LexicalCandidateServicer(LexicalCandidateServiceServicer):
    """The lexical channel."""

    def __init__(self, chunks: ChunkStore, max_candidates: int) -> None:
        self._chunks = chunks
        self._max_candidates = max_candidates

    async def ListLexicalCandidates(
        self, request: lexical_pb.ListLexicalCandidatesRequest, context: Context
    ) -> lexical_pb.ListLexicalCandidatesResponse:
        """See the contract."""
        limit = _checked_limit(request.limit, self._max_candidates)
        terms = [checked_text(f"terms[{position}]", term) for position, term in enumerate(request.terms)]
        where = filter_from(request.filter) if request.HasField("filter") else None

        async def rank(corpus: CorpusSnapshot) -> lexical_pb.ListLexicalCandidatesResponse:
            found = await corpus.lexical_candidates(terms, limit, where=where)
            chunks = await corpus.chunks(found.ranking.ids)
            return lexical_pb.ListLexicalCandidatesResponse(
                candidates=lexical_candidates_to(found, chunks),
                statistics=statistics_to(found.statistics),
                revision=corpus.counts.revision,
            )

        return await read_corpus(self._chunks, current_tenant(), rank)


class SemanticCandidateServicer(SemanticCandidateServiceServicer):
    """The semantic channel."""

    def __init__(self, chunks: ChunkStore, max_candidates: int) -> None:
        self._chunks = chunks
        self._max_candidates = max_candidates

    async def ListSemanticCandidates(
        self, request: semantic_pb.ListSemanticCandidatesRequest, context: Context
    ) -> semantic_pb.ListSemanticCandidatesResponse:
        """See the contract."""
        limit = _checked_limit(request.limit, self._max_candidates)
        vector = vector_from(request.vector, "vector", self._chunks.dimension)
        min_score = request.min_score if request.HasField("min_score") else None
        if min_score is not None and math.isnan(min_score):
            raise InvalidFieldError("min_score", "must be a number")
        where = filter_from(request.filter) if request.HasField("filter") else None

        async def rank(corpus: CorpusSnapshot) -> semantic_pb.ListSemanticCandidatesResponse:
            found = await corpus.semantic_candidates(vector, limit, min_score=min_score, where=where)
            chunks = await corpus.chunks(found.ids)
            return semantic_pb.ListSemanticCandidatesResponse(
                candidates=semantic_candidates_to(found, chunks), revision=corpus.counts.revision
            )

        return await read_corpus(self._chunks, current_tenant(), rank)


def _checked_limit(limit: int, most: int) -> int:
    if not 0 <= limit <= most:
        raise InvalidFieldError("limit", f"must be within [0, {most}]")
    return limit
