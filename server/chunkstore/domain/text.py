"""Which strings may be stored, and which tenant ids are well formed."""

from __future__ import annotations

import re
from typing import NewType

from chunkstore.domain.errors import InvalidFieldError, InvalidTenantError

TenantId = NewType("TenantId", str)

MAX_SOURCE_ID_BYTES = 512
MAX_ENTITY_ID_BYTES = 256

_TENANT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_REFUSED = re.compile("[\x00\ud800-\udfff]")


def checked_text(field: str, value: str, *, max_bytes: int | None = None, blank: bool = False) -> str:
    """Return `value` if it can be stored: no NUL, no lone surrogate, at most `max_bytes` of UTF-8.

    Empty is refused unless `blank`. Raises InvalidFieldError naming `field`.
    """
    if not value and not blank:
        raise InvalidFieldError(field, "must not be empty")
    if ("\x00" in value or not value.isascii()) and (found := _REFUSED.search(value)):
        what = "NUL" if found.group() == "\x00" else "a lone surrogate"
        raise InvalidFieldError(field, f"holds {what}")
    if max_bytes is not None and len(value) * 4 > max_bytes and len(value.encode()) > max_bytes:
        raise InvalidFieldError(field, f"is longer than {max_bytes} UTF-8 bytes")
    return value


def checked_source_id(value: str, field: str = "source_id") -> str:
    """Return `value` if it is a source id: non-empty text of at most 512 UTF-8 bytes."""
    return checked_text(field, value, max_bytes=MAX_SOURCE_ID_BYTES)


def checked_entity_id(value: str, field: str = "entity_id") -> str:
    """Return `value` if it is an entity id: non-empty text of at most 256 UTF-8 bytes."""
    return checked_text(field, value, max_bytes=MAX_ENTITY_ID_BYTES)


def checked_tenant_id(value: str | None, field: str) -> TenantId:
    """Return `value` as a tenant id: 1-128 of `[A-Za-z0-9._:-]`, starting with a letter or digit.

    Raises InvalidTenantError naming `field`, also for None (missing).
    """
    if value is None:
        raise InvalidTenantError(field, "is missing")
    if not _TENANT_ID.fullmatch(value):
        raise InvalidTenantError(field, "must be 1-128 of [A-Za-z0-9._:-], starting with a letter or digit")
    return TenantId(value)
