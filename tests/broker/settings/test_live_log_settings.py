"""Settings of a topic's log that change while it is served.

They are written to ZooKeeper as a tool does, and the notification puts them into effect for the
next append, without a restart or a new segment.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import pytest

from broker.settings.config_changes import ConfigChanges
from broker.settings.topic_configs import TopicConfigs
from core_log.config import LogConfig
from core_log.log import Log
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_records, encode_batch
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas
from tests.broker.spawning import Spawned
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, ConfigChange, EntityConfig

T0 = TopicPartition("t", 0)
PATH = EntityConfig.path("topics", "t")
SIZE = 71
"""Bytes of a batch of one record of three bytes."""


@attrs.define(eq=False)
class Live:
    """A broker's replicas and their settings, and a tool that changes them."""

    replicas: Replicas = attrs.field(factory=Replicas)
    spawned: Spawned = attrs.field(factory=Spawned)
    tool: MemorySession = attrs.field(init=False)
    now_ms: int = NOW_MS

    async def start(self, **settings: str) -> Live:
        """Lead t-0 with these settings of the topic."""
        zookeeper = MemoryZooKeeper()
        session, self.tool = zookeeper.session(), zookeeper.session()
        await session.start()
        await self.tool.start()
        for path in STARTUP_PATHS:
            await self.tool.ensure_path(path)
        manager = self.replicas.manager
        configs = TopicConfigs(
            session, LogConfig(), self.spawned, lambda key: None, manager.update_config
        )
        changes = ConfigChanges(
            session, self.spawned, {"topics": configs.topic_changed}, configs.any_changed
        )
        await changes.start()
        await self.tool.create(PATH, EntityConfig(config=_dotted(settings)).encode())
        configs.read_missing(["t"])
        await self.spawned.ended()
        manager.topic_config = configs.get
        self.replicas.lead("t")
        return self

    async def set(self, **settings: str) -> None:
        """Replace the topic's settings by these."""
        await self.tool.set(PATH, EntityConfig(config=_dotted(settings)).encode())
        data = ConfigChange(entity_path="topics/t").encode()
        await self.tool.create(f"{ConfigChange.directory()}/config_change_", data, sequence=True)
        await self.spawned.ended()

    def produce(self, *timestamps: int, value: bytes = b"abc") -> None:
        """Append a batch of one record for each timestamp."""
        for timestamp in timestamps or (self.now_ms,):
            batch = encode_batch([(timestamp, None, value, ())])
            self.replicas.write(T0, batch, self.now_ms)

    @property
    def log(self) -> Log:
        return self.replicas.manager.log(T0)

    @property
    def bases(self) -> Sequence[int]:
        return [segment.base_offset for segment in self.log.segments]

    def size(self, name: str) -> int | None:
        return self.log.directory.size(name)


def _dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


async def test_segment_bytes() -> None:
    live = await Live().start()
    live.produce(1, 2, 3)
    await live.set(segment_bytes=str(3 * SIZE))
    live.produce(4)
    assert live.bases == [0, 3]
    await live.set(segment_bytes=str(1000 * SIZE))
    live.produce(5, 6, 7)
    assert live.bases == [0, 3]


async def test_segment_ms() -> None:
    live = await Live().start()
    live.produce(0, 10_000)
    await live.set(segment_ms="10000")
    live.produce(10_000)
    assert live.bases == [0]
    live.produce(10_001)
    assert live.bases == [0, 3]


async def test_segment_jitter_ms_has_segments_end_earlier_each_by_another_time() -> None:
    live = await Live().start(segment_ms="10000")
    jitter_ms = zlib.crc32(b"t-0/0") % 10_000
    live.produce(0)
    await live.set(segment_ms="10000", segment_jitter_ms="10000")
    live.produce(10_000 - jitter_ms)
    assert live.bases == [0]
    live.produce(10_001 - jitter_ms)
    assert live.bases == [0, 2]
    await live.set(segment_ms="10000")
    live.produce(20_000 - jitter_ms)
    assert live.bases == [0, 2]


async def test_segment_index_bytes_of_the_next_segment() -> None:
    live = await Live().start(segment_index_bytes="800")
    live.produce(1)
    assert live.size("00000000000000000000.index") == 800
    await live.set(segment_index_bytes="100")
    live.log.roll(live.now_ms)
    assert live.size("00000000000000000001.index") == 96
    assert live.size("00000000000000000001.timeindex") == 96


async def test_index_interval_bytes() -> None:
    live = await Live().start()
    live.produce(1, 2, 3)
    await live.set(index_interval_bytes="0")
    live.produce(4, 5)
    live.log.roll(live.now_ms)
    assert live.size("00000000000000000000.index") == 2 * 8


async def test_preallocate_of_the_next_segment() -> None:
    live = await Live().start(segment_bytes="5000")
    live.produce(1)
    await live.set(segment_bytes="6000", preallocate="true")
    live.log.roll(live.now_ms)
    assert live.size("00000000000000000000.log") == SIZE
    assert live.size("00000000000000000001.log") == 6000


async def test_flush_messages() -> None:
    live = await Live().start()
    live.produce(1, 2)
    assert live.replicas.flushes == []
    await live.set(flush_messages="3")
    live.produce(3)
    assert [partition.topic_partition for partition in live.replicas.flushes] == [T0]


async def test_flush_ms() -> None:
    live = await Live().start()
    live.produce(1)
    assert not live.log.is_flush_due(live.now_ms + 10**12)
    await live.set(flush_ms="500")
    assert not live.log.is_flush_due(live.now_ms + 499)
    assert live.log.is_flush_due(live.now_ms + 500)


async def test_message_timestamp_type() -> None:
    live = await Live().start()
    sent_ms = live.now_ms - 10
    live.produce(sent_ms)
    await live.set(message_timestamp_type="LogAppendTime")
    live.produce(sent_ms)
    await live.set()
    live.produce(sent_ms)
    chunk = live.log.read(0, 10**6, 3)
    assert chunk is not None
    times = [record.timestamp_ms for record in decode_records(chunk.read())]
    assert times == [sent_ms, live.now_ms, sent_ms]


async def test_message_timestamp_difference_max_ms() -> None:
    live = await Live().start()
    live.produce(live.now_ms - 1001)
    await live.set(message_timestamp_difference_max_ms="1000")
    live.produce(live.now_ms - 1000)
    with pytest.raises(ApiError) as raised:
        live.produce(live.now_ms - 1001)
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP


async def test_max_message_bytes() -> None:
    live = await Live().start()
    live.produce(1)
    await live.set(max_message_bytes=str(SIZE - 1))
    with pytest.raises(ApiError) as raised:
        live.produce(1)
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    await live.set(max_message_bytes=str(SIZE))
    live.produce(1)


async def test_message_format_version() -> None:
    live = await Live().start()
    live.produce(1)
    assert live.log.leader_epochs.entries == [(0, 0)]
    await live.set(message_format_version="0.10.2")
    live.produce(2)
    assert live.log.leader_epochs.entries == []
    await live.set(message_format_version="0.9.0")
    live.produce(3)
    await live.set(message_format_version="2.3")
    live.produce(4)
    chunk = live.log.read(0, 10**6, 4)
    assert chunk is not None
    data = chunk.read()
    records = decode_records(data)
    assert [(r.offset, r.timestamp_ms) for r in records] == [(0, 1), (1, 2), (2, -1), (3, 4)]
    magics = []
    at = 0
    while at < len(data):
        magics.append(data[at + 16])
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    assert magics == [2, 1, 0, 2]


async def test_retention_and_delay_of_deletion() -> None:
    live = await Live().start(segment_bytes=str(SIZE))
    live.produce(*(3 * [live.now_ms]))
    later = live.now_ms + 10_001
    manager = live.replicas.manager
    manager.logs.delete_old_segments({T0: 3}, later)
    assert live.bases == [0, 1, 2]
    await live.set(retention_bytes=str(2 * SIZE), file_delete_delay_ms="10")
    manager.logs.delete_old_segments({T0: 3}, later)
    assert live.bases == [1, 2]
    await live.set(retention_ms="10000")
    manager.logs.delete_old_segments({T0: 3}, later)
    assert live.bases == [3]


async def test_cleanup_policy() -> None:
    live = await Live().start(segment_bytes=str(SIZE), retention_ms="0")
    live.produce(1, 2)
    await live.set(segment_bytes=str(SIZE), retention_ms="0", cleanup_policy="compact")
    assert live.replicas.manager.logs.delete_old_segments({T0: 2}, live.now_ms) == 0
    with pytest.raises(ApiError):
        live.produce(3)  # without a key
    await live.set(segment_bytes=str(SIZE), retention_ms="0", cleanup_policy="compact,delete")
    assert live.replicas.manager.logs.delete_old_segments({T0: 2}, live.now_ms) == 2


async def test_a_setting_that_is_taken_away_is_the_brokers_again() -> None:
    live = await Live().start(segment_bytes=str(SIZE))
    live.produce(1, 2)
    await live.set()
    live.produce(3, 4)
    assert live.bases == [0, 1]
