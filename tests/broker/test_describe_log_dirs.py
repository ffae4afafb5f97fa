"""DescribeLogDirs: sizes and lags of the logs, by directory."""

from __future__ import annotations

import errno
from typing import Any

from broker.handlers import describe_log_dirs
from clients.admin.requests import log_dirs
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.encoding import decode, encode
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, context

Logs = list[tuple[str, int, int, int]]


def describe(replicas: Replicas, *partitions: tuple[str, int]) -> dict[str, Logs]:
    """Return (topic, partition, size, lag) per directory; of all partitions if none is named."""
    topics = [DescribeLogDirsRequestTopic(topic=t, partitions=[index]) for t, index in partitions]
    return by_directory(ask(replicas, topics or None))


def ask(replicas: Replicas, topics: Any) -> DescribeLogDirsResponse:
    request = DescribeLogDirsRequest(topics=topics)
    return describe_log_dirs.handle(replicas.manager.logs, replicas.manager, request, context(1))


def by_directory(answer: DescribeLogDirsResponse) -> dict[str, Logs]:
    assert not any(result.error_code for result in answer.results)
    return {
        result.log_dir: [
            (topic.name, p.partition_index, p.partition_size, p.offset_lag)
            for topic in result.topics
            for p in topic.partitions
        ]
        for result in answer.results
    }


def filled() -> Replicas:
    replicas = Replicas().lead("t", 2).lead("s")
    replicas.manager.append(
        TopicPartition("t", 1), batch(b"a"), all_in_sync=False, zstd_allowed=True, now_ms=NOW_MS
    )
    return replicas


def test_all_logs_are_told_with_their_sizes() -> None:
    size = len(batch(b"a"))
    assert describe(filled()) == {"/logs": [("s", 0, 0, 0), ("t", 0, 0, 0), ("t", 1, size, 0)]}


def test_only_those_asked_for_are_told_and_others_do_not_count() -> None:
    assert describe(filled(), ("t", 0), ("t", 7), ("u", 0)) == {"/logs": [("t", 0, 0, 0)]}


def test_to_ask_for_none_is_to_ask_for_the_directories() -> None:
    assert by_directory(ask(filled(), [])) == {"/logs": []}


def test_a_directory_without_room_is_told_to_be_full_by_a_tag_and_has_no_error() -> None:
    replicas = filled()
    (log_dir,) = replicas.manager.logs.dirs
    log_dir.lack_of_room = OSError(errno.ENOSPC, "no room")
    answer = ask(replicas, [])
    assert by_directory(answer) == {"/logs": []}

    # Older versions have no tags.
    for version, is_full in ((2, True), (1, False)):
        decoded, _ = decode(DescribeLogDirsResponse, version, encode(answer, version))
        (told,) = log_dirs(decoded).values()
        assert (told.error, told.is_full) == (ErrorCode.NONE, is_full)

    log_dir.lack_of_room = None
    assert [result.is_full for result in ask(replicas, []).results] == [False]


def test_how_far_behind_a_log_is_that_nobody_has_spoken_of_is_not_known() -> None:
    replicas = Replicas()
    replicas.manager.logs.get_or_create(TopicPartition("t", 0), replicas.config)
    assert describe(replicas) == {"/logs": [("t", 0, 0, -1)]}


class Unreadable(MemoryDirectory):
    """A directory on a disk that is broken."""

    def children(self) -> list[str]:
        raise OSError("broken")


def test_a_directory_that_is_offline_is_told_with_its_error() -> None:
    replicas = Replicas()
    logs = LogManager([MemoryDirectory("good"), Unreadable("bad")], replicas.config, lambda: 0)
    logs.load()
    answer = describe_log_dirs.handle(
        logs, replicas.manager, DescribeLogDirsRequest(topics=None), context(1)
    )
    assert [(entry.log_dir, entry.error_code) for entry in answer.results] == [
        ("/good", ErrorCode.NONE),
        ("/bad", ErrorCode.KAFKA_STORAGE_ERROR),
    ]
