"""Pages of lists: sizes, tokens, and staying within a response's bytes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

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
    content = json.dumps([_digest(scope), *key], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(content.encode()).decode()


def page_key(scope: Sequence[str], token: str, types: tuple[type, ...]) -> Key | None:
    """The key in a token, None for the first page. Raises InvalidFieldError for a token of no or another list."""
    if not token:
        return None
    try:
        digest, *key = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError, binascii.Error, UnicodeError, RecursionError):
        raise InvalidFieldError("page_token", "is not one of this list's") from None
    if digest != _digest(scope) or tuple(map(type, key)) != types or page_token(scope, tuple(key)) != token:
        raise InvalidFieldError("page_token", "is not one of this list's")
    return tuple(key)


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


def _digest(scope: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(scope).encode()).hexdigest()[:16]
