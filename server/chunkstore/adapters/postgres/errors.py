"""What the driver raises, as the domain's errors. Its words stay here, as the cause of the error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from chunkstore.domain.errors import StoreMismatchError, StoreUnavailableError

DRIVER_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

# Classes of SQLSTATE: connection, authorization, no such database, rollback by the server, out of resources,
# intervention by an operator.
_UNAVAILABLE_CLASSES: Final = ("08", "28", "3D", "40", "53", "57")
# A server that has become a standby; a transaction ended for idling.
_UNAVAILABLE_STATES: Final = ("25006", "25P03")
_LOST_CLASSES: Final = ("08", "57P")
# No such column, table or schema.
_OUTDATED_STATES: Final = ("42703", "42P01", "3F000")


@contextmanager
def store_errors(connection: Any = None) -> Iterator[None]:
    """Raise StoreUnavailableError for a database that is away, StoreMismatchError for one without our tables.

    `connection` is the one in use, if any: whatever fails on a connection that is closed by then fails for that. Other
    errors of the driver are defects and pass as they are.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        state = getattr(error, "sqlstate", None) or ""
        if is_lost(error, connection) or state.startswith(_UNAVAILABLE_CLASSES) or state in _UNAVAILABLE_STATES:
            raise StoreUnavailableError from error
        if state in _OUTDATED_STATES:
            raise StoreMismatchError(
                "the database lacks tables or columns of this version: run `chunkstore migrate`"
            ) from error
        raise


def is_lost(error: BaseException, connection: Any = None) -> bool:
    """Whether `error` means that the connection is gone, so that another one may do better."""
    if isinstance(error, OSError) or is_closed(connection):
        return True
    return (getattr(error, "sqlstate", None) or "").startswith(_LOST_CLASSES)


def is_closed(connection: Any) -> bool:
    """Whether a pooled connection is over; the pool takes one that dies away from its user."""
    try:
        return connection is not None and bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True
