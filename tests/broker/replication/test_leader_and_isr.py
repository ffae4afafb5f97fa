"""LeaderAndIsr names topics whose settings are not known yet."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from broker.handlers import leader_and_isr as handler
from broker.network.purgatory import Wait
from broker.replication.control_gate import ControlGate
from broker.settings.topic_configs import TopicConfigs
from core_log.config import LogConfig
from core_log.log import Log
from protocol.errors import ErrorCode
from protocol.records.batch import read_header
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, context, leader_and_isr
from tests.broker.spawning import Spawned
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, EntityConfig

TIMEOUT_MS = 30_000
T0 = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=300)


@attrs.define(eq=False)
class Broker:
    """A broker that reads the settings of new topics from ZooKeeper."""

    replicas: Replicas = attrs.field(factory=lambda: Replicas(config=SMALL))
    spawned: Spawned = attrs.field(factory=Spawned)
    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    session: MemorySession = attrs.field(init=False)
    tool: MemorySession = attrs.field(init=False)
    configs: TopicConfigs = attrs.field(init=False)
    answers: list[Any] = attrs.field(factory=list)

    async def start(self) -> Broker:
        self.session, self.tool = self.zookeeper.session(), self.zookeeper.session()
        await self.session.start()
        await self.tool.start()
        for path in STARTUP_PATHS:
            await self.tool.ensure_path(path)
        manager, touch = self.replicas.manager, self.replicas.purgatory.touch
        self.configs = TopicConfigs(self.session, SMALL, self.spawned, touch, manager.update_config)
        manager.topic_config = self.configs.get
        return self

    async def set(self, data: bytes) -> None:
        await self.tool.create(EntityConfig.path("topics", "t"), data)

    def loaded(self, config: LogConfig) -> Log:
        """The log of t-0, opened at the start with ten old records."""
        log = self.replicas.manager.logs.get_or_create(T0, config)
        for number in range(10):
            data = batch(b"v" * 100, key=b"key%d" % number, timestamp_ms=number)
            log.append(data, read_header(data), leader_epoch=0, now_ms=NOW_MS, max_timestamp=number)
        return log

    def receive(self) -> None:
        """Receive a LeaderAndIsr for t-0."""
        manager = self.replicas.manager
        answer = handler.handle(
            ControlGate(),
            manager,
            self.configs,
            self.replicas.control(timeout_ms=TIMEOUT_MS),
            leader_and_isr("t", epoch=1),
            context(),
        )
        self.take(answer)

    def take(self, answer: Any) -> None:
        """End the wait as a connection does."""
        if isinstance(answer, Wait):
            self.replicas.purgatory.park(answer, self.take)
        else:
            self.answers.append(answer)

    async def answered(self) -> None:
        """Wait for the response."""
        await self.spawned.ended()
        while not self.answers:
            await asyncio.sleep(0)

    def retained(self) -> int:
        """Apply retention; return how many segments it deletes."""
        manager = self.replicas.manager
        return manager.logs.delete_old_segments(manager.high_watermarks(), NOW_MS)


COMPACTED = attrs.evolve(SMALL, cleanup_policy=("compact",), retention_ms=-1)
STORED = EntityConfig({"cleanup.policy": "compact", "retention.ms": "-1"}).encode()


@pytest.mark.virtual_time
async def test_while_zookeeper_is_away_no_log_is_held_to_the_brokers_own_settings() -> None:
    broker = await Broker().start()
    await broker.set(STORED)
    log = broker.loaded(COMPACTED)
    broker.zookeeper.suspend(broker.session)
    broker.receive()
    await asyncio.sleep(10 * TIMEOUT_MS / 1000)
    assert broker.answers == []
    assert log.config == COMPACTED
    assert broker.retained() == 0

    broker.zookeeper.resume(broker.session)
    await broker.answered()
    (answer,) = broker.answers
    assert answer.error_code == ErrorCode.NONE
    assert log.config == COMPACTED
    assert (broker.retained(), log.log_start_offset) == (0, 0)


@pytest.mark.parametrize(
    "data", [b"{", EntityConfig({"cleanup.policy": "compakt"}).encode()], ids=["no JSON", "typo"]
)
async def test_log_whose_settings_cannot_be_understood_is_led_and_keeps_all(data: bytes) -> None:
    broker = await Broker().start()
    await broker.set(data)
    log = broker.loaded(COMPACTED)
    broker.receive()
    await broker.answered()
    assert [answer.error_code for answer in broker.answers] == [ErrorCode.NONE]
    assert broker.replicas.manager.partition(T0).is_leader
    assert (broker.retained(), log.log_start_offset) == (0, 0)
