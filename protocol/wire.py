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

from protocol.api_key import ApiKey

C = TypeVar("C", bound=type)

_KEY = "wire"


@attrs.frozen
class WireType:
    """A type on the wire. `code` is the struct code of a fixed-width type, else empty."""

    name: str
    code: str = ""


@attrs.frozen
class Versions:
    """Versions of an API, from the first through the last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "0-9", "6+" or "0", as Kafka's message definitions write them."""
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


MAX_VERSION = 32767

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


@attrs.frozen
class Declared:
    """What `message()` said of a class: API and versions."""

    api: ApiKey | None
    versions: Versions
    served: Versions
    first_flexible: int | None


def wire(
    type: Any,
    *,
    since: int = 0,
    until: int = MAX_VERSION,
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
def message(
    *,
    api: ApiKey | None = None,
    versions: str = "0+",
    served: str | None = None,
    flexible: str | None = None,
) -> Callable[[C], C]:
    """Make a request or response class of `api`; without `api` a record that has versions.

    `versions` are those that the codec knows and our clients may use, `served` those that a broker
    advertises (all, unless it says otherwise), `flexible` those with compact lengths and tagged
    fields.
    """
    known = Versions.parse(versions)
    declared = Declared(
        api,
        known,
        known if served is None else Versions.parse(served),
        None if flexible is None else Versions.parse(flexible).first,
    )

    def make(cls: C) -> C:
        made = _plain(cls)
        made.__declared__ = declared  # type: ignore[attr-defined]
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
    declared: Declared | None = getattr(cls, "__declared__", None)
    if declared is None or declared.first_flexible is None:
        return False
    return version >= declared.first_flexible


def declared(cls: type) -> Declared:
    """What a message class says of itself."""
    found: Declared = cls.__declared__  # type: ignore[attr-defined]
    return found


def fields(cls: type, version: int) -> Iterator[tuple[str, WireField]]:
    """The fields that `version` of a message or struct carries, in wire order."""
    for attribute in attrs.fields(cls):
        field: WireField = attribute.metadata[_KEY]
        if field.since <= version <= field.until:
            yield attribute.name, field
