"""Databases for the tests of this folder. A database that cannot be started fails them; nothing is skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.databases import VERSIONS, fresh_database, running_postgres


@pytest.fixture(scope="session")
def newest_server() -> Iterator[str]:
    """The DSN of a PostgreSQL of the version that is embedded by default."""
    with running_postgres() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def oldest_server() -> Iterator[str]:
    """The DSN of a PostgreSQL of the oldest version that can be embedded."""
    with running_postgres(min(VERSIONS)) as dsn:
        yield dsn


@pytest.fixture
async def dsn(newest_server: str) -> AsyncIterator[str]:
    """The DSN of an empty database."""
    async with fresh_database(newest_server) as database:
        yield database


@pytest.fixture(params=["oldest_server", "newest_server"])
async def any_dsn(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The DSN of an empty database, once for each version."""
    async with fresh_database(request.getfixturevalue(request.param)) as database:
        yield database
