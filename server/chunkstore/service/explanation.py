"""ExplanationService."""

from __future__ import annotations

from chunkstore.composition.explainer import ChunkExplainer
from chunkstore.domain.analysis import Token
from chunkstore.domain.explanation import AnalyzedTerm
from chunkstore.service.interceptors.around import Context
from chunkstore.service.tenancy import current_tenant
from chunkstore.v1 import explanation_service_pb2 as pb
from chunkstore.v1.explanation_service_pb2_grpc import ExplanationServiceServicer


class ExplanationServicer(ExplanationServiceServicer):
    """Explains."""

    def __init__(self, explainer: ChunkExplainer) -> None:
        self._explainer = explainer

    async def Analyze(self, request: pb.AnalyzeRequest, context: Context) -> pb.AnalyzeResponse:
        """See the contract."""
        analysis = await self._explainer.analyze(request.text, current_tenant())
        return pb.AnalyzeResponse(
            tokens=map(_token_to, analysis.tokens),
            terms=map(_term_to, analysis.terms),
            chunk_count=analysis.corpus.chunk_count,
            revision=analysis.corpus.revision,
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
