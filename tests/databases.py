"""Real databases for tests: embedded PostgreSQL 16 and 18, fresh databases, and a wire that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from chunkstore.adapters.postgres.embedded import DEFAULT_VERSION, EmbeddedPostgres

VERSIONS = (16, 18)
_numbers = itertools.count(1)


@contextmanager
def running_postgres(version: int = DEFAULT_VERSION) -> Iterator[str]:
    """A PostgreSQL of its own in a temporary folder; gives the DSN of its maintenance database.

    It does not wait for the disk, and everything is deleted at the end.
    """
    folder = Path(tempfile.mkdtemp(prefix="chunkstore-test-"))
    server = EmbeddedPostgres(folder / "postgres", version=version)
    dsn = server.start()
    try:
        asyncio.run(_without_durability(dsn))
        yield dsn
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def fresh_database(server_dsn: str) -> AsyncIterator[str]:
    """An empty database on that server; gives its DSN, and drops it at the end with whatever is connected to it."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    await run_sql(server_dsn, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(server_dsn)._replace(path=f"/{name}"))
    finally:
        await run_sql(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own, beside those of the store under test."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def run_sql(dsn: str, sql: str) -> None:
    """Run statements on a connection of their own, outside a transaction."""
    async with connected(dsn) as connection:
        await connection.execute(sql)


class Wire:
    """A Unix socket in front of a server's; cutting it ends every connection and refuses new ones until mended."""

    def __init__(self, server_dsn: str) -> None:
        parts = urlsplit(server_dsn)
        self._server_socket = Path(parse_qs(parts.query)["host"][0]) / ".s.PGSQL.5432"
        self._folder = Path(tempfile.mkdtemp(prefix="chunkstore-wire-"))
        self.dsn = urlunsplit(parts._replace(query=f"host={self._folder}"))
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def mend(self) -> None:
        """Let connections through."""
        self._listener = await asyncio.start_unix_server(self._connect, self._folder / ".s.PGSQL.5432")

    async def cut(self) -> None:
        """End every connection, and refuse new ones."""
        if self._listener is not None:
            self._listener.close()
            (self._folder / ".s.PGSQL.5432").unlink(missing_ok=True)
            self._listener = None
        for writer in tuple(self._open):
            writer.transport.abort()

    async def __aenter__(self) -> Wire:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_unix_connection(self._server_socket)
        self._open |= {writer, upstream}
        try:
            await asyncio.gather(_pump(reader, upstream), _pump(upstream_reader, writer))
        finally:
            self._open -= {writer, upstream}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _without_durability(dsn: str) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        await run_sql(dsn, f"ALTER SYSTEM SET {setting} = off")
    await run_sql(dsn, "SELECT pg_reload_conf()")
