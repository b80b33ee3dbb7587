"""The examples of each client against a live server."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.clients.programs import PYTHON, Program
from tests.serving import serving

QUERY = "warranty 138"
BEST = "note-138"

_numbers = count()


@pytest.fixture(scope="module")
def hybrid_server() -> Iterator[str]:
    with serving("--store", "memory") as address:
        yield address


@pytest.fixture(scope="module")
def lexical_server() -> Iterator[str]:
    with serving("--store", "memory", "--embeddings", "none", "--dimension", "8") as address:
        yield address


@pytest.fixture
def tenant() -> str:
    return f"tenant-{next(_numbers)}"


def _summary(**changed: int) -> dict[str, int]:
    return {"documents": 200, "indexed": 200, "failed": 0, "blank": 0, "written": 0, "unchanged": 0, **changed}


def _note_id(number: int, topic: str) -> str:
    return hashlib.sha256(f"note-{number}\0Note {number} is about {topic}.".encode()).hexdigest()


def _scores(hits: list[dict[str, Any]], channel: str) -> list[Any]:
    return [hit[channel] for hit in hits]


def test_every_document_is_acknowledged_and_found(program: Program, hybrid_server: str, tenant: str) -> None:
    answer = program.answer(hybrid_server, tenant, query=QUERY)
    assert answer.summary == _summary(written=200)
    assert len(answer.hits) == 10
    assert answer.hits[0]["source_id"] == BEST
    assert answer.hits[0]["id"] == _note_id(138, "warranty")
    assert _scores(answer.hits, "score") == sorted(_scores(answer.hits, "score"), reverse=True)
    for hit in answer.hits:
        assert 0 <= hit["semantic"] <= 1
        shares = (hit[f"{channel}_share"] for channel in ("semantic", "lexical", "identifier"))
        assert hit["score"] == sum(share for share in shares if share is not None)
        assert hit["partial"] is False


def test_a_second_run_changes_nothing(program: Program, hybrid_server: str, tenant: str) -> None:
    first = program.answer(hybrid_server, tenant, query=QUERY)
    second = program.answer(hybrid_server, tenant, query=QUERY)
    assert second.summary == _summary(unchanged=200)
    assert second.hits == first.hits


def test_both_programs_print_the_same(
    go_program: Program, ts_program: Program, hybrid_server: str, tenant: str
) -> None:
    by_go = go_program.answer(hybrid_server, tenant, query=QUERY)
    by_ts = ts_program.answer(hybrid_server, tenant, query=QUERY)
    assert by_ts.summary == _summary(unchanged=200)
    assert by_ts.hits == by_go.hits


def test_lexical_is_null_where_only_the_semantic_channel_ranked(
    program: Program, hybrid_server: str, tenant: str
) -> None:
    answer = program.answer(hybrid_server, tenant, query="138")
    assert answer.hits[0]["source_id"] == BEST
    assert answer.hits[0]["lexical"] > 0
    assert _scores(answer.hits[1:], "lexical") == [None] * 9
    assert None not in _scores(answer.hits, "semantic")


def test_semantic_is_null_and_the_answer_partial_without_embeddings(
    program: Program, lexical_server: str, tenant: str
) -> None:
    answer = program.answer(lexical_server, tenant, query=QUERY)
    assert answer.summary == _summary(written=200)
    assert answer.hits[0]["source_id"] == BEST
    assert _scores(answer.hits, "semantic") == [None] * 10
    assert all(hit["lexical"] > 0 and hit["partial"] is True for hit in answer.hits)


def test_many_documents_are_all_acknowledged(program: Program, lexical_server: str, tenant: str) -> None:
    answer = program.answer(lexical_server, tenant, count=10_000, query="138")
    assert answer.summary == _summary(documents=10_000, indexed=10_000, written=10_000)
    assert [hit["source_id"] for hit in answer.hits] == [BEST]


def test_a_malformed_tenant_is_refused_with_its_reason(program: Program, lexical_server: str) -> None:
    done = program.run(lexical_server, "not a tenant", count=5000, query=QUERY)
    assert done.returncode == 1
    assert done.stderr.startswith("IndexDocuments: INVALID_ARGUMENT (INVALID_TENANT): ")
    assert done.stdout == ""


def test_a_refused_query_fails_after_the_summary(program: Program, lexical_server: str, tenant: str) -> None:
    done = program.run(lexical_server, tenant, query=" ")
    assert done.returncode == 1
    assert done.stderr.startswith("RetrieveChunks: INVALID_ARGUMENT (INVALID_FIELD): ")
    assert len(done.stdout.splitlines()) == 1


def test_the_python_example_filters_and_explains(hybrid_server: str, tenant: str) -> None:
    program = Program([sys.executable, str(PYTHON / "example.py")])
    answer = program.answer(hybrid_server, tenant, query="warranty 7")
    assert answer.summary == {"documents": 200, "failed": 0}
    assert len(answer.hits) == 5
    assert answer.hits[0]["source_id"] == "doc-7"
    for hit in answer.hits:
        assert int(hit["source_id"].removeprefix("doc-")) < 50
        assert sum(hit["terms"].values()) == hit["lexical"]
