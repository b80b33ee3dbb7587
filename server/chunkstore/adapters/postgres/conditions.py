"""Filters as SQL conditions: the same answers as `domain.filters`, with parameters for whatever a caller sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chunkstore.domain.filters import (
    NANOSECONDS,
    AllOf,
    AnyOf,
    Equals,
    Exists,
    Filter,
    Interval,
    NoneOf,
    NumberRange,
    Path,
    SourceIn,
    SourcePrefix,
    TimeRange,
)

# The comparisons of SQL and of jsonpath, by the names of an interval's bounds.
_COMPARISONS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}

# What domain.filters.instant takes for a time: these shapes with digits for the zeros, then each number within its
# bounds, and last a day that its month has, told by the month that it falls into. Fields have fixed places. A regular
# expression takes five times as long.
_SHAPES: Final = ", ".join(
    f"'0000-00-00T00:00:00{fraction}{offset}'"
    for fraction in ("", *("." + "0" * digits for digits in range(1, 10)))
    for offset in ("Z", "+00:00", "-00:00")
)
_BOUNDS: Final = """left(found, 4) <> '0000'
            AND substr(found, 6, 2)::integer BETWEEN 1 AND 12 AND substr(found, 9, 2)::integer BETWEEN 1 AND 31
            AND substr(found, 12, 2)::integer <= 23 AND substr(found, 15, 2)::integer <= 59
            AND substr(found, 18, 2)::integer <= 59 AND (right(found, 1) IN ('Z', 'z')
                OR substr(right(found, 5), 1, 2)::integer <= 23 AND right(found, 2)::integer <= 59)"""
_DAY: Final = "(make_date(left(found, 4)::integer, substr(found, 6, 2)::integer, 1) + substr(found, 9, 2)::integer - 1)"
_IS_TIME: Final = f"""CASE WHEN translate(found, '123456789tz', '000000000TZ') IN ({_SHAPES})
        THEN CASE WHEN {_BOUNDS}
            THEN extract(month FROM {_DAY}) = substr(found, 6, 2)::integer END END"""
_OFFSET: Final = """CASE WHEN right(found, 1) IN ('Z', 'z') THEN 0
            ELSE (left(right(found, 6), 1) || '1')::integer
                * (substr(right(found, 5), 1, 2)::integer * 3600 + right(found, 2)::integer * 60) END"""
_FRACTION: Final = "substr(left(found, CASE WHEN right(found, 1) IN ('Z', 'z') THEN -1 ELSE -6 END), 21)"
# Seconds since 1970 and nanoseconds.
_INSTANT: Final = f"""(
        ({_DAY} - date '1970-01-01')::bigint * 86400 + substr(found, 12, 2)::integer * 3600
            + substr(found, 15, 2)::integer * 60 + substr(found, 18, 2)::integer - {_OFFSET},
        rpad({_FRACTION}, 9, '0')::integer
    )"""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row of chunks, true, false or null (as false), and what its parameters stand for."""

    sql: str
    arguments: tuple[object, ...] = ()


def condition(where: Filter | None, first: int) -> Condition:
    """The condition of a filter, with parameters numbered from `first`; true for no filter."""
    if where is None:
        return Condition("true")
    writer = _Writer(first)
    return Condition(writer.sql(where), tuple(writer.arguments))


class _Writer:
    def __init__(self, first: int) -> None:
        self.arguments: list[object] = []
        self._first = first

    def sql(self, where: Filter) -> str:
        match where:
            case AllOf(filters):
                return f"({' AND '.join(map(self.sql, filters))})"
            case AnyOf(filters):
                return self._any(filters)
            case NoneOf(filters):
                # What is null is not met, and so its negation is.
                return f"({self._any(filters)} IS NOT TRUE)"
            case _:
                return self._condition(where)

    def _condition(self, where: Equals | NumberRange | TimeRange | Exists | SourceIn | SourcePrefix) -> str:
        match where:
            case SourceIn(source_ids):
                return f"source_id = ANY ({self._parameter(sorted(source_ids))}::text[])"
            case SourcePrefix(prefix):
                return f"source_id ^@ {self._parameter(prefix)}::text"
            case Equals():
                return f"metadata @@ {self._jsonpath(_equals(where))}"
            case NumberRange(path, interval):
                return f"metadata @? {self._jsonpath(_within(path, interval))}"
            case Exists(path):
                return f"metadata @@ {self._jsonpath(_present(path))}"
            case TimeRange(path, interval):
                return self._time_within(path, interval)

    def _any(self, filters: Iterable[Filter]) -> str:
        return f"({' OR '.join(map(self.sql, filters))})"

    def _time_within(self, path: Path, interval: Interval) -> str:
        texts = self._jsonpath(f'{_keys(path)} ? (@.type() == "string")')
        bounds = []
        for comparison, bound in _bounds(interval):
            seconds, nanoseconds = divmod(bound, NANOSECONDS)
            pair = f"({self._parameter(seconds)}::bigint, {self._parameter(nanoseconds)}::integer)"
            bounds.append(f"{_INSTANT} {comparison} {pair}")
        return f"""EXISTS (
    SELECT FROM (SELECT jsonb_path_query(metadata, {texts}) #>> '{{}}' AS found) AS text_found
    WHERE CASE WHEN {_IS_TIME} THEN {" AND ".join(bounds)} END
)"""

    def _jsonpath(self, path: str) -> str:
        return f"{self._parameter(path)}::text::jsonpath"

    def _parameter(self, value: object) -> str:
        self.arguments.append(value)
        return f"${self._first + len(self.arguments) - 1}"


# In jsonpath's lax mode a key is looked up in each object of an array; a comparison looks at each element of an array
# on its left, and `?` at each element of what it follows, which is why that asks for the type: an element may be an
# array, whose elements it would compare in turn.


def _equals(where: Equals) -> str:
    values: list[str | float] = [*sorted(where.texts), *sorted(where.numbers), *sorted(where.bools)]
    keys = _keys(where.path)
    return " || ".join(f"{keys} == {_literal(value)}" for value in values)


def _present(path: Path) -> str:
    return f'{_keys(path)}.type() != "null"'


def _within(path: Path, interval: Interval) -> str:
    bounds = "".join(f" && @ {comparison} {_literal(bound)}" for comparison, bound in _bounds(interval))
    return f'{_keys(path)} ? (@.type() == "number"{bounds})'


def _bounds(interval: Interval) -> list[tuple[str, float]]:
    bounds = [(comparison, getattr(interval, name)) for name, comparison in _COMPARISONS.items()]
    return [(comparison, bound) for comparison, bound in bounds if bound is not None]


def _keys(path: Path) -> str:
    return "$" + "".join(f".{_literal(key)}" for key in path)


def _literal(value: str | float) -> str:
    # JSON's escapes are jsonpath's too, and the shortest digits of a double are those that are stored.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
