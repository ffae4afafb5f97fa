"""ListOffsets 0: start offsets of segments, and logs without timestamps."""

from __future__ import annotations

import pytest

from broker.handlers import list_offsets
from core_log.config import LogConfig
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, context

T0 = TopicPartition("t", 0)
LATEST, EARLIEST = list_offsets.LATEST_TIME, list_offsets.EARLIEST_TIME
CONSUMER, DEBUGGER = -1, -2


def filled() -> Replicas:
    """Write segments that begin at 0, 2 and 4, at 100, 200 and 300 ms."""
    disk = Disk()
    replicas = Replicas(MemoryDirectory("logs", disk)).lead("t")
    for written_ms in (100, 200, 300):
        disk.now_ms = lambda now_ms=written_ms: now_ms
        replicas.manager.log(T0).roll(1)
        replicas.manager.append(
            T0, batch(b"a", b"b"), all_in_sync=False, zstd_allowed=True, now_ms=1
        )
    return replicas


def ask(
    replicas: Replicas,
    time_ms: int,
    most: int = 10,
    *,
    topic: str = "t",
    replica_id: int = CONSUMER,
    version: int = 0,
) -> ListOffsetsResponsePartition:
    list_request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsRequestTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequestPartition(
                        partition_index=0, timestamp=time_ms, max_num_offsets=most
                    )
                ],
            )
        ],
    )
    response = list_offsets.handle(
        replicas.manager, replicas.cache, replicas.deferred, 1000, list_request, context(version)
    )
    assert isinstance(response, ListOffsetsResponse)
    (part,) = response.topics[0].partitions
    return part


def offsets(replicas: Replicas, time_ms: int, most: int = 10, **options: int) -> list[int]:
    part = ask(replicas, time_ms, most, **options)
    assert part.error_code == ErrorCode.NONE
    return list(part.old_style_offsets)


def test_latest_is_the_end_and_the_segments_before_it_newest_first() -> None:
    assert offsets(filled(), LATEST) == [6, 4, 2, 0]


def test_no_more_offsets_come_than_were_asked_for() -> None:
    assert offsets(filled(), LATEST, 2) == [6, 4]
    assert offsets(filled(), LATEST, 0) == []


def test_earliest_is_the_start_alone() -> None:
    assert offsets(filled(), EARLIEST) == [0]


def test_time_is_that_of_the_files() -> None:
    replicas = filled()
    assert offsets(replicas, 99) == []
    assert offsets(replicas, 100) == [0]
    assert offsets(replicas, 299) == [2, 0]
    assert offsets(replicas, NOW_MS - 1) == [4, 2, 0]
    assert offsets(replicas, NOW_MS) == [6, 4, 2, 0]


def test_empty_log_has_one_offset() -> None:
    replicas = Replicas().lead("t")
    assert offsets(replicas, LATEST) == offsets(replicas, EARLIEST) == [0]


def test_consumer_gets_the_high_watermark_for_all_above_it_and_others_the_end() -> None:
    replicas = filled()
    replicas.manager.partition(T0).high_watermark = 3

    assert offsets(replicas, LATEST) == [3, 2, 0]
    assert offsets(replicas, LATEST, replica_id=DEBUGGER) == [6, 4, 2, 0]


def test_unknown_partition_and_negative_number_have_an_error_and_no_offsets() -> None:
    unknown, negative = ask(filled(), LATEST, topic="none"), ask(filled(), LATEST, -1)

    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert negative.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not unknown.old_style_offsets
    assert not negative.old_style_offsets


def test_follower_does_not_answer() -> None:
    replicas = Replicas().lead("t", leader=1, isr=(0, 1), replicas=(0, 1))
    assert ask(replicas, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("format_version", "code"),
    [("0.9.0", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), ("0.10.0", ErrorCode.NONE)],
)
def test_log_without_timestamps_cannot_be_asked_for_them(
    format_version: str, code: ErrorCode
) -> None:
    replicas = Replicas(config=LogConfig(message_format_version=format_version)).lead("t")

    assert ask(replicas, 5, version=1).error_code == code
    for time_ms in (LATEST, EARLIEST):
        assert ask(replicas, time_ms, version=1).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 5])
def test_a_log_whose_file_is_gone_has_an_error_of_its_own(version: int) -> None:
    """It is empty, so the time of its file counts."""
    replicas = Replicas().lead("t")
    replicas.manager.log(T0).directory.remove("00000000000000000000.log")
    part = ask(replicas, 100, version=version)
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
