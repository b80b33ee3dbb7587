"""Connections and transactions.

Nothing outlives a transaction: no session setting, no lock, and no prepared statement where the DSN turns them off, in
which case every statement runs in an explicit transaction. So a pooler may give each another server connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from chunkstore.adapters.postgres.dsn import parse_dsn
from chunkstore.adapters.postgres.errors import DRIVER_ERRORS, is_closed, is_lost, store_errors
from chunkstore.adapters.postgres.queries import BEGIN_READ
from chunkstore.domain.errors import NoFreeConnectionError, StoreUnavailableError

Record = Any

_CLOSE_TIMEOUT: Final = 5.0


class Transaction:
    """Statements within one transaction; the driver's errors come out as the domain's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *arguments: object) -> list[Record]:
        """All rows."""
        with store_errors(self._connection):
            return list(await self._connection.fetch(sql, *arguments))

    async def fetch_row(self, sql: str, *arguments: object) -> Record | None:
        """The first row, or None."""
        with store_errors(self._connection):
            return await self._connection.fetchrow(sql, *arguments)

    async def fetch_value(self, sql: str, *arguments: object) -> Any:
        """The first column of the first row, or None."""
        with store_errors(self._connection):
            return await self._connection.fetchval(sql, *arguments)

    async def batches(self, size: int, sql: str, *arguments: object) -> AsyncIterator[list[Record]]:
        """The rows, at most `size` at a time."""
        with store_errors(self._connection):
            cursor = await self._connection.cursor(sql, *arguments)
            while rows := await cursor.fetch(size):
                yield rows

    async def execute(self, sql: str, *arguments: object) -> None:
        """Run a statement, or several without arguments, for its effect."""
        with store_errors(self._connection):
            await self._connection.execute(sql, *arguments)

    async def copy(self, schema: str, table: str, columns: Sequence[str], stream: bytes) -> None:
        """Insert the rows of a binary COPY stream."""
        with store_errors(self._connection):
            await self._connection.copy_to_table(
                table, schema_name=schema, columns=columns, source=io.BytesIO(stream), format="binary"
            )


class Database:
    """At most `size` connections, made when needed and replaced when lost."""

    def __init__(
        self, pool: Any, *, size: int, acquire_timeout: float, connect_timeout: float, prepares: bool = True
    ) -> None:
        self._pool = pool
        self._prepares = prepares
        self._size = size
        self._acquire_timeout = acquire_timeout
        self._connect_timeout = connect_timeout
        # The pool's own queue cannot tell a connection that is not free from a server that does not answer.
        self._slots = asyncio.Semaphore(size)
        self._returning: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, dsn: str, *, size: int, acquire_timeout: float, connect_timeout: float) -> Database:
        """Connections to the database of a DSN, each made when first needed. Raises InvalidFieldError for a bad DSN."""
        target = parse_dsn(dsn)
        options = {} if target.statement_cache_size is None else {"statement_cache_size": target.statement_cache_size}
        pool = await asyncpg.create_pool(
            target.dsn, min_size=0, max_size=size, timeout=connect_timeout, reset=_nothing_to_reset, **options
        )
        return cls(
            pool,
            size=size,
            acquire_timeout=acquire_timeout,
            connect_timeout=connect_timeout,
            prepares=target.statement_cache_size != 0,
        )

    @asynccontextmanager
    async def transaction(self, begin: str) -> AsyncIterator[Transaction]:
        """Run `begin`, then the body, then COMMIT; a body that raises or is cancelled is rolled back.

        Raises NoFreeConnectionError where none becomes free in time, StoreUnavailableError where the database is away.
        A connection found dead by `begin` is replaced by another: nothing has been done on it yet.
        """
        connection, _ = await self._on_live_connection(lambda live: live.execute(begin))
        try:
            transaction = Transaction(connection)
            yield transaction
            await transaction.execute("COMMIT")
        finally:
            await self._give_back(connection)

    @property
    def has_free(self) -> bool:
        """Whether a connection could be had without waiting for anybody to give one back."""
        return not self._slots.locked()

    async def close(self) -> None:
        """Close every connection, waiting a few seconds for those in use."""
        with contextlib.suppress(TimeoutError, *DRIVER_ERRORS):
            await asyncio.wait_for(self._pool.close(), _CLOSE_TIMEOUT)

    async def fetch(self, sql: str, *arguments: object) -> list[Record]:
        """The rows of one reading statement, in one round trip where the DSN lets statements be prepared.

        Raises as `transaction`. Each runs on a snapshot of its own.
        """
        if not self._prepares:
            async with self.transaction(BEGIN_READ) as transaction:
                return await transaction.fetch(sql, *arguments)
        connection, rows = await self._on_live_connection(lambda live: live.fetch(sql, *arguments))
        # Nothing runs on it: the driver keeps a cancellation from what is left to do.
        await self._released(connection)
        return list(rows)

    async def _on_live_connection(self, first: Callable[[Any], Awaitable[Any]]) -> tuple[Any, Any]:
        """A connection and what `first`, which must change nothing, gave on it; one found dead is replaced."""
        lost: BaseException | None = None
        for _ in range(self._size + 1):
            connection = await self._acquire()
            try:
                with store_errors(connection):
                    return connection, await first(connection)
            except BaseException as error:
                retry = isinstance(error, StoreUnavailableError) and is_lost(error.__cause__ or error, connection)
                await self._give_back(connection)
                if not retry:
                    raise
                lost = error.__cause__
        raise StoreUnavailableError from lost

    async def _acquire(self) -> Any:
        if self._slots.locked():
            try:
                async with asyncio.timeout(self._acquire_timeout):
                    await self._slots.acquire()
            except TimeoutError:
                raise NoFreeConnectionError(self._acquire_timeout) from None
        else:
            await self._slots.acquire()
        try:
            with store_errors():
                return await self._pool.acquire(timeout=self._connect_timeout)
        except BaseException:
            self._slots.release()
            raise

    async def _give_back(self, connection: Any) -> None:
        """Return a connection, to the end even if the caller is cancelled meanwhile."""
        task = asyncio.create_task(self._returned(connection))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        await asyncio.shield(task)

    async def _returned(self, connection: Any) -> None:
        try:
            with contextlib.suppress(*DRIVER_ERRORS):
                if not is_closed(connection) and connection.is_in_transaction():
                    await connection.execute("ROLLBACK", timeout=self._connect_timeout)
        finally:
            await self._released(connection)

    async def _released(self, connection: Any) -> None:
        try:
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._pool.release(connection, timeout=self._connect_timeout)
        finally:
            self._slots.release()


async def _nothing_to_reset(_: Any) -> None:
    """No state outlives a transaction: the driver's own reset would be a round trip for nothing."""
