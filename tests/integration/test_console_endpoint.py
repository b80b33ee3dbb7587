"""What the console answers over HTTP, and whom."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format
from tests.consoles import TENANT, RunningConsole, running_console
from tests.serving import server_process

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.service.console.app import MAX_BODY_BYTES
from chunkstore.service.console.server import Console
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest
from chunkstore.v1.retrieval_service_pb2_grpc import RetrievalServiceStub

JSON = {"content-type": "application/json"}
DOCUMENTS = {"refunds": "A refund takes ten days.", "hotels": "Hotel nights are booked early."}


@pytest.fixture(scope="module")
async def console() -> AsyncIterator[RunningConsole]:
    async with running_console(DOCUMENTS, embeddings="hashing", dimension=8, max_k=50) as running:
        yield running


async def _posted(
    console: RunningConsole, content: bytes | str, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    async with httpx.AsyncClient(base_url=console.url, trust_env=False) as client:
        sent = httpx.Headers({**JSON, "x-tenant-id": TENANT, **(headers or {})}, encoding="utf-8")
        return await client.post("retrieve", content=content, headers=sent)


def _without_times(response: dict[str, Any]) -> dict[str, Any]:
    for report in response["channels"]:
        del report["elapsed"]
    return response


async def test_the_answer_is_that_of_the_call(console: RunningConsole) -> None:
    request = RetrieveChunksRequest(query="refund days", k=2, explain=True)
    async with grpc.aio.insecure_channel(console.address) as channel:
        called = await RetrievalServiceStub(channel).RetrieveChunks(request, metadata=(("x-tenant-id", TENANT),))
    posted = await _posted(console, '{"query": "refund days", "k": 2, "explain": true}')
    assert posted.status_code == 200
    expected = json_format.MessageToDict(
        called, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert len(expected["chunks"]) == 2
    assert _without_times(posted.json()) == _without_times(expected)


@pytest.mark.parametrize(
    ("content", "reason", "field"),
    [
        ('{"query": "  "}', "INVALID_FIELD", "query"),
        ('{"query": "x", "k": -1}', "INVALID_FIELD", "k"),
        ('{"query": "x", "k": 51}', "INVALID_FIELD", "k"),
        ('{"query": "x", "k": 1e99}', "MALFORMED_REQUEST", "k"),
        ('{"query": "x", "mode": "no such mode"}', "MALFORMED_REQUEST", "mode"),
        ('{"query": "x", "mode": 77}', "INVALID_FIELD", "mode"),
        ('{"query": "\\ud800"}', "MALFORMED_REQUEST", "query"),
        ('{"query": "x", "fusion": {"semantic_weight": 1.5}}', "INVALID_FIELD", "fusion.semantic_weight"),
        ('{"query": "x", "filter": ' + '{"not": ' * 200 + "{}" + "}" * 201, "MALFORMED_REQUEST", "filter"),
        ('{"secret": 1}', "MALFORMED_REQUEST", "request"),
        ("[" * 100_000, "MALFORMED_REQUEST", "request"),
        ("[]", "MALFORMED_REQUEST", "request"),
        ("secret", "MALFORMED_REQUEST", "request"),
        (b"\xff", "MALFORMED_REQUEST", "request"),
        (b"", "MALFORMED_REQUEST", "request"),
        (b" " * (MAX_BODY_BYTES + 1), "MALFORMED_REQUEST", "request"),
    ],
)
async def test_a_bad_request_is_refused_by_code_reason_and_field(
    console: RunningConsole, content: bytes | str, reason: str, field: str
) -> None:
    posted = await _posted(console, content)
    error = posted.json()
    assert (posted.status_code, error["code"], error["reason"], error["field"]) == (
        400,
        "INVALID_ARGUMENT",
        reason,
        field,
    )
    assert error["message"].startswith(field)
    assert "secret" not in posted.text
    assert "Traceback" not in posted.text


@pytest.mark.parametrize("tenant", ["", "-x", "a b", "x" * 129, "caf\u00e9"])
async def test_a_bad_tenant_is_refused(console: RunningConsole, tenant: str) -> None:
    posted = await _posted(console, '{"query": "x"}', {"x-tenant-id": tenant})
    assert (posted.json()["reason"], posted.json()["field"]) == ("INVALID_TENANT", "x-tenant-id")


async def test_a_missing_tenant_is_refused_and_another_sees_nothing(console: RunningConsole) -> None:
    async with httpx.AsyncClient(base_url=console.url, trust_env=False) as client:
        missing = await client.post("retrieve", content='{"query": "x"}', headers=JSON)
        twice = await client.post(
            "retrieve", content='{"query": "x"}', headers=[*JSON.items(), ("x-tenant-id", "a"), ("x-tenant-id", "b")]
        )
    assert missing.json()["reason"] == twice.json()["reason"] == "INVALID_TENANT"
    other = await _posted(console, '{"query": "refund"}', {"x-tenant-id": "other"})
    assert other.json()["chunks"] == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_what_another_sites_page_may_send_unasked_is_refused(console: RunningConsole, kind: str) -> None:
    posted = await _posted(console, '{"query": "refund"}', {"content-type": kind})
    assert (posted.status_code, posted.json()["field"]) == (400, "content-type")
    async with httpx.AsyncClient(base_url=console.url, trust_env=False) as client:
        asked = await client.options("retrieve", headers={"origin": "http://example.org"})
    assert asked.status_code == 405
    assert not [name for name in asked.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host", ["example.org", "example.org:80", "localhost.example.org", "10.0.0.1", "[::2]:80", ""])
@pytest.mark.parametrize("path", ["", "retrieve"])
async def test_a_name_that_was_pointed_at_this_machine_is_refused(
    console: RunningConsole, host: str, path: str
) -> None:
    async with httpx.AsyncClient(base_url=console.url, trust_env=False) as client:
        method = "POST" if path else "GET"
        headers = {**JSON, "x-tenant-id": TENANT, "host": host}
        refused = await client.request(method, path, content='{"query": "refund"}', headers=headers)
    assert refused.status_code == 403
    assert "chunkstore" not in refused.text


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]", "[::1]:8080"])
async def test_loopback_hosts_are_answered(console: RunningConsole, host: str) -> None:
    async with httpx.AsyncClient(base_url=console.url, trust_env=False) as client:
        assert (await client.get("", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("path", ["", "console.js", "console.css", "retrieve", "../app.py", "static/index.html"])
async def test_every_response_forbids_what_the_page_does_not_need(console: RunningConsole, path: str) -> None:
    async with httpx.AsyncClient(base_url=console.url, trust_env=False) as client:
        response = await client.get(path)
    assert response.status_code == {"retrieve": 405, "../app.py": 404, "static/index.html": 404}.get(path, 200)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.0.0.1:0", "example.org:0", "127.0.0.1", "127.0.0.1:99999", ""])
def test_only_loopback_addresses_are_served(address: str) -> None:
    with pytest.raises(InvalidFieldError, match=r"^console must be"):
        Console(address)


def test_an_address_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InvalidFieldError, match="cannot be bound"):
        Console(f"127.0.0.1:{taken.getsockname()[1]}")


def test_serve_says_where_the_console_is_and_ends_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--store", "memory", "--embeddings", "none", "--dimension", "8")
    with server_process(*options, env={"CHUNKSTORE_CONSOLE": f"127.0.0.1:{port}"}) as (process, _):
        assert "console" in httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).text
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert not re.search("Traceback|Error", capfd.readouterr().err)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
