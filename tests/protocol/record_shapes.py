"""Batches of many shapes, damaged at random, and what the two walks say of them."""

import random
import re
from collections.abc import Callable
from itertools import pairwise

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_walk import walk
from tests.protocol.reference_reader import Lie, Plain, read_all

Shape = Callable[[random.Random, int], tuple[int, bytes | None, bytes | None, list]]


SHAPES: dict[str, Shape] = {
    "equal": lambda _, n: (n // 3, b"key", b"v" * 20, []),
    "equal, no key": lambda _, n: (5, None, bytes(100), []),
    "equal, tombstones": lambda _, n: (n, b"key-%04d" % n, None, []),
    "equal but now and then": lambda _, n: (n, b"k", b"v" * (30 if n % 40 else 31), []),
    "uneven": lambda r, n: (n, r.choice([None, b"k"]), r.randbytes(r.randint(0, 200)), []),
    "headers": lambda r, n: (n, b"k", b"v", [("h", r.choice([None, b"", b"x"]))] * r.randint(0, 3)),
    "unordered": lambda r, n: (r.randint(-(2**40), 2**40) if n else 0, b"k", b"v" * 10, []),
    "falling": lambda _, n: (-n, b"k", b"v" * 10, []),
    "long": lambda r, n: (n, b"k" * r.choice([1, 9000]), b"v" * r.choice([1, 10_000]), []),
}


def plain_verdict(body: bytes, count: int, strict: bool, require_keys: bool) -> object:
    """The result that `walk` should have, rows included, or that it should raise."""
    try:
        records = read_all(body, count)
    except Lie:
        return CorruptRecord
    deltas = [record.offset_delta for record in records]
    if strict and (deltas != list(range(count)) or any(record.attributes for record in records)):
        return CorruptRecord
    if deltas[0] < 0 or any(later <= delta for delta, later in pairwise(deltas)):
        return CorruptRecord
    if require_keys and any(record.key is None for record in records):
        return CorruptRecord
    return max(record.timestamp_delta for record in records), deltas[-1], [*map(row, records)]


def row(record: Plain) -> tuple:
    return (
        1000 + record.offset_delta,
        5_000_000 + record.timestamp_delta,
        record.key,
        record.value,
        record.headers,
    )


def fast_verdict(body: bytes, count: int, strict: bool, require_keys: bool) -> object:
    rows: list = []
    try:
        newest, last = walk(
            body,
            count,
            strict=strict,
            require_keys=require_keys,
            base_offset=1000,
            base_timestamp=5_000_000,
            rows=rows,
        )
    except CorruptRecord as lie:
        named = re.match(r"record \d+: |batch says |\d+ bytes are left over", str(lie))
        return CorruptRecord if named else lie
    assert walk(body, count, strict=strict, require_keys=require_keys) == (newest, last)
    return newest, last, rows


def record_starts(body: bytes, count: int) -> list[int]:
    starts = [0]
    for _ in range(count - 1):
        at = starts[-1]
        length = 0
        for group in range(5):
            length |= (body[at] & 127) << 7 * group
            at += 1
            if body[at - 1] < 128:
                break
        starts.append(at + (length >> 1))
    return starts


def mutate(body: bytearray, chance: random.Random, starts: list[int]) -> None:
    """Change a byte where fields are, or swap or shift some: small numbers and edges mostly."""
    at = min(chance.choice(starts) + chance.randint(0, 14), len(body) - 1)
    match chance.randrange(6):
        case 0 | 1:
            body[at] = chance.choice([0, 1, 2, 3, 126, 127, 128, 129, 254, 255])
        case 2:
            body[at] ^= 1 << chance.randrange(8)
        case 3:
            body[at] = (body[at] + chance.choice([-2, 2])) % 256
        case 4:
            body[at : at + 1] = bytes((body[at] | 128, 0))
        case 5:
            body[at : at + 1] = b""
