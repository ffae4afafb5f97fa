"""The plainest possible reader of records of format 2, to which the fast one is compared."""

import io
from typing import NamedTuple


class Lie(Exception):
    pass


class Plain(NamedTuple):
    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_all(body: bytes, count: int) -> list[Plain]:
    """Read `count` records, which are to fill `body`. Raises Lie."""
    stream = io.BytesIO(body)
    records = []
    for _ in range(count):
        inner = io.BytesIO(exactly(stream, natural(varint(stream, 32))))
        attributes = exactly(inner, 1)[0]
        timestamp_delta = varint(inner, 64)
        offset_delta = varint(inner, 32)
        key = nullable(inner)
        value = nullable(inner)
        headers = []
        for _ in range(natural(varint(inner, 32))):
            name = nullable(inner)
            if name is None:
                raise Lie
            headers.append((name.decode(errors="replace"), nullable(inner)))
        if inner.read():
            raise Lie
        records.append(Plain(attributes, timestamp_delta, offset_delta, key, value, tuple(headers)))
    if stream.read():
        raise Lie
    return records


def nullable(stream: io.BytesIO) -> bytes | None:
    length = varint(stream, 32)
    return None if length == -1 else exactly(stream, natural(length))


def natural(n: int) -> int:
    if n < 0:
        raise Lie
    return n


def exactly(stream: io.BytesIO, n: int) -> bytes:
    found = stream.read(n)
    if len(found) != n:
        raise Lie
    return found


def varint(stream: io.BytesIO, bits: int) -> int:
    unsigned = 0
    for group in range(-(-bits // 7)):
        byte = exactly(stream, 1)[0]
        unsigned |= (byte % 128) << (7 * group)
        if byte < 128:
            if unsigned >= 2**bits:
                raise Lie
            return -(unsigned + 1) // 2 if unsigned % 2 else unsigned // 2
    raise Lie
