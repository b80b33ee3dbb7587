"""Two servers for each store, one with an embedding provider and one without, and a new tenant for each test."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest
from tests.compliance.provider import DIMENSION
from tests.compliance.stores import STORES
from tests.compliance.wire import Api
from tests.serving import serving

CLIENT_OPTIONS = (("grpc.max_receive_message_length", 64 * 1024 * 1024),)


@dataclass(frozen=True)
class Servers:
    """Connections to a store's servers."""

    hashing: grpc.Channel
    """Embeds by hashed words, 4 wide; otherwise as a server is by default."""
    plain: grpc.Channel
    """No provider; vectors 4 wide; responses of at most 64 KiB."""


@pytest.fixture(scope="session", params=list(STORES))
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with (
        STORES[request.param]() as new_store,
        new_store() as embedded,
        new_store() as unembedded,
        serving(*embedded, "--embeddings", "hashing", "--dimension", str(DIMENSION)) as hashing,
        serving(
            *unembedded,
            *("--embeddings", "none", "--dimension", str(DIMENSION), "--max-response-bytes", str(64 * 1024)),
        ) as plain,
        grpc.insecure_channel(hashing, options=CLIENT_OPTIONS) as hashing_channel,
        grpc.insecure_channel(plain, options=CLIENT_OPTIONS) as plain_channel,
    ):
        yield Servers(hashing_channel, plain_channel)


@pytest.fixture
def api(servers: Servers) -> Api:
    """A tenant that has never written, on the server that embeds."""
    return Api(servers.hashing, _new_tenant())


@pytest.fixture
def other(servers: Servers) -> Api:
    """Another tenant on the same server."""
    return Api(servers.hashing, _new_tenant())


@pytest.fixture
def plain_api(servers: Servers) -> Api:
    """A tenant that has never written, on the server without a provider and with small responses."""
    return Api(servers.plain, _new_tenant())


def _new_tenant() -> str:
    return f"tenant-{uuid.uuid4().hex}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many cases of the suite each store has passed."""
    passed = Counter(
        store
        for report in terminalreporter.stats.get("passed", ())
        if "tests/compliance/" in report.nodeid and (store := _store_of(report.nodeid))
    )
    if passed:
        counts = ", ".join(f"{store} {passed[store]}" for store in STORES)
        terminalreporter.write_line(f"compliance cases passed by each store: {counts}")


def _store_of(nodeid: str) -> str | None:
    _, _, parameters = nodeid.partition("[")
    named = [store for store in STORES if parameters.startswith((f"{store}-", f"{store}]"))]
    return max(named, key=len, default=None)
