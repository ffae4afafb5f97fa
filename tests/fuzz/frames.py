"""Requests of every API and version, from a seed: sound ones, bent ones, and garbage.

A sound request is a message whose fields are drawn by their types and names. Names come from a
small pool, so that many requests meet the same topics and groups. A bent one is the same with some
bytes changed, cut, doubled or made into huge lengths. What would change the cluster for good, such
as requests of a controller, is drawn so that a broker refuses it.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import attrs

from protocol.api import Api
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.primitives import WireError
from protocol.records.builder import BatchBuilder
from protocol.records.compression import Codec
from protocol.registry import API
from protocol.wire import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NO_VERSIONS,
    RECORDS,
    STRING,
    UUID,
    Array,
    WireField,
    WireType,
)

NAMES = ("fuzz-a", "fuzz-b", "fuzz-c", "", "a/b", "é\n", "__consumer_offsets", "x" * 300)
"""Topics, groups, members and all other strings."""
EDGES = (0, 1, -1, 2, 3, 100, 0x7F, 0x7FFF, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF)
SHORT_MS = (0, 1, 5)
BITS = {INT8: 7, INT16: 15, INT32: 31, INT64: 63}

NO_BROKER = 4711
"""The id of a broker that the cluster does not have."""

FIXED: dict[str, tuple[Any, ...]] = {
    # A controller or follower of another cluster: refused, or nothing comes of it.
    "controller_epoch": (-1, 0),
    "broker_epoch": (-2,),
    "controller_id": (NO_BROKER,),
    "broker_id": (NO_BROKER,),
    "replica_id": (-1, NO_BROKER),
    # Waits that end soon.
    "max_wait_ms": SHORT_MS,
    "timeout_ms": SHORT_MS,
    "rebalance_timeout_ms": SHORT_MS,
    "session_timeout_ms": (10, 100, 0),
    # Not a load test.
    "num_partitions": (1, 2, -1, 0, 0x7FFFFFFF),
    "replication_factor": (1, -1, 0, 2, 0x7FFF),
    "count": (1, 2, 3, 0, -1, 0x7FFFFFFF),
    "entity_name": ("nobody", ""),
}
"""Fields by name, where their type does not say what is worth trying."""

NEEDS_A_SOUND_HEAD = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)
"""Requests by which anybody may stop a broker without ACLs: their first bytes stay as they are."""
HEAD_BYTES = 60
"""The header without the client's id, and the epochs by which a broker knows its controller."""

SOUND, BENT, GARBAGE = range(3)
WEIGHTS = (55, 40, 5)


@attrs.frozen
class Frame:
    """One request with its size in front. `is_whole`: the size is that of the bytes."""

    data: bytes
    is_whole: bool = True


MAX_BENT_BYTES = 4_000_000
"""Four times what the broker takes. A part of a part that is doubled again would have no end."""

_APIS = [api for api in API.values() if api.served != NO_VERSIONS]


def draw_frame(rng: random.Random) -> Frame:
    """Draw a request of any API and version, or what is none."""
    api = rng.choice(_APIS)
    kind = rng.choices((SOUND, BENT, GARBAGE), WEIGHTS)[0]
    if kind == GARBAGE:
        return _garbage(rng)
    frame = _sound(rng, api)
    return _bent(rng, frame, api.key) if kind == BENT else Frame(frame)


def draw_bent(rng: random.Random, frame: bytes) -> Frame:
    """Draw another frame that is nearly this one."""
    return _bent(rng, frame, None)


def bend(rng: random.Random, data: bytearray) -> bytearray:
    """Change some of these bytes, or their number."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        data = rng.choice((_with_changed_bytes, _cut, _with_length, _with_doubled_part))(rng, data)
    return data


def _sound(rng: random.Random, api: Api) -> bytes:
    """Draw a request that can be encoded."""
    while True:
        version = rng.randint(api.served.first, api.served.last)
        correlation_id = rng.randint(0, 0x7FFFFFFF)
        client_id = rng.choice((None, "", "fuzz", "x" * 1000))
        try:
            request = _message(rng, api.request, version)
            return encode_request(api.key, version, correlation_id, client_id, request)
        except (WireError, ValueError):
            continue


def _message(rng: random.Random, cls: type, version: int) -> Any:
    values = {}
    for attribute in attrs.fields(cls):
        field: WireField = attribute.metadata["wire"]
        if field.since <= version <= field.until and field.tag is None:
            values[attribute.name] = _value(rng, attribute.name, field, version)
    return cls(**values)


def _value(rng: random.Random, name: str, field: WireField, version: int) -> Any:
    if field.may_be_null(version) and rng.random() < 0.2:
        return None
    if name in FIXED:
        return rng.choice(FIXED[name])
    return _of_type(rng, field.type, version)


def _of_type(rng: random.Random, kind: Any, version: int) -> Any:
    if isinstance(kind, Array):
        return [_of_type(rng, kind.of, version) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    if not isinstance(kind, WireType):
        return _message(rng, kind, version)
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is STRING:
        return rng.choice(NAMES)
    if kind is BYTES:
        return rng.randbytes(rng.choice((0, 1, 20, 1000)))
    if kind is RECORDS:
        return _records(rng)
    if kind is FLOAT64:
        return rng.choice((0.0, 1.0, -1.0, 1e308, float("nan"), float("inf")))
    if kind is UUID:
        return rng.choice((bytes(16), rng.randbytes(16)))
    bits = BITS[kind]
    least, most = -(1 << bits), (1 << bits) - 1
    number = rng.choice(EDGES) if rng.random() < 0.7 else rng.randint(least, most)
    return number if least <= number <= most else -1


def _records(rng: random.Random) -> bytes:
    """Draw a batch: sound, bent, or no batch at all."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.choice((0, 11, 61, 500)))
    builder = BatchBuilder(rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP)))
    for number in range(rng.choice((1, 3, 50))):
        builder.try_append(
            rng.choice((0, -1, 1_700_000_000_000)), b"%d" % number, rng.randbytes(20)
        )
    batch = builder.build()
    return bytes(_with_changed_bytes(rng, bytearray(batch))) if rng.random() < 0.4 else bytes(batch)


# ---- bent


def _bent(rng: random.Random, frame: bytes, key: ApiKey | None) -> Frame:
    """Change some bytes behind the size, and make the size fit or not."""
    body = bytearray(frame[4:])
    first = 0
    if key in NEEDS_A_SOUND_HEAD:
        # Behind the client's id, which has its length in front.
        first = HEAD_BYTES + max(int.from_bytes(body[8:10], "big", signed=True), 0)
    data = bytes(body[:first] + bend(rng, body[first:]))
    # Nor may another request become one of these.
    if first == 0 and int.from_bytes(data[:2], "big") in NEEDS_A_SOUND_HEAD:
        data = bytes(body[:2]) + data[2:]
    size = len(data)
    # Sometimes more or less is announced than comes.
    if rng.random() < 0.05:
        size = rng.choice((size + 1, size + 1000, max(size - 1, 0), 0x7FFFFFFF, 0xFFFFFFFF, 0))
    return Frame(size.to_bytes(4, "big") + data, is_whole=size == len(data))


def _with_changed_bytes(rng: random.Random, data: bytearray) -> bytearray:
    for _ in range(rng.choice((1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] = rng.choice((0, 0xFF, 0x7F, 0x80, rng.randrange(256)))
    return data


def _cut(rng: random.Random, data: bytearray) -> bytearray:
    return data[: rng.randint(0, len(data))]


def _with_length(rng: random.Random, data: bytearray) -> bytearray:
    """Put a huge length, or a varint that does not end, over some bytes."""
    lengths = (
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 1_000_000),
        struct.pack(">h", 0x7FFF),
        b"\xff\xff\xff\xff\x07",
        b"\xff" * 12,
        b"\x80" * 12,
    )
    length = rng.choice(lengths)
    begin = rng.randint(0, len(data))
    data[begin : begin + len(length)] = length
    return data


def _with_doubled_part(rng: random.Random, data: bytearray) -> bytearray:
    begin, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    part = data[begin:end]
    times = rng.choice((1, 1, 50))
    if len(data) + times * len(part) <= MAX_BENT_BYTES:
        data[begin:begin] = part * times
    return data


def _garbage(rng: random.Random) -> Frame:
    """Draw bytes that are no request: another protocol's, another version's, or no protocol's."""
    data = rng.choice(
        (
            b"GET / HTTP/1.1\r\nHost: fuzz\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(100),
            struct.pack(">hhih", rng.randrange(-1, 100), rng.randrange(-1, 20), 1, -1),
            rng.randbytes(rng.choice((0, 1, 7, 8, 100, 5000))),
        )
    )
    if rng.random() < 0.5:
        return Frame(data, is_whole=False)
    return Frame(len(data).to_bytes(4, "big") + data)
