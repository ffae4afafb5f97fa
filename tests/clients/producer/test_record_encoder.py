"""Records hold what was sent, whatever the program does with its lists and buffers later."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from clients.producer.config import load_producer_config
from clients.producer.record_encoder import RecordEncoder


def encoder(**settings: Any) -> RecordEncoder:
    config, _ = load_producer_config({"bootstrap.servers": "b:1", **settings})
    return RecordEncoder(config, has_partition_rule=False)


@pytest.mark.fault("strangers-161")
def test_headers_that_are_used_again_are_those_of_the_call() -> None:
    records = encoder()
    content = bytearray(b"first")
    headers: list[tuple[str, Any]] = [("h", content)]
    *_, kept, _, _ = records.encode("t", b"", None, None, headers, None)
    many = records.encode_many("t", [b""], None, 0, headers, None)
    content[:] = b"later"
    headers.append(("other", b""))
    assert kept == (("h", b"first"),)
    assert many[0][5] == (("h", b"first"),)


@pytest.mark.fault("strangers-160")
def test_a_buffer_of_a_serializer_that_is_used_again_is_that_of_the_call() -> None:
    buffer = bytearray()

    def serialize(value: bytes) -> bytearray:
        buffer[:] = value
        return buffer

    records = encoder(**{"value.serializer": serialize})
    first = records.encode("t", b"first", None, None, (), None)
    records.encode("t", b"later", None, None, (), None)
    assert first[4] == b"first"


def test_contents_count_in_bytes_and_not_in_elements() -> None:
    numbers: Any = memoryview(array("i", [1, 2]))
    content = bytes(numbers)
    *_, headers, _, size = encoder().encode("t", b"", None, None, [("h", numbers)], None)
    assert headers == (("h", content),)
    assert size >= len(content)


@pytest.mark.parametrize("content", [5, "text", [1]])
def test_contents_that_are_no_bytes_are_refused(content: Any) -> None:
    with pytest.raises(TypeError, match=r"^t: the value of header 'h': expected bytes, got"):
        encoder().encode("t", b"", None, None, [("h", content)], None)
    with pytest.raises(TypeError, match="expected bytes, got"):
        encoder(**{"value.serializer": lambda value: content}).encode(
            "t", b"", None, None, (), None
        )


def test_none_for_headers_is_no_headers() -> None:
    nothing: Any = None
    *_, headers, _, _ = encoder().encode("t", b"", None, None, nothing, None)
    (record,) = encoder().encode_many("t", [b""], None, 0, nothing, None)
    assert (headers, record[5]) == ((), ())
