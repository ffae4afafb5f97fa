"""Logs that were set aside go when their time is over, if ZooKeeper still calls them so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from broker.replication.set_aside_logs import SetAsideLogs
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.memory_directory import MemoryDirectory
from core_log.set_aside import SET_ASIDE_MS
from protocol.topic_identity import TopicIdentity, derive_topic_id
from protocol.topic_partition import TopicPartition
from zk.api import ZkError

NOW_MS = 1_400_000_000_000
EARLIER = TopicIdentity(derive_topic_id("c", "t", 100), False, 100, 5, 7, 3)
LATER = attrs.evolve(EARLIER, topic_czxid=101, topic_id=derive_topic_id("c", "t", 101))
TOPICS = ("gone", "made-again", "mistaken")


class Stage:
    """A log of each topic is set aside, and the partitions have logs again."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.disk = MemoryDirectory("d")
        self.logs = LogManager([self.disk], LogConfig(), lambda: 0)
        self.logs.load()
        self.topics: dict[str, TopicIdentity] = {"made-again": LATER, "mistaken": EARLIER}
        self.error: ZkError | None = None
        self.asked: list[Sequence[str]] = []
        for topic in TOPICS:
            partition = TopicPartition(topic, 0)
            planned = [self.logs.plan(partition, LogConfig(), is_new=True, identity=EARLIER)]
            self.logs.make(planned)
            self.logs.serve(planned)
            self.logs.begin_setting_aside(partition, NOW_MS).run()
            if topic in self.topics:
                self.logs.get_or_create(partition, LogConfig())
        self.now_ms = NOW_MS
        self.removal = SetAsideLogs(self.logs, self.read, LogWork(executor), lambda: self.now_ms)

    async def read(self, topics: Sequence[str]) -> Mapping[str, TopicIdentity]:
        self.asked.append(topics)
        if self.error is not None:
            raise self.error
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    @property
    def set_aside(self) -> list[str]:
        """The topics of the logs that are set aside."""
        return [name.split(".")[0] for name in self.disk.children() if ".stray-" in name]


@pytest.fixture
def stage() -> Stage:
    return Stage(ThreadPoolExecutor(1))


@pytest.mark.fault("core-R1")
async def test_log_that_was_set_aside_by_a_mistake_stays_and_is_named_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.now_ms += SET_ASIDE_MS
    for _ in range(3):
        await stage.removal.remove_due()
    assert stage.set_aside == ["mistaken"]
    (line,) = [r.getMessage() for r in caplog.records if "stays: it may be of" in r.getMessage()]
    assert "/d/mistaken." in line


async def test_before_its_time_nothing_goes_and_zookeeper_is_not_asked(stage: Stage) -> None:
    stage.now_ms += SET_ASIDE_MS - 1
    await stage.removal.remove_due()
    assert (stage.set_aside, stage.asked) == ([*TOPICS], [])


async def test_while_zookeeper_does_not_answer_nothing_goes(stage: Stage) -> None:
    stage.now_ms += SET_ASIDE_MS
    stage.error = ZkError("no answer")
    await stage.removal.remove_due()
    assert stage.set_aside == [*TOPICS]
    stage.error = None
    await stage.removal.remove_due()
    assert stage.set_aside == ["mistaken"]
