"""Batches that take long to check: in a thread, and as if they had come a little later."""

from __future__ import annotations

import asyncio
import gc
import random
import zlib
from typing import Any

import pytest
from crc32c import crc32c

from broker.network.purgatory import Wait
from core_log.appending.validator import (
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_RECORDS,
    LITTLE_REWRITTEN_BYTES,
)
from core_log.config import LogConfig
from protocol.bounds import MAX_PRODUCED_BYTES, MAX_REWRITTEN_RECORDS
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from protocol.records.batch import HEADER_BYTES, decode_batch, encode_batch, read_header
from protocol.records.compression import Codec, compress
from protocol.records.legacy import encode_messages
from protocol.records.varint import encode_varint
from protocol.topic_partition import TopicPartition
from tests.broker.produce_requests import codes, handle, request
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, leader_and_isr

T0 = TopicPartition("t", 0)
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def leading(**settings: Any) -> Replicas:
    return Replicas(config=LogConfig(**settings)).lead("t", 2)


def packed(codec: Codec, *values: bytes) -> bytes:
    return encode_batch([(NOW_MS, b"k", value, ()) for value in values], codec=codec)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def bases(response: ProduceResponse) -> list[int]:
    return [p.base_offset for t in response.responses for p in t.partition_responses]


def read_log(replicas: Replicas, topic_partition: TopicPartition = T0) -> bytes:
    file_range = replicas.manager.read(topic_partition, 0, 1 << 30, min_one=True).range
    return b"" if file_range is None else file_range.read()


# ---- what is checked where


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_little_is_checked_at_once_compressed_or_not(codec: Codec) -> None:
    replicas = leading()
    parts = [("t", 0, packed(codec, b"a" * 1000, b"b")), ("t", 1, batch(noise(100_000)))]
    response = handle(replicas, request(*parts))
    assert codes(response) == [ErrorCode.NONE] * 2
    assert replicas.manager.log(T0).log_end_offset == 2


MUCH = {
    "compressed": (LogConfig(), packed(Codec.GZIP, noise(2 * LITTLE_REWRITTEN_BYTES))),
    "decompressed": (LogConfig(), packed(Codec.GZIP, bytes(2 * LITTLE_DECOMPRESSED_BYTES))),
    "zstd": (LogConfig(), packed(Codec.ZSTD, bytes(2 * LITTLE_DECOMPRESSED_BYTES))),
    "many records": (LogConfig(), packed(Codec.NONE, *[b""] * (LITTLE_RECORDS + 1))),
    "compressed here": (
        LogConfig(compression_type="gzip"),
        packed(Codec.NONE, noise(2 * LITTLE_REWRITTEN_BYTES)),
    ),
    "kept in an old format": (
        LogConfig(message_format_version="0.10.0"),
        packed(Codec.NONE, noise(2 * LITTLE_REWRITTEN_BYTES)),
    ),
    "read for its times": (
        LogConfig(message_timestamp_difference_max_ms=1000),
        packed(Codec.NONE, noise(2 * LITTLE_REWRITTEN_BYTES)),
    ),
}


@pytest.mark.parametrize("config_and_records", MUCH.values(), ids=MUCH)
async def test_what_is_much_is_checked_off_the_loop(
    config_and_records: tuple[LogConfig, bytes],
) -> None:
    config, records = config_and_records
    replicas = Replicas(config=config).lead("t")
    waiting = handle(replicas, request(("t", 0, records)))
    assert isinstance(waiting, Wait)
    assert read_log(replicas) == b""
    assert codes(await replicas.ended(waiting)) == [ErrorCode.NONE]
    assert replicas.manager.log(T0).log_end_offset == read_header(records).count


async def test_many_that_are_little_each_are_much_together() -> None:
    packed_batch = packed(Codec.GZIP, bytes(LITTLE_DECOMPRESSED_BYTES // 3))
    replicas = Replicas(config=LogConfig()).lead("t", 10)
    assert isinstance(
        handle(replicas, request(*[("t", n, packed_batch) for n in range(2)])), ProduceResponse
    )
    assert isinstance(handle(replicas, request(*[("t", n, packed_batch) for n in range(4)])), Wait)


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Two thirds of the bound on decompressed bytes; it is encoded on no event loop."""
    return packed(Codec.ZSTD, bytes(MAX_PRODUCED_BYTES * 2 // 3))


async def test_one_request_decompresses_no_more_than_one_batch_may(bomb: bytes) -> None:
    replicas = leading()
    both = request(("t", 0, bomb), ("t", 1, bomb))
    first, second = codes(await replicas.ended(handle(replicas, both)))
    assert (first, second) == (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.fault("security-0")
@pytest.mark.parametrize("version", [2, 7])
async def test_batches_that_are_refused_count_against_the_bound_of_the_request(
    version: int,
) -> None:
    """Else each may decompress to as much again."""
    size = MAX_PRODUCED_BYTES // 2
    if version < 3:
        values = zlib.compress(bytes(size), wbits=31)
        bad = encode_messages([(0, NOW_MS, None, values, ())], 1)
        bad = bad[:17] + bytes((Codec.GZIP,)) + bad[18:]
        bad = bad[:12] + zlib.crc32(bad[16:]).to_bytes(4, "big") + bad[16:]
    else:
        # A record that is longer than it says.
        bad = with_body(compress(Codec.ZSTD, bytes(size)), Codec.ZSTD)
    good = packed(Codec.GZIP, bytes(LITTLE_DECOMPRESSED_BYTES))
    if version < 3:
        good = encode_messages([(0, NOW_MS, b"k", bytes(1000), ())], 1, codec=Codec.GZIP)
    replicas = Replicas(config=LogConfig()).lead("t", 5)
    parts = [*[("t", n, bad) for n in range(4)], ("t", 4, good)]

    *refused, last = codes(await replicas.ended(handle(replicas, request(*parts), version=version)))

    too_large = ErrorCode.MESSAGE_TOO_LARGE
    wrong = ErrorCode.CORRUPT_MESSAGE if version < 3 else ErrorCode.INVALID_RECORD
    assert refused == [wrong] * 2 + [too_large] * 2
    assert last == too_large


def with_body(body: bytes, codec: Codec) -> bytes:
    """Make a batch of one record whose records are `body`, with a checksum that is right."""
    whole = bytearray(batch(b"x")[:HEADER_BYTES] + body)
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[22] = codec
    whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
    return bytes(whole)


@pytest.mark.fault("security-0")
@pytest.mark.parametrize("kind", ["damaged", "too large", "without a topic", "refused there"])
@pytest.mark.parametrize("where", ["on the loop", "in a thread"])
async def test_request_that_is_refused_keeps_nothing(kind: str, where: str) -> None:
    """Its frame is free at once, not when cycles are collected: see GC_THRESHOLDS."""
    content = noise(100 if where == "on the loop" else 3 * LITTLE_REWRITTEN_BYTES)
    good = packed(Codec.GZIP, content)
    records = {
        "damaged": good[:-1] + bytes([good[-1] ^ 1]),
        "too large": with_body(compress(Codec.ZSTD, bytes(MAX_PRODUCED_BYTES + 1)), Codec.ZSTD),
    }.get(kind, good)
    topic = "nowhere" if kind == "without a topic" else "t"
    settings = {"max_message_bytes": 10} if kind == "refused there" else {}
    replicas = Replicas(config=LogConfig(**settings)).lead("t")
    frame = bytearray(records)

    gc.disable()
    try:
        produce_request = request((topic, 0, memoryview(frame)))  # type: ignore[arg-type]
        outcome = handle(replicas, produce_request)
        response = await replicas.ended(outcome) if isinstance(outcome, Wait) else outcome
        assert codes(response) != [ErrorCode.NONE]
        del produce_request, outcome, response
        # The loop has a last call of the task that is done.
        await asyncio.sleep(0)

        # Nobody has a view of it any more, or this raises BufferError.
        frame.clear()
    finally:
        gc.enable()


@pytest.mark.fault("security-0")
@pytest.mark.parametrize("kind", ["of an old format", "limited", "keyless"])
async def test_records_that_become_objects_are_counted(kind: str, many: bytes) -> None:
    settings: dict[str, Any] = {
        "of an old format": {"message_format_version": "0.10.0"},
        "limited": {"message_timestamp_difference_max_ms": 1000},
        "keyless": {"cleanup_policy": ("compact",)},
    }[kind]
    replicas = Replicas(config=LogConfig(max_message_bytes=2**30, **settings)).lead("t")

    (code,) = codes(await replicas.ended(handle(replicas, request(("t", 0, many)))))

    assert code == ErrorCode.MESSAGE_TOO_LARGE


async def test_as_many_records_as_a_batch_has_room_for_are_written_in_another_codec(
    many: bytes,
) -> None:
    """None of them becomes an object: 2.8.2 takes such batches, and knows no bound but bytes."""
    config = LogConfig(max_message_bytes=2**30, compression_type="gzip")
    replicas = Replicas(config=config).lead("t")

    (code,) = codes(await replicas.ended(handle(replicas, request(("t", 0, many)))))

    assert code == ErrorCode.NONE
    header = read_header(read_log(replicas))
    assert (header.count, header.codec) == (MAX_REWRITTEN_RECORDS + 1, Codec.GZIP)


@pytest.fixture(scope="module")
def many() -> bytes:
    """A batch in zstd of one more than are written anew, all empty; lengths and deltas are true."""
    count = MAX_REWRITTEN_RECORDS + 1
    body = bytearray()
    for delta in range(count):
        tail = bytes((0, 0)) + encode_varint(delta) + b"\x01\x01\x00"
        body += encode_varint(len(tail)) + tail
    whole = bytearray(with_body(compress(Codec.ZSTD, bytes(body)), Codec.ZSTD))
    whole[23:27] = (count - 1).to_bytes(4, "big")
    whole[HEADER_BYTES - 4 : HEADER_BYTES] = count.to_bytes(4, "big")
    whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
    return bytes(whole)


# ---- as if it had come a little later


LARGE = packed(Codec.GZIP, noise(2 * LITTLE_REWRITTEN_BYTES))


async def test_what_is_damaged_fails_its_partition_alone() -> None:
    replicas = leading()
    damaged = LARGE[:-1] + bytes([LARGE[-1] ^ 1])
    produce_request = request(
        ("t", 0, damaged), ("t", 1, LARGE), ("t", 7, LARGE), ("nowhere", 0, LARGE)
    )
    response = await replicas.ended(handle(replicas, produce_request))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(response) == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE, unknown, unknown]


async def test_what_comes_meanwhile_is_appended_before_it() -> None:
    replicas = leading()
    waiting = handle(replicas, request(("t", 0, LARGE)))
    assert bases(handle(replicas, request(("t", 0, batch(b"a", b"b"))))) == [0]
    assert bases(await replicas.ended(waiting)) == [2]
    assert [len(r.value or b"") for r in decode_batch(read_log(replicas), 0)] == [1, 1]


async def test_in_an_old_format_what_comes_meanwhile_moves_its_offsets() -> None:
    replicas = Replicas(config=LogConfig(message_format_version="0.10.0")).lead("t")
    waiting = handle(replicas, request(("t", 0, LARGE)))
    assert bases(handle(replicas, request(("t", 0, batch(b"a", b"b"))))) == [0]
    assert bases(await replicas.ended(waiting)) == [2]
    assert replicas.manager.log(T0).log_end_offset == 3


async def test_who_leads_no_longer_when_it_is_checked_appends_nothing() -> None:
    replicas = leading()
    waiting = handle(replicas, request(("t", 0, LARGE)))
    replicas.roles.become_leader_or_follower(
        leader_and_isr("t", 2, leader=1, epoch=9, replicas=(0, 1)), NOW_MS
    )
    assert codes(await replicas.ended(waiting)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert replicas.manager.log(T0).log_end_offset == 0


async def test_what_was_sent_twice_meanwhile_is_appended_once() -> None:
    replicas = leading()
    numbered = encode_batch(
        [(NOW_MS, None, noise(2 * LITTLE_REWRITTEN_BYTES), ())],
        codec=Codec.GZIP,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
    )
    waiting = [handle(replicas, request(("t", 0, numbered))) for _ in range(2)]
    answers = await asyncio.gather(*map(replicas.ended, waiting))
    assert [bases(response) for response in answers] == [[0], [0]]
    assert replicas.manager.log(T0).log_end_offset == 1
