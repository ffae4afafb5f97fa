"""OffsetForLeaderEpoch: where an epoch ended in the leader's log, and who may ask."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import offset_for_leader_epoch
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, batch, context

T0 = TopicPartition("t", 0)


def ask(
    replicas: Replicas, *epochs: int, topic: str = "t", current: int = -1
) -> list[tuple[ErrorCode, int, int]]:
    """Return (error, epoch, end offset) for each of the epochs in partition 0."""
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderEpochRequestTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderEpochRequestPartition(
                        partition=0, current_leader_epoch=current, leader_epoch=epoch
                    )
                    for epoch in epochs
                ],
            )
        ]
    )
    answer = offset_for_leader_epoch.handle(replicas.manager, replicas.cache, request, context(3))
    return [
        (ErrorCode.of(p.error_code), p.leader_epoch, p.end_offset)
        for t in answer.topics
        for p in t.partitions
    ]


def led_in(*epochs: int, **lead: Any) -> Replicas:
    """Append two records in each of these epochs."""
    replicas = Replicas()
    for epoch in epochs:
        replicas.lead("t", epoch=epoch, **lead)
        replicas.manager.append(
            T0, batch(b"a", b"b"), all_in_sync=False, zstd_allowed=True, now_ms=1
        )
    return replicas


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        pytest.param(5, (5, 6), id="the present one goes on to the log's end"),
        pytest.param(3, (3, 4), id="an earlier one ended where the next began"),
        pytest.param(4, (3, 4), id="one that wrote nothing: the one before it"),
        pytest.param(0, (0, 2), id="below all known: where they begin"),
        pytest.param(6, (-1, -1), id="one of the future is not known"),
        pytest.param(-1, (-1, -1), id="none is none"),
    ],
)
def test_an_epoch_ended_where_the_next_one_began(epoch: int, found: tuple[int, int]) -> None:
    replicas = led_in(1, 3, 5)
    if epoch == 0:
        replicas.manager.log(T0).increment_log_start_offset(2)
    assert ask(replicas, epoch) == [(ErrorCode.NONE, *found)]


def test_what_is_not_committed_counts_too() -> None:
    replicas = led_in(3, isr=(0, 1), replicas=(0, 1))
    assert replicas.manager.high_watermark(T0) == 0
    assert ask(replicas, 3) == [(ErrorCode.NONE, 3, 2)]


def test_an_election_alone_begins_an_epoch() -> None:
    replicas = led_in(3).lead("t", epoch=7)
    assert ask(replicas, 3, 7) == [(ErrorCode.NONE, 3, 2), (ErrorCode.NONE, 7, 2)]


def test_a_follower_refuses() -> None:
    replicas = Replicas().lead("t", leader=1, isr=(0, 1), replicas=(0, 1))
    assert ask(replicas, 0) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]


def test_a_topic_that_is_not_known_is_said_so() -> None:
    assert ask(Replicas(), 0, topic="u") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]


@pytest.mark.parametrize(
    ("current", "code"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_the_asker_believes_of_the_epoch_is_compared(current: int, code: ErrorCode) -> None:
    assert ask(led_in(3), 3, current=current)[0][0] == code
