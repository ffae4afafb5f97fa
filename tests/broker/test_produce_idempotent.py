"""Produce by clients that number their batches."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import produce
from broker.network.purgatory import Wait
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponsePartition,
)
from protocol.records.batch import decode_records, encode_batch
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, context, follower_at

T0 = TopicPartition("t", 0)


def numbered(sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    """A batch of producer 7."""
    return encode_batch(
        [(NOW_MS, None, value, ()) for value in values],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def send(replicas: Replicas, records: bytes, acks: int = 1) -> Any:
    topic = ProduceRequestTopic(
        name="t", partition_data=[ProduceRequestPartition(index=0, records=records)]
    )
    produce_request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
    return produce.handle(
        replicas.manager, replicas.cache, replicas.deferred, produce_request, context(7)
    )


def response(replicas: Replicas, records: bytes) -> ProduceResponsePartition:
    response = send(replicas, records)
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    assert isinstance(partition, ProduceResponsePartition)
    return partition


def values(replicas: Replicas) -> list[bytes | None]:
    log = replicas.manager.log(T0)
    file_range = log.read(0, 10_000, log.log_end_offset)
    return (
        []
        if file_range is None
        else [record.value for record in decode_records(file_range.read(), 0)]
    )


def test_a_batch_sent_twice_is_appended_once_and_answered_alike() -> None:
    replicas = Replicas().lead("t")
    send(replicas, numbered(0, b"a"))
    first, second = (response(replicas, numbered(1, b"b", b"c")) for _ in range(2))
    assert first.error_code == second.error_code == ErrorCode.NONE
    assert first.base_offset == second.base_offset == 1
    assert values(replicas) == [b"a", b"b", b"c"]


def test_a_repeated_batch_waits_until_it_is_replicated_as_it_did_the_first_time() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    waits = [send(replicas, numbered(0, b"a"), acks=-1) for _ in range(2)]
    assert all(isinstance(wait, Wait) for wait in waits)
    assert waits[1].try_complete(False) is None
    follower_at(replicas, T0, 1)
    answered = [wait.try_complete(False) for wait in waits]
    assert [r.responses[0].partition_responses[0].base_offset for r in answered] == [0, 0]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (numbered(2, b"x"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (numbered(1, b"x", epoch=4), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_refusal_tells_where_the_log_starts(records: bytes, code: ErrorCode) -> None:
    replicas = Replicas().lead("t")
    send(replicas, numbered(0, b"a", epoch=5 if code == ErrorCode.INVALID_PRODUCER_EPOCH else 0))
    refused = response(replicas, records)
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (code, -1, 0)
    assert values(replicas) == [b"a"]


def test_a_topic_that_recompresses_keeps_the_numbers() -> None:
    replicas = Replicas(config=LogConfig(compression_type="gzip")).lead("t")
    for _ in range(2):
        assert response(replicas, numbered(0, b"a" * 1000)).base_offset == 0
    assert values(replicas) == [b"a" * 1000]


def test_a_topic_in_an_old_format_takes_no_numbered_batches() -> None:
    replicas = Replicas(config=LogConfig(message_format_version="0.10.2")).lead("t")
    code = response(replicas, numbered(0, b"a")).error_code
    assert code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
