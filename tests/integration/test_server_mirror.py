"""Servers that rank in memory, over one database: what they tell of it, and what they answer when something breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable

import pytest
from tests.databases import fresh_database
from tests.serving import serving

from chunkstore.client import ChunkstoreClient, Document
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksResponse
from chunkstore.v1.store_service_pb2 import (
    MIRROR_STATE_MIRRORED,
    MIRROR_STATE_NOT_LOADED,
    MIRROR_STATE_TOO_LARGE,
    MirrorInfo,
)

OPTIONS = ("--embeddings", "hashing", "--dimension", "8", "--dsn")


@pytest.fixture
async def dsn(newest_server: str) -> AsyncIterator[str]:
    async with fresh_database(newest_server) as database:
        yield database


def _documents(count: int, word: str = "alpha") -> Iterable[Document]:
    return [Document(f"s{n}", f"{word} passage {n} of {n % 7}") for n in range(count)]


def _answer(client: ChunkstoreClient) -> RetrieveChunksResponse:
    """The answer to a query, without the times that it took."""
    answer = client.retrieve_chunks("alpha passage 3", k=50, include_embeddings=True)
    for report in answer.channels:
        report.ClearField("elapsed")
    return answer


def test_a_server_tells_what_its_mirrors_take_and_how_a_tenant_is_ranked(dsn: str) -> None:
    """One of room for both tenants, one of room for either, and one of room for neither: the answers are the same."""
    with serving(*OPTIONS, dsn) as address, ChunkstoreClient(address, "a") as a, ChunkstoreClient(address, "b") as b:
        a.index_documents(_documents(60))
        b.index_documents(_documents(50))
        answers = _answer(a), _answer(b)
        sizes = a.store_info().mirror.size_bytes, b.store_info().mirror.size_bytes
        assert a.store_info().mirror.mirrored_tenant_count == 2
        assert a.store_info().mirror.memory_used_bytes == sum(sizes)
    budget = sum(sizes) * 3 // 4
    options = (*OPTIONS, dsn, "--mirror-memory")
    with (
        serving(*options, str(budget)) as address,
        ChunkstoreClient(address, "a") as a,
        ChunkstoreClient(address, "b") as b,
    ):
        for client, other, size, answer in ((a, b, sizes[0], answers[0]), (b, a, sizes[1], answers[1])):
            assert _answer(client) == answer
            info = client.store_info()
            expected = MirrorInfo(
                memory_budget_bytes=budget,
                memory_used_bytes=size,
                mirrored_tenant_count=1,
                state=MIRROR_STATE_MIRRORED,
                revision=info.corpus.revision,
                size_bytes=size,
            )
            assert info.mirror == expected
            expected.state = MIRROR_STATE_NOT_LOADED
            expected.ClearField("revision")
            expected.ClearField("size_bytes")
            assert other.store_info().mirror == expected
        command = [sys.executable, "-m", "chunkstore.cli.main", "info", "--address", address, "--tenant", "b"]
        shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(shown.stdout)["mirror"]["state"] == "MIRROR_STATE_MIRRORED"
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert ["mirror.memory_budget_bytes", str(budget)] in [line.split() for line in shown.stdout.splitlines()]
    with (
        serving(*options, "100") as address,
        ChunkstoreClient(address, "a") as a,
        ChunkstoreClient(address, "b") as b,
    ):
        for client, answer in ((a, answers[0]), (b, answers[1])):
            assert _answer(client) == answer
            assert client.store_info().mirror == MirrorInfo(memory_budget_bytes=100, state=MIRROR_STATE_TOO_LARGE)
