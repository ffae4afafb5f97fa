"""An ISR is written over the known version, and again until the result is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from broker.replication.isr import Isr
from broker.replication.isr_writer import LONGEST_MS, NOTIFIED_AT_ONCE, QUIET_MS, IsrWriter
from broker.replication.partition import IsrProposal
from protocol.topic_partition import TopicPartition
from tests.broker.small_cluster import in_virtual_time
from tests.broker.spawning import Spawned
from tests.stage.waiting import until
from zk.admin_znodes import IsrChange as Notification
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import PartitionState

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATH = PartitionState.path(*T0)


@attrs.define(eq=False)
class IsrStage:
    """Broker 1, which leads t-0 in epoch 4; the state node has version 1."""

    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    now_ms: int = 1_000_000
    spawned: Spawned = attrs.field(factory=Spawned)
    reports: list[Any] = attrs.field(factory=list)
    session: MemorySession = attrs.field(init=False)
    writer: IsrWriter = attrs.field(init=False)

    async def start(self) -> IsrStage:
        self.session = self.zookeeper.session()
        await self.session.start()
        await self.session.ensure_path(Notification.prefix().rpartition("/")[0])
        for tp in (T0, T1):
            await self.session.ensure_path(PartitionState.path(*tp))
            await self.session.set(PartitionState.path(*tp), state((1, 2)).encode())
        self.writer = IsrWriter(
            self.session, self.spawned, lambda: self.now_ms, self.isr_written, self.isr_superseded
        )
        return self

    def isr_written(self, change: IsrProposal, isr: Isr, zk_version: int, now_ms: int) -> None:
        self.reports.append((change.topic_partition, isr, zk_version))

    def isr_superseded(self, change: IsrProposal) -> None:
        self.reports.append((change.topic_partition, "superseded"))

    async def write(self, isr: Isr, zk_version: int = 1, tp: TopicPartition = T0) -> Any:
        """Write a change; return the writer's report."""
        self.writer.write(IsrProposal(tp, state(isr), zk_version))
        await self.spawned.ended()
        return self.reports[-1]

    @property
    def stored(self) -> tuple[Isr, int]:
        node = self.zookeeper.tree[PATH]
        return PartitionState.decode(node.data).isr, node.version

    @property
    def notified(self) -> list[list[tuple[str, int]]]:
        """The partitions of each notification, in order."""
        nodes = [
            node.data
            for path, node in sorted(self.zookeeper.tree.items())
            if path.startswith(Notification.prefix())
        ]
        return [list(Notification.decode(data).partitions) for data in nodes]


def state(isr: Isr, leader: int = 1, epoch: int = 4) -> PartitionState:
    return PartitionState(leader, epoch, isr, 9)


def tell(story: Callable[[IsrStage], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(await IsrStage().start())

    in_virtual_time(run)


def test_it_is_written_over_the_known_version() -> None:
    async def story(stage: IsrStage) -> None:
        assert await stage.write((1,)) == (T0, (1,), 2)
        assert stage.stored == ((1,), 2)

    tell(story)


def test_what_another_version_added_to_the_node_is_kept() -> None:
    async def story(stage: IsrStage) -> None:
        later = attrs.evolve(state((1, 2)), extra={"leader_recovery_state": 0})
        stat = await stage.session.set(PATH, later.encode())
        stage.writer.write(IsrProposal(T0, state((1,)), stat.version))
        await stage.spawned.ended()
        data, _ = await stage.session.get(PATH)
        assert PartitionState.decode(data) == attrs.evolve(later, isr=(1,))

    tell(story)


def test_a_write_whose_answer_was_lost_is_found_in_the_node() -> None:
    async def story(stage: IsrStage) -> None:
        stage.zookeeper.lose_reply(stage.session)
        stage.writer.write(IsrProposal(T0, state((1,)), 1))
        await asyncio.sleep(0.01)
        assert (stage.reports, stage.stored) == ([], ((1,), 2))
        stage.zookeeper.resume(stage.session)
        await stage.spawned.ended()
        assert (stage.reports, stage.stored) == ([(T0, (1,), 2)], ((1,), 2))

    tell(story)


def test_a_state_of_our_own_epoch_is_taken_as_it_is() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.session.set(PATH, state((1, 2, 3)).encode())
        assert await stage.write((1,)) == (T0, (1, 2, 3), 2)
        assert stage.stored == ((1, 2, 3), 2)

    tell(story)


def test_a_later_epoch_ends_it_though_the_leader_be_the_same() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.session.set(PATH, state((1,), epoch=5).encode())
        assert await stage.write((1, 2, 3)) == (T0, "superseded")
        assert stage.stored == ((1,), 2)

    tell(story)


def test_another_leader_ends_it() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.session.set(PATH, state((2,), leader=2, epoch=5).encode())
        assert await stage.write((1,)) == (T0, "superseded")

    tell(story)


def test_a_node_that_is_gone_ends_it() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.session.delete(PATH)
        assert await stage.write((1,)) == (T0, "superseded")

    tell(story)


def test_a_state_that_cannot_be_read_ends_it() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.session.set(PATH, b"nonsense")
        assert await stage.write((1,)) == (T0, "superseded")

    tell(story)


def test_a_session_that_expires_before_the_answer_is_no_reason_to_forget_the_write() -> None:
    """The write may be applied; until that is known the high watermark waits for both ISRs."""

    async def story(stage: IsrStage) -> None:
        stage.zookeeper.lose_reply(stage.session)
        stage.writer.write(IsrProposal(T0, state((1, 2, 3)), 1))
        await asyncio.sleep(0.01)
        stage.zookeeper.expire(stage.session)
        stage.zookeeper.resume(stage.session)
        await until(lambda: stage.reports, "no report")
        assert stage.reports == [(T0, (1, 2, 3), 2)]

    tell(story)


def test_a_write_that_never_arrived_is_made_in_the_next_session() -> None:
    async def story(stage: IsrStage) -> None:
        stage.zookeeper.suspend(stage.session)
        stage.writer.write(IsrProposal(T0, state((1,)), 1))
        await asyncio.sleep(0.01)
        stage.zookeeper.expire(stage.session)
        stage.zookeeper.resume(stage.session)
        await until(lambda: stage.reports, "no report")
        assert (stage.reports, stage.stored) == ([(T0, (1,), 2)], ((1,), 2))

    tell(story)


# ---- notifications


def test_a_change_is_told_when_none_was_told_for_long() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.write((1,))
        await stage.writer.notify()
        assert stage.notified == [[("t", 0)]]

    tell(story)


def test_without_a_change_nothing_is_told() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.writer.notify()
        stage.now_ms += LONGEST_MS
        await stage.writer.notify()
        assert stage.notified == []

    tell(story)


def test_changes_are_told_together_once_there_was_none_for_a_while() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.write((1,))
        await stage.writer.notify()
        for tp in (T1, T0):
            await stage.write((1,), tp=tp)
            stage.now_ms += QUIET_MS
            await stage.writer.notify()
        assert len(stage.notified) == 1
        stage.now_ms += 1
        await stage.writer.notify()
        assert stage.notified == [[("t", 0)], [("t", 0), ("t", 1)]]
        stage.now_ms += QUIET_MS + 1
        await stage.writer.notify()
        assert len(stage.notified) == 2

    tell(story)


def test_changes_of_very_many_partitions_are_told_in_pieces_that_zookeeper_takes() -> None:
    async def story(stage: IsrStage) -> None:
        name = "n" * 249
        changed = [TopicPartition(name, number) for number in range(2 * NOTIFIED_AT_ONCE + 1)]
        stage.writer._changed.update(changed)
        await stage.writer.notify()
        assert [len(partitions) for partitions in stage.notified] == [
            NOTIFIED_AT_ONCE,
            NOTIFIED_AT_ONCE,
            1,
        ]
        assert [tp for partitions in stage.notified for tp in partitions] == changed
        sizes = [len(n.data or b"") for n in stage.zookeeper.tree.values()]
        assert max(sizes) < 900_000

    tell(story)


def test_changes_that_never_end_are_told_each_minute() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.write((1,))
        await stage.writer.notify()
        for _ in range(LONGEST_MS // 1000):
            stage.now_ms += 1000
            await stage.write((1,), tp=T1)
            await stage.writer.notify()
        assert len(stage.notified) == 1
        stage.now_ms += 1
        await stage.writer.notify()
        assert stage.notified == [[("t", 0)], [("t", 1)]]

    tell(story)


def test_what_changes_again_while_it_is_told_is_told_again() -> None:
    """The controller may have read the node between the two writes."""

    async def story(stage: IsrStage) -> None:
        await stage.write((1,))
        stage.zookeeper.lose_reply(stage.session)
        telling = asyncio.ensure_future(stage.writer.notify())
        await asyncio.sleep(0.01)
        stage.zookeeper.resume(stage.session)
        await stage.write((1, 2), 2)
        await telling
        count = len(stage.notified)
        stage.now_ms += QUIET_MS + 1
        await stage.writer.notify()
        assert stage.notified[count:] == [[("t", 0)]]

    tell(story)


def test_what_could_not_be_told_is_told_later() -> None:
    async def story(stage: IsrStage) -> None:
        await stage.write((1,))
        stage.zookeeper.suspend(stage.session)
        telling = asyncio.ensure_future(stage.writer.notify())
        await asyncio.sleep(0.01)
        stage.zookeeper.expire(stage.session)
        stage.zookeeper.resume(stage.session)
        await telling
        assert stage.notified == []
        await stage.writer.notify()
        assert stage.notified == [[("t", 0)]]

    tell(story)
