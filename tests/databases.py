"""Real databases for tests: embedded PostgreSQL 16 and 18, fresh databases, and a wire that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
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
        _do_not_wait_for_the_disk(server.folder)
        yield dsn
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def fresh_database(server_dsn: str, options: str = "") -> AsyncIterator[str]:
    """An empty database on that server, made with `options` of CREATE DATABASE; gives its DSN.

    It is dropped at the end, with whatever is connected to it then.
    """
    name = f"test_{os.getpid()}_{next(_numbers)}"
    await run_sql(server_dsn, f"CREATE DATABASE {name} {options}")
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


@dataclass(frozen=True)
class Hold:
    """A place in a conversation with a server: `reached` when it is there, where it stays until `released`."""

    request: bytes
    is_reached: Callable[[bytes], bool]
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


class Wire:
    """A Unix socket in front of a server's; cutting it ends every connection and refuses new ones until mended."""

    def __init__(self, server_dsn: str) -> None:
        parts = urlsplit(server_dsn)
        self._server_socket = Path(parse_qs(parts.query)["host"][0]) / ".s.PGSQL.5432"
        self._folder = Path(tempfile.mkdtemp(prefix="chunkstore-wire-"))
        self.dsn = urlunsplit(parts._replace(query=f"host={self._folder}"))
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._next_hold: Hold | None = None
        self._holds: list[Hold] = []

    def hold(self, request: bytes, is_reached: Callable[[bytes], bool]) -> Hold:
        """Keep back the server's answer on the first connection on which `request` is sent from now on.

        What passes is what came before `is_reached` held of all bytes that the server has sent since the request.
        """
        hold = self._next_hold = Hold(request, is_reached)
        self._holds.append(hold)
        return hold

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
        for hold in self._holds:
            hold.released.set()

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
            held = _Held(self)
            await asyncio.gather(
                _pump(reader, upstream, held.before_request), _pump(upstream_reader, writer, held.before_answer)
            )
        finally:
            self._open -= {writer, upstream}

    def _taken_hold(self, request: bytes) -> Hold | None:
        hold = self._next_hold
        if hold is None or hold.request not in request:
            return None
        self._next_hold = None
        return hold


class _Held:
    """A connection's part in its wire's holds."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._hold: Hold | None = None
        self._answered = b""

    async def before_request(self, data: bytes) -> None:
        hold = self._wire._taken_hold(data)
        if hold is not None:
            self._hold, self._answered = hold, b""

    async def before_answer(self, data: bytes) -> None:
        if self._hold is None:
            return
        self._answered += data
        if self._hold.is_reached(self._answered):
            self._hold.reached.set()
            await self._hold.released.wait()
            self._hold = None


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, before: Callable[[bytes], Awaitable[None]]
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            await before(data)
            writer.write(data)
            await writer.drain()
    writer.close()


def _do_not_wait_for_the_disk(data: Path) -> None:
    with (data / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{setting} = off\n" for setting in ("fsync", "synchronous_commit", "full_page_writes"))
    os.kill(int((data / "postmaster.pid").read_text().split()[0]), signal.SIGHUP)


class TransactionPooler:
    """PgBouncer's transaction pooling over `size` server connections: each transaction gets the next of them.

    So whatever a client leaves behind on a server connection is not there for its next transaction.
    """

    def __init__(self, server_dsn: str, *, size: int) -> None:
        parts = urlsplit(server_dsn)
        self._server_socket = Path(parse_qs(parts.query)["host"][0]) / ".s.PGSQL.5432"
        self._startup = _startup_message(user=parts.username or "postgres", database=parts.path[1:])
        self._folder = Path(tempfile.mkdtemp(prefix="chunkstore-pooler-"))
        self._size = size
        self._idle: asyncio.Queue[_ServerConnection] = asyncio.Queue()
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.dsn = urlunsplit(parts._replace(query=f"host={self._folder}"))

    async def __aenter__(self) -> TransactionPooler:
        for _ in range(self._size):
            reader, writer = await asyncio.open_unix_connection(self._server_socket)
            writer.write(self._startup)
            greeting = b""
            while not greeting.endswith(_IDLE):
                greeting += await _message(reader)
            self._writers.append(writer)
            self._idle.put_nowait(_ServerConnection(reader, writer, greeting))
        self._listener = await asyncio.start_unix_server(self._serve, self._folder / ".s.PGSQL.5432")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        for writer in self._writers:
            writer.transport.abort()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length - 4)
        server = await self._idle.get()
        self._idle.put_nowait(server)
        writer.write(server.greeting)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = await _message(reader)
                if message[:1] == b"X":
                    break
                server = await self._idle.get()
                await self._transaction(message, server, reader, writer)
                self._idle.put_nowait(server)
        writer.close()

    async def _transaction(
        self, message: bytes, server: _ServerConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async def requests() -> None:
            while True:
                server.writer.write(await _message(reader))

        server.writer.write(message)
        forwarding = asyncio.create_task(requests())
        try:
            while (answer := await _message(server.reader)) != _IDLE:
                writer.write(answer)
        finally:
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)
        writer.write(answer)


@dataclass(frozen=True)
class _ServerConnection:
    """A connection to the server, and what the server said when it was made."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes


# ReadyForQuery outside a transaction.
_IDLE = b"Z\0\0\0\x05I"


async def _message(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(5)
    return header + await reader.readexactly(int.from_bytes(header[1:], "big") - 4)


def _startup_message(**parameters: str) -> bytes:
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items())
    body = (196608).to_bytes(4, "big") + pairs + b"\0"
    return (len(body) + 4).to_bytes(4, "big") + body
