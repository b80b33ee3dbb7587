"""Pages of lists: sizes, tokens, and staying within a response's bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from chunkstore.domain.chunk import MAX_OFFSET
from chunkstore.domain.errors import InvalidFieldError

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000

ValueT = TypeVar("ValueT")
MessageT = TypeVar("MessageT", bound=Message)

Key = tuple[Any, ...]


def page_size(requested: int) -> int:
    """The size of a page: 0 means 100, more than 1000 means 1000. Raises InvalidFieldError if negative."""
    if requested < 0:
        raise InvalidFieldError("page_size", "must not be negative")
    return min(requested or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def page_token(scope: Sequence[str], key: Key) -> str:
    """The opaque token of the page after `key`, good only for the list that `scope` names."""
    content = json.dumps([_digest(scope, key), *key], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(content.encode()).decode()


def page_key(scope: Sequence[str], token: str, parts: Sequence[Callable[[Any], Any]]) -> Key | None:
    """The key in a token, None for the first page; `parts` check its parts, and raise ValueError for a bad one.

    Raises InvalidFieldError for a token that is not one of this list's.
    """
    if not token:
        return None
    try:
        _, *values = json.loads(base64.urlsafe_b64decode(token.encode()))
        key = tuple(part(value) for part, value in zip(parts, values, strict=True))
        if page_token(scope, key) == token:
            return key
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidFieldError("page_token", "is not one of this list's")


def index_part(value: Any) -> int:
    """A chunk_index in a page token."""
    if type(value) is not int or not 0 <= value <= MAX_OFFSET:
        raise ValueError("no chunk index")
    return value


def filled_page(
    values: Iterable[ValueT], convert: Callable[[ValueT], MessageT], max_bytes: int
) -> list[tuple[ValueT, MessageT]]:
    """The values that fit a response, at least one, with their messages."""
    page: list[tuple[ValueT, MessageT]] = []
    size = 0
    for value in values:
        message = convert(value)
        # Tag and length of a field take at most a few bytes.
        size += message.ByteSize() + 8
        if page and size > max_bytes:
            break
        page.append((value, message))
    return page


def _digest(scope: Sequence[str], key: Key) -> str:
    return hashlib.sha256("\0".join([*scope, *map(str, key)]).encode()).hexdigest()[:16]
