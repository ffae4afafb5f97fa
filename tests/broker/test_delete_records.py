"""DeleteRecords: which records may be deleted, and when the response is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from broker.handlers import delete_records
from broker.network.purgatory import Wait
from broker.replication.partition_waits import START
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from protocol.messages.fetch import FetchRequestPartition
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import (
    NOW_MS,
    Replicas,
    batch,
    context,
    leader_and_isr,
    update_metadata,
)
from tests.stage.bytecodes import bytecodes_of

T0 = TopicPartition("t", 0)
NONE = ErrorCode.NONE
BOTH: dict[str, Any] = {"isr": (0, 1), "replicas": (0, 1)}


def filled(config: LogConfig | None = None, **lead: Any) -> Replicas:
    """Append four records and commit them."""
    replicas = Replicas(config=config or LogConfig()).lead("t", **lead)
    for value in (b"a", b"b", b"c", b"d"):
        replicas.manager.append(
            T0, batch(value, key=b"k"), all_in_sync=False, zstd_allowed=True, now_ms=1
        )
    if lead:
        follower_begins_at(replicas, 0)
    return replicas


def follower_begins_at(replicas: Replicas, start: int) -> None:
    fetch_partition = FetchRequestPartition(
        partition=0, fetch_offset=4, log_start_offset=start, partition_max_bytes=1
    )
    replicas.manager.follower_progress.note_follower_fetch(1, [(T0, fetch_partition)], NOW_MS)


def delete(replicas: Replicas, *offsets: int, topic: str = "t") -> Any:
    partitions = [
        DeleteRecordsRequestPartition(partition_index=0, offset=offset) for offset in offsets
    ]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequestTopic(name=topic, partitions=partitions)], timeout_ms=500
    )
    return delete_records.handle(replicas.manager, replicas.cache, request, context(1))


def outcome_of(response: DeleteRecordsResponse) -> tuple[ErrorCode, int]:
    (part,) = response.topics[0].partitions
    return ErrorCode.of(part.error_code), part.low_watermark


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (3, 3), (4, 4), (-1, 4)])
def test_a_leader_alone_gives_up_what_is_below_the_offset_and_answers_at_once(
    offset: int, start: int
) -> None:
    replicas = filled()
    assert outcome_of(delete(replicas, offset)) == (NONE, start)
    assert replicas.manager.log(T0).log_start_offset == start


@pytest.mark.fault("strangers-10")
@pytest.mark.parametrize(
    ("offsets", "outcome"), [((3, 1, 2), (NONE, 2)), ((3, 9), (ErrorCode.OFFSET_OUT_OF_RANGE, -1))]
)
def test_partition_named_again_counts_as_it_is_named_last(
    offsets: tuple[int, ...], outcome: tuple[ErrorCode, int]
) -> None:
    replicas = filled()
    assert outcome_of(delete(replicas, *offsets)) == outcome
    assert replicas.manager.log(T0).log_start_offset == max(0, outcome[1])


def test_what_is_gone_already_stays_gone() -> None:
    replicas = filled()
    delete(replicas, 3)
    assert outcome_of(delete(replicas, 1)) == (NONE, 3)


@pytest.mark.parametrize("offset", [5, -2])
def test_an_offset_that_is_not_committed_or_none_is_out_of_range(offset: int) -> None:
    replicas = filled()
    assert outcome_of(delete(replicas, offset)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert replicas.manager.log(T0).log_start_offset == 0


def test_what_is_written_and_not_committed_cannot_be_deleted() -> None:
    replicas = filled(**BOTH)
    replicas.manager.append(T0, batch(b"e"), all_in_sync=False, zstd_allowed=True, now_ms=1)
    assert outcome_of(delete(replicas, 5)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_the_answer_waits_until_the_followers_have_given_it_up_too() -> None:
    replicas = filled(**BOTH)
    wait = delete(replicas, 3)
    assert isinstance(wait, Wait)
    assert (wait.keys, wait.timeout_ms, wait.try_complete(False)) == (((START, T0),), 500, None)
    follower_begins_at(replicas, 2)
    assert wait.try_complete(False) is None
    follower_begins_at(replicas, 3)
    assert outcome_of(wait.try_complete(False)) == (NONE, 3)


def test_a_follower_whose_broker_is_dead_is_not_waited_for() -> None:
    replicas = filled(**BOTH)
    replicas.cache.update(update_metadata("t", **BOTH, live={0: 9092}))
    assert outcome_of(delete(replicas, 3)) == (NONE, 3)


def test_when_the_time_is_up_it_says_so_and_the_leader_has_deleted_all_the_same() -> None:
    replicas = filled(**BOTH)
    wait = delete(replicas, 3)
    assert outcome_of(wait.try_complete(True)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert replicas.manager.log(T0).log_start_offset == 3


def test_who_loses_the_partition_meanwhile_says_so() -> None:
    replicas = filled(**BOTH)
    wait = delete(replicas, 3)
    replicas.roles.become_leader_or_follower(leader_and_isr("t", leader=1, epoch=1, **BOTH), 1)
    assert outcome_of(wait.try_complete(False)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (["delete"], NONE),
        (["compact", "delete"], NONE),
        (["compact"], ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_is_compacted_and_nothing_else_is_kept(policy: list[str], code: ErrorCode) -> None:
    kept: Any = type(LogConfig().cleanup_policy)(policy)
    replicas = filled(attrs.evolve(LogConfig(), cleanup_policy=kept))
    assert outcome_of(delete(replicas, 1))[0] == code


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_topic_that_is_unknown_or_the_brokers_own_is_refused(topic: str, code: ErrorCode) -> None:
    assert outcome_of(delete(filled(), 1, topic=topic))[0] == code


def test_a_follower_refuses() -> None:
    replicas = Replicas().lead("t", leader=1, **BOTH)
    assert outcome_of(delete(replicas, 0))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_are_given_up_without_asking_the_disk() -> None:
    """An fsync for each partition would stop the event loop for as long as all of them take."""
    replicas = filled().lead("t", epoch=1)
    replicas.directory.disk.free_bytes = 0
    assert outcome_of(delete(replicas, 3)) == (ErrorCode.NONE, 3)
    assert replicas.manager.log(T0).failure is None


def cost_of_followers_fetch(partitions: int) -> int:
    """Count what one fetch of a follower costs that ends the deletion of records of all."""
    replicas = Replicas().lead("t", partitions, **BOTH)
    every = [TopicPartition("t", index) for index in range(partitions)]
    follower = replicas.manager.follower_progress

    def fetch_from(offset: int, start: int) -> None:
        asked = [
            (
                tp,
                FetchRequestPartition(
                    partition=tp.partition,
                    fetch_offset=offset,
                    log_start_offset=start,
                    partition_max_bytes=1,
                ),
            )
            for tp in every
        ]
        follower.note_follower_fetch(1, asked, NOW_MS)

    for tp in every:
        replicas.write(tp, batch(b"a"))
    fetch_from(1, 0)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequestTopic(
                name="t",
                partitions=[
                    DeleteRecordsRequestPartition(partition_index=tp.partition, offset=1)
                    for tp in every
                ],
            )
        ],
        timeout_ms=60_000,
    )
    done: list[DeleteRecordsResponse] = []

    async def delete_and_fetch() -> int:
        wait = delete_records.handle(replicas.manager, replicas.cache, request, context(1))
        assert isinstance(wait, Wait)
        replicas.purgatory.park(wait, done.append)
        return bytecodes_of(lambda: fetch_from(1, 1))

    cost = asyncio.run(delete_and_fetch())
    (response,) = done
    assert {part.low_watermark for part in response.topics[0].partitions} == {1}
    return cost


@pytest.mark.fault("scale-S1")
def test_a_deletion_in_many_partitions_costs_no_more_for_each_than_in_a_few() -> None:
    assert cost_of_followers_fetch(1_000) < 1.3 * 10 * cost_of_followers_fetch(100)
