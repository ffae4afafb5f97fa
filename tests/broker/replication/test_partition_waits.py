"""A request that waits for a partition is tried when what it waits for moves, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import fetch, produce
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, batch, context, follower_at

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
FOLLOWED = {"isr": (0, 1), "replicas": (0, 1)}


def write(replicas: Replicas, *topics: str, acks: int = -1) -> list[Any]:
    """Produce a record to partition 0 of each topic; return the response, when it is there."""
    answers: list[Any] = []
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[ProduceRequestPartition(index=0, records=batch(b"v"))],
            )
            for topic in topics
        ],
    )
    answer = produce.handle(replicas.manager, replicas.cache, replicas.deferred, request, context())
    replicas.purgatory.park(answer, answers.append)
    return answers


def read(
    replicas: Replicas,
    offset: int,
    *,
    replica: int = -1,
    session: tuple[int, int] = (0, -1),
) -> list[Any]:
    """Fetch partition 0 of t, which an open session need not name; return the response."""
    asked = FetchRequestPartition(
        partition=0, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1000
    )
    request = FetchRequest(
        replica_id=replica,
        max_wait_ms=30_000,
        min_bytes=1,
        max_bytes=1000,
        session_id=session[0],
        session_epoch=session[1],
        topics=[] if session[1] > 0 else [FetchRequestTopic(topic="t", partitions=[asked])],
    )
    answers: list[Any] = []
    answer = fetch.handle(
        replicas.manager,
        replicas.cache,
        replicas.sessions,
        1 << 30,
        replicas.deferred,
        replicas.leader_quota,
        request,
        context(11),
    )
    replicas.purgatory.park(answer, answers.append)
    return answers


@pytest.mark.parametrize("number", [10, 300])
async def test_producers_that_wait_are_tried_once_each_however_many_they_are(number: int) -> None:
    replicas = Replicas().lead("t", **FOLLOWED)
    answers = [write(replicas, "t") for _ in range(number)]
    assert replicas.purgatory.tries == 0
    for offset in range(1, number + 1):
        follower_at(replicas, T0, offset)
        assert [len(responses) for responses in answers] == [1] * offset + [0] * (number - offset)
    assert (replicas.purgatory.tries, replicas.purgatory.parked) == (number, 0)


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_consumers_are_tried_when_the_watermark_moves_and_not_by_an_append(
    session: tuple[int, int],
) -> None:
    replicas = Replicas().lead("t", **FOLLOWED)
    answers = [read(replicas, 0, session=session) for _ in range(8)]
    for _ in range(5):
        write(replicas, "t")
    assert replicas.purgatory.tries == 0
    follower_at(replicas, T0, 5)
    assert [len(responses) for responses in answers] == [1] * 8
    assert replicas.purgatory.tries == 8 + 5


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_a_follower_is_tried_by_an_append_and_not_by_the_watermark(
    session: tuple[int, int],
) -> None:
    replicas = Replicas().lead("t", isr=(0, 1, 2), replicas=(0, 1, 2))
    write(replicas, "t")
    follower_at(replicas, T0, 1, replica=1)
    answers = read(replicas, 1, replica=1, session=session)
    follower_at(replicas, T0, 1, replica=2)
    assert (replicas.manager.high_watermark(T0), answers) == (1, [])
    tries = replicas.purgatory.tries
    write(replicas, "t")
    assert (len(answers), replicas.purgatory.tries) == (1, tries + 1)


async def test_a_producer_of_two_partitions_waits_for_both() -> None:
    replicas = Replicas().lead("t", **FOLLOWED).lead("u", **FOLLOWED)
    answers = write(replicas, "t", "u")
    alone = write(replicas, "t")
    follower_at(replicas, T0, 2)
    assert (answers, len(alone)) == ([], 1)
    follower_at(replicas, U0, 1)
    assert len(answers) == 1


async def test_a_leader_that_follows_now_ends_the_wait_of_all() -> None:
    replicas = Replicas().lead("t", **FOLLOWED)
    waits = [write(replicas, "t"), write(replicas, "t", acks=-1), read(replicas, 0)]
    replicas.lead("t", leader=1, **FOLLOWED, epoch=1)
    codes = [
        part.error_code
        for (answer,) in waits[:2]
        for topic in answer.responses
        for part in topic.partition_responses
    ]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert len(waits[2]) == 1


async def test_acks_of_the_leader_alone_wait_for_the_flush_that_is_due() -> None:
    replicas = Replicas(config=LogConfig(flush_messages=1)).lead("t", **FOLLOWED)
    answers = write(replicas, "t", acks=1)
    follower_at(replicas, T0, 1)
    assert answers == []
    partition = replicas.manager.partition(T0)
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.end_flush(flush)
    replicas.manager.note_flush(partition)
    assert len(answers) == 1


async def test_a_new_partition_ends_the_fetch_of_its_follower_which_can_ask_for_it_now() -> None:
    replicas = Replicas().lead("t", **FOLLOWED)
    follower = read(replicas, 0, replica=1, session=(0, 0))
    other = read(replicas, 0, replica=2, session=(0, 0))
    consumer = read(replicas, 0, session=(0, 0))
    replicas.lead("u", **FOLLOWED)
    assert ([len(responses) for responses in (follower, other, consumer)]) == [1, 0, 0]
    again = read(replicas, 0, replica=1, session=(follower[0].session_id, 1))
    assert again == []  # once


async def test_where_a_log_begins_after_retention_is_told_though_nothing_is_appended() -> None:
    replicas = Replicas().lead("t", **FOLLOWED)
    write(replicas, "t")
    first = read(replicas, 1, replica=1, session=(0, 0))
    replicas.purgatory.expire_all()
    replicas.manager.log(T0).increment_log_start_offset(1)
    session = first[0].session_id
    for epoch, starts in ((1, []), (2, [1]), (3, [])):
        answers = read(replicas, 1, replica=1, session=(session, epoch))
        if epoch == 2:
            replicas.manager.announce_log_starts()
        replicas.purgatory.expire_all()
        parts = [part for topic in answers[0].responses for part in topic.partitions]
        starts_told = [part.log_start_offset for part in parts if part.log_start_offset > 0]
        assert (epoch, starts_told) == (epoch, starts)


async def test_a_follower_says_where_its_log_begins_when_retention_moved_that() -> None:
    replicas = Replicas().lead("t", leader=1, **FOLLOWED)
    replicas.manager.announce_log_starts()
    replicas.fetchers.starts.clear()
    replicas.manager.announce_log_starts()
    assert replicas.fetchers.starts == []
    log = replicas.manager.log(T0)
    log.truncate_fully_and_start_at(4)
    replicas.manager.announce_log_starts()
    assert replicas.fetchers.starts == [T0]
