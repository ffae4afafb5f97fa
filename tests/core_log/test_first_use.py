"""Since when a log directory is in use, and what that proves."""

from __future__ import annotations

import attrs
import pytest

from core_log.config import LogConfig
from core_log.first_use import IN_USE_SINCE, FirstUse
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.topic_identity import TopicIdentity

SINCE = FirstUse(100, 5, 1_400_000_000_000)
TOPIC = TopicIdentity(
    topic_id=bytes(range(16)),
    is_pinned=True,
    topic_czxid=101,
    cluster_czxid=5,
    cluster_ctime_ms=1_400_000_000_000,
)


def test_topic_that_was_created_later_is_younger() -> None:
    assert SINCE.is_before(TOPIC)
    assert not SINCE.is_before(attrs.evolve(TOPIC, topic_czxid=99))


def test_zookeeper_that_was_restored_proves_nothing() -> None:
    assert not SINCE.is_before(attrs.evolve(TOPIC, cluster_czxid=6))
    assert SINCE.is_before(attrs.evolve(TOPIC, topics_czxid=99))
    assert not SINCE.is_before(attrs.evolve(TOPIC, topics_czxid=101, topic_czxid=102))


@pytest.mark.parametrize("data", [None, b"", b"\xff", b"version: 1\nzxid: 1\n", b"version: 0\n"])
def test_file_that_cannot_be_read_proves_nothing(data: bytes | None) -> None:
    assert FirstUse.decode(data) is None


def test_first_use_is_noted_once_and_outlives_a_power_loss(memory: MemoryDirectory) -> None:
    logs = LogManager([memory], LogConfig(), lambda: 0)
    logs.load()
    logs.note_first_use(SINCE)
    logs.note_first_use(attrs.evolve(SINCE, zxid=200))
    memory.lose_power()
    assert FirstUse.decode(memory.read(IN_USE_SINCE)) == SINCE
