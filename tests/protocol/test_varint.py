import random
import re
from pathlib import Path

import pytest

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.varint import decode_varint, decode_varlong, encode_varint

ROOT = Path(__file__).resolve().parents[2]
IN_LINE = re.compile(
    r"""if \((\w+) := (\w+)\[pos\]\) < 128:
 +pos \+= 1
 +elif \(high := \2\[pos \+ 1\]\) < 128:
 +\1 \+= \(high << 7\) - 128
 +pos \+= 2
 +else:
 +(?:\1, pos = decode_folded\(\2, pos, (?:32|64)\)|raise _NotPlain)
"""
)

KNOWN = {
    0: "00",
    -1: "01",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
}


@pytest.mark.parametrize(("number", "encoded"), KNOWN.items())
def test_known_number_is_encoded_and_decoded(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert decode_varint(b"?" + bytes.fromhex(encoded) + b"?", 1) == (number, len(encoded) // 2 + 1)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**31, -(2**31) - 1])
def test_number_of_64_bits_is_a_varlong_only(number: int) -> None:
    encoded = encode_varint(number)

    assert decode_varlong(encoded, 0) == (number, len(encoded))
    with pytest.raises(CorruptRecord, match="32 bits"):
        decode_varint(encoded, 0)


def test_random_numbers_come_back() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        number = chance.randint(-(2 ** chance.randint(1, 63)), 2 ** chance.randint(1, 63) - 1)
        assert decode_varlong(encode_varint(number), 0)[0] == number


def test_encoding_longer_than_needed_is_read() -> None:
    assert decode_varint(bytes.fromhex("8280808000"), 0) == (1, 5)


@pytest.mark.parametrize("encoded", ["ffffffff8f00", "ffffffff10", "808080808000"])
def test_varint_beyond_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(CorruptRecord, match="too long for 32 bits"):
        decode_varint(bytes.fromhex(encoded), 0)


def test_varlong_beyond_64_bits_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="too long for 64 bits"):
        decode_varlong(bytes.fromhex("ffffffffffffffffff02"), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffff"])
def test_bytes_that_end_inside_a_varint_are_refused(encoded: str) -> None:
    with pytest.raises(CorruptRecord, match="end inside"):
        decode_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("module", "copies"), [("record_walk", 5), ("record_spans", 5), ("key_values", 3)]
)
def test_numbers_that_are_read_in_line_are_all_read_alike(module: str, copies: int) -> None:
    source = (ROOT / f"protocol/records/{module}.py").read_text()
    assert source.count("[pos]) < 128:") == copies
    assert len(IN_LINE.findall(source)) == copies
