"""Declare the fields of a message once, for all its versions.

A message or a nested struct is an attrs class. `wire()` makes its fields, in wire order; each has a
type and the versions that carry it. `protocol.encoding` compiles readers and writers from that.

The types and rules are those of the Kafka protocol guide; KIP-482 describes the flexible versions,
with compact lengths and tagged fields. An array is read as a tuple and written from any sequence.
RECORDS are read as a memoryview of the request, and written from bytes or from anything with a
`size` (a range of a file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import attrs

from protocol.api_key import ApiKey
from protocol.frozen import frozen, share_methods

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Message = DataclassInstance  # the type checker's name for what `message` makes
else:
    Message = object

C = TypeVar("C", bound=type)

_KEY = "wire"


@frozen
class WireType:
    """A type on the wire. `code` is the `struct` code of a type of fixed width, else empty."""

    name: str
    code: str = ""


@frozen
class Versions:
    """A range of versions of an API, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "0-9", "6+", "0" or "none", as Kafka's message definitions write them."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


MAX_VERSION = 32767
NO_VERSIONS = Versions(0, -1)

# Types of fixed width.
BOOL = WireType("bool", "?")
INT8 = WireType("int8", "b")
INT16 = WireType("int16", "h")
INT32 = WireType("int32", "i")
INT64 = WireType("int64", "q")
FLOAT64 = WireType("float64", "d")
UUID = WireType("uuid", "16s")  # as 16 bytes
# Types that are written after their length.
STRING = WireType("string")
BYTES = WireType("bytes")
RECORDS = WireType("records")


@frozen
class Array:
    """An array of a wire type or of a struct class."""

    of: Any


@frozen
class WireField:
    """The declaration of a field by `wire()`."""

    type: Any
    since: int
    until: int
    nullable: int | None
    tag: int | None
    default: Any

    def may_be_null(self, version: int) -> bool:
        """Return whether null is legal in `version`."""
        return self.nullable is not None and version >= self.nullable


@frozen
class Declaration:
    """The declaration of a class by `message()`: its API and its versions."""

    api: ApiKey | None
    versions: Versions
    served: Versions
    sent: Versions
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
    """Declare a field that the versions from `since` through `until` carry.

    `nullable` is the first version in which null is legal. A field that some version does not
    carry needs a `default`, its value in that version. A `tag` makes it a tagged field.
    """
    field = WireField(type, since, until, nullable, tag, default)
    return attrs.field(default=default, metadata={_KEY: field})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def message(
    *,
    api: ApiKey | None = None,
    versions: str = "0+",
    served: str | None = None,
    sent: str | None = None,
    flexible: str | None = None,
) -> Callable[[C], C]:
    """Make a request or response class of `api`; without `api` a record with versions.

    The codec knows all `versions`. A broker advertises the `served` ones (default: all), and our
    clients choose among the `sent` ones (default: all). The `flexible` ones have compact lengths
    and tagged fields.
    """
    codec_versions = Versions.parse(versions)
    declaration = Declaration(
        api,
        codec_versions,
        codec_versions if served is None else Versions.parse(served),
        codec_versions if sent is None else Versions.parse(sent),
        None if flexible is None else Versions.parse(flexible).first,
    )

    def decorate(cls: C) -> C:
        message_class = _define(cls)
        message_class.__declaration__ = declaration  # type: ignore[attr-defined]
        return message_class

    return decorate


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def nested(cls: C) -> C:
    """Make a struct that is part of a message."""
    return _define(cls)


def _define(cls: C) -> C:
    """Make an attrs class that is frozen for the type checker, but not at run time.

    A frozen `__init__` takes 2.5 times as long, and a commit of a thousand partitions makes two
    thousand of these objects.
    """
    return share_methods(cls, attrs.define(kw_only=True, eq=False, repr=False))


# ---- what the codec asks


def is_flexible(cls: type, version: int) -> bool:
    """Return whether `version` of the message has compact lengths and tagged fields."""
    declaration: Declaration | None = getattr(cls, "__declaration__", None)
    # A nested struct has no versions of its own: it follows its message.
    if declaration is None or declaration.first_flexible is None:
        return False
    return version >= declaration.first_flexible


def declaration_of(cls: type) -> Declaration:
    """Return the declaration of a message class."""
    declaration: Declaration = cls.__declaration__  # type: ignore[attr-defined]
    return declaration


def fields(cls: type, version: int) -> Iterator[tuple[str, WireField]]:
    """List the fields that `version` of a message or struct carries, in wire order."""
    for name, field in declared_fields(cls):
        if field.since <= version <= field.until:
            yield name, field


def declared_fields(cls: type) -> Iterator[tuple[str, WireField]]:
    """List all fields of a message or struct, in wire order."""
    for attribute in attrs.fields(cls):
        yield attribute.name, attribute.metadata[_KEY]
