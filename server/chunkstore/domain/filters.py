"""Filters: which chunks may be candidates. The tree, its bounds, and the evaluation that every store must agree with.

Kinds of values never mix (true is not 1, "1" is not 1); numbers compare as doubles, texts by code points, times as
instants. See filter.proto, which says the same to callers.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import date
from typing import Final, Self

from chunkstore.domain.errors import InvalidFieldError, TenantFilterRefusedError
from chunkstore.domain.metadata import MAX_METADATA_DEPTH, JsonValue, Metadata
from chunkstore.domain.text import checked_source_id, checked_text

MAX_FILTER_DEPTH: Final = 8
MAX_FILTER_CONDITIONS: Final = 64
MAX_FILTER_VALUES: Final = 1024

NANOSECONDS: Final = 1_000_000_000
_UNIX_EPOCH: Final = date(1970, 1, 1).toordinal()
# Seconds of 0001-01-01T00:00:00Z and of 9999-12-31T23:59:59Z.
_FIRST_SECOND: Final = (date.min.toordinal() - _UNIX_EPOCH) * 86_400
_LAST_SECOND: Final = (date.max.toordinal() - _UNIX_EPOCH + 1) * 86_400 - 1

_TENANT_KEYS: Final = frozenset({"tenant", "tenantid", "xtenantid"})
_TIME: Final = re.compile(
    "([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:[.]([0-9]{1,9}))?"
    "(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """Met where each of the filters is."""

    filters: tuple[Filter, ...]

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return all(inner.meets(source_id, metadata) for inner in self.filters)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Met where at least one of the filters is."""

    filters: tuple[Filter, ...]

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return any(inner.meets(source_id, metadata) for inner in self.filters)


@dataclass(frozen=True, slots=True)
class NoneOf:
    """Met where none of the filters is."""

    filters: tuple[Filter, ...]

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return not any(inner.meets(source_id, metadata) for inner in self.filters)


@dataclass(frozen=True, slots=True)
class Equals:
    """A value at `path`, or an element of an array there, is one of these."""

    path: Path
    texts: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()
    bools: frozenset[bool] = frozenset()

    @staticmethod
    def of(path: Path, values: Mapping[str, JsonValue]) -> Equals:
        """Equality with any of `values`, each by the field that it is of.

        Raises InvalidFieldError naming the field of a value that is no string, finite number or bool.
        """
        texts: set[str] = set()
        numbers: set[float] = set()
        bools: set[bool] = set()
        for field, value in values.items():
            match value:
                case bool():
                    bools.add(value)
                case str():
                    texts.add(checked_text(field, value, blank=True))
                case float() | int() if math.isfinite(value):
                    numbers.add(float(value))
                case _:
                    raise InvalidFieldError(field, "must be a string, a finite number or a bool")
        return Equals(checked_path(path), frozenset(texts), frozenset(numbers), frozenset(bools))

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return any(map(self._holds, _elements(_found(metadata, self.path))))

    def _holds(self, value: JsonValue) -> bool:
        if isinstance(value, bool):
            return value in self.bools
        if isinstance(value, str):
            return value in self.texts
        return isinstance(value, float) and value in self.numbers


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers between bounds: above `gt` or from `gte` on, below `lt` or up to `lte`; None is no bound.

    Raises InvalidFieldError naming the bound that is not finite or one too many; or, as the interval itself (field
    ""), where it has no bound or nothing is within.
    """

    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None

    def __post_init__(self) -> None:
        bounds = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, bound in bounds.items():
            if bound is not None and not math.isfinite(bound):
                raise InvalidFieldError(name, "must be a finite number")
        for open_bound, closed_bound in (("gt", "gte"), ("lt", "lte")):
            if bounds[open_bound] is not None and bounds[closed_bound] is not None:
                raise InvalidFieldError(open_bound, f"must not be set together with {closed_bound}")
        lower = self.gte if self.gt is None else self.gt
        upper = self.lte if self.lt is None else self.lt
        if lower is None and upper is None:
            raise InvalidFieldError("", "must have a bound: gt, gte, lt or lte")
        is_open = self.gt is not None or self.lt is not None
        if lower is not None and upper is not None and (lower > upper or (lower == upper and is_open)):
            raise InvalidFieldError("", "holds no value: its bounds leave nothing between them")

    def holds(self, value: float) -> bool:
        """Whether `value` is within."""
        return (
            (self.gt is None or value > self.gt)
            and (self.gte is None or value >= self.gte)
            and (self.lt is None or value < self.lt)
            and (self.lte is None or value <= self.lte)
        )


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A number at `path`, or an element of an array there, is within the interval."""

    path: Path
    interval: Interval

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        values = _elements(_found(metadata, self.path))
        return any(isinstance(value, float) and self.interval.holds(value) for value in values)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time at `path`, or an element of an array there, is within the interval of nanoseconds since 1970."""

    path: Path
    interval: Interval

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        values = _elements(_found(metadata, self.path))
        times = (instant(value) for value in values if isinstance(value, str))
        return any(time is not None and self.interval.holds(time) for time in times)


@dataclass(frozen=True, slots=True)
class Exists:
    """There is a value at `path` that is not null."""

    path: Path

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return any(value is not None for value in _found(metadata, self.path))


@dataclass(frozen=True, slots=True)
class SourceIn:
    """The source is one of these."""

    source_ids: frozenset[str]

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return source_id in self.source_ids


@dataclass(frozen=True, slots=True)
class SourcePrefix:
    """The source's id begins with `prefix`."""

    prefix: str

    def __post_init__(self) -> None:
        checked_source_id(self.prefix, "prefix")

    def meets(self, source_id: str, metadata: Metadata) -> bool:
        """See Filter."""
        return source_id.startswith(self.prefix)


# Each says with `meets` whether a chunk of that source, with that frozen metadata, meets it.
Filter = AllOf | AnyOf | NoneOf | Equals | NumberRange | TimeRange | Exists | SourceIn | SourcePrefix


@dataclass(slots=True)
class FilterSize:
    """Counts what a filter holds while it is read, and refuses more than it may hold, as field `filter`."""

    conditions: int = 0
    values: int = 0

    def enter(self, depth: int) -> Self:
        """Note a filter that is the `depth`-th from the outermost one, which is the first."""
        if depth > MAX_FILTER_DEPTH:
            raise InvalidFieldError("filter", f"is nested deeper than {MAX_FILTER_DEPTH} filters")
        return self

    def add_condition(self, values: int = 0) -> None:
        """Note a condition on so many values."""
        self.conditions += 1
        self.values += values
        if self.conditions > MAX_FILTER_CONDITIONS:
            raise InvalidFieldError("filter", f"has more than {MAX_FILTER_CONDITIONS} conditions")
        if self.values > MAX_FILTER_VALUES:
            raise InvalidFieldError("filter", f"has more than {MAX_FILTER_VALUES} values")


def unmet(where: Filter, source_id: str, metadata: Metadata, at: str = "filter") -> list[str]:
    """The paths, below `at`, of the conditions that keep a chunk from meeting `where`; none where it meets it.

    Of all_of those that are not met, of none_of those that are, each as `filter.all_of[1]`; an any_of as a whole.
    """
    if where.meets(source_id, metadata):
        return []
    match where:
        case AllOf():
            inner = (unmet(part, source_id, metadata, f"{at}.all_of[{n}]") for n, part in enumerate(where.filters))
            return [path for paths in inner for path in paths]
        case AnyOf():
            return [f"{at}.any_of"]
        case NoneOf():
            met = (n for n, part in enumerate(where.filters) if part.meets(source_id, metadata))
            return [f"{at}.none_of[{n}]" for n in met]
        case _:
            return [at]


def checked_path(path: Iterable[str], field: str = "path") -> Path:
    """Return `path` if it may be asked for: 1 to 16 keys, of which the first does not name the tenant.

    Raises TenantFilterRefusedError for tenant or tenant_id in any spelling (case, width and punctuation aside),
    InvalidFieldError for anything else.
    """
    keys = tuple(checked_text(f"{field}[{place}]", key, blank=True) for place, key in enumerate(path))
    if not 1 <= len(keys) <= MAX_METADATA_DEPTH:
        raise InvalidFieldError(field, f"must have 1 to {MAX_METADATA_DEPTH} keys")
    letters = re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", keys[0]).casefold())
    if letters in _TENANT_KEYS:
        raise TenantFilterRefusedError(
            f"{field}[0]", "must not name the tenant, which is that of the call's credential"
        )
    return keys


def checked_instant(seconds: int, nanos: int, field: str) -> int:
    """Nanoseconds since 1970 of a time of the years 0001 to 9999. Raises InvalidFieldError naming `field`."""
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < NANOSECONDS):
        raise InvalidFieldError(field, "must be a time of the years 0001 to 9999, with 0 to 999999999 nanoseconds")
    return seconds * NANOSECONDS + nanos


def instant(text: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time; None for a text that is none, as TimeRange of the contract says."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = parts.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _UNIX_EPOCH
    except ValueError:
        return None
    seconds = days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        seconds -= int(f"{sign}1") * (int(offset_hour) * 3600 + int(offset_minute) * 60)
    return seconds * NANOSECONDS + int((fraction or "").ljust(9, "0"))


def _found(metadata: Metadata, path: Path) -> Iterable[JsonValue]:
    """The values at a path: one, or several where an array of objects stands in its way."""
    values: list[JsonValue] = [metadata]
    for key in path:
        values = [value[key] for value in _elements(values) if isinstance(value, Mapping) and key in value]
    return values


def _elements(values: Iterable[JsonValue]) -> Iterator[JsonValue]:
    """The values, of an array its elements."""
    for value in values:
        if isinstance(value, tuple):
            yield from value
        else:
            yield value
