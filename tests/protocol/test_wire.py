"""The compiler of readers and writers, held to bytes written by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from protocol.bounds import MAX_STRING_BYTES
from protocol.encoding import (
    Encoded,
    EncodedArray,
    Hole,
    TooManyElements,
    decode,
    decode_bounded,
    encode,
    encode_element,
    encode_into,
)
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
)
from protocol.primitives import WireError, uvarint
from protocol.wire import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Array,
    message,
    nested,
    wire,
)


@nested
class Item:
    """A struct with a field of each width, and one that only version 1 knows."""

    small: int = wire(INT8)
    large: int = wire(INT64)
    flag: bool = wire(BOOL, since=1, until=1, default=True)


@message(flexible="2+")
class Sample:
    """Something of everything. Version 2 has compact lengths and tagged fields."""

    number: int = wire(INT16)
    name: str | None = wire(STRING, nullable=1)
    items: Sequence[Item] = wire(Array(Item))
    ids: Sequence[int] | None = wire(Array(INT32), default=(), nullable=1)
    blob: bytes = wire(BYTES, since=1, default=b"none")
    note: str = wire(STRING, since=2, tag=1, default="")
    weight: int = wire(INT32, since=2, tag=4, default=7)


def sample(**changes: Any) -> Sample:
    values: dict[str, Any] = {
        "number": -2,
        "name": "é",
        "items": (Item(small=1, large=-1, flag=False), Item(small=2, large=3, flag=True)),
        "ids": (5, 6),
        "blob": b"xy",
        "note": "n",
        "weight": 8,
    }
    return Sample(**values | changes)


BY_HAND = {
    0: "fffe 0002c3a9 00000002 01ffffffffffffffff 020000000000000003 000000020000000500000006",
    1: "fffe 0002c3a9 00000002 01ffffffffffffffff00 02000000000000000301"
    " 000000020000000500000006 000000027879",
    2: "fffe 03c3a9 03 01ffffffffffffffff00 02000000000000000300 030000000500000006 037879"
    " 02 01 02 026e 04 04 00000008",
}


@pytest.mark.parametrize("version", BY_HAND)
def test_every_version_is_written_as_by_hand(version: int) -> None:
    assert encode(sample(), version) == bytes.fromhex(BY_HAND[version])


@pytest.mark.parametrize("version", BY_HAND)
def test_what_a_version_lacks_is_read_as_its_default(version: int) -> None:
    lacks: dict[int, dict[str, Any]] = {
        0: {"blob": b"none", "note": "", "weight": 7},
        1: {"note": "", "weight": 7},
        2: {},
    }
    first = Item(small=1, large=-1, flag=version != 1)
    expected = sample(items=(first, Item(small=2, large=3)), **lacks[version])
    data = bytes.fromhex(BY_HAND[version])
    assert decode(Sample, version, data) == (expected, len(data))


@pytest.mark.parametrize(
    ("version", "data"),
    [(1, "0000 ffff 00000000 ffffffff 00000000"), (2, "0000 00 01 00 01 00")],
)
def test_null_has_a_length_of_its_own(version: int, data: str) -> None:
    value = Sample(number=0, name=None, items=(), ids=None, blob=b"")
    assert encode(value, version) == bytes.fromhex(data)
    read, _ = decode(Sample, version, bytes.fromhex(data))
    assert (read.name, read.ids) == (None, None)


@pytest.mark.parametrize("data", ["0000 ffff 00000000 00000000", "0000 0000 ffffffff 00000000"])
def test_null_where_none_may_be_is_refused(data: str) -> None:
    with pytest.raises(WireError, match="length -1"):
        decode(Sample, 0, bytes.fromhex(data))


def test_null_where_none_may_be_is_not_written() -> None:
    with pytest.raises(WireError, match="Sample v0"):
        encode(sample(name=None), 0)


@pytest.mark.fault("strangers-169")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"number": 1 << 15}, "number is 32768, no int16"),
        ({"number": "1"}, "number is '1', no int16"),
        ({"name": "x" * 40_000}, "has 40000 bytes, and can be sent with at most 32767"),
        ({"name": "\ud800"}, "name '\\ud800' has no UTF-8 form"),
        ({"name": 5}, "name is 5, no str"),
        ({"items": None}, "items is None, no list"),
        ({"items": "ab"}, "items is 'ab', no list"),
        ({"items": [5]}, "items[0] is 5, no Item"),
        ({"items": [Item(small=1, large="9" * 99)]}, f"items[0].large is '{'9' * 59}…, no int"),
        ({"ids": [1, "2"]}, "ids[1] is '2', no int"),
        ({"blob": "text"}, "blob is 'text', no bytes"),
    ],
)
def test_a_value_no_field_can_carry_is_a_wire_error(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=rf"^Sample v1: .*{re.escape(reason)}"):
        encode(sample(**change), 1)


def test_tagged_fields_at_their_defaults_are_not_written() -> None:
    assert encode(sample(note="", weight=7), 2)[-1] == 0


def test_a_tagged_field_of_a_later_time_is_passed_over() -> None:
    data = bytes.fromhex("0000 02 78 01 01 01") + b"\x02" + b"\x04\x04\0\0\0\x09" + b"\x63\x02zz"
    read, end = decode(Sample, 2, data)
    assert (read.name, read.weight, end) == ("x", 9, len(data))


def test_a_tagged_field_that_says_more_than_there_is_is_refused() -> None:
    with pytest.raises(WireError, match="tagged field 99 of 9 bytes is cut"):
        decode(Sample, 2, bytes.fromhex("0000 0278 01 01 01 01 63 09"))


NESTED_TAGS = "63 00" * 3
"""Three tagged fields that nobody knows, each without content."""


@pytest.mark.fault("security-3")
@pytest.mark.parametrize(
    "data",
    [
        "0000 0278 01 01 01 06" + NESTED_TAGS + NESTED_TAGS,
        f"0000 0278 02 010000000000000000 03{NESTED_TAGS} 01 01 03{NESTED_TAGS}",
        f"0000 0278 03 {f'010000000000000000 02{NESTED_TAGS[:10]}' * 2} 01 01 00",
    ],
    ids=["of the message", "of its structs too", "beside elements"],
)
def test_tagged_fields_count_among_the_elements(data: str) -> None:
    whole = bytes.fromhex(data)

    assert decode_bounded(Sample, 2, whole, 0, 6)[1] == len(whole)
    with pytest.raises(TooManyElements, match="more than 5"):
        decode_bounded(Sample, 2, whole, 0, 5)


@pytest.mark.fault("strangers-170")
def test_string_that_no_broker_takes_is_not_written() -> None:
    longest = "x" * MAX_STRING_BYTES
    assert decode(Sample, 2, encode(sample(name=longest), 2))[0].name == longest
    with pytest.raises(WireError, match=r"^Sample v2: name 'x+… has 32768 bytes, and can be sent"):
        encode(sample(name=f"{longest}x"), 2)


@pytest.mark.fault("security-3")
def test_string_is_no_longer_than_two_bytes_can_say() -> None:
    longest = b"x" * MAX_STRING_BYTES
    for name in (longest, longest + b"x"):
        data = b"\0\0" + uvarint(len(name) + 1) + name + bytes.fromhex("01 01 01 00")
        if name == longest:
            assert decode(Sample, 2, data)[0].name == name.decode()
            continue
        with pytest.raises(WireError, match="name: a string of 32768 bytes"):
            decode(Sample, 2, data)


@pytest.mark.fault("security-5")
def test_chunks_of_elements_that_are_encoded_already_are_not_copied() -> None:
    items = sample().items
    encoded = [encode_element(item, Sample, 2) for item in items]
    bodies = [b"".join(e.body for e in some) for some in (encoded[:1], encoded[1:])]
    chunks = [Encoded(Item, body) for body in bodies]

    out, holes = bytearray(), list[Hole]()
    encode_into(out, sample(items=EncodedArray(len(items), chunks)), 2, holes)
    assert [hole.body for _, hole in holes] == bodies
    assert [hole.size for _, hole in holes] == [len(body) for body in bodies]

    # In their places they make the message.
    (begin, _), (end, _) = holes
    assert begin == end
    assert bytes(out[:begin]) + b"".join(bodies) + bytes(out[end:]) == encode(sample(), 2)


@pytest.mark.fault("strangers-8")
def test_an_element_with_an_array_that_is_encoded_already_is_whole() -> None:
    topic = OffsetFetchResponseTopic(name="t", partitions=[])
    encoded = encode_element(topic, OffsetFetchResponse, 8)
    chunks = [Encoded(encoded.kind, 2 * encoded.body), encoded]
    many: Any = EncodedArray(3, chunks)
    plain, made = (
        encode_element(
            OffsetFetchResponseGroup(group_id="g", topics=topics), OffsetFetchResponse, 8
        )
        for topics in ([topic] * 3, many)
    )
    assert made == plain


def test_a_varint_without_end_is_refused() -> None:
    with pytest.raises(WireError, match="varint longer than 5 bytes"):
        decode(Sample, 2, bytes.fromhex("0000 ffffffffffff"))


def test_a_message_may_begin_anywhere_and_says_where_it_ends() -> None:
    data = b"before" + bytes.fromhex(BY_HAND[1]) + b"after"
    _, end = decode(Sample, 1, memoryview(data), 6)
    assert data[end:] == b"after"


@message()
class Carrier:
    """Records between two numbers."""

    before: int = wire(INT8)
    records: Any = wire(RECORDS, nullable=0)
    after: int = wire(INT8)


class Stored:
    """A file range for the writer: bytes elsewhere, of a known size."""

    size = 5


def test_records_are_read_as_a_view_of_the_request() -> None:
    data = bytes.fromhex("01 00000002 7879 02")
    read, _ = decode(Carrier, 0, data)
    assert isinstance(read.records, memoryview)
    assert (read.records.obj, bytes(read.records), read.after) == (data, b"xy", 2)


def test_records_in_a_file_leave_a_hole_where_they_belong() -> None:
    out, holes, stored = bytearray(b"head"), list[Hole](), Stored()
    encode_into(out, Carrier(before=1, records=stored, after=2), 0, holes)
    assert bytes(out) == b"head" + bytes.fromhex("01 00000005 02")
    assert holes == [(9, stored)]


@pytest.mark.parametrize(("records", "data"), [(None, "01ffffffff02"), (b"", "010000000002")])
def test_no_records_are_null_or_empty_as_they_are_given(records: Any, data: str) -> None:
    assert encode(Carrier(before=1, records=records, after=2), 0).hex() == data
