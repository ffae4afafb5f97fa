"""The accumulator: what is sent when. Time is given, there is no loop, waiters are plain names."""

from typing import Any

import pytest

from clients.producer.accumulator import (
    Accumulator,
    ProducerBatch,
    Verdict,
    judge,
)
from clients.producer.alike_records import AlikeRecords
from clients.producer.config import ProducerConfig
from clients.producer.encoded_record import record_bytes
from protocol.errors import ErrorCode
from protocol.records.batch import decode_batch, encode_batch
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
LEADERS = {P0: 1, P1: 1, P2: 2}


def accumulator(**settings: Any) -> Accumulator[str]:
    config = ProducerConfig(bootstrap_servers=("h:1",), **settings)
    return Accumulator(config, Codec.NONE)


def add(
    to: Accumulator[str],
    waiter: str,
    *,
    partition: TopicPartition = P0,
    size: int = 10,
    now_ms: int = 0,
) -> bool:
    """Add a record as the producer does; return whether it opened a batch."""
    value = waiter.encode().ljust(size, b".")
    charged = record_bytes(None, value, ())
    if to.join_batch(partition, now_ms, None, value, (), waiter, charged):
        return False
    to.open_batch(partition, now_ms, None, value, (), waiter, charged, now_ms)
    return True


def drained(of: Accumulator[str], now_ms: int, node: int = 1) -> list[ProducerBatch[str]]:
    ready = of.ready(now_ms, LEADERS.get)
    return of.drain(ready.nodes.get(node, []), now_ms)


def waiters(batches: list[ProducerBatch[str]]) -> list[list[str]]:
    return [[waiter for waiter, _, _ in batch.runs] for batch in batches]


def test_without_linger_a_record_is_ready_at_once() -> None:
    records = accumulator(linger_ms=0)
    assert add(records, "a")
    assert not add(records, "b")
    assert waiters(drained(records, 0)) == [["a", "b"]]


def test_lingering_batch_is_ready_when_its_time_is_up_and_not_before() -> None:
    records = accumulator(linger_ms=10)
    add(records, "a", now_ms=100)
    ready = records.ready(104, LEADERS.get)
    assert (ready.nodes, ready.next_check_ms) == ({}, 6)
    assert records.ready(110, LEADERS.get).nodes == {1: [P0]}


def test_full_batch_does_not_linger() -> None:
    records = accumulator(linger_ms=1000, batch_size=200)
    add(records, "a", size=100)
    assert add(records, "b", size=100)
    assert waiters(drained(records, 0)) == [["a"]]


def test_flush_and_close_end_lingering() -> None:
    for hurried in ("hurrying", "closed"):
        records = accumulator(linger_ms=1000)
        add(records, "a")
        setattr(records, hurried, True)
        assert waiters(drained(records, 0)) == [["a"]]


def test_record_joins_a_batch_only_where_one_has_room() -> None:
    records = accumulator(batch_size=200)
    large, small = b"b" * 100, b"c" * 10
    assert not records.join_batch(P0, 0, None, large, (), "a", 126)
    add(records, "a", size=100)
    buffered = records.buffered_bytes
    assert not records.join_batch(P0, 0, None, large, (), "b", 126)
    assert records.buffered_bytes == buffered
    assert records.join_batch(P0, 0, None, small, (), "c", 36)
    assert records.buffered_bytes == buffered + 36


def test_batch_size_zero_gives_each_record_a_batch() -> None:
    records = accumulator(batch_size=0)
    assert [add(records, w) for w in "ab"] == [True, True]


def test_drained_batch_takes_no_more_records() -> None:
    records = accumulator()
    add(records, "a")
    (batch,) = drained(records, 0)
    records.retry(batch)
    batch.seal()
    assert add(records, "b")


def test_partition_is_muted_while_a_batch_of_it_is_in_flight() -> None:
    records = accumulator(batch_size=0)
    for waiter in "ab":
        add(records, waiter)
    (first,) = drained(records, 0)
    assert drained(records, 0) == []
    records.finish(first)
    assert waiters(drained(records, 0)) == [["b"]]


def test_retried_batch_goes_again_before_later_ones_and_only_after_backing_off() -> None:
    records = accumulator(batch_size=0, retry_backoff_ms=100)
    for waiter in "ab":
        add(records, waiter)
    (first,) = drained(records, 0)
    records.retry(first)
    ready = records.ready(99, LEADERS.get)
    assert (ready.nodes, ready.next_check_ms) == ({}, 1)
    assert waiters(drained(records, 100)) == [["a"]]


def test_hurry_does_not_override_backing_off() -> None:
    records = accumulator(retry_backoff_ms=100)
    add(records, "a")
    records.retry(drained(records, 0)[0])
    records.closed = True
    assert drained(records, 50) == []


def test_ready_leader_is_sent_its_lingering_partitions_too_and_others_are_not() -> None:
    records = accumulator(linger_ms=10)
    add(records, "old", partition=P0, now_ms=0)
    add(records, "young", partition=P1, now_ms=9)
    add(records, "elsewhere", partition=P2, now_ms=9)
    ready = records.ready(10, LEADERS.get)
    assert ready.nodes == {1: [P0, P1]}


def test_request_is_bounded_and_who_was_served_goes_behind_who_was_not() -> None:
    records = accumulator(max_request_size=400)
    for partition in (P0, P1):
        add(records, f"{partition}", partition=partition, size=250)
    first = drained(records, 0)
    assert waiters(first) == [["t-0"]]
    add(records, "again", partition=P0, size=250)
    records.finish(first[0])
    assert waiters(drained(records, 0)) == [["t-1"]]


def test_batch_larger_than_a_request_goes_alone() -> None:
    records = accumulator(max_request_size=100)
    add(records, "a", size=300)
    assert waiters(drained(records, 0)) == [["a"]]


def test_partition_without_leader_asks_for_metadata() -> None:
    records = accumulator()
    add(records, "a", partition=TopicPartition("u", 0))
    ready = records.ready(0, LEADERS.get)
    assert ready.nodes == {}
    assert ready.leaderless == {"u"}


def test_memory_is_charged_by_record_and_returned_when_the_batch_is_finished() -> None:
    records = accumulator()
    add(records, "a", size=74)
    assert records.buffered_bytes == 100
    (batch,) = drained(records, 0)
    assert records.buffered_bytes == 100
    records.finish(batch)
    assert records.buffered_bytes == 0


def test_old_batches_are_given_up_from_the_front_and_their_memory_returned() -> None:
    records = accumulator(batch_size=0, delivery_timeout_ms=1000)
    add(records, "a", now_ms=0)
    add(records, "b", now_ms=500)
    assert records.expire(999) == []
    assert waiters(records.expire(1000)) == [["a"]]
    assert records.buffered_bytes == record_bytes(None, b"." * 10, ())
    assert waiters(drained(records, 1000)) == [["b"]]


def test_batch_given_up_in_flight_keeps_its_partition_muted_until_the_answer() -> None:
    records = accumulator(batch_size=0, delivery_timeout_ms=1000)
    add(records, "a", now_ms=0)
    (batch,) = drained(records, 0)
    add(records, "b", now_ms=900)
    assert waiters(records.expire(1000)) == [["a"]]
    assert records.expire(1001) == []
    assert drained(records, 1001) == []
    assert judge(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1001, records.config) is Verdict.FAILED
    records.finish(batch)
    assert waiters(drained(records, 1002)) == [["b"]]


def test_next_check_comes_no_later_than_the_next_batch_expires() -> None:
    records = accumulator(linger_ms=60_000, delivery_timeout_ms=1000)
    add(records, "a", now_ms=0)
    assert records.ready(400, LEADERS.get).next_check_ms == 600


def test_split_batch_comes_back_in_parts_in_order_before_later_records() -> None:
    records = accumulator(batch_size=4096)
    names = [f"r{n}" for n in range(5)]
    for name in names:
        add(records, name)
    (whole,) = drained(records, 0)
    before = decode_batch(whole.seal())
    add(records, "later")
    records.split(whole)
    sent = []
    got = []
    while batches := drained(records, 0):
        sent += waiters(batches)
        got += decode_batch(batches[0].seal())
        records.finish(batches[0])

    assert sent == [["r0", "r1", "r2"], ["r3", "r4"], ["later"]]
    assert [r.value for r in got[:5]] == [r.value for r in before]
    assert records.buffered_bytes == 0


def test_parts_of_a_split_batch_expire_with_their_parent() -> None:
    records = accumulator(delivery_timeout_ms=1000)
    for name in "ab":
        add(records, name, now_ms=0)
    (whole,) = drained(records, 500)
    records.split(whole)
    assert waiters(records.expire(1000)) == [["a"], ["b"]]


def test_flush_waits_for_split_parts_and_not_for_later_batches() -> None:
    records = accumulator(batch_size=4096)
    for name in "ab":
        add(records, name)
    serial = records.last_serial
    (whole,) = drained(records, 0)
    add(records, "later")
    records.split(whole)
    for _ in "ab":
        assert not records.is_done_through(serial)
        records.finish(drained(records, 0)[0])
    assert records.is_done_through(serial)
    assert not records.is_done_through(records.last_serial)


@pytest.mark.fault("strangers-24")
def test_flush_does_not_wait_for_the_request_of_an_expired_batch() -> None:
    records = accumulator(batch_size=0, delivery_timeout_ms=1000)
    add(records, "a")
    (sent,) = drained(records, 0)
    assert not records.is_done_through(records.last_serial)
    assert waiters(records.expire(1000)) == [["a"]]
    assert records.is_done_through(records.last_serial)

    # It may have been written: no later one may overtake it.
    add(records, "b")
    assert drained(records, 1000) == []
    records.finish(sent)
    assert len(drained(records, 1000)) == 1


def test_everything_abandoned_is_returned_once() -> None:
    records = accumulator(batch_size=0)
    for waiter in "ab":
        add(records, waiter)
    drained(records, 0)
    assert sorted(waiters(records.abort_all())) == [["a"], ["b"]]
    assert records.abort_all() == []
    assert records.buffered_bytes == 0


VERDICTS = [
    (ErrorCode.NONE, Verdict.DELIVERED),
    (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, Verdict.DELIVERED),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, Verdict.RETRY),
    (ErrorCode.NETWORK_EXCEPTION, Verdict.RETRY),
    (ErrorCode.NOT_ENOUGH_REPLICAS, Verdict.RETRY),
    (ErrorCode.MESSAGE_TOO_LARGE, Verdict.SPLIT),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.FAILED),
    (ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.FAILED),
]


@pytest.mark.parametrize(("code", "expected"), VERDICTS)
def test_answer_to_a_batch_with_retries_left_means(code: ErrorCode, expected: Verdict) -> None:
    records = accumulator()
    for name in "ab":
        add(records, name)
    (batch,) = drained(records, 0)
    assert judge(batch, code, 1, records.config) is expected


def test_no_retry_beyond_retries_nor_beyond_the_delivery_timeout() -> None:
    records = accumulator(retries=1, delivery_timeout_ms=1000)
    add(records, "a")
    (batch,) = drained(records, 0)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert judge(batch, code, 999, records.config) is Verdict.RETRY
    assert judge(batch, code, 1000, records.config) is Verdict.FAILED
    batch.attempts = 1
    assert judge(batch, code, 1, records.config) is Verdict.FAILED


def test_single_record_that_is_too_large_fails() -> None:
    records = accumulator()
    add(records, "a")
    (batch,) = drained(records, 0)
    assert judge(batch, ErrorCode.MESSAGE_TOO_LARGE, 1, records.config) is Verdict.FAILED


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8191, 8192, 2**20])
def test_record_never_takes_more_than_its_bound(length: int) -> None:
    key = b"k" * length
    value = b"v" * length
    headers = [("é" * 9, b"h" * length), ("n", None)]
    batch_bytes = len(encode_batch([(0, None, None, ())]))
    two = len(encode_batch([(0, None, None, ()), (2**41, key, value, headers)]))
    assert two - batch_bytes <= record_bytes(key, value, headers)


def test_records_that_are_alike_join_while_there_is_room_and_are_charged_as_each_alone() -> None:
    values = [b"v" * size for size in (10, 30, 10, 10, 10, 10)]
    one_by_one, many = (accumulator(batch_size=150, buffer_memory=250) for _ in "ab")
    for records in one_by_one, many:
        add(records, "first", size=10)
    alike = AlikeRecords("t", 0, None, values, (), 0)

    joined = 0
    while one_by_one.join_batch(P0, *alike[joined][-2:-1], None, values[joined], (), "w", 0):
        joined += 1
    assert many.join_alike(P0, alike, "w", 0) == joined == 3
    assert many.buffered_bytes == sum(record_bytes(None, v, ()) for v in [values[0], *values[:3]])

    (batch,), (expected,) = drained(many, 0), drained(one_by_one, 0)
    assert batch.seal() == expected.seal()
    assert batch.runs == [("first", 1, 0), ("w", 3, 0)]

    # A batch that was encoded takes no more, and neither does a buffer that is full.
    many.retry(batch)
    assert many.join_alike(P0, alike, "w", 3) == 3
    full = accumulator(batch_size=1000, buffer_memory=100)
    add(full, "first", size=10)
    assert full.join_alike(P0, alike, "w", 0) == 1
