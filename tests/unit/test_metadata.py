"""Metadata: frozen deeply, equal whatever the order of keys, and bounded."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.metadata import (
    EMPTY,
    MAX_METADATA_BYTES,
    Metadata,
    frozen_metadata,
    metadata_from_json,
    metadata_json,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)


def thawed(value: Any) -> Any:
    """The plain value that a frozen one stands for."""
    return json.loads(metadata_json(value), parse_int=float)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def nested(levels: int, *, by_list: bool = False) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value] if by_list else {"k": value}
    return {"k": value}


@given(OBJECTS)
def test_freezing_keeps_every_value(value: dict[str, Any]) -> None:
    """Excludes numbers through decimals, true through 1, and null through absent."""
    assert thawed(frozen_metadata(value)) == value
    assert [type(v) for v in frozen_metadata(value).values() if isinstance(v, bool)] == [
        bool for v in value.values() if isinstance(v, bool)
    ]


@given(OBJECTS)
def test_freezing_twice_is_freezing_once(value: dict[str, Any]) -> None:
    once = frozen_metadata(value)
    assert frozen_metadata(once) == once
    assert metadata_json(frozen_metadata(once)) == metadata_json(once)


@given(OBJECTS)
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    """Excludes two canonical forms of one object."""
    assert frozen_metadata(value) == frozen_metadata(reversed_keys(value))
    assert metadata_json(frozen_metadata(value)) == metadata_json(frozen_metadata(reversed_keys(value)))


@given(OBJECTS)
def test_json_round_trips(value: dict[str, Any]) -> None:
    frozen = frozen_metadata(value)
    assert metadata_from_json(metadata_json(frozen)) == frozen


def test_the_json_is_canonical() -> None:
    assert metadata_json(frozen_metadata({"b": [1, None, True], "a": {"ü": "😀"}})) == (
        '{"a":{"ü":"😀"},"b":[1.0,null,true]}'
    )


def test_numbers_are_doubles_without_a_negative_zero() -> None:
    frozen = frozen_metadata({"zero": -0.0, "one": 1, "list": [-0.0]})
    assert math.copysign(1.0, float(str(frozen["zero"]))) == 1.0
    assert metadata_json(frozen) == '{"list":[0.0],"one":1.0,"zero":0.0}'


def test_nothing_of_it_can_be_changed() -> None:
    """Excludes a read-only surface over what can be changed below, and a view of the caller's own object."""
    given_object: dict[str, Any] = {"object": {"a": 1}, "list": [{"b": 2}]}
    frozen: Any = frozen_metadata(given_object)
    given_object["object"]["a"] = 99
    given_object["list"].append(3)
    for holder in (frozen, frozen["object"], frozen["list"][0]):
        with pytest.raises(TypeError):
            holder["a"] = 5
    with pytest.raises(TypeError):
        frozen["list"][0] = 5
    assert thawed(frozen) == {"object": {"a": 1}, "list": [{"b": 2}]}


@pytest.mark.parametrize("value", [{}, EMPTY])
def test_nothing_is_one_empty_object(value: Metadata) -> None:
    assert frozen_metadata(value) is EMPTY


@pytest.mark.parametrize("by_list", [False, True])
def test_sixteen_levels_are_the_most(by_list: bool) -> None:
    assert frozen_metadata(nested(16, by_list=by_list))
    _refused(nested(17, by_list=by_list))
    _refused(nested(900, by_list=by_list))


def test_64_kib_of_json_are_the_most() -> None:
    """Excludes counting characters: each of these has two bytes."""
    room = MAX_METADATA_BYTES - len('{"k":""}')
    assert frozen_metadata({"k": "é" * (room // 2)})
    _refused({"k": "é" * (room // 2 + 1)})


@pytest.mark.parametrize(
    "value",
    [
        {"k": math.nan},
        {"k": [math.inf]},
        {"k": {"k": -math.inf}},
        {"k": 10**400},
        {"k": "secret\0"},
        {"secret\0": 1},
        {"k": "secret\ud800"},
        {"secret\udfff": 1},
        {"k": b"secret"},
        {"k": {1, 2}},
        {"k": object()},
    ],
)
def test_what_cannot_be_stored_is_refused(value: dict[str, Any]) -> None:
    _refused(value)


def _refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        frozen_metadata(value, "chunks[1].metadata")
    assert caught.value.field == "chunks[1].metadata"
    assert "secret" not in str(caught.value)
