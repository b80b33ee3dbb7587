"""A server over PostgreSQL: what is committed when a stream, a call, a connection or the server itself is cut."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.databases import Wire, connected, fresh_database, run_sql, running_postgres
from tests.inprocess import DIMENSION, TENANT, GatedProvider, Running, running, status_of
from tests.serving import serving

from chunkstore.adapters.embedding.hashing import HashingProvider
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.client import ChunkstoreClient, Document, DocumentsFailedError, ServiceError
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.errors import EmbeddingFailedError, EmbeddingQuotaError
from chunkstore.domain.text import TenantId
from chunkstore.v1 import chunk_reader_service_pb2 as reader_pb
from chunkstore.v1 import indexing_service_pb2 as indexing_pb
from chunkstore.v1 import retrieval_service_pb2 as retrieval_pb
from chunkstore.v1.chunk_reader_service_pb2_grpc import ChunkReaderServiceStub
from chunkstore.v1.indexing_service_pb2_grpc import IndexingServiceStub
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub

STATISTICS_AGREE = """
    SELECT c.chunk_count = (SELECT count(*) FROM chunkstore.chunks k WHERE k.tenant_id = c.tenant_id)
       AND c.embedded_count = (SELECT count(embedding) FROM chunkstore.chunks k WHERE k.tenant_id = c.tenant_id)
       AND c.total_length = (SELECT coalesce(sum(doc_length), 0) FROM chunkstore.chunks k
                             WHERE k.tenant_id = c.tenant_id)
       AND c.source_count = (SELECT count(*) FROM chunkstore.sources s WHERE s.tenant_id = c.tenant_id)
    FROM chunkstore.corpora c"""


@pytest.fixture(scope="module")
def server_dsn() -> Iterator[str]:
    with running_postgres() as dsn:
        yield dsn


@pytest.fixture
async def dsn(server_dsn: str) -> AsyncIterator[str]:
    async with fresh_database(server_dsn) as database:
        yield database


@asynccontextmanager
async def _running(dsn: str, provider: Any = None, **settings: Any) -> AsyncIterator[Running]:
    store = await PostgresChunkStore.open(
        dsn,
        dimension=DIMENSION,
        analyzer=analyzer("english"),
        embedding_model=provider.model if provider else None,
        pool_size=4,
        acquire_timeout=5.0,
    )
    try:
        async with running(provider, store, **settings) as run:
            yield run
    finally:
        await store.aclose()


def _document(source_id: str, text: str) -> indexing_pb.IndexDocumentsRequest:
    return indexing_pb.IndexDocumentsRequest(document=indexing_pb.Document(source_id=source_id, text=text))


async def _outcome(stream: Any) -> indexing_pb.DocumentOutcome:
    response: indexing_pb.IndexDocumentsResponse = await stream.read()
    return response.outcome


async def _sessions(dsn: str, condition: str) -> int:
    async with connected(dsn) as connection:
        found: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            f"AND pid <> pg_backend_pid() AND {condition}"
        )
        return found


async def _until(condition: Any) -> None:
    async with asyncio.timeout(10.0):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_a_cancelled_stream_rolls_back_the_document_under_way_and_keeps_those_answered(dsn: str) -> None:
    async with _running(dsn) as run, connected(dsn) as blocker:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        for number in range(3):
            await stream.write(_document(f"s{number}", "words"))
            assert (await _outcome(stream)).WhichOneof("result") == "indexed"
        lock = blocker.transaction()
        await lock.start()
        await blocker.execute("SELECT FROM chunkstore.corpora FOR UPDATE")
        for number in range(3, 10):
            await stream.write(_document(f"s{number}", "words"))
        await _until(lambda: _is_any(dsn, "wait_event_type = 'Lock'"))
        stream.cancel()
        await _until(
            lambda: _is_none(
                dsn,
                "state <> 'idle' AND backend_type = 'client backend' AND xact_start < now()"
                " AND wait_event_type = 'Lock'",
            )
        )
        await lock.rollback()
        await _until(lambda: _nothing_runs(run))
        counts = await run.chunks.counts(TenantId("t"))
        assert (counts.source_count, counts.chunk_count) == (3, 3)
        assert await _sessions(dsn, "state = 'idle in transaction'") == 0


async def _is_any(dsn: str, condition: str) -> bool:
    return await _sessions(dsn, condition) > 0


async def _is_none(dsn: str, condition: str) -> bool:
    return await _sessions(dsn, condition) == 0


async def _nothing_runs(run: Running) -> bool:
    return run.server._admission.active == 0


async def test_a_deadline_reaches_the_database(dsn: str) -> None:
    async with _running(dsn) as run, connected(dsn) as blocker:
        stub = ChunkReaderServiceStub(run.channel)
        request = reader_pb.ListSourceChunksRequest(source_id="s")
        await stub.ListSourceChunks(request, metadata=TENANT)
        lock = blocker.transaction()
        await lock.start()
        await blocker.execute("LOCK TABLE chunkstore.chunks IN ACCESS EXCLUSIVE MODE")
        call = stub.ListSourceChunks(request, metadata=TENANT, timeout=0.5)
        await _until(lambda: _is_any(dsn, "wait_event_type = 'Lock'"))
        assert (await status_of(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await _until(lambda: _is_none(dsn, "wait_event_type = 'Lock'"))
        await lock.rollback()


async def test_no_connection_is_held_while_a_provider_embeds(dsn: str) -> None:
    provider = GatedProvider()
    async with _running(dsn, provider) as run:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await stream.write(_document("s", "words"))
        query = RetrievalServiceStub(run.channel).RetrieveChunks(
            retrieval_pb.RetrieveChunksRequest(query="words"), metadata=TENANT
        )
        await provider.waiting.wait()
        await _until(lambda: _both_embed(provider))
        assert await _sessions(dsn, "xact_start IS NOT NULL AND application_name <> 'test'") == 0
        provider.gate.set()
        assert (await _outcome(stream)).WhichOneof("result") == "indexed"
        assert (await query).channels[0].status == retrieval_pb.CHANNEL_STATUS_ANSWERED


async def _both_embed(provider: GatedProvider) -> bool:
    return provider.running == 2


async def test_an_older_slower_document_does_not_overwrite_a_newer_one(dsn: str) -> None:
    provider = GatedProvider(word="older")
    async with _running(dsn, provider) as run:
        slow = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await slow.write(_document("s", "the older text"))
        await provider.waiting.wait()
        fast = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await fast.write(_document("s", "the newer text"))
        assert (await _outcome(fast)).WhichOneof("result") == "indexed"
        provider.gate.set()
        refused = (await _outcome(slow)).error
        assert (refused.code, refused.reason) == (10, 8)
        chunks = await run.chunks.get_by_source(TenantId("t"), "s", limit=9)
        assert [chunk.text for chunk in chunks] == ["the newer text"]


class FailingProvider(HashingProvider):
    """Embeds until told to fail, then raises the error given."""

    failure: EmbeddingFailedError | None = None

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if self.failure is not None:
            raise self.failure
        return await super().embed(texts)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (EmbeddingFailedError("it went away"), grpc.StatusCode.UNAVAILABLE),
        (EmbeddingQuotaError("its rate limit"), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_a_document_that_cannot_be_embedded_leaves_its_old_version_whole(
    dsn: str, failure: EmbeddingFailedError, code: grpc.StatusCode
) -> None:
    provider = FailingProvider(DIMENSION)
    async with _running(dsn, provider) as run:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        paragraphs = "\n\n".join(f"{n} " + "old words " * 60 for n in range(100))
        await stream.write(_document("s", paragraphs))
        written = (await _outcome(stream)).indexed.counts.written
        assert written >= 100
        provider.failure = failure
        await stream.write(_document("s", "the new text"))
        error = (await _outcome(stream)).error
        assert error.code == code.value[0]
        await stream.done_writing()
        last: Any = await stream.read()
        summary = last.summary
        assert (summary.documents, summary.indexed, summary.failed) == (2, 1, 1)
        chunks = await run.chunks.get_by_source(TenantId("t"), "s", limit=1000)
        assert len(chunks) == written
        assert all("old words" in chunk.text for chunk in chunks)


async def test_a_lost_database_is_unavailable_and_not_serving_and_comes_back_by_itself(
    dsn: str, server_dsn: str
) -> None:
    async with Wire(dsn) as wire, _running(wire.dsn) as run:
        stub = ChunkReaderServiceStub(run.channel)
        health = health_pb2_grpc.HealthStub(run.channel)
        request = reader_pb.ListSourcesRequest()

        async def is_status(service: str, status: int) -> bool:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            return bool(answer.status == status)

        await stub.ListSources(request, metadata=TENANT)
        for service in ("", "chunkstore.v1.RetrievalService"):
            assert await is_status(service, health_pb2.HealthCheckResponse.SERVING)
        await wire.cut()
        unavailable = (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert await status_of(stub.ListSources(request, metadata=TENANT)) == unavailable
        for service in ("", "chunkstore.v1.RetrievalService"):
            await _until(lambda service=service: is_status(service, health_pb2.HealthCheckResponse.NOT_SERVING))
        await wire.mend()
        await _until(lambda: is_status("", health_pb2.HealthCheckResponse.SERVING))
        assert not (await stub.ListSources(request, metadata=TENANT)).sources


async def test_a_killed_server_leaves_every_source_wholly_old_or_wholly_new(dsn: str) -> None:
    """Ten seeded rounds of kill -9 in the middle of a stream of 200 documents."""
    rounds = random.Random(20_26)
    arguments = [
        "--dsn",
        dsn,
        "--embeddings",
        "hashing",
        "--dimension",
        "8",
        "--chunk-size",
        "40",
        "--chunk-overlap",
        "0",
    ]
    for version in range(10):
        await asyncio.to_thread(_killed_in_the_middle, arguments, version, rounds.uniform(0.05, 0.6))
        async with connected(dsn) as connection:
            rows = await connection.fetch(
                "SELECT source_id, array_agg(DISTINCT split_part(text, ' ', 1)) AS versions, count(*) AS chunks "
                "FROM chunkstore.chunks GROUP BY source_id"
            )
            assert await connection.fetchval(STATISTICS_AGREE) is not False
        for row in rows:
            [shown] = row["versions"]
            expected = 5 + int(shown.removeprefix("v")) % 3
            assert row["chunks"] == expected, (row["source_id"], shown)


def _killed_in_the_middle(arguments: list[str], version: int, after: float) -> None:
    command = [sys.executable, "-m", "chunkstore.cli.main", "serve", "--address", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        paragraphs = 5 + version % 3
        documents = [
            Document(f"s{n}", "\n\n".join(f"v{version} paragraph {p} of source {n}" for p in range(paragraphs)))
            for n in range(200)
        ]
        killer = threading.Timer(after, process.send_signal, (signal.SIGKILL,))
        killer.start()
        try:
            with ChunkstoreClient(address, "t") as client:
                client.index_documents(documents)
        except (ServiceError, DocumentsFailedError):
            pass
        finally:
            killer.cancel()
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--dimension", "16", "--embeddings", "hashing"), ("8", "16", "chunkstore migrate")),
        (("--embeddings", "none", "--dimension", "16"), ("8", "16", "chunkstore migrate")),
        (
            ("--analyzer", "german", "--embeddings", "hashing", "--dimension", "8"),
            ("english", "german", "chunkstore backfill lexical"),
        ),
        (("--embeddings", "wordllama"), ("hashing-8", "wordllama", "chunkstore migrate")),
    ],
)
async def test_a_store_made_otherwise_is_refused_in_one_line_that_names_both(
    dsn: str, arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    provider = HashingProvider(DIMENSION)
    async with _running(dsn, provider) as run:
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await stream.write(_document("s", "words"))
        assert (await _outcome(stream)).WhichOneof("result") == "indexed"
    command = [sys.executable, "-m", "chunkstore.cli.main", "serve", "--address", "127.0.0.1:0", "--dsn", dsn]
    refused = await asyncio.to_thread(
        subprocess.run, [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode != 0
    [line] = refused.stderr.strip().splitlines()
    for name in named:
        assert name in line
    assert "listening" not in refused.stdout


async def test_a_table_of_another_width_is_refused_in_one_line_that_names_both(dsn: str) -> None:
    """Also where no store has recorded what it was made with."""
    await run_sql(
        dsn,
        "CREATE EXTENSION vector; CREATE SCHEMA chunkstore; CREATE TABLE chunkstore.chunks (tenant_id text NOT NULL, "
        "id bytea NOT NULL, source_id text NOT NULL, text text NOT NULL, chunk_index integer NOT NULL, "
        "start_char integer NOT NULL, end_char integer NOT NULL, embedding vector(8), PRIMARY KEY (tenant_id, id))",
    )
    command = [sys.executable, "-m", "chunkstore.cli.main", "serve", "--address", "127.0.0.1:0", "--dsn", dsn]
    refused = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    [line] = refused.stderr.strip().splitlines()
    for name in ("8 dimensions", "256", "chunkstore migrate"):
        assert name in line


async def test_a_server_left_running_through_a_migration_refuses_and_stops_serving(dsn: str) -> None:
    async with _running(dsn) as run:
        request = reader_pb.ListSourcesRequest()
        await ChunkReaderServiceStub(run.channel).ListSources(request, metadata=TENANT)
        stream = IndexingServiceStub(run.channel).IndexDocuments(metadata=TENANT)
        await stream.write(_document("s", "words"))
        assert (await _outcome(stream)).WhichOneof("result") == "indexed"
        command = [sys.executable, "-m", "chunkstore.cli.main", "backfill", "lexical", "--analyzer", "german", "--dsn"]
        await asyncio.to_thread(subprocess.run, [*command, dsn], check=True, timeout=60, capture_output=True)
        query = retrieval_pb.RetrieveChunksRequest(query="words")
        call = RetrievalServiceStub(run.channel).RetrieveChunks(query, metadata=TENANT)
        assert await status_of(call) == (grpc.StatusCode.FAILED_PRECONDITION, "STORE_MISMATCH")
        await stream.write(_document("t", "words"))
        assert (await _outcome(stream)).error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        health = health_pb2_grpc.HealthStub(run.channel)

        async def not_serving() -> bool:
            answer = await health.Check(health_pb2.HealthCheckRequest())
            return bool(answer.status == health_pb2.HealthCheckResponse.NOT_SERVING)

        await _until(not_serving)


async def test_a_role_that_may_not_migrate_is_told_so_in_one_line(dsn: str, server_dsn: str) -> None:
    await run_sql(dsn, "DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN")
    command = [sys.executable, "-m", "chunkstore.cli.main", "serve", "--address", "127.0.0.1:0", "--dsn"]
    limited = dsn.replace("postgres:@", "limited:@")
    assert limited != dsn
    refused = await asyncio.to_thread(
        subprocess.run, [*command, limited], capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 1
    [line] = refused.stderr.strip().splitlines()
    assert "chunkstore migrate" in line


@pytest.mark.parametrize("ranking", ["mirror", "sql"])
async def test_answers_are_the_same_after_a_restart(dsn: str, ranking: str) -> None:
    """Ids, order and score bits, ties included: two sources hold the same text."""
    arguments = ("--dsn", dsn, "--ranking", ranking, "--embeddings", "hashing", "--dimension", "8")
    texts = ("refunds take ten days", "refunds take ten days", "visas take six weeks", "refunds of visas")
    documents = [Document(f"s{number}", text) for number, text in enumerate(texts)]
    answers = []
    for _ in range(2):
        with serving(*arguments) as address, ChunkstoreClient(address, "t") as client:
            await asyncio.to_thread(client.index_documents, documents)
            answer = await asyncio.to_thread(client.retrieve_chunks, "refunds of visas")
            answers.append([hit.SerializeToString(deterministic=True) for hit in answer.chunks])
    assert len(answers[0]) == 4
    assert answers[0] == answers[1]


async def test_an_absent_database_ends_the_start_in_one_line_without_the_password() -> None:
    command = [
        sys.executable,
        "-m",
        "chunkstore.cli.main",
        "serve",
        "--address",
        "127.0.0.1:0",
        "--dsn",
        "postgresql://someone:hidden@127.0.0.1:9/none",
    ]
    refused = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    [line] = refused.stderr.strip().splitlines()
    assert "database cannot be reached" in line
    assert "hidden" not in line
