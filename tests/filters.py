"""Random filters, and metadata that they have something to say about."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.filters import (
    AllOf,
    AnyOf,
    Equals,
    Exists,
    Filter,
    Interval,
    NoneOf,
    NumberRange,
    SourceIn,
    SourcePrefix,
    TimeRange,
    instant,
)

KEYS: Final = ("a", "b", "0", "", 'q"\\', "é", "$.a", "type()")
SOURCES: Final = ("source", "source-2", "Ünï", "s%_\\", "tie")

TIMES: Final = (
    "2024-05-01T12:00:00Z",
    "2024-05-01T14:00:00+02:00",
    "2024-05-01t12:00:00.000000001z",
    "2024-05-01T12:00:00.5-00:00",
    "2024-02-29T23:59:59.999999999-11:30",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
)
NOT_TIMES: Final = (
    "",
    "2024-02-30T00:00:00Z",
    "2023-02-29T00:00:00Z",
    "1900-02-29T00:00:00Z",
    "2024-04-31T00:00:00Z",
    "2024-13-01T00:00:00Z",
    "2024-00-01T00:00:00Z",
    "2024-01-00T00:00:00Z",
    "2024-01-32T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "2024-01-01T24:00:00Z",
    "2024-01-01T00:60:00Z",
    "2016-12-31T23:59:60Z",
    "2024-01-01T00:00:00",
    "2024-01-01 00:00:00Z",
    "2024-01-01",
    "2024-01-01T00:00Z",
    "2024-01-01T00:00:00.Z",
    "2024-01-01T00:00:00.0123456789Z",
    "2024-01-01T00:00:00+0100",
    "2024-01-01T00:00:00+24:00",
    "2024-01-01T00:00:00+01:60",
    "2024-01-01T00:00:00Z\n",
    " 2024-01-01T00:00:00Z",
    "2024-1-1T00:00:00Z",
    "20240101T000000Z",
    "12024-01-01T00:00:00Z",
    "-2024-01-01T00:00:00Z",
    "٢٠٢٤-01-01T00:00:00Z",
    "2024-01-01T00:00:00,5Z",
    "now",
    "infinity",
    "1714564800",
)
TEXTS: Final = ("x", "1", "true", "null", "é", "e\u0301", '"', "\\", "😀", "%", "a\nb", "\x7f", "\u2028")
NUMBERS: Final = (0.0, 1.0, -1.0, 1.5, 0.1, 0.1 + 2**-56, 2.0**53, 1e22, 1e300, -1e300, 5e-324, 1.7976931348623157e308)

# Few of them most of the time, so that what is asked for is often there.
_common = st.sampled_from([*TEXTS[:2], *NUMBERS[:3], *TIMES[:3], True])
_scalars = st.one_of(
    _common,
    _common,
    _common,
    st.sampled_from(TEXTS),
    st.sampled_from(TIMES),
    st.sampled_from(NOT_TIMES),
    st.sampled_from(NUMBERS),
    st.booleans(),
)
_numbers = st.one_of(st.sampled_from(NUMBERS), st.floats(allow_nan=False, allow_infinity=False))
_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
_keys = st.one_of(st.sampled_from(KEYS[:2]), st.sampled_from(KEYS))
_paths = st.one_of(
    st.just(("a",)), st.just(("a",)), st.just(("a", "b")), st.lists(_keys, min_size=1, max_size=3).map(tuple)
)

_values = st.recursive(
    st.one_of(_scalars, _scalars, st.none(), _numbers, _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=8,
)
_objects = st.dictionaries(st.sampled_from(("b", "0")), _values, min_size=1, max_size=2)
metadata_objects: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"a": st.one_of(_values, _scalars, st.lists(_scalars, max_size=3))}),
    st.fixed_dictionaries({"a": st.one_of(_objects, st.lists(_objects, max_size=3))}),
    st.dictionaries(_keys, _values, max_size=4),
)


def _interval(bounds: tuple[Any, Any], names: tuple[str | None, str | None]) -> Interval | None:
    low, high = sorted(bounds)
    chosen = {name: bound for name, bound in zip(names, (low, high), strict=True) if name}
    try:
        return Interval(**chosen)
    except InvalidFieldError:
        return None


def _intervals(bounds: st.SearchStrategy[Any]) -> st.SearchStrategy[Interval]:
    lower, upper = st.sampled_from([None, "gt", "gte"]), st.sampled_from([None, "lt", "lte"])
    made = st.builds(_interval, st.tuples(bounds, bounds), st.tuples(lower, upper))
    return made.filter(lambda interval: interval is not None)  # type: ignore[return-value]


def _equals(path: tuple[str, ...], values: list[Any]) -> Equals:
    return Equals.of(path, {str(n): value for n, value in enumerate(values)})


_instants = st.one_of(st.sampled_from(TIMES[:3]), st.sampled_from(TIMES)).map(instant)
_conditions: st.SearchStrategy[Filter] = st.one_of(
    st.builds(_equals, _paths, st.lists(st.one_of(_scalars, _numbers, _texts), min_size=1, max_size=4)),
    st.builds(NumberRange, _paths, _intervals(_numbers)),
    st.builds(TimeRange, _paths, _intervals(_instants)),
    st.builds(Exists, _paths),
    st.builds(SourceIn, st.frozensets(st.sampled_from(SOURCES), min_size=1)),
    st.builds(SourcePrefix, st.sampled_from(["s", "source", "source-", "Ü", "s%", "s_", "t", "s%_\\"])),
)
filters: st.SearchStrategy[Filter] = st.one_of(
    _conditions,
    st.recursive(
        _conditions,
        lambda inner: st.one_of(
            *(st.builds(group, st.lists(inner, min_size=1, max_size=3).map(tuple)) for group in (AllOf, AnyOf, NoneOf))
        ),
        max_leaves=6,
    ),
)
