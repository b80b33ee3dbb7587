"""The contract as its descriptors tell it: every service and method of the package, and what their requests hold."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

import chunkstore.v1

PACKAGE: Final = "chunkstore.v1"
# A Struct holds Structs; what is below this many messages repeats what is above.
_DEEPEST_PATH: Final = 5


def _methods() -> Iterator[tuple[str, MethodDescriptor]]:
    for module in pkgutil.iter_modules(chunkstore.v1.__path__):
        if not module.name.endswith("_pb2"):
            continue
        descriptor = importlib.import_module(f"{PACKAGE}.{module.name}").DESCRIPTOR
        for service in descriptor.services_by_name.values():
            for method in service.methods:
                yield f"{service.name}/{method.name}", method


METHODS: Final[dict[str, MethodDescriptor]] = dict(_methods())
"""Every method, as `Service/Method`."""


def path_of(method: str) -> str:
    """The method's path on the wire."""
    return f"/{PACKAGE}.{method}"


def is_stream(method: str) -> bool:
    """Whether the method takes a stream of requests."""
    return bool(METHODS[method].client_streaming)


def response_class(method: str) -> Any:
    """The class of the method's responses."""
    return message_factory.GetMessageClass(METHODS[method].output_type)


def declared_strings(method: str) -> set[str]:
    """Paths of every string that a request of the method can hold, as the descriptors declare them.

    What a message holds of its own kind is the same again, at the path of the outermost.
    """
    return set(_declared(METHODS[method].input_type, ()))


def present_strings(request: Message) -> set[str]:
    """Paths of every string that `request` holds."""
    return {".".join(_without_repeats(request, path)) for path, _ in strings_in(request)}


def strings_in(message: Message, parents: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string in a message, map keys included, as its path and its value."""
    for field, value in message.ListFields():
        path = (*parents, field.name)
        if _is_map(field):
            for key in value:
                yield (*path, "key"), key
                yield from _strings_of(value[key], (*path, "value"))
        elif field.is_repeated:
            for item in value:
                yield from _strings_of(item, path)
        else:
            yield from _strings_of(value, path)


def _strings_of(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Message):
        yield from strings_in(value, path)


def _declared(descriptor: Descriptor, parents: tuple[str, ...]) -> Iterator[str]:
    if len(parents) >= _DEEPEST_PATH:
        return
    for field in descriptor.fields:
        path = (*parents, field.name)
        if field.type == FieldDescriptor.TYPE_STRING:
            yield ".".join(path)
        elif field.message_type not in (None, descriptor):
            yield from _declared(field.message_type, path)


def _without_repeats(message: Message, path: Sequence[str]) -> Iterator[str]:
    """The path without the fields that lead from a message to one of its own kind."""
    descriptor: Any = message.DESCRIPTOR
    for name in path:
        field = descriptor.fields_by_name[name]
        if field.message_type != descriptor:
            yield name
        descriptor = field.message_type or descriptor


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
