"""From the wire's filters to the domain's, each error with the path of its field inside the request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from google.protobuf import struct_pb2, unknown_fields
from google.protobuf.message import Message

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.filters import (
    AllOf,
    AnyOf,
    Equals,
    Exists,
    Filter,
    FilterSize,
    Interval,
    NoneOf,
    NumberRange,
    Path,
    SourceIn,
    SourcePrefix,
    TimeRange,
    checked_instant,
    checked_path,
)
from chunkstore.domain.metadata import JsonValue
from chunkstore.domain.text import checked_source_id
from chunkstore.v1 import filter_pb2

_GROUPS: Final[dict[str, Callable[[tuple[Filter, ...]], Filter]]] = {
    "all_of": AllOf,
    "any_of": AnyOf,
    "none_of": NoneOf,
}
_KINDS: Final = (*_GROUPS, "metadata", "source_id")


def filter_from(message: filter_pb2.Filter) -> Filter:
    """The filter of a request's field `filter`.

    Raises InvalidFieldError or TenantFilterRefusedError naming the field of the first fault, as
    `filter.all_of[1].metadata.range.gte`, or `filter` for what is wrong with the whole.
    """
    return _filter(message, "filter", 1, FilterSize())


def _filter(message: filter_pb2.Filter, field: str, depth: int, size: FilterSize) -> Filter:
    _require_known(message, field)
    size.enter(depth)
    present = [descriptor.name for descriptor, _ in message.ListFields()]
    if len(present) != 1:
        raise InvalidFieldError(field, f"must have exactly one of {', '.join(_KINDS)}")
    [kind] = present
    if kind == "metadata":
        return _metadata_condition(message.metadata, f"{field}.metadata", size)
    if kind == "source_id":
        return _source_condition(message.source_id, f"{field}.source_id", size)
    inner = enumerate(getattr(message, kind))
    return _GROUPS[kind](tuple(_filter(part, f"{field}.{kind}[{n}]", depth + 1, size) for n, part in inner))


def _metadata_condition(message: filter_pb2.MetadataCondition, field: str, size: FilterSize) -> Filter:
    _require_known(message, field)
    path = checked_path(message.path, f"{field}.path")
    kind = _chosen(message, field)
    at = f"{field}.{kind}"
    size.add_condition(len(message.equals_any.values) if kind == "equals_any" else 1)
    match kind:
        case "equals":
            return Equals.of(path, {at: _operand(message.equals)})
        case "equals_any":
            return _equals_any(path, message.equals_any.values, f"{at}.values")
        case "range":
            return NumberRange(path, _interval(_number_bounds(message.range, at), at))
        case "time_range":
            return TimeRange(path, _interval(_time_bounds(message.time_range, at), at))
        case _:
            _require_known(message.exists, at)
            return Exists(path)


def _source_condition(message: filter_pb2.SourceCondition, field: str, size: FilterSize) -> Filter:
    _require_known(message, field)
    kind = _chosen(message, field)
    at = f"{field}.{kind}"
    size.add_condition(len(message.equals_any.values) if kind == "equals_any" else 1)
    if kind == "prefix":
        return SourcePrefix(checked_source_id(message.prefix, at))
    if kind == "equals":
        return SourceIn(frozenset((checked_source_id(message.equals, at),)))
    _require_known(message.equals_any, at)
    _require_some(message.equals_any.values, f"{at}.values")
    values = enumerate(message.equals_any.values)
    return SourceIn(frozenset(checked_source_id(value, f"{at}.values[{n}]") for n, value in values))


def _equals_any(path: Path, values: Collection[struct_pb2.Value], field: str) -> Equals:
    operands = {f"{field}[{n}]": _operand(value) for n, value in enumerate(values)}
    _require_some(operands, field)
    return Equals.of(path, operands)


def _operand(value: struct_pb2.Value) -> JsonValue:
    """A string, number or bool; None, which no condition takes, for anything else."""
    kind = value.WhichOneof("kind")
    if kind in ("string_value", "number_value", "bool_value"):
        operand: JsonValue = getattr(value, kind)
        return operand
    return None


def _number_bounds(message: filter_pb2.NumberRange, field: str) -> dict[str, float]:
    _require_known(message, field)
    return {descriptor.name: bound for descriptor, bound in message.ListFields()}


def _time_bounds(message: filter_pb2.TimeRange, field: str) -> dict[str, float]:
    _require_known(message, field)
    return {
        descriptor.name: checked_instant(bound.seconds, bound.nanos, f"{field}.{descriptor.name}")
        for descriptor, bound in message.ListFields()
    }


def _interval(bounds: dict[str, float], field: str) -> Interval:
    try:
        return Interval(**bounds)
    except InvalidFieldError as error:
        raise error.within(field) from None


def _chosen(message: filter_pb2.MetadataCondition | filter_pb2.SourceCondition, field: str) -> str:
    kind = message.WhichOneof("condition")
    if kind is None:
        kinds = message.DESCRIPTOR.oneofs_by_name["condition"].fields
        raise InvalidFieldError(field, f"must have one of {', '.join(kind.name for kind in kinds)}")
    return kind


def _require_some(values: Collection[object], field: str) -> None:
    if not values:
        raise InvalidFieldError(field, "must not be empty")


def _require_known(message: Message, field: str) -> None:
    """Refuse what a newer client may have asked for: an answer without that condition would be a wrong one."""
    if len(unknown_fields.UnknownFieldSet(message)):
        raise InvalidFieldError(field, "has a field that this server does not know")
