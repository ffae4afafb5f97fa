"""Read the lines of `kgroup produce`, as Kafka's LineMessageReader does.

Properties (the names are Kafka's): `parse.key`, `key.separator` (tab; the line is split at its
first occurrence), `ignore.error` (a line without the separator is a value without a key, not an
error).

Keys and values of a line are bytes. If a serializer of Kafka takes numbers, UUIDs or text, they
are parsed first.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from clients.kgroup.formatter import is_true
from protocol.frozen import frozen


class LineError(Exception):
    """A line cannot become a message; the text has its number."""


LINE_READER_NAMES = {"parse.key", "key.separator", "ignore.error"}
"""The properties of the line reader; all others are settings of the client."""


Parse = Callable[[bytes], Any]
"""Parses bytes of a line into the value that a serializer takes. Raises ValueError."""

PARSE: Mapping[str, Parse] = {
    "StringSerializer": bytes.decode,
    "StringEncoder": bytes.decode,
    "IntegerSerializer": int,
    "LongSerializer": int,
    "FloatSerializer": float,
    "DoubleSerializer": float,
    "UUIDSerializer": lambda text: UUID(text.decode()),
}
"""Parsers by the class of the serializer; all other serializers take bytes."""

_KEY_SERIALIZERS = ("key.serializer", "key.serializer.class")
_VALUE_SERIALIZERS = ("value.serializer", "serializer.class")


@frozen
class FieldReader:
    """Parses keys and values for the producer's serializers."""

    key: Parse
    value: Parse

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "FieldReader":
        """Choose the parsers by the producer's settings, which the producer checks."""
        # Settings may be spelled with underscores, as in Python.
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        # With producer.type the serializer of values is the default for keys, under both names.
        key_default = _VALUE_SERIALIZERS if "producer.type" in dotted else _VALUE_SERIALIZERS[1:]

        def parser(names: tuple[str, ...]) -> Parse:
            serializer = next((dotted[name] for name in names if name in dotted), "")

            # Kafka's class, with or without its package, decides the parser.
            return PARSE.get(serializer.strip().rpartition(".")[2], bytes)

        return cls(parser((*_KEY_SERIALIZERS, *key_default)), parser(_VALUE_SERIALIZERS))

    def read(self, key: bytes | None, value: bytes, number: int) -> tuple[Any, Any]:
        """Parse the key and value of line `number`. Raises LineError."""
        try:
            return None if key is None else self.key(key), self.value(value)
        except ValueError as error:
            raise LineError(f"line {number}: {error}") from None


@frozen
class LineReader:
    """Splits lines into keys and values."""

    separator: bytes | None
    """None if the whole line is the value."""
    ignore_error: bool

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "LineReader":
        """Make the reader from its properties."""
        keyed = is_true(properties.get("parse.key", "false"))
        separator = properties.get("key.separator", "\t").encode()

        return cls(separator if keyed else None, is_true(properties.get("ignore.error", "false")))

    def read(self, line: bytes, number: int) -> tuple[bytes | None, bytes]:
        """Split a line, without its end, into key and value. Raises LineError.

        An empty line is an empty value; so is a line's end right after the separator.
        """
        # Either line end, as in Kafka's tool.
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if self.separator is None:
            return None, line

        key, separator, value = line.partition(self.separator)
        if separator:
            # The separator was found; the value may be empty.
            return key, value
        if self.ignore_error:
            return None, line
        raise LineError(f"no key separator in line {number}")
