"""Messages as data: a message's fields are declared once, for all its versions.

A message or a nested struct is an attrs class whose fields, in wire order, are made by `wire()`:
each says its type and the versions that carry it. `protocol.encoding` makes readers and writers of
that.

Types and rules: the Kafka protocol guide; flexible versions (compact lengths, tagged fields)
KIP-482. An array is a tuple once read and any sequence when written. RECORDS are read as a
memoryview of the request and written either as bytes or as anything with a `size` (a range of a
file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, dataclass_transform

import attrs

C = TypeVar("C", bound=type)

_KEY = "wire"


@attrs.frozen
class WireType:
    """A type on the wire. `code` is the struct code of a fixed-width type, else empty."""

    name: str
    code: str = ""


BOOL = WireType("bool", "?")
INT8 = WireType("int8", "b")
INT16 = WireType("int16", "h")
INT32 = WireType("int32", "i")
INT64 = WireType("int64", "q")
STRING = WireType("string")
BYTES = WireType("bytes")
RECORDS = WireType("records")


@attrs.frozen
class Array:
    """An array of a wire type or of a struct class."""

    of: Any


@attrs.frozen
class WireField:
    """What `wire()` said of a field: type, versions, nullability and tag."""

    type: Any
    since: int
    until: int
    nullable: int | None
    tag: int | None
    default: Any

    def may_be_null(self, version: int) -> bool:
        """Whether null is legal in `version`."""
        return self.nullable is not None and version >= self.nullable


def wire(
    type: Any,
    *,
    since: int = 0,
    until: int = 32767,
    default: Any = attrs.NOTHING,
    nullable: int | None = None,
    tag: int | None = None,
) -> Any:
    """Declare a field: carried from version `since` through `until`.

    `nullable` is the first version in which null is legal. A field that some version lacks needs
    a `default`, which it has there. A `tag` makes it a tagged field.
    """
    field = WireField(type, since, until, nullable, tag, default)
    return attrs.field(default=default, metadata={_KEY: field})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def message(*, flexible: int | None = None) -> Callable[[C], C]:
    """Make a request or response class. `flexible` is its first flexible version."""

    def make(cls: C) -> C:
        made = _plain(cls)
        made.__flexible__ = flexible  # type: ignore[attr-defined]
        return made

    return make


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def nested(cls: C) -> C:
    """Make a struct that stands inside a message."""
    return _plain(cls)


def _plain(cls: C) -> C:
    """Frozen to the type checker, but not at run time: a frozen `__init__` takes 2.5 times as
    long, and a commit of a thousand partitions makes two thousand of these."""
    return attrs.define(kw_only=True, unsafe_hash=True)(cls)


def is_flexible(cls: type, version: int) -> bool:
    """Whether `version` of the message uses compact lengths and tagged fields."""
    first = getattr(cls, "__flexible__", None)
    return first is not None and version >= first


def fields(cls: type, version: int) -> Iterator[tuple[str, WireField]]:
    """The fields that `version` of a message or struct carries, in wire order."""
    for attribute in attrs.fields(cls):
        field: WireField = attribute.metadata[_KEY]
        if field.since <= version <= field.until:
            yield attribute.name, field
