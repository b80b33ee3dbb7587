"""The DSN: what of it is the driver's business and what the server's."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from chunkstore.domain.errors import InvalidFieldError


@dataclass(frozen=True, slots=True)
class ConnectTo:
    """A DSN as the server may see it, and how many prepared statements each connection keeps (None: the default)."""

    dsn: str
    statement_cache_size: int | None = None


def parse_dsn(dsn: str) -> ConnectTo:
    """Take `statement_cache_size` out of a PostgreSQL URL, and name the application unless the URL does.

    `statement_cache_size=0` is what PgBouncer in transaction mode needs. Raises InvalidFieldError for what is not a
    PostgreSQL URL; the error never holds the DSN.
    """
    parts = urlsplit(dsn)
    if parts.scheme not in ("postgres", "postgresql"):
        raise InvalidFieldError("dsn", "must start with postgresql://")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    cache_size = query.pop("statement_cache_size", None)
    if cache_size is not None and not cache_size.isdecimal():
        raise InvalidFieldError("dsn", "has a statement_cache_size that is not a number")
    query.setdefault("application_name", "chunkstore")
    return ConnectTo(
        urlunsplit(parts._replace(query=urlencode(query))), None if cache_size is None else int(cache_size)
    )
