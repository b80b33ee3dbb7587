"""ExplanationService."""

from __future__ import annotations

from typing import Final

from chunkstore.composition.explainer import ChunkExplainer
from chunkstore.domain.analysis import Token
from chunkstore.domain.chunk import checked_chunk_id
from chunkstore.domain.explanation import Absence, AnalyzedTerm, ChannelPlace
from chunkstore.domain.results import CorpusCounts
from chunkstore.service.convert import channel_report_to, chunk_to, explanation_to, query_from
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import explanation_service_pb2 as pb
from chunkstore.v1.explanation_service_pb2_grpc import ExplanationServiceServicer

_ABSENCES: Final = {
    None: pb.ABSENCE_REASON_UNSPECIFIED,
    Absence.NOT_REQUESTED: pb.ABSENCE_REASON_NOT_REQUESTED,
    Absence.NOT_ANSWERED: pb.ABSENCE_REASON_NOT_ANSWERED,
    Absence.FILTERED_OUT: pb.ABSENCE_REASON_FILTERED_OUT,
    Absence.NOT_EMBEDDED: pb.ABSENCE_REASON_NOT_EMBEDDED,
    Absence.NO_SHARED_TERM: pb.ABSENCE_REASON_NO_SHARED_TERM,
    Absence.BELOW_POOL: pb.ABSENCE_REASON_BELOW_POOL,
}


class ExplanationServicer(ExplanationServiceServicer):
    """Explains."""

    def __init__(self, explainer: ChunkExplainer, dimension: int) -> None:
        self._explainer = explainer
        self._dimension = dimension

    async def ExplainChunk(self, request: pb.ExplainChunkRequest, context: Context) -> pb.ExplainChunkResponse:
        """See the contract."""
        query, chunk_id = query_from(request, self._dimension), checked_chunk_id(request.chunk_id, "chunk_id")
        explained = await self._explainer.explain_chunk(query, chunk_id, current_tenant())
        return pb.ExplainChunkResponse(
            chunk=chunk_to(explained.chunk.with_embedding(None)),
            rank=explained.rank,
            score=explained.score,
            channels=[_channel_to(place, explained.corpus) for place in explained.channels],
            unmet_conditions=explained.unmet,
            explanation=explanation_to(explained.explanation, explained.chunk.start_char),
            partial=any(place.report.missing for place in explained.channels),
            revision=explained.corpus.revision,
            chunk_count=explained.corpus.chunk_count,
            embedded_count=explained.corpus.embedded_count,
        )

    async def Analyze(self, request: pb.AnalyzeRequest, context: Context) -> pb.AnalyzeResponse:
        """See the contract."""
        analysis = await self._explainer.analyze(request.text, current_tenant())
        return pb.AnalyzeResponse(
            tokens=map(_token_to, analysis.tokens),
            terms=map(_term_to, analysis.terms),
            chunk_count=analysis.corpus.chunk_count,
            revision=analysis.corpus.revision,
        )


def _channel_to(place: ChannelPlace, corpus: CorpusCounts) -> pb.ChannelExplanation:
    return pb.ChannelExplanation(
        report=channel_report_to(place.report, corpus),
        rank=None if place.opinion is None else place.opinion.rank,
        score=place.score,
        share=None if place.opinion is None else place.opinion.share,
        absence=_ABSENCES[place.absence],
    )


def _token_to(token: Token) -> pb.Token:
    return pb.Token(term=token.term, start=token.start, end=token.end)


def _term_to(term: AnalyzedTerm) -> pb.AnalyzedTerm:
    return pb.AnalyzedTerm(
        term=term.term,
        frequency=term.frequency,
        document_frequency=term.document_frequency,
        idf=term.idf,
        query_term=term.query_term,
        identifier=term.identifier,
    )
