"""Keys and values of plain batches, and what is left to a closer look."""

import contextlib
import random
from collections.abc import Sequence

import pytest
from crc32c import crc32c

from protocol.records.batch import CorruptRecord, decode_rows, encode_batch, read_header
from protocol.records.batch_header import CONTROL, CRC_AT, CRC_COVERS_FROM, TRANSACTIONAL
from protocol.records.compression import Codec
from protocol.records.key_values import KeyValues, read_key_values

Pair = tuple[bytes, bytes | None]
ENOUGH = 1_000_000


def batch(pairs: Sequence[Pair], base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    rows = [(1000 + n, key, value, ()) for n, (key, value) in enumerate(pairs)]
    return encode_batch(rows, base_offset=base_offset, codec=codec)


def signed(data: bytes | bytearray) -> bytes:
    """Give a batch the checksum of its content."""
    body = bytearray(data)
    body[CRC_AT:CRC_COVERS_FROM] = crc32c(body[CRC_COVERS_FROM:]).to_bytes(4, "big")
    return bytes(body)


def marked(data: bytes, attributes: int) -> bytes:
    body = bytearray(data)
    body[22] |= attributes
    return signed(body)


def pairs_of(read: KeyValues | None) -> list[Pair]:
    assert read is not None
    return list(zip(read.keys, read.values, strict=True))


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 100])
@pytest.mark.parametrize("value", [b"v" * 24, b"", None, b"v" * 200])
def test_batches_of_any_number_of_records_are_read(count: int, value: bytes | None) -> None:
    pairs: list[Pair] = [(b"key-%03d" % n, value) for n in range(count)]
    read = read_key_values(batch(pairs, 7), 0, ENOUGH)
    assert pairs_of(read) == pairs
    assert read is not None
    assert read.next_offset == 7 + count


def test_uneven_records_are_read_as_the_plain_reader_does() -> None:
    chance = random.Random(1)
    pairs = [
        (chance.randbytes(chance.choice((1, 60, 70, 300))), chance.randbytes(chance.randrange(200)))
        for _ in range(300)
    ]
    data = batch(pairs)
    expected = [(row[2], row[3]) for row in decode_rows(data)]
    assert pairs_of(read_key_values(data, 0, ENOUGH)) == expected == pairs


def test_neighbours_are_read_together_until_there_are_enough() -> None:
    data = b"".join(batch([(b"k%d" % n, b"v")], n) for n in range(10))
    read = read_key_values(data, 0, 4)
    assert pairs_of(read) == [(b"k%d" % n, b"v") for n in range(4)]
    assert read is not None
    rest = read_key_values(data, read.end, ENOUGH)
    assert pairs_of(rest) == [(b"k%d" % n, b"v") for n in range(4, 10)]
    assert rest is not None
    assert (rest.end, rest.next_offset) == (len(data), 10)


@pytest.mark.parametrize("cut", [1, 60, 61, 69])
def test_batch_that_is_cut_is_left(cut: int) -> None:
    whole, second = batch([(b"a", b"1")]), batch([(b"b", b"2")], 1)
    read = read_key_values(whole + second[:cut], 0, ENOUGH)
    assert read is not None
    assert (read.end, read.next_offset, read.keys) == (len(whole), 1, [b"a"])
    assert read_key_values(second[:cut], 0, ENOUGH) is None


def test_batch_that_compaction_emptied_is_passed() -> None:
    header = bytearray(batch([(b"a", b"1")], 5)[:61])
    header[8:12] = (61 - 12).to_bytes(4, "big")
    header[57:61] = bytes(4)
    read = read_key_values(signed(header), 0, ENOUGH)
    assert read == KeyValues(61, 6, [], [])


@pytest.mark.parametrize(
    "data",
    [
        batch([(b"a", b"1")], codec=Codec.GZIP),
        marked(batch([(b"a", b"1")]), TRANSACTIONAL),
        marked(batch([(b"a", b"1")]), CONTROL),
        encode_batch([(1, None, b"1", ())]),
        encode_batch([(1, b"a", b"1", (("h", b""),))]),
        encode_batch([(1, None, b"1", ())] * 20),
        encode_batch([(1, b"a", b"1", ()), (1, None, b"2", ())]),
        batch([(b"a", b"1")])[:-1] + b"\x01",
        batch([(b"a", b"x" * 20_000)]),
    ],
    ids=[
        "codec",
        "transactional",
        "control",
        "keyless",
        "headers",
        "keyless-run",
        "second",
        "crc",
        "long",
    ],
)
def test_what_is_not_plain_is_left_where_it_stands(data: bytes) -> None:
    assert read_key_values(data, 0, ENOUGH) is None
    before = batch([(b"b", b"2")])
    read = read_key_values(before + data, 0, ENOUGH)
    assert read is not None
    assert (read.end, read.keys, read.values) == (len(before), [b"b"], [b"2"])


def test_batch_whose_lengths_lie_is_never_read_otherwise_than_by_the_plain_reader() -> None:
    """Change any byte of the records and correct the checksum."""
    chance = random.Random(2)
    pairs = [(b"key-%d" % n, b"value" * n) for n in range(3)]
    data = batch(pairs)
    left = 0
    for at in range(57, len(data)):
        body = bytearray(data)
        body[at] = chance.randrange(256)
        lie = signed(body)
        read = read_key_values(lie, 0, ENOUGH)
        if read is None:
            left += 1
            continue
        with contextlib.suppress(CorruptRecord):  # of offsets within a batch nothing is asked
            expected = decode_rows(lie, 0, read_header(lie))
            assert pairs_of(read) == [(row[2], row[3]) for row in expected]
    assert left
