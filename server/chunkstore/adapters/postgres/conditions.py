"""Filters as SQL conditions: the same answers as `domain.filters`, with parameters for whatever a caller sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chunkstore.domain.filters import (
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

# As domain.filters.instant reads times. make_date is given days that exist alone: a month's first, plus days.
_TIME: Final = (
    "^((?!0000)[0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])"
    "(?:[.]([0-9]{1,9}))?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$"
)
_FIRST_OF_MONTH: Final = "make_date(part[1]::integer, part[2]::integer, 1)"
_DAY: Final = f"({_FIRST_OF_MONTH} + part[3]::integer - 1)"
_NANOSECONDS: Final = f"""(
    ({_DAY} - date '1970-01-01')::numeric * 86400
    + part[4]::integer * 3600 + part[5]::integer * 60 + part[6]::integer
    - coalesce((part[8] || '1')::integer * (part[9]::integer * 3600 + part[10]::integer * 60), 0)
) * 1000000000 + coalesce(rpad(part[7], 9, '0')::integer, 0)"""


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
        bounds = [
            f"{_NANOSECONDS} {comparison} {self._parameter(str(bound))}::text::numeric"
            for comparison, bound in _bounds(interval)
        ]
        return f"""EXISTS (
    SELECT FROM jsonb_path_query(metadata, {texts}) AS text_found,
        regexp_match(text_found #>> '{{}}', '{_TIME}') AS part
    WHERE extract(month FROM {_DAY}) = part[2]::integer AND {" AND ".join(bounds)}
)"""  # noqa: S608 - of this module's constants and numbers of parameters

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
