"""Encode objects to bytes and back: plain callables, a pair per type, as Kafka's serializers.

An encoder turns a value or None into bytes or None; a decoder is its inverse. None is Kafka's null
(a tombstone as a value, no key as a key) and always stays None. Integers and floats are big-endian
with a fixed width, as `org.apache.kafka.common.serialization` writes them.
"""

import json
import struct
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from clients.named_object import named_callable

Encoder = Callable[[Any], bytes | None]
"""Raises TypeError, with the type in its text, for a value of another type."""

Decoder = Callable[[bytes | None], Any]

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FLOAT32 = struct.Struct(">f")
_FLOAT64 = struct.Struct(">d")


# --- bytes and text


def bytes_encoder(value: bytes | bytearray | memoryview | None) -> bytes | None:
    """Return the bytes. Raises TypeError for other types; `bytes(5)` would give zeros."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"expected bytes, got {type(value).__name__}: encode it, or give a serializer "
        "(key.serializer, value.serializer)"
    )


def bytes_decoder(encoded: bytes | None) -> bytes | None:
    """Return the bytes unchanged."""
    return encoded


def str_encoder(value: str | None) -> bytes | None:
    """Encode text as UTF-8."""
    if value is not None and not isinstance(value, str):
        raise _wrong_type("str", value)
    return None if value is None else value.encode()


def str_decoder(encoded: bytes | None) -> str | None:
    """Decode UTF-8. Raises UnicodeDecodeError."""
    return None if encoded is None else str(encoded, "utf-8")


def json_encoder(value: Any) -> bytes | None:
    """Encode as compact JSON in UTF-8. None is the null record, not the JSON text `null`."""
    if value is None:
        return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_decoder(encoded: bytes | None) -> Any:
    """Decode JSON in UTF-8. Raises ValueError."""
    return None if encoded is None else json.loads(encoded)


def null_encoder(value: Any) -> None:
    """Encode anything as null."""


def null_decoder(encoded: bytes | None) -> None:
    """Decode anything as None."""


def uuid_encoder(value: UUID | None) -> bytes | None:
    """Encode the 36 characters of the canonical text, as Kafka's UUIDSerializer."""
    if value is not None and not isinstance(value, UUID):
        raise _wrong_type("UUID", value)
    return None if value is None else str(value).encode()


def uuid_decoder(encoded: bytes | None) -> UUID | None:
    """Decode the text of `uuid_encoder`. Raises ValueError."""
    return None if encoded is None else UUID(str(encoded, "ascii"))


# --- numbers


def _wrong_type(expected: str, value: Any) -> TypeError:
    return TypeError(f"expected {expected}, got {type(value).__name__}")


def _pack(layout: struct.Struct, kinds: tuple[type, ...], value: Any) -> bytes | None:
    if value is not None and not isinstance(value, kinds):
        raise _wrong_type(kinds[0].__name__, value)
    return None if value is None else layout.pack(value)


def _unpack(layout: struct.Struct, encoded: bytes | None) -> Any:
    return None if encoded is None else layout.unpack(encoded)[0]


def int_encoder(value: int | None) -> bytes | None:
    """Encode a signed 32-bit integer in 4 bytes. Raises struct.error for one out of range."""
    return _pack(_INT32, (int,), value)


def int_decoder(encoded: bytes | None) -> int | None:
    """Decode a signed 32-bit integer of 4 bytes. Raises struct.error for another length."""
    number: int | None = _unpack(_INT32, encoded)
    return number


def long_encoder(value: int | None) -> bytes | None:
    """Encode a signed 64-bit integer in 8 bytes. Raises struct.error for one out of range."""
    return _pack(_INT64, (int,), value)


def long_decoder(encoded: bytes | None) -> int | None:
    """Decode a signed 64-bit integer of 8 bytes. Raises struct.error for another length."""
    number: int | None = _unpack(_INT64, encoded)
    return number


def float_encoder(value: float | None) -> bytes | None:
    """Encode an IEEE single in 4 bytes. Raises OverflowError for one out of range."""
    return _pack(_FLOAT32, (float, int), value)


def float_decoder(encoded: bytes | None) -> float | None:
    """Decode an IEEE single of 4 bytes. Raises struct.error for another length."""
    number: float | None = _unpack(_FLOAT32, encoded)
    return number


def double_encoder(value: float | None) -> bytes | None:
    """Encode an IEEE double in 8 bytes."""
    return _pack(_FLOAT64, (float, int), value)


def double_decoder(encoded: bytes | None) -> float | None:
    """Decode an IEEE double of 8 bytes. Raises struct.error for another length."""
    number: float | None = _unpack(_FLOAT64, encoded)
    return number


# --- by the name of Kafka's class


ENCODER_OF: dict[str, Encoder] = {
    "StringSerializer": str_encoder,
    "ByteArraySerializer": bytes_encoder,
    "ByteBufferSerializer": bytes_encoder,
    "BytesSerializer": bytes_encoder,
    "IntegerSerializer": int_encoder,
    "LongSerializer": long_encoder,
    "FloatSerializer": float_encoder,
    "DoubleSerializer": double_encoder,
    "UUIDSerializer": uuid_encoder,
    "VoidSerializer": null_encoder,
    "DefaultEncoder": bytes_encoder,
    "StringEncoder": str_encoder,
    "NullEncoder": null_encoder,
}
"""Kafka's serializers and encoders by class name, for settings of its own clients."""

OUR_ENCODERS: Collection[Encoder] = (json_encoder, *ENCODER_OF.values())
"""Those of which it is known that they return bytes."""


def encoder_of(serializer: Any) -> Encoder:
    """Return the encoder of a setting; bytes stay unchanged if it is None.

    `serializer` is a callable, an `Encoder` with `to_message(data) -> bytes`, the name of either's
    class, or of one of Kafka's. Raises LookupError for an unknown name, TypeError for an object
    that cannot encode.
    """
    if serializer is None:
        return bytes_encoder

    # A name of Kafka's, with its package or without.
    if isinstance(serializer, str) and ":" not in serializer:
        name = serializer.rpartition(".")[2]
        if name not in ENCODER_OF:
            raise LookupError("no serializer of Kafka has this name; give module:Class")
        return ENCODER_OF[name]

    encode = named_callable(serializer, "to_message")
    return encode if encode in OUR_ENCODERS else _in_bytes(encode)


def _in_bytes(encode: Callable[[Any], Any]) -> Encoder:
    """Return an encoder whose results are bytes, whatever buffers an application's has."""

    def encode_in_bytes(value: Any) -> bytes | None:
        # A buffer that is used again would change records that wait (fault strangers-160).
        return bytes_encoder(encode(value))

    return encode_in_bytes
