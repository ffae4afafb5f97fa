"""Format messages for `kgroup consume`: lines as Kafka's DefaultMessageFormatter, or JSON.

Properties (the names are Kafka's): `print.timestamp`, `print.key`, `print.value`, `print.offset`,
`print.partition`, `print.headers`, `key.separator` (tab), `line.separator` (newline),
`null.literal` (null), `headers.separator` (comma), `key.deserializer` and `value.deserializer`
(Kafka's class names). Without a deserializer, bytes are printed as they are.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from clients.command_line.output import text_or_base64
from clients.command_line.printing import json_text
from clients.serializers import (
    Decoder,
    double_decoder,
    float_decoder,
    int_decoder,
    long_decoder,
    uuid_decoder,
)
from protocol.settings import SettingError

# Kafka's names of the two clocks; -1 means that the message has no time.
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}

# None: the bytes are printed as they are.
_DECODERS: dict[str, Decoder | None] = {
    "ByteArrayDeserializer": None,
    "StringDeserializer": None,
    "IntegerDeserializer": int_decoder,
    "LongDeserializer": long_decoder,
    "FloatDeserializer": float_decoder,
    "DoubleDeserializer": double_decoder,
    "UUIDDeserializer": uuid_decoder,
}


class MessageUnreadable(Exception):
    """A message cannot be formatted; the text names its offset."""


Headers = tuple[tuple[str, bytes | None], ...]


class Message(Protocol):
    """A message of a stream, with key and value as bytes."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


Formatter = Callable[[Message], bytes]
"""Returns the bytes of a message's line, with the line's end.

Raises ValueError or struct.error for bytes that the deserializer cannot read.
"""


FLAGS = {
    "print.timestamp": False,
    "print.partition": False,
    "print.offset": False,
    "print.headers": False,
    "print.key": False,
    "print.value": True,
}
"""The columns that can be printed, in Kafka's order, and whether each is printed by default."""

TEXTS = {
    "key.separator": "\t",
    "line.separator": "\n",
    "null.literal": "null",
    "headers.separator": ",",
}
"""Default separators, and the text for null. White space in a given value counts."""

DESERIALIZERS = ("key.deserializer", "value.deserializer")

FORMATTER_NAMES = FLAGS.keys() | TEXTS.keys() | set(DESERIALIZERS)
"""The properties of the formatter; all others are settings of the client."""


def is_true(value: str) -> bool:
    """Return whether a flag is on. As in Kafka's tools, any text but "true" is off."""
    return value.strip().lower() == "true"


def line_formatter(properties: Mapping[str, str]) -> Formatter:
    """Return the formatter that prints the chosen columns in Kafka's order."""
    # Properties are text, lines are bytes.
    texts = {name: properties.get(name, default).encode() for name, default in TEXTS.items()}
    separator = texts["key.separator"]
    end = texts["line.separator"]
    null = texts["null.literal"]
    headers_separator = texts["headers.separator"]
    # An unknown class fails here, before the first message.
    print_key, print_value = (_printer(properties.get(name)) for name in DESERIALIZERS)

    def headers(message: Message) -> bytes:
        pairs = (
            name.encode() + b":" + (null if value is None else value)
            for name, value in message.headers
        )

        # As Kafka's formatter prints it.
        return headers_separator.join(pairs) or b"NO_HEADERS"

    column_of: dict[str, Formatter] = {
        "print.timestamp": _timestamp,
        "print.partition": lambda message: b"Partition:%d" % message.partition,
        "print.offset": lambda message: b"Offset:%d" % message.offset,
        "print.headers": headers,
        "print.key": lambda message: null if message.key is None else print_key(message.key),
        "print.value": lambda message: (
            null if message.value is None else print_value(message.value)
        ),
    }

    # The order of FLAGS is the order of the columns.
    columns = [
        column_of[flag]
        for flag, default in FLAGS.items()
        if is_true(properties.get(flag, str(default)))
    ]

    def line(message: Message) -> bytes:
        return separator.join([column(message) for column in columns]) + end

    return line


def _printer(deserializer: str | None) -> Callable[[bytes], bytes]:
    """Return the function that turns bytes into printed text. Raises SettingError."""
    # The class counts, not its package.
    name = (deserializer or "ByteArrayDeserializer").rpartition(".")[2]
    if name not in _DECODERS:
        names = ", ".join(_DECODERS)
        raise SettingError("deserializer", f"{deserializer!r} is not one of {names}")

    decoder = _DECODERS[name]
    return bytes if decoder is None else lambda encoded: str(decoder(encoded)).encode()


def _timestamp(message: Message) -> bytes:
    # Messages of format 0 have no timestamp.
    kind = _TIMESTAMP_TYPES.get(message.timestamp_type)
    if kind is None or message.timestamp_ms < 0:
        return b"NO_TIMESTAMP"

    return f"{kind}:{message.timestamp_ms}".encode()


def formatter_of(name: str, properties: Mapping[str, str]) -> Formatter:
    """Return the formatter with the name of Kafka's class. Raises SettingError."""
    make = FORMATTERS.get(name.rpartition(".")[2])
    if make is None:
        raise SettingError("formatter", f"{name!r} is not one of {', '.join(FORMATTERS)}")
    return make(properties)


FORMATTERS: dict[str, Callable[[Mapping[str, str]], Formatter]] = {
    "DefaultMessageFormatter": line_formatter,
    # Kafka's class prints values only.
    "NewlineMessageFormatter": lambda _: line_formatter({}),
    "NoOpMessageFormatter": lambda _: lambda message: b"",
}


def json_line(message: Message) -> bytes:
    """Return one JSON object: `timestamp` in ms, bytes that are not UTF-8 in `key_base64`."""
    fields = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        **text_or_base64("key", message.key),
        **text_or_base64("value", message.value),
        "headers": [
            {"key": name, **text_or_base64("value", value)} for name, value in message.headers
        ],
    }
    return json_text(fields, compact=True).encode() + b"\n"
