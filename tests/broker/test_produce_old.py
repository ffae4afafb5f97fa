"""Produce 0-2, and topics that are kept in an old format: the log afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.handlers.produce import ACKS_0_FAILED
from broker.network.dispatch import NO_RESPONSE
from broker.network.down_conversion import AT_ONCE_BYTES
from broker.network.purgatory import Wait
from broker.replication.partition_waits import WATERMARK
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from protocol.records.batch import decode_records, encode_batch
from protocol.records.compression import Codec
from protocol.records.entry import read_entry
from protocol.records.legacy import encode_messages
from protocol.topic_partition import TopicPartition
from tests.broker.produce_requests import codes, handle, request
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, follower_at

T0 = TopicPartition("t", 0)


def leading(**settings: Any) -> Replicas:
    return Replicas(config=LogConfig(**settings)).lead("t")


def old(*values: bytes, magic: int = 0, codec: Codec = Codec.NONE) -> bytes:
    rows = [(n, 7, None, value, ()) for n, value in enumerate(values)]
    return encode_messages(rows, magic, codec=codec)


async def answered(replicas: Replicas, records: bytes, version: int) -> tuple[int, int, int]:
    """Produce, and return error, base offset and append time."""
    response = await replicas.ended(handle(replicas, request(("t", 0, records)), version))
    (part,) = response.responses[0].partition_responses
    return part.error_code, part.base_offset, part.log_append_time_ms


def read_log(replicas: Replicas) -> bytes:
    fetched = replicas.manager.read(T0, 0, 1 << 20, min_one=True)
    return b"" if fetched.range is None else fetched.range.read()


def magics(data: bytes) -> list[int]:
    found, pos = [], 0
    while (header := read_entry(data, pos, len(data))) is not None:
        found.append(header.magic)
        pos += header.size
    return found


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
async def test_old_messages_are_kept_as_batches_of_today(
    version: int, magic: int, codec: Codec
) -> None:
    replicas = leading()

    first = await answered(replicas, old(b"a", b"b", magic=magic, codec=codec), version)
    second = await answered(replicas, old(b"c", magic=magic, codec=codec), version)

    assert (first, second) == ((0, 0, -1), (0, 2, -1))
    assert magics(read_log(replicas)) == [2, 2]
    assert [(r.offset, r.value) for r in decode_records(read_log(replicas))] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]
    assert replicas.manager.high_watermark(T0) == 3


@pytest.mark.parametrize(("format_version", "magic"), [("0.9.0", 0), ("0.10.1", 1)])
@pytest.mark.parametrize("version", [1, 2, 7])
async def test_topic_of_an_old_format_keeps_everything_in_it(
    format_version: str, magic: int, version: int
) -> None:
    replicas = leading(message_format_version=format_version)
    records = batch(b"a", b"b") if version == 7 else old(b"a", b"b", magic=version - 1)

    assert (await answered(replicas, records, version))[:2] == (0, 0)
    assert (await answered(replicas, records, version))[:2] == (0, 2)

    assert magics(read_log(replicas)) == [magic] * 4
    assert [(r.offset, r.value) for r in decode_records(read_log(replicas))] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"a"),
        (3, b"b"),
    ]


def test_messages_that_become_several_batches_are_answered_as_one() -> None:
    replicas = leading(max_message_bytes=1000)
    produce_request = request(("t", 0, old(*(b"v" * 400 for _ in range(7)))), acks=-1)

    response = handle(replicas, produce_request, 1)

    assert codes(response) == [ErrorCode.NONE]
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert replicas.manager.high_watermark(T0) == 7
    assert magics(read_log(replicas)) == [2] * 4


@pytest.mark.parametrize("format_version", ["0.10.1", "2.3-IV1"])
async def test_time_of_appending_is_told(format_version: str) -> None:
    replicas = leading(
        message_format_version=format_version, message_timestamp_type="LogAppendTime"
    )

    assert await answered(replicas, old(b"a", magic=1), 2) == (0, 0, NOW_MS)
    assert [r.timestamp_ms for r in decode_records(read_log(replicas))] == [NOW_MS]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("records", [None, b""])
def test_empty_set_is_taken_and_has_no_offset(records: bytes | None, acks: int) -> None:
    response = handle(leading(), request(("t", 0, records), acks=acks), 0)

    (part,) = response.responses[0].partition_responses
    assert (part.error_code, part.base_offset) == (ErrorCode.NONE, -1)


def test_damaged_message_fails_its_partition_alone() -> None:
    replicas = Replicas().lead("t", 2)
    damaged = old(b"a")[:-1] + b"!"

    response = handle(replicas, request(("t", 0, damaged), ("t", 1, old(b"b"))), 0)

    assert codes(response) == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert read_log(replicas) == b""


async def test_old_messages_need_an_old_version_and_batches_a_new_one() -> None:
    for records, version in ((old(b"a"), 3), (old(b"a", magic=1), 7), (batch(b"a"), 2)):
        assert (await answered(leading(), records, version))[0] == ErrorCode.INVALID_RECORD


def test_producer_that_wants_no_answer_is_closed_when_it_fails() -> None:
    replicas = leading()
    assert handle(replicas, request(("t", 0, old(b"a")), acks=0), 0) is NO_RESPONSE
    assert handle(replicas, request(("t", 0, b"x"), acks=0), 0) is ACKS_0_FAILED


@pytest.mark.parametrize("format_version", ["0.9.0", "0.10.1"])
def test_what_the_broker_writes_itself_is_in_the_topics_format_too(format_version: str) -> None:
    replicas = leading(message_format_version=format_version)

    replicas.manager.append_local(T0, batch(b"a"), NOW_MS)
    appended = replicas.manager.append_local(T0, batch(b"b", b"c"), NOW_MS)

    assert (appended.base_offset, appended.last_offset) == (1, 2)
    assert 2 not in magics(read_log(replicas))
    assert [r.value for r in decode_records(read_log(replicas))] == [b"a", b"b", b"c"]


async def test_zstd_is_refused_by_a_topic_that_has_no_place_for_it() -> None:
    packed = encode_batch([(5, None, b"a", ())], codec=Codec.ZSTD)
    replicas = leading(message_format_version="0.10.1")
    assert (await answered(replicas, packed, 7))[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# ---- off the event loop


LARGE = old(*(b"v" * 1000 for _ in range(2 * AT_ONCE_BYTES // 1000)))


async def test_little_is_checked_at_once_and_more_off_the_loop() -> None:
    assert isinstance(handle(leading(), request(("t", 0, old(b"a"))), 0), ProduceResponse)
    for records in (LARGE, old(b"a", codec=Codec.GZIP)):
        replicas = leading()
        waiting = handle(replicas, request(("t", 0, records)), 0)
        assert isinstance(waiting, Wait)
        assert read_log(replicas) == b""
        assert codes(await replicas.ended(waiting)) == [ErrorCode.NONE]
        assert read_log(replicas) != b""


async def test_producer_that_wants_no_answer_gets_none_after_a_wait() -> None:
    replicas = leading()
    assert (
        await replicas.ended(handle(replicas, request(("t", 0, LARGE), acks=0), 0)) is NO_RESPONSE
    )
    assert replicas.manager.high_watermark(T0) == 2 * AT_ONCE_BYTES // 1000
    damaged = LARGE[:-1] + b"!"
    assert (
        await replicas.ended(handle(replicas, request(("t", 0, damaged), acks=0), 0))
        is ACKS_0_FAILED
    )


async def test_what_was_sent_is_appended_though_the_producer_is_gone() -> None:
    replicas = leading()
    waiting = handle(replicas, request(("t", 0, LARGE), acks=0), 0)
    parked = replicas.purgatory.park(waiting, lambda response: None)
    assert parked is not None
    replicas.purgatory.cancel(parked)

    while replicas.manager.high_watermark(T0) == 0:
        await asyncio.sleep(0)


@pytest.mark.parametrize("format_version", ["0.10.1", "2.3-IV1"])
async def test_producers_at_the_same_time_get_offsets_of_their_own(format_version: str) -> None:
    replicas = leading(message_format_version=format_version)
    packed = [old(b"%d" % n, b"%d!" % n, magic=1, codec=Codec.GZIP) for n in range(3)]

    waiting = [handle(replicas, request(("t", 0, records)), 2) for records in packed]
    responses = await asyncio.gather(*(replicas.ended(outcome) for outcome in waiting))

    bases = [a.responses[0].partition_responses[0].base_offset for a in responses]
    assert sorted(bases) == [0, 2, 4]
    found = {r.offset: r.value for r in decode_records(read_log(replicas))}
    for number, base in enumerate(bases):
        assert (found[base], found[base + 1]) == (b"%d" % number, b"%d!" % number)


async def test_replication_is_waited_for_after_the_check() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    responses: list[Any] = []

    waiting = handle(replicas, request(("t", 0, LARGE), acks=-1), 0)
    replicas.purgatory.park(waiting, responses.append)
    while not responses:
        await asyncio.sleep(0)

    (second,) = responses
    assert isinstance(second, Wait)
    assert second.offsets == (((WATERMARK, T0), 65),)
    follower_at(replicas, T0, replicas.manager.log(T0).log_end_offset)
    assert codes(second.try_complete(False)) == [ErrorCode.NONE]
