"""Tell the offsets of a topic from those of an earlier topic of its name.

Kafka keeps a committed offset under the name of a topic. If the topic is deleted and created again
while nobody coordinates the group, or while its coordinator hears nothing, the offset would count
for the new topic: its consumers would begin in the middle, and skip records without a word.

**The rule.** Each replica of a partition of `__consumer_offsets` keeps a *mark* beside its log
(`core_log.topics_mark_file`): all records below this offset were written before that transaction
of ZooKeeper. When the partition is loaded, a topic that was created by a later transaction did not
exist when they were written, so its offsets among them are an earlier topic's. They are left out,
and then removed by tombstones, which any broker understands. No clock has a say in this.

A coordinator that is deaf while it serves finds such topics by its mark too, every few seconds,
and spares what is committed behind the mark.

A mark is written some seconds after the records. For those behind it a load compares the time of a
commit with that of the topic's creation, if that was after the mark and not in the future of our
clock.

**Its limits.** What was written before the first mark (by another release, or by Kafka) stays. A
commit of the last seconds before a coordinator failed is judged by two clocks: an offset of an
earlier topic stays if the coordinator's was ahead of ZooKeeper's by more than the time from the
commit to the creation, and a commit for the new topic is lost if it was behind by more than the
time between them. A follower moves its mark with the records that it gets: what is created again
within `MARK_MS` of the leader's end may be behind it. After ZooKeeper was filled from a copy of its
nodes (`/cluster/id` or `/brokers/topics` was created again) marks say nothing, and are written
anew. A node whose id does not follow from its creation is older than it: somebody has put a copy
back, or a stock controller of 2.8 gave the topic an id of its own. The mark says nothing of it. A
node that is put back without its id makes it another topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence, Set
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from broker.coordinators.replicated_log import ReplicatedLog
from broker.process.zk_retry import retry_until_connected
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from core_log.log import Log
from core_log.log_work import LogWork
from core_log.topics_mark_file import TopicsMark, read_mark, write_mark
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.shard import GroupShard
from groups.runtime.led_partition import LedPartition
from groups.runtime.loader import Loader, LoadError
from groups.runtime.partition_log import TO_THE_END
from offsets.records import OffsetKey
from protocol.errors import ApiError
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_identity import derive_topic_id
from protocol.topic_partition import TopicPartition
from zk.api import SessionState, Stat, ZkError, ZkSession
from zk.znodes import ClusterId, TopicAssignment, ZnodeError

logger = logging.getLogger(__name__)

MARK_MS = 5000
"""How often marks are written, and a serving coordinator looks for topics created again."""
TOPICS_PER_TURN = 200
"""Topics whose nodes are looked at in one turn of the loop."""
REMOVED_PER_TURN = 500
READ_BYTES = 1024 * 1024
OFFSETS_PER_TURN = 2000
"""Offsets that are compared in one turn of the loop: 2 ms."""


Nodes = dict[str, tuple[bytes | None, Stat] | None]
"""The nodes of topics; None for a topic that does not exist."""


@frozen
class _ZooKeeperState:
    """The last change of /brokers/topics, its creation, and that of /cluster/id."""

    topics_zxid: int
    topics_czxid: int
    cluster_czxid: int
    cluster_ctime_ms: int

    def is_of(self, mark: TopicsMark) -> bool:
        """Return whether a mark has transactions of this ZooKeeper: not if it was restored."""
        is_cluster = (mark.cluster_czxid, mark.cluster_ctime_ms) == (
            self.cluster_czxid,
            self.cluster_ctime_ms,
        )
        # If the nodes of all topics were put back, each of them is younger than all offsets
        # (fault core-R4, was: is_cluster).
        return is_cluster and mark.topics_czxid == self.topics_czxid

    def mark(self, log: Log, end_offset: int) -> TopicsMark:
        """Return the mark of a log whose records below this offset were there before."""
        return TopicsMark(
            end_offset,
            log.leader_epochs.epoch_of(end_offset - 1),
            self.topics_zxid,
            self.topics_czxid,
            self.cluster_czxid,
            self.cluster_ctime_ms,
        )


@attrs.define(eq=False)
class EarlierTopics:
    """Keeps the marks of this broker's replicas, and judges offsets by them.

    `timeout_ms` is how long ZooKeeper is waited for. `spawn` runs a task of the broker.
    """

    zk: ZkSession
    cluster_id: str
    replicas: ReplicaManager
    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    timeout_ms: int
    _marks: WeakKeyDictionary[Log, TopicsMark | None] = attrs.field(factory=WeakKeyDictionary)
    """The marks that were read or written."""
    _is_asked: bool = False

    # ---- loading

    async def load_stages(self, partition: int, shard: GroupShard) -> AsyncGenerator[int, None]:
        """Yield up to where a partition is loaded; leave out what is of earlier topics then."""
        log = self.replicas.log(TopicPartition(OFFSETS_TOPIC, partition))
        mark = await self._mark_of(log)
        # Nothing is written while it is loaded, so all of it is older than what is read now.
        end_offset = log.log_end_offset
        state = await self._read_state()

        if mark is None or state is None or not state.is_of(mark):
            yield TO_THE_END
            if state is not None:
                self.spawn(self._write({log: state.mark(log, end_offset)}))
            return

        has_new_topics = state.topics_zxid > mark.topics_zxid
        if has_new_topics:
            yield mark.end_offset
            created = await self._created_since(mark.topics_zxid, shard.topics(), {})
            # What records say of a younger topic, they say of another one (fault core-R4).
            await _hide(shard, dict.fromkeys(created or (), TO_THE_END))

        yield TO_THE_END
        if has_new_topics:
            created = await self._created_since(mark.topics_zxid, shard.topics(), {})
            # There was no time for a mark before the coordinator failed (fault core-R4).
            await _hide(shard, self._comparable(created or {}))

    # ---- from time to time

    def follow(self, groups: GroupCoordinator, followers: Sequence[TopicPartition]) -> None:
        """Give the replicas that follow now their first marks, before there are many records."""
        is_new = any(tp.topic == OFFSETS_TOPIC for tp in followers)
        # One look finds all that came in the same turns.
        if is_new and not self._is_asked:
            self._is_asked = True
            # A replica without a mark knows nothing when it leads (fault core-R4).
            self.spawn(self.look(groups))

    async def look(self, groups: GroupCoordinator) -> None:
        """Move the marks, and remove what a coordinator that was deaf keeps of earlier topics."""
        self._is_asked = False
        # The ends come first: what is below them is older than what is read then.
        ends = {partition: partition.high_watermark for partition in self._partitions()}
        state = await self._read_state() if ends else None
        if state is None:
            return

        served = {led.partition: led for led in groups.runtime.led_partitions()}
        nodes: Nodes = {}
        marks: dict[Log, TopicsMark] = {}
        for partition, end_offset in ends.items():
            mark = await self._mark_of(partition.log)
            is_known = mark is not None and state.is_of(mark)
            if partition.is_leader:
                led = served.get(partition.topic_partition.partition)
                is_judged = led is not None and await self._judge(
                    groups, led, mark if is_known else None, state, nodes
                )
            else:
                # No new record: nobody has judged the old ones, and the older mark says more.
                is_judged = mark is None or not is_known or end_offset > mark.end_offset
            if is_judged and state.mark(partition.log, end_offset) != mark:
                marks[partition.log] = state.mark(partition.log, end_offset)
        await self._write(marks)

    async def _judge(
        self,
        groups: GroupCoordinator,
        led: LedPartition[GroupShard],
        mark: TopicsMark | None,
        state: _ZooKeeperState,
        nodes: Nodes,
    ) -> bool:
        """Remove offsets of topics created since; return whether there is nothing left to do."""
        if not groups.runtime.is_served(led):
            return False
        shard = led.shard
        if mark is not None and mark.topics_zxid != state.topics_zxid:
            topics = shard.offsets.topics()
            created = await self._created_since(mark.topics_zxid, topics, nodes)
            if created is None or not await self._remove(groups, led, mark, created.keys()):
                return False

        is_removing = bool(shard.hidden or shard.stale or shard.deleting)
        return groups.runtime.is_served(led) and not is_removing

    async def _remove(
        self,
        groups: GroupCoordinator,
        led: LedPartition[GroupShard],
        mark: TopicsMark,
        topics: Set[str],
    ) -> bool:
        """Remove offsets of topics that are younger than a mark; return whether that could be."""
        if not topics:
            return True
        values: list[tuple[OffsetKey, bytes]] = []
        times_ms = dict.fromkeys(topics, TO_THE_END)
        for part in led.shard.offsets.slices_before(times_ms, OFFSETS_PER_TURN):
            values += part
            await asyncio.sleep(0)

        # The mark speaks of the records below it. They are read after the values, so that whatever
        # is committed meanwhile is among them, or is another value.
        try:
            behind = await self._read_behind(led.partition, mark.end_offset)
        except (ApiError, LoadError, OSError) as error:
            logger.warning("offsets of earlier topics are removed later: %s", error)
            return False
        # The new topic has groups too (fault core-R4, was: values).
        older = [(key, value) for key, value in values if behind.offsets.value(key) is None]
        slices = (
            dict(older[first : first + REMOVED_PER_TURN])
            for first in range(0, len(older), REMOVED_PER_TURN)
        )
        # A deletion may be told to nobody, while the coordinator serves (fault core-R4).
        await groups.delete_outdated(led, slices)
        return True

    async def _read_behind(self, partition: int, offset: int) -> GroupShard:
        """Return what is committed from an offset of the log on: some seconds of commits.

        Raises ApiError, LoadError and OSError.
        """
        log = ReplicatedLog(self.replicas, OFFSETS_TOPIC)
        behind = GroupShard()
        start_offset = max(offset, log.start_offset(partition))
        loader = Loader(TopicPartition(OFFSETS_TOPIC, partition), behind, start_offset)
        while chunk := log.read(partition, loader.next_offset, READ_BYTES):
            for _ in loader.feed(chunk):
                await asyncio.sleep(0)
        return behind

    def _partitions(self) -> list[Partition]:
        """Return the replicas here whose logs can be written beside."""
        return [
            partition
            for tp, partition in self.replicas.partitions.items()
            if tp.topic == OFFSETS_TOPIC and not partition.log.failure
        ]

    # ---- marks

    async def _mark_of(self, log: Log) -> TopicsMark | None:
        """Return the mark beside a log; None without one that is right."""
        if log not in self._marks:
            try:
                self._marks[log] = await self.work.in_thread(partial(read_mark, log.directory))
            except OSError as error:
                path = log.directory.path
                logger.warning("%s: the mark of its topics cannot be read: %s", path, error)
                return None

        # The records may have been replaced since, by an unclean election or a lost disk.
        mark = self._marks[log]
        if mark is None or mark.end_offset > log.log_end_offset:
            return None
        epoch = log.leader_epochs.epoch_of(mark.end_offset - 1)
        return mark if epoch == mark.leader_epoch else None

    async def _write(self, marks: Mapping[Log, TopicsMark]) -> None:
        if not marks:
            return

        def write() -> list[tuple[Log, TopicsMark]]:
            written = []
            for log, mark in marks.items():
                try:
                    write_mark(log.directory, mark)
                    written.append((log, mark))
                except OSError as error:
                    # The log may be gone. What stands beside it says less, and is right.
                    logger.info("%s: no mark of its topics: %s", log.directory.path, error)
            return written

        self._marks.update(await self.work.in_thread(write))

    # ---- ZooKeeper

    async def _read_state(self) -> _ZooKeeperState | None:
        """Read how far ZooKeeper is; None if it does not answer: then nothing is judged."""
        if self.zk.state is not SessionState.CONNECTED:
            return None
        path = TopicAssignment.directory()
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                # A server that is behind would make topics younger than they are.
                await retry_until_connected(self.zk, lambda: self.zk.sync(path))
                topics, cluster = await retry_until_connected(
                    self.zk, lambda: self.zk.get_many([path, ClusterId.path()])
                )
        except (ZkError, TimeoutError) as error:
            logger.warning("offsets of earlier topics are looked for later: %r", error)
            return None
        if topics is None or cluster is None:
            return None
        return _ZooKeeperState(
            topics[1].pzxid, topics[1].czxid, cluster[1].czxid, cluster[1].ctime_ms
        )

    async def _created_since(
        self, zxid: int, topics: Set[str], nodes: Nodes
    ) -> dict[str, int] | None:
        """Return those of these topics that are younger than a transaction, with their times.

        None if ZooKeeper does not answer. What is read is kept in `nodes`.
        """
        names = sorted(topics - nodes.keys())
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                for first in range(0, len(names), TOPICS_PER_TURN):
                    part = names[first : first + TOPICS_PER_TURN]
                    paths = list(map(TopicAssignment.path, part))
                    read = await retry_until_connected(self.zk, partial(self.zk.get_many, paths))
                    nodes.update(zip(part, read, strict=True))
        except (ZkError, TimeoutError) as error:
            logger.warning("offsets of earlier topics are looked for later: %r", error)
            return None

        created = {}
        for topic in topics:
            data, stat = nodes[topic] or (None, None)
            if stat is None or stat.czxid <= zxid:
                continue
            # The topic is older than its node (fault core-R4).
            if self._is_put_back(topic, data, stat):
                continue
            created[topic] = stat.ctime_ms
        return created

    def _is_put_back(self, topic: str, data: bytes | None, stat: Stat) -> bool:
        """Return whether a topic's id was there before its node."""
        try:
            topic_id = TopicAssignment.read_topic_id(data)
        except ZnodeError:
            return False
        return topic_id not in (None, derive_topic_id(self.cluster_id, topic, stat.czxid))

    def _comparable(self, created: Mapping[str, int]) -> dict[str, int]:
        """Return the topics with whose creation the times of commits can be compared."""
        now_ms = self.now_ms()
        return {topic: time_ms for topic, time_ms in created.items() if time_ms <= now_ms}


async def _hide(shard: GroupShard, times_ms: Mapping[str, int]) -> None:
    """Leave out the offsets of a shard that were committed before the time of their topic."""
    if not times_ms:
        return
    hidden: list[OffsetKey] = []
    for before in shard.offsets.slices_before(times_ms, OFFSETS_PER_TURN):
        hidden += [key for key, _ in before]
        # Others have their turn.
        await asyncio.sleep(0)
    hidden += shard.staged_before(times_ms)
    for first in range(0, len(hidden), OFFSETS_PER_TURN):
        shard.hide(hidden[first : first + OFFSETS_PER_TURN])
        await asyncio.sleep(0)
