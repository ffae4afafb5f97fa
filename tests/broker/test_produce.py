"""Produce: offsets of batches, refusals, and when the response is sent."""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise
from typing import Any

import attrs
import pytest
from crc32c import crc32c

from broker.handlers.produce import ACKS_0_FAILED, PARTITIONS_A_TURN
from broker.network.dispatch import NO_RESPONSE
from broker.network.purgatory import Wait
from core_log.appending.validator import MAX_RECORD_ERRORS
from core_log.config import LogConfig
from kgroup.testing.threads import as_in_thread
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequestPartition
from protocol.records.batch import decode_batch, encode_batch, read_header
from protocol.records.batch_header import CRC_AT, CRC_COVERS_FROM, HEADER_BYTES
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from tests.broker.produce_requests import codes, handle, request
from tests.broker.replication.replicas import (
    NOW_MS,
    Replicas,
    batch,
    follower_at,
    leader_and_isr,
)
from tests.stage.bytecodes import bytecodes_of

T0 = TopicPartition("t", 0)


def test_batches_get_consecutive_offsets() -> None:
    replicas = Replicas().lead("t")
    first = handle(replicas, request(("t", 0, batch(b"a", b"b"))))
    second = handle(replicas, request(("t", 0, batch(b"c"))))
    offsets = [r.responses[0].partition_responses[0].base_offset for r in (first, second)]
    assert offsets == [0, 2]
    assert replicas.manager.high_watermark(T0) == 3


def test_each_partition_fails_for_itself() -> None:
    replicas = Replicas().lead("t")
    bad = bytearray(batch(b"x"))
    bad[-1] ^= 1
    response = handle(
        replicas,
        request(
            ("t", 0, batch(b"a")),
            ("t", 0, bytes(bad)),
            ("t", 9, batch(b"a")),
            ("__consumer_offsets", 0, batch(b"a")),
        ),
    )
    assert codes(response) == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert replicas.manager.log(T0).log_end_offset == 1


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (encode_batch([(1, None, b"a", ())], base_offset=5), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_batch_that_cannot_be_is_refused_whole(records: bytes | None, code: ErrorCode) -> None:
    replicas = Replicas().lead("t")
    assert codes(handle(replicas, request(("t", 0, records)))) == [code]
    assert replicas.manager.log(T0).log_end_offset == 0


def test_a_compacted_topic_refuses_records_without_a_key() -> None:
    replicas = Replicas(config=LogConfig(cleanup_policy=("compact",))).lead("t")
    assert codes(handle(replicas, request(("t", 0, batch(b"a"))))) == [ErrorCode.INVALID_RECORD]
    assert codes(handle(replicas, request(("t", 0, batch(b"a", key=b"k"))))) == [ErrorCode.NONE]


def test_zstd_needs_version_seven() -> None:
    replicas = Replicas().lead("t")
    packed = encode_batch([(1, None, b"a", ())], codec=Codec.ZSTD)
    produce_request = request(("t", 0, packed))
    assert codes(handle(replicas, produce_request, 6)) == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
    assert codes(handle(replicas, produce_request, 7)) == [ErrorCode.NONE]


def test_a_topic_with_a_codec_of_its_own_recompresses() -> None:
    replicas = Replicas(config=LogConfig(compression_type="gzip")).lead("t")
    assert codes(handle(replicas, request(("t", 0, batch(b"a" * 1000))))) == [ErrorCode.NONE]
    assert replicas.manager.log(T0).size < 300


def test_a_timestamp_out_of_range_is_refused() -> None:
    replicas = Replicas(config=LogConfig(message_timestamp_difference_max_ms=1000)).lead("t")
    produce_request = request(("t", 0, batch(b"a", timestamp_ms=5)))
    assert codes(handle(replicas, produce_request)) == [ErrorCode.INVALID_TIMESTAMP]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("config", "records", "named", "message"),
    [
        (
            LogConfig(cleanup_policy=("compact",)),
            [(1, b"k", b"", ()), (1, None, b"", ()), (1, b"k", b"", ()), (1, None, b"", ())],
            {
                1: "Compacted topic cannot accept message without key in topic partition t-0.",
                3: "Compacted topic cannot accept message without key in topic partition t-0.",
            },
            "One or more records have been rejected",
        ),
        (
            LogConfig(message_timestamp_difference_max_ms=1000),
            [(NOW_MS, None, b"", ()), (NOW_MS - 1001, None, b"", ()), (-1, None, b"", ())],
            {
                1: f"Timestamp {NOW_MS - 1001} of message with offset 1 is out of range. "
                f"The timestamp should be within [{NOW_MS - 1000}, {NOW_MS + 1000}]"
            },
            "One or more records have been rejected due to invalid timestamp",
        ),
    ],
)
def test_a_refused_batch_has_its_bad_records_named(
    config: LogConfig, records: list[Any], named: dict[int, str], message: str, codec: Codec
) -> None:
    replicas = Replicas(config=config).lead("t")
    response = handle(replicas, request(("t", 0, encode_batch(records, codec=codec))), 8)
    (refused,) = response.responses[0].partition_responses
    errors = {e.batch_index: e.batch_index_error_message for e in refused.record_errors}
    assert errors == named
    assert refused.error_message == message
    assert replicas.manager.log(T0).log_end_offset == 0


def test_records_without_keys_that_are_named_have_a_bound() -> None:
    replicas = Replicas(config=LogConfig(cleanup_policy=("compact",))).lead("t")
    keyless = batch(*[b""] * (MAX_RECORD_ERRORS + 1))
    response = handle(replicas, request(("t", 0, keyless)), 8)
    assert len(response.responses[0].partition_responses[0].record_errors) == MAX_RECORD_ERRORS


def test_a_corrupt_record_behind_one_without_a_key_is_the_error() -> None:
    replicas = Replicas(config=LogConfig(cleanup_policy=("compact",))).lead("t")
    # The second record's length is one too many.
    broken = bytearray(batch(b"abc", b"abc"))
    second_at = HEADER_BYTES + (len(broken) - HEADER_BYTES) // 2
    broken[second_at] += 2
    broken[CRC_AT : CRC_AT + 4] = crc32c(bytes(broken[CRC_COVERS_FROM:])).to_bytes(4)
    response = handle(replicas, request(("t", 0, bytes(broken))))
    (refused,) = response.responses[0].partition_responses
    assert (refused.error_code, refused.record_errors) == (ErrorCode.INVALID_RECORD, [])


@pytest.mark.parametrize("kept_in", ["producer", "uncompressed", "gzip"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_what_is_stored_is_what_was_sent_with_offset_epoch_and_time_of_the_topic(
    time: str, codec: Codec, kept_in: str
) -> None:
    config = LogConfig(message_timestamp_type=time, compression_type=kept_in)
    replicas = Replicas(config=config).lead("t", epoch=9)
    sent = encode_batch([(5 + n % 2, b"k", b"%d" % n, ()) for n in range(3)], codec=codec)
    for _ in range(2):
        assert codes(handle(replicas, request(("t", 0, sent)))) == [ErrorCode.NONE]
    log = replicas.manager.log(T0)
    file_range = log.read(0, 10_000, 6)
    assert file_range is not None
    second = file_range.read()[read_header(file_range.read()).size :]
    header = read_header(second)
    is_stamped = time == "LogAppendTime"
    times = [NOW_MS] * 3 if is_stamped else [5, 6, 5]
    assert header.codec == {"producer": codec, "gzip": Codec.GZIP}.get(kept_in, Codec.NONE)
    assert (header.partition_leader_epoch, header.timestamp_type) == (9, is_stamped)
    assert header.max_timestamp == max(times)
    assert [(r.offset, r.timestamp_ms, r.value) for r in decode_batch(second)] == [
        (3, times[0], b"0"),
        (4, times[1], b"1"),
        (5, times[2], b"2"),
    ]
    latest = replicas.manager.log(T0).offset_for_timestamp(max(times))
    assert latest == ((NOW_MS, 0) if is_stamped else (6, 1))


def test_acks_that_do_not_exist_are_refused() -> None:
    replicas = Replicas().lead("t")
    produce_request = request(("t", 0, batch(b"a")), acks=2)
    assert codes(handle(replicas, produce_request)) == [ErrorCode.INVALID_REQUIRED_ACKS]


def test_without_acks_there_is_no_answer_and_a_failure_closes() -> None:
    replicas = Replicas().lead("t")
    assert handle(replicas, request(("t", 0, batch(b"a")), acks=0)) is NO_RESPONSE
    assert handle(replicas, request(("t", 7, batch(b"a")), acks=0)) is ACKS_0_FAILED


def test_too_few_in_sync_replicas_refuse_before_anything_is_written() -> None:
    replicas = Replicas(config=LogConfig(min_insync_replicas=2)).lead("t")
    produce_request = request(("t", 0, batch(b"a")), acks=-1)
    assert codes(handle(replicas, produce_request)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert replicas.manager.log(T0).log_end_offset == 0


def test_with_acks_of_all_it_waits_for_the_follower_and_times_out() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    wait = handle(replicas, request(("t", 0, batch(b"a")), acks=-1))
    assert isinstance(wait, Wait)
    assert wait.try_complete(False) is None
    assert codes(wait.try_complete(True)) == [ErrorCode.REQUEST_TIMED_OUT]


def test_with_acks_of_all_it_is_answered_when_the_follower_has_it() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    wait = handle(replicas, request(("t", 0, batch(b"a")), acks=-1))
    follower_at(replicas, T0, 1)
    assert codes(wait.try_complete(False)) == [ErrorCode.NONE]


def test_a_waiting_producer_hears_that_the_leader_moved() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    wait = handle(replicas, request(("t", 0, batch(b"a")), acks=-1))
    replicas.roles.become_leader_or_follower(
        leader_and_isr("t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1), NOW_MS
    )
    assert codes(wait.try_complete(False)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_where_every_message_is_flushed_the_answer_waits_for_the_disk() -> None:
    replicas = Replicas(config=LogConfig(flush_messages=1)).lead("t")
    wait = handle(replicas, request(("t", 0, batch(b"a"))))
    assert isinstance(wait, Wait)
    assert wait.try_complete(False) is None
    (partition,) = replicas.flushes
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.end_flush(flush)
    assert codes(wait.try_complete(False)) == [ErrorCode.NONE]


# ---- many partitions


@pytest.mark.virtual_time
@pytest.mark.parametrize("partitions", [PARTITIONS_A_TURN, 3 * PARTITIONS_A_TURN + 1])
@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_many_partitions_are_appended_some_a_turn(partitions: int, acks: int) -> None:
    replicas = Replicas().lead("t", partitions)
    everywhere = [("t", index, batch(b"a")) for index in range(partitions)]
    response = handle(replicas, request(*everywhere, acks=acks))
    ends = [0, sum(p.log.log_end_offset for p in replicas.manager.partitions.values())]

    while isinstance(response, Wait):
        await asyncio.sleep(0)
        ends.append(sum(p.log.log_end_offset for p in replicas.manager.partitions.values()))
        response = response.try_complete(False) or response

    assert ends[-1] == partitions
    assert max(after - before for before, after in pairwise(ends)) <= 2 * PARTITIONS_A_TURN
    if acks == 0:
        assert response in (None, NO_RESPONSE)
    else:
        assert codes(response) == [ErrorCode.NONE] * partitions


# ---- while a segment is synced


def compacted(partitions: int = 1, **settings: Any) -> Replicas:
    """A leader of logs whose segments have to be on disk before others begin."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=250, **settings)
    return Replicas(config=config).lead("t", partitions)


LONG, SHORT = batch(bytes(100), key=b"k"), batch(b"a", key=b"k")


def test_a_segment_begins_when_a_thread_has_synced_the_one_before_and_nothing_overtakes() -> None:
    replicas = compacted()
    handle(replicas, request(("t", 0, LONG)))
    waits = [handle(replicas, request(("t", 0, sent))) for sent in (LONG, SHORT)]

    assert [wait.try_complete(False) for wait in waits] == [None, None]
    assert replicas.manager.log(T0).log_end_offset == 1

    parked = park_all(replicas, waits)
    replicas.flush()

    answers = [response.responses[0].partition_responses[0] for (response,) in parked]
    assert [(p.error_code, p.base_offset) for p in answers] == [(0, 1), (0, 2)]
    assert [segment.base_offset for segment in replicas.manager.log(T0).segments] == [0, 1]


def test_a_flush_that_comes_too_early_for_the_last_of_a_segment_is_followed_by_another() -> None:
    replicas = compacted()
    handle(replicas, request(("t", 0, SHORT)))
    log = replicas.manager.log(T0)
    early = log.begin_flush()
    handle(replicas, request(("t", 0, SHORT)))
    (parked,) = park_all(replicas, [handle(replicas, request(("t", 0, LONG)))])
    early.run()
    log.end_flush(early)
    replicas.manager.note_flush(replicas.manager.partition(T0))

    assert (parked, log.log_end_offset, log.is_flush_due(NOW_MS)) == ([], 2, True)
    replicas.flush()
    assert codes(parked[0]) == [ErrorCode.NONE]


def test_other_partitions_of_the_request_are_appended_at_once_and_once() -> None:
    replicas = compacted(2)
    handle(replicas, request(("t", 0, LONG)))
    both = request(("t", 0, LONG), ("t", 1, LONG))
    (parked,) = park_all(replicas, [handle(replicas, both)])

    ends = [replicas.manager.log(TopicPartition("t", index)).log_end_offset for index in (0, 1)]
    assert ends == [1, 1]
    replicas.flush()
    ends = [replicas.manager.log(TopicPartition("t", index)).log_end_offset for index in (0, 1)]
    assert (codes(parked[0]), ends) == ([ErrorCode.NONE] * 2, [2, 1])


def test_a_flush_has_its_own_partition_tried_again_and_no_other_that_waits_for_one() -> None:
    replicas, partitions = compacted(3), range(3)
    everywhere = request(*(("t", index, LONG) for index in partitions))
    handle(replicas, everywhere)
    park_all(replicas, [handle(replicas, everywhere)])
    assert len(replicas.flushes) == len(partitions)  # each try begins one

    first = replicas.flushes[0]
    flush = first.log.begin_flush()
    flush.run()
    first.log.end_flush(flush)
    replicas.manager.note_flush(first)
    logs = [replicas.manager.log(TopicPartition("t", index)) for index in partitions]
    assert [log.log_end_offset for log in logs] == [2, 1, 1]
    assert len(replicas.flushes) == len(partitions)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_partition_that_moves_is_looked_at_alone(acks: int) -> None:
    """A request that waits for a thousand partitions is tried a thousand times."""

    def cost(partitions: int) -> int:
        replicas = Replicas(config=LogConfig(flush_messages=1 if acks == 1 else 2**31))
        replicas.lead("t", partitions, isr=(0, 1), replicas=(0, 1))
        everywhere = [("t", index, batch(b"a")) for index in range(partitions)]
        (parked,) = park_all(replicas, [handle(replicas, request(*everywhere, acks=acks))])
        move(replicas, 0)
        move(replicas, 1)
        moving = bytecodes_of(lambda: move(replicas, 2))
        assert parked == []
        return moving

    def move(replicas: Replicas, index: int) -> None:
        if acks == -1:
            asked = FetchRequestPartition(
                partition=index, fetch_offset=1, log_start_offset=0, partition_max_bytes=1
            )
            fetched = [(TopicPartition("t", index), asked)]
            replicas.manager.follower_progress.note_follower_fetch(1, fetched, NOW_MS)
        else:
            partition = replicas.manager.partition(TopicPartition("t", index))
            flush = partition.log.begin_flush()
            as_in_thread(flush.run)
            partition.log.end_flush(flush)
            replicas.manager.note_flush(partition)

    assert cost(PARTITIONS_A_TURN - 1) - cost(4) < 10 * (PARTITIONS_A_TURN - 5)


def test_who_wants_no_answer_gets_none_when_it_is_appended() -> None:
    replicas = compacted()
    handle(replicas, request(("t", 0, LONG)))
    (parked,) = park_all(replicas, [handle(replicas, request(("t", 0, LONG), acks=0))])
    replicas.flush()
    assert (parked, replicas.manager.log(T0).log_end_offset) == ([NO_RESPONSE], 2)


def test_a_disk_that_fails_as_a_segment_is_synced_is_told_to_who_waits() -> None:
    replicas = compacted()
    handle(replicas, request(("t", 0, LONG)))
    (parked,) = park_all(replicas, [handle(replicas, request(("t", 0, LONG)))])
    partition = replicas.manager.partition(T0)
    partition.log.guard.fail(OSError(errno.EIO, "Input/output error"))
    replicas.manager.note_flush(partition)
    assert codes(parked[0]) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_flush_that_takes_longer_than_the_producer_waits_leaves_nothing_behind() -> None:
    replicas = compacted()
    handle(replicas, request(("t", 0, LONG)))
    wait = handle(replicas, request(("t", 0, LONG)))
    assert codes(wait.try_complete(True)) == [ErrorCode.REQUEST_TIMED_OUT]
    replicas.flush()
    assert replicas.manager.log(T0).log_end_offset == 1


def park_all(replicas: Replicas, waits: list[Wait]) -> list[list[Any]]:
    """Park the waits; return the lists that their responses are put into."""
    parked: list[list[Any]] = []

    async def park() -> None:
        for wait in waits:
            parked.append([])
            replicas.purgatory.park(wait, parked[-1].append)

    asyncio.run(park())
    return parked


def test_a_full_disk_fails_that_partition_alone() -> None:
    replicas = Replicas().lead("t", 2)
    handle(replicas, request(("t", 0, batch(b"a")), ("t", 1, batch(b"a"))))
    replicas.directory.disk.free_bytes = 10
    full = handle(replicas, request(("t", 0, batch(b"b"))))
    replicas.directory.disk.free_bytes = None
    after = handle(replicas, request(("t", 0, batch(b"c")), ("t", 1, batch(b"c"))))
    assert codes(full) == [ErrorCode.KAFKA_STORAGE_ERROR]
    by_index = {p.index: p.error_code for t in after.responses for p in t.partition_responses}
    assert by_index == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.NONE}
    assert replicas.manager.log(T0).log_end_offset == 1


def test_log_append_time_is_told_and_create_time_is_not() -> None:
    create = handle(Replicas().lead("t"), request(("t", 0, batch(b"a"))))
    assert create.responses[0].partition_responses[0].log_append_time_ms == -1
    stamped = Replicas(config=attrs.evolve(LogConfig(), message_timestamp_type="LogAppendTime"))
    append = handle(stamped.lead("t"), request(("t", 0, batch(b"a"))))
    assert append.responses[0].partition_responses[0].log_append_time_ms > 0
