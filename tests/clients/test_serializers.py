"""Bytes as Kafka's stock serializers write them."""

import struct
from typing import Any
from uuid import UUID

import pytest

from clients import serializers as s

PAIRS: list[tuple[Any, Any, Any, bytes]] = [
    (s.bytes_encoder, s.bytes_decoder, b"\x00\xff", b"\x00\xff"),
    (s.str_encoder, s.str_decoder, "é", b"\xc3\xa9"),
    (s.json_encoder, s.json_decoder, {"a": [1, "é"]}, '{"a":[1,"é"]}'.encode()),
    (s.int_encoder, s.int_decoder, -2, b"\xff\xff\xff\xfe"),
    (s.long_encoder, s.long_decoder, 2**40, b"\x00\x00\x01\x00\x00\x00\x00\x00"),
    (s.float_encoder, s.float_decoder, 1.5, b"\x3f\xc0\x00\x00"),
    (s.double_encoder, s.double_decoder, -0.1, struct.pack(">d", -0.1)),
    (s.uuid_encoder, s.uuid_decoder, UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
]


@pytest.mark.parametrize(("encode", "decode", "value", "encoded"), PAIRS)
def test_value_is_encoded_as_kafka_does_and_comes_back(
    encode: Any, decode: Any, value: Any, encoded: bytes
) -> None:
    assert encode(value) == encoded
    assert decode(encoded) == value


@pytest.mark.parametrize(("encode", "decode", "value", "encoded"), PAIRS)
def test_null_passes_through(encode: Any, decode: Any, value: Any, encoded: bytes) -> None:
    assert encode(None) is None
    assert decode(None) is None


def test_number_where_bytes_belong_is_refused_and_not_turned_into_zeros() -> None:
    with pytest.raises(TypeError, match="expected bytes, got int"):
        s.bytes_encoder(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encode", "value", "said"),
    [
        (s.str_encoder, b"text", "expected str, got bytes"),
        (s.int_encoder, "1", "expected int, got str"),
        (s.long_encoder, 1.0, "expected int, got float"),
        (s.double_encoder, b"1", "expected float, got bytes"),
        (s.uuid_encoder, "1", "expected UUID, got str"),
    ],
)
def test_value_of_another_type_is_refused_by_its_name(encode: Any, value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        encode(value)


def test_integer_beyond_its_width_is_refused() -> None:
    with pytest.raises(struct.error):
        s.int_encoder(2**31)


def test_serializer_is_found_by_the_name_of_kafkas_class() -> None:
    name = "org.apache.kafka.common.serialization.LongSerializer"
    assert s.encoder_of(name) is s.long_encoder
    assert s.encoder_of(None) is s.bytes_encoder
    assert s.encoder_of(s.str_encoder) is s.str_encoder
    with pytest.raises(LookupError):
        s.encoder_of("com.example.Mine")
