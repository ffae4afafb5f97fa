"""Of several batches on their way, none is appended before one that was refused."""

from __future__ import annotations

from typing import Any

import pytest

from broker.network.purgatory import Wait
from broker.replication import refused_batches
from broker.replication.refused_batches import KEPT_MS, RefusedBatches
from core_log.config import LogConfig
from core_log.producers.producer_state import MAX_SEQUENCE
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch, read_header
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from tests.broker.produce_requests import codes, handle, request
from tests.broker.replication.replicas import Replicas

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def batch(sequence: int, epoch: int = 0, **options: Any) -> bytes:
    return encode_batch(
        [(1, None, b"a", ())],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    )


class Clock:
    ms = 0

    def __call__(self) -> int:
        return self.ms


def is_refused(
    refused: RefusedBatches, sequence: int, epoch: int = 0, *, is_known: bool = False
) -> bool:
    try:
        refused.check(T0, read_header(batch(sequence, epoch)), is_known=is_known)
    except ApiError as error:
        return error.code is OUT_OF_ORDER
    return False


@pytest.mark.fault("strangers-119")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_batch_behind_a_refused_one_waits_for_it(codec: Codec) -> None:
    """The first came before this broker led the partition, and the second when it did."""
    replicas = Replicas()

    async def send(sequence: int) -> int:
        outcome = handle(replicas, request(("t", 0, batch(sequence, codec=codec))))
        if isinstance(outcome, Wait):
            outcome = await replicas.ended(outcome)
        (code,) = codes(outcome)
        return code

    assert await send(4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    replicas.lead("t")
    assert [await send(n) for n in (5, 6, 4, 5, 6)] == [OUT_OF_ORDER, OUT_OF_ORDER, 0, 0, 0]


@pytest.mark.fault("strangers-126")
def test_what_was_held_for_the_disk_and_given_up_is_the_first_all_the_same() -> None:
    """The log takes nothing before its segment is synced, and the client's time is up."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=250)
    replicas = Replicas(config=config).lead("t")

    def keyed(**numbers: int) -> bytes:
        return encode_batch([(1, b"k", bytes(100), ())], **numbers)

    def numbered(sequence: int) -> Any:
        sent = keyed(producer_id=7, producer_epoch=0, base_sequence=sequence)
        return handle(replicas, request(("t", 0, sent)))

    handle(replicas, request(("t", 0, keyed())))
    held = numbered(0)
    assert codes(held.try_complete(True)) == [ErrorCode.REQUEST_TIMED_OUT]
    replicas.flush()
    assert codes(numbered(1)) == [OUT_OF_ORDER]
    assert codes(numbered(0)) == [0]


@pytest.mark.fault("strangers-125")
async def test_what_is_refused_for_good_keeps_no_other_back() -> None:
    """A client goes on with the next number where it has given one up, as aiokafka does."""
    replicas = Replicas(config=LogConfig(max_message_bytes=200)).lead("t")
    large = encode_batch(
        [(1, None, b"a" * 300, ())], producer_id=7, producer_epoch=0, base_sequence=0
    )
    for records, code in ((large, ErrorCode.MESSAGE_TOO_LARGE), (batch(1), 0), (batch(2), 0)):
        assert codes(handle(replicas, request(("t", 0, records)))) == [code]


async def test_any_number_is_the_first_where_none_was_refused() -> None:
    replicas = Replicas().lead("t", 2)
    replicas.manager.refused.note(T1, batch(3))
    assert codes(handle(replicas, request(("t", 0, batch(5))))) == [0]


def test_all_that_follow_one_by_one_are_refused_and_the_first_is_taken() -> None:
    refused = RefusedBatches(Clock())
    for sequence in (3, 4):
        refused.note(T0, batch(sequence))
    # The short way and the general one ask both.
    assert [is_refused(refused, n) for n in (5, 5, 6, 3, 4)] == [True, True, True, False, False]
    assert not is_refused(refused, 5, epoch=1)


@pytest.mark.fault("strangers-122")
@pytest.mark.parametrize(("other", "is_known"), [(3, False), (2, False), (9, False), (4, True)])
def test_any_other_batch_ends_what_was_refused_before(other: int, is_known: bool) -> None:
    """The client has been at another broker meanwhile, or its topic was made again."""
    refused = RefusedBatches(Clock())
    refused.note(T0, batch(3))
    assert not is_refused(refused, other, is_known=is_known)
    assert not is_refused(refused, 4)


def test_a_later_refusal_counts_alone() -> None:
    refused = RefusedBatches(Clock())
    for sequence in (3, 10):
        refused.note(T0, batch(sequence))
    assert [is_refused(refused, n) for n in (11, 10)] == [True, False]


def test_the_largest_number_is_followed_by_0() -> None:
    refused = RefusedBatches(Clock())
    refused.note(T0, batch(MAX_SEQUENCE))
    assert [is_refused(refused, n) for n in (0, 1, MAX_SEQUENCE)] == [True, True, False]


def test_what_was_refused_a_while_ago_is_forgotten() -> None:
    refused = RefusedBatches(clock := Clock())
    refused.note(T0, batch(3))
    clock.ms = KEPT_MS
    assert is_refused(refused, 4)
    # A refusal for that is none of those that count.
    clock.ms += 1
    assert not is_refused(refused, 5)


@pytest.mark.fault("strangers-127")
def test_what_was_refused_a_while_ago_is_not_the_first_of_a_later_refusal() -> None:
    refused = RefusedBatches(clock := Clock())
    refused.note(T0, batch(3))
    clock.ms = KEPT_MS + 1
    refused.note(T0, batch(4))
    assert not is_refused(refused, 4)


@pytest.mark.fault("strangers-121")
def test_a_name_that_no_topic_can_have_is_not_kept() -> None:
    refused = RefusedBatches(Clock())
    name = "x" * 30_000
    refused.note(TopicPartition(name, 0), batch(3))
    header = read_header(batch(4))
    refused.check(TopicPartition(name, 0), header, is_known=False)


def test_a_stranger_takes_no_more_memory_than_there_is_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refused_batches, "MOST_KEPT", 2)
    refused = RefusedBatches(Clock())
    for epoch in range(3):
        refused.note(T0, batch(3, epoch))
    assert [is_refused(refused, 4, epoch) for epoch in range(3)] == [False, True, True]


@pytest.mark.parametrize("records", [None, b"", b"short", b"\x01" * 70])
def test_what_is_no_batch_is_not_noted(records: bytes | None) -> None:
    refused = RefusedBatches(Clock())
    refused.note(T0, records)
    assert not is_refused(refused, 9)
