"""The calls that the benchmark makes of a server."""

from __future__ import annotations

from collections import deque

import grpc

from bench.measuring import Answer, K
from bench.workload import Query, Workload
from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_writer_service_pb2 import UpsertChunksRequest, UpsertChunksResponse
from chunkstore.v1.chunk_writer_service_pb2_grpc import ChunkWriterServiceStub
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.lexical_candidate_service_pb2_grpc import LexicalCandidateServiceStub
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest
from chunkstore.v1.semantic_candidate_service_pb2_grpc import SemanticCandidateServiceStub
from chunkstore.v1.store_service_pb2 import GetStoreInfoRequest, MirrorInfo
from chunkstore.v1.store_service_pb2_grpc import StoreServiceStub

TENANT = "bench"
CHUNKS_PER_DOCUMENT = 10
CHUNKS_PER_REQUEST = 1000
REQUESTS_IN_FLIGHT = 2
PEERS_DEPTH = 30


def connect(address: str) -> grpc.Channel:
    """A channel with a connection of its own."""
    return grpc.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))


class Tenant:
    """One tenant's calls over a channel."""

    def __init__(self, channel: grpc.Channel, name: str = TENANT) -> None:
        self._metadata = (("x-tenant-id", name),)
        self._writer = ChunkWriterServiceStub(channel)
        self._retrieval = RetrievalServiceStub(channel)
        self._lexical = LexicalCandidateServiceStub(channel)
        self._semantic = SemanticCandidateServiceStub(channel)
        self._store = StoreServiceStub(channel)

    def index(self, workload: Workload) -> None:
        """Store all chunks with their vectors, in batches of which two are under way."""
        calls: deque[grpc.Future[UpsertChunksResponse]] = deque()
        for start in range(0, len(workload), CHUNKS_PER_REQUEST):
            if len(calls) == REQUESTS_IN_FLIGHT:
                calls.popleft().result()
            numbers = range(start, min(start + CHUNKS_PER_REQUEST, len(workload)))
            request = UpsertChunksRequest(chunks=[_chunk(workload, number) for number in numbers])
            calls.append(self._writer.UpsertChunks.future(request, metadata=self._metadata))
        for call in calls:
            call.result()

    def search(self, query: Query) -> Answer:
        """The ten best by RetrieveChunks, hybrid."""
        request = RetrieveChunksRequest(query=query.text, k=K, query_vector=Vector(values=query.vector))
        answer = self._retrieval.RetrieveChunks(request, metadata=self._metadata)
        return [_number(hit.chunk) for hit in answer.chunks]

    def search_as_peers_do(self, query: Query) -> Answer:
        """The ten best where only each channel's exact 30 best are fused, and identifiers are no channel."""
        lexical = self._lexical.ListLexicalCandidates(
            ListLexicalCandidatesRequest(terms=query.words, limit=PEERS_DEPTH), metadata=self._metadata
        )
        semantic = self._semantic.ListSemanticCandidates(
            ListSemanticCandidatesRequest(vector=Vector(values=query.vector), limit=PEERS_DEPTH),
            metadata=self._metadata,
        )
        return _fused(
            [_number(candidate.chunk) for candidate in lexical.candidates],
            [_number(candidate.chunk) for candidate in semantic.candidates],
        )

    def mirror(self) -> MirrorInfo:
        """What the server says of the memory in which it ranks."""
        return self._store.GetStoreInfo(GetStoreInfoRequest(), metadata=self._metadata).mirror


def _chunk(workload: Workload, number: int) -> Chunk:
    return Chunk(
        source_id=f"document-{number // CHUNKS_PER_DOCUMENT}",
        chunk_index=number % CHUNKS_PER_DOCUMENT,
        text=workload.text(number),
        embedding=Vector(values=workload.vectors[number]),
    )


def _number(chunk: Chunk) -> int:
    return int(chunk.source_id.removeprefix("document-")) * CHUNKS_PER_DOCUMENT + chunk.chunk_index


def _fused(*rankings: Answer) -> Answer:
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda number: (-scores[number], number))[:K]
