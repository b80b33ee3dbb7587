"""Metadata: a caller's own JSON object, checked, bounded and frozen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.text import checked_text

MAX_METADATA_BYTES: Final = 64 * 1024
MAX_METADATA_DEPTH: Final = 16

JsonValue = None | bool | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
Metadata = Mapping[str, JsonValue]

EMPTY: Final[Metadata] = MappingProxyType({})


def frozen_metadata(value: Mapping[str, object], field: str = "metadata") -> Metadata:
    """Return a deeply read-only copy: keys sorted, numbers as finite doubles, -0.0 as 0.0, lists as tuples.

    Equal objects freeze equal whatever their key order. Raises InvalidFieldError naming `field` for a string that
    cannot be stored, a number that is not finite, nesting deeper than 16 objects or lists, or more than 64 KiB of JSON.
    """
    if not value:
        return EMPTY
    frozen = _frozen(value, field, depth=1)
    assert isinstance(frozen, Mapping)
    if len(metadata_json(frozen).encode()) > MAX_METADATA_BYTES:
        raise InvalidFieldError(field, f"is larger than {MAX_METADATA_BYTES} bytes of JSON")
    return frozen


def metadata_json(value: Metadata) -> str:
    """The canonical JSON of frozen metadata: keys sorted, no spaces, characters as they are."""
    if not value:
        return "{}"
    return json.dumps(value, default=dict, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def same_metadata(one: Metadata, other: Metadata) -> bool:
    """Whether frozen metadata are equal in kind too: true is not 1."""
    return one == other and metadata_json(one) == metadata_json(other)


def metadata_from_json(text: str) -> Metadata:
    """The frozen metadata that `text` holds; the inverse of metadata_json."""
    value = json.loads(text, parse_int=float)
    return frozen_metadata(value)


def _frozen(value: object, field: str, depth: int) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(field, value, blank=True)
    if isinstance(value, (int, float)):
        return _number(value, field)
    if depth > MAX_METADATA_DEPTH:
        raise InvalidFieldError(field, f"is nested deeper than {MAX_METADATA_DEPTH} levels")
    if isinstance(value, Mapping):
        return MappingProxyType(
            {checked_text(field, key, blank=True): _frozen(value[key], field, depth + 1) for key in sorted(value)}
        )
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item, field, depth + 1) for item in value)
    raise InvalidFieldError(field, "holds a value that JSON does not have")


def _number(value: float, field: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidFieldError(field, "holds a number that is not a finite double")
    return number + 0.0
