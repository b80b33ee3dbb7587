"""Readers and writers at the same time: every answer is of one revision, and nothing is lost or counted twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tests.compliance.messages import chunk, plain
from tests.compliance.wire import Api

from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest, PurgeTenantRequest
from chunkstore.v1.chunk_reader_service_pb2 import ListSourcesRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest

EAST = (1.0, 0.0, 0.0, 0.0)
PARTS = 5
VERSIONS = 40
WRITERS = 6


def version(number: int) -> list[Chunk]:
    """A version of a source: five chunks of its own, and one text more with every version."""
    return [
        chunk("source", f"alpha part {part} of {number}", index=part, metadata={"version": number}, vector=EAST)
        for part in range(PARTS)
    ]


def replace(api: Api, number: int) -> int:
    return api.writer.ReplaceSource(ReplaceSourceRequest(source_id="source", chunks=version(number))).revision


def test_every_answer_is_of_one_revision(api: Api) -> None:
    """Excludes channels, statistics and chunks that are read apart: each version replaces all of the one before."""
    revision_of = {0: replace(api, 0)}

    def write() -> None:
        for number in range(1, VERSIONS):
            revision_of[number] = replace(api, number)

    def hybrid() -> tuple[list[Chunk], int, int]:
        answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query="alpha", k=20))
        return [scored.chunk for scored in answer.chunks], answer.revision, answer.chunk_count

    def lexical() -> tuple[list[Chunk], int, int]:
        request = ListLexicalCandidatesRequest(terms=["alpha"], limit=20)
        answer = api.lexical.ListLexicalCandidates(request)
        assert answer.statistics.document_frequencies["alpha"] == PARTS
        return [candidate.chunk for candidate in answer.candidates], answer.revision, answer.statistics.chunk_count

    def semantic() -> tuple[list[Chunk], int, int]:
        request = ListSemanticCandidatesRequest(vector=Vector(values=EAST), limit=20)
        answer = api.semantic.ListSemanticCandidates(request)
        return [candidate.chunk for candidate in answer.candidates], answer.revision, PARTS

    def listed() -> tuple[list[Chunk], int, int]:
        return api.chunks_of("source"), 0, PARTS

    def read(ask: Callable[[], tuple[list[Chunk], int, int]], writing: Future[None]) -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []
        while not writing.done() or not seen:
            chunks, revision, chunk_count = ask()
            assert (len(chunks), chunk_count) == (PARTS, PARTS)
            [number] = {plain(message.metadata)["version"] for message in chunks}
            seen.append((number, revision))
        return seen

    with ThreadPoolExecutor(max_workers=5) as threads:
        writing = threads.submit(write)
        reading = [threads.submit(read, ask, writing) for ask in (hybrid, lexical, semantic, listed)]
        writing.result()
        seen = [each.result() for each in reading]
    for answers in seen[:3]:
        assert all(revision_of[int(number)] == revision for number, revision in answers)
    for answers in seen:
        assert answers == sorted(answers)


def test_an_answer_is_never_older_than_the_last_commit_before_it(api: Api) -> None:
    """Excludes an index that is brought up to date behind the writers' back."""
    for number in range(20):
        revision = replace(api, number)
        answer = api.retrieval.RetrieveChunks(RetrieveChunksRequest(query="alpha", k=1))
        assert answer.revision == revision
        assert plain(answer.chunks[0].chunk.metadata) == {"version": number}


def test_any_writes_at_the_same_time_leave_counts_that_agree_with_the_rows(api: Api) -> None:
    """Excludes lost updates of counts, rows without their source, and deadlocks, in every mixture of writes."""

    def write(seed: int) -> int:
        randomly = random.Random(seed)
        changed = 0
        for _ in range(12):
            source = f"source-{randomly.randrange(3)}"
            texts = randomly.sample(["alpha", "alpha beta", "beta gamma delta", "...", "epsilon"], k=3)
            chunks = [chunk(source, text, index=seed, vector=randomly.choice([None, EAST])) for text in texts]
            match randomly.randrange(6):
                case 0 | 1:
                    others = [chunk(f"source-{n}", "zeta", index=seed) for n in randomly.sample(range(3), k=3)]
                    api.upsert(*chunks, *others)
                case 2 | 3 | 4:
                    api.writer.ReplaceSource(ReplaceSourceRequest(source_id=source, chunks=chunks))
                case 5 if randomly.randrange(2):
                    api.purge.PurgeSource(PurgeSourceRequest(source_id=source))
                case _:
                    api.purge.PurgeTenant(PurgeTenantRequest())
            changed += 1
        return changed

    with ThreadPoolExecutor(max_workers=WRITERS) as threads:
        assert list(threads.map(write, range(WRITERS))) == [12] * WRITERS
    sources = api.reader.ListSources(ListSourcesRequest()).sources
    rows = {source.source_id: api.chunks_of(source.source_id) for source in sources}
    assert {source.source_id: source.chunk_count for source in sources} == {name: len(rows[name]) for name in rows}
    everything = [message for chunks in rows.values() for message in chunks]
    corpus = api.corpus()
    assert corpus.chunk_count == len(everything)
    assert corpus.embedded_count == sum(message.HasField("embedding") for message in everything)
    assert corpus.source_count == len(rows)
    assert max((source.revision for source in sources), default=0) <= corpus.revision <= WRITERS * 12
    terms = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    found = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=terms, limit=900))
    words = [message.text.replace(".", "").split() for message in everything]
    assert found.statistics.chunk_count == len(everything)
    assert found.statistics.total_length == sum(map(len, words))
    assert dict(found.statistics.document_frequencies) == {
        term: sum(term in chunk_words for chunk_words in words) for term in terms
    }
    assert len(found.candidates) == sum(bool(chunk_words) for chunk_words in words)
