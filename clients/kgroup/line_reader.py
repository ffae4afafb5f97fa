"""How `kgroup produce` reads a line: as Kafka's LineMessageReader.

Properties (the names are Kafka's): `parse.key`, `key.separator` (tab; cut at its first
occurrence), `ignore.error` (a line without the separator is a value without key, not an error).

What the line has is bytes. A serializer of Kafka's that takes something else gets what they read
as: a number, a UUID, text.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import attrs

from clients.kgroup.formatter import is_true


class LineError(Exception):
    """A line that cannot be made a message; the text names its number."""


LINE_READER_NAMES = {"parse.key", "key.separator", "ignore.error"}
"""The properties that go to the reader; all others go to the client."""


Parse = Callable[[bytes], Any]
"""What stands in a line to what a serializer takes. Raises ValueError."""

PARSE: Mapping[str, Parse] = {
    "StringSerializer": bytes.decode,
    "StringEncoder": bytes.decode,
    "IntegerSerializer": int,
    "LongSerializer": int,
    "FloatSerializer": float,
    "DoubleSerializer": float,
    "UUIDSerializer": lambda text: UUID(text.decode()),
}
"""By the serializer's class; all others take bytes."""

_KEY_SERIALIZERS = ("key.serializer", "key.serializer.class")
_VALUE_SERIALIZERS = ("value.serializer", "serializer.class")


@attrs.frozen
class FieldReader:
    """What a line's key and value are to the producer's serializers."""

    key: Parse
    value: Parse

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "FieldReader":
        """From the producer's settings; a serializer that it would refuse is not noticed here."""
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        # With producer.type the values' serializer is the default of the keys', whatever its name.
        of_keys = _VALUE_SERIALIZERS if "producer.type" in dotted else _VALUE_SERIALIZERS[1:]

        def parse(names: tuple[str, ...]) -> Parse:
            given = next((dotted[name] for name in names if name in dotted), "")
            return PARSE.get(given.strip().rpartition(".")[2], bytes)

        return cls(parse((*_KEY_SERIALIZERS, *of_keys)), parse(_VALUE_SERIALIZERS))

    def read(self, key: bytes | None, value: bytes, number: int) -> tuple[Any, Any]:
        """Key and value of a line. Raises LineError."""
        try:
            return None if key is None else self.key(key), self.value(value)
        except ValueError as error:
            raise LineError(f"line {number}: {error}") from None


@attrs.frozen
class LineReader:
    """Cuts lines into keys and values."""

    separator: bytes | None
    """None: a line is a value."""
    ignore_error: bool

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "LineReader":
        """Read the properties."""
        keyed = is_true(properties.get("parse.key", "false"))
        separator = properties.get("key.separator", "\t").encode()
        return cls(separator if keyed else None, is_true(properties.get("ignore.error", "false")))

    def read(self, line: bytes, number: int) -> tuple[bytes | None, bytes]:
        """(key, value) of a line, whose end does not count. Raises LineError.

        An empty line is an empty message, and so is the value after a separator at the end.
        """
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if self.separator is None:
            return None, line
        key, found, value = line.partition(self.separator)
        if found:
            return key, value
        if self.ignore_error:
            return None, line
        raise LineError(f"no key separator in line {number}")
