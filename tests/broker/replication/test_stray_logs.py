"""Only a log that ZooKeeper gives to no replica of this broker is called a stray."""

from __future__ import annotations

import attrs
import pytest

from broker.replication.stray_logs import StrayLogs
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import TopicAssignment

T0 = TopicPartition("t", 0)


@attrs.define(eq=False)
class Stage:
    """Broker 0 with the log of t-0, which no controller has named."""

    session: MemorySession
    zookeeper: MemoryZooKeeper
    replicas: Replicas = attrs.field(factory=Replicas)
    strays: StrayLogs = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        manager = self.replicas.manager
        manager.logs.get_or_create(T0, self.replicas.config)
        manager.is_leadership_known = True
        self.strays = StrayLogs(manager, self.session)

    async def assign(self, data: bytes) -> None:
        await self.session.create(TopicAssignment.path("t"), data, make_parents=True)


async def a_stage() -> Stage:
    zookeeper = MemoryZooKeeper()
    session = zookeeper.session()
    await session.start()
    return Stage(session, zookeeper)


@pytest.mark.parametrize("is_there", [True, False], ids=["moved away", "deleted"])
async def test_log_that_zookeeper_gives_to_other_brokers_is_named_once(
    is_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await a_stage()
    if is_there:
        await stage.assign(TopicAssignment({0: (1, 2)}).encode())
    for _ in range(2):
        await stage.strays.report()
    (line,) = caplog.messages
    assert line.startswith("1 logs belong to no replica of this broker, by ZooKeeper: t-0;")


@pytest.mark.fault("core-R9")
async def test_replica_that_the_controller_names_later_is_no_stray(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await a_stage()
    await stage.assign(TopicAssignment({0: (1, 0)}).encode())
    await stage.strays.report()
    assert caplog.messages == []


async def test_nothing_is_said_before_a_controller_has_spoken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await a_stage()
    stage.replicas.manager.is_leadership_known = False
    await stage.strays.report()
    assert caplog.messages == []


async def test_log_of_a_topic_that_cannot_be_parsed_is_no_stray(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await a_stage()
    await stage.assign(b"{")
    await stage.strays.report()
    assert caplog.messages == []


async def test_log_is_looked_up_again_after_zookeeper_was_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await a_stage()
    await stage.session.close()
    await stage.strays.report()
    assert "cannot be looked up" in caplog.text
    assert "belong to no replica" not in caplog.text
