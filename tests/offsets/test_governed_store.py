"""A member's store under its group's migration: what it obeys, when, and what it says of that."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest

from offsets.governed_store import GovernedStore
from offsets.store import OffsetFetchFailed, Offsets
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.virtual_time import VirtualTimeLoop
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import GroupMigration, MigrationMember, OffsetMode, OffsetStorage
from zk.znodes import ConsumerOffset

P = TopicPartition("t", 0)
MIGRATION = GroupMigration.path("g")
NEIGHBOUR = {
    OffsetMode.ZOOKEEPER: OffsetMode.DUAL_ZOOKEEPER,
    OffsetMode.DUAL_ZOOKEEPER: OffsetMode.ZOOKEEPER,
    OffsetMode.DUAL_KAFKA: OffsetMode.KAFKA,
    OffsetMode.KAFKA: OffsetMode.DUAL_KAFKA,
}
ZK_OFFSET = ConsumerOffset.path("g", "t", 0)


class Kafka:
    """A store that takes `latency_s` to commit."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.latency_s = 0.0

    async def fetch(self, group: str, partitions: Collection[TopicPartition]) -> Any:
        return {p: self.committed[p] for p in partitions if p in self.committed}

    async def commit(self, group: str, offsets: Offsets) -> None:
        await asyncio.sleep(self.latency_s)
        self.committed |= offsets


class World:
    """A member whose settings say ZooKeeper, and what it finds there."""

    def __init__(self, member_session: Any, session: MemorySession, zk: MemoryZooKeeper) -> None:
        self.zk, self.session, self.kafka = zk, session, Kafka()
        in_zookeeper = ZooKeeperStore(member_session)
        self.store = GovernedStore(
            zk=member_session,
            group="g",
            consumer_id="g_a",
            kafka=self.kafka,
            zookeeper=in_zookeeper,
            settings="zookeeper",
            configured=in_zookeeper,
            takes_part=True,
        )
        self.obeying = asyncio.create_task(self.store.obey())

    async def order(self, mode: OffsetMode, epoch: int) -> None:
        content = GroupMigration(
            target=OffsetStorage.KAFKA,
            goal=mode.reads,
            mode=mode,
            came_from=NEIGHBOUR[mode],
            epoch=epoch,
            started_at_ms=0,
        ).encode()
        await self.session.ensure_path(MIGRATION)
        await self.session.set(MIGRATION, content)
        await asyncio.sleep(0.01)

    async def commit(self, offset: int) -> None:
        await self.store.commit("g", {P: OffsetAndMetadata(offset)})

    async def fetch(self) -> int | None:
        found = await self.store.fetch("g", [P])
        return found[P].offset if P in found else None

    @property
    def in_zookeeper(self) -> int | None:
        node = self.zk.tree.get(ZK_OFFSET)
        return int(node.data) if node and node.data else None

    @property
    def in_kafka(self) -> int | None:
        return self.kafka.committed[P].offset if P in self.kafka.committed else None

    @property
    def acknowledged(self) -> int | None:
        node = self.zk.tree.get(MigrationMember.path("g", "g_a"))
        return MigrationMember.decode(node.data).epoch if node else None


def play(
    scene: Callable[[World], Coroutine[Any, Any, None]],
    around: Callable[[MemorySession], Any] = lambda session: session,
) -> None:
    async def whole() -> None:
        zk = MemoryZooKeeper(lambda: int(asyncio.get_running_loop().time() * 1000))
        member, other = zk.session(), zk.session()
        await member.start()
        await other.start()
        world = World(around(member), other, zk)
        await scene(world)
        world.obeying.cancel()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(whole())


def test_without_a_migration_a_member_goes_by_its_settings() -> None:
    async def scene(world: World) -> None:
        await world.commit(5)
        assert (world.in_zookeeper, world.in_kafka, await world.fetch()) == (5, None, 5)
        assert world.acknowledged == 0

    play(scene)


@pytest.mark.parametrize(
    ("mode", "zookeeper", "kafka", "fetched"),
    [
        (OffsetMode.ZOOKEEPER, 6, 900, 6),
        (OffsetMode.DUAL_ZOOKEEPER, 6, 6, 6),
        (OffsetMode.DUAL_KAFKA, 6, 6, 6),
        (OffsetMode.KAFKA, 5, 6, 6),
    ],
)
def test_an_order_is_obeyed_without_a_restart(
    mode: OffsetMode, zookeeper: int, kafka: int, fetched: int
) -> None:
    async def scene(world: World) -> None:
        world.kafka.committed[P] = OffsetAndMetadata(900)
        await world.commit(5)
        await world.order(mode, 1)
        assert world.acknowledged == 1
        await world.commit(6)
        assert (world.in_zookeeper, world.in_kafka) == (zookeeper, kafka)
        assert await world.fetch() == fetched

    play(scene)


def test_a_larger_offset_is_not_read_where_zookeeper_leads() -> None:
    async def scene(world: World) -> None:
        world.kafka.committed[P] = OffsetAndMetadata(900)
        await world.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        assert await world.fetch() is None
        await world.session.create(ZK_OFFSET, b"5", make_parents=True)
        assert await world.fetch() == 5

    play(scene)


def test_an_order_is_acknowledged_when_nothing_of_the_former_is_under_way() -> None:
    async def scene(world: World) -> None:
        await world.order(OffsetMode.KAFKA, 1)
        world.kafka.latency_s = 3.0
        under_way = asyncio.create_task(world.commit(7))
        await asyncio.sleep(1)
        await world.order(OffsetMode.DUAL_KAFKA, 2)
        await asyncio.sleep(1)
        assert world.acknowledged == 1
        await under_way
        await asyncio.sleep(0.01)
        assert (world.acknowledged, world.in_zookeeper) == (2, None)

    play(scene)


class Recorded:
    """A session whose calls are written down."""

    def __init__(self, session: MemorySession) -> None:
        self.session = session
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def recorded(path: Any, *arguments: Any, **keywords: Any) -> Any:
            if isinstance(path, str):
                self.calls.append((name, path))
            return await method(path, *arguments, **keywords)

        return recorded


def test_a_member_stands_in_the_list_before_it_reads_the_order_and_that_before_its_offsets() -> (
    None
):
    recorded: list[Recorded] = []

    def around(session: MemorySession) -> Recorded:
        recorded.append(Recorded(session))
        return recorded[0]

    async def scene(world: World) -> None:
        world.obeying.cancel()
        await world.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        recorded[0].calls.clear()
        await world.fetch()
        paths = [path for _, path in recorded[0].calls]
        listed, read = MigrationMember.path("g", "g_a"), MIGRATION
        assert paths.index(listed) < paths.index(read)
        assert ("create", listed) in recorded[0].calls
        assert all(path in (listed, read) for path in paths[: paths.index(read) + 1])

    play(scene, around)


def test_in_a_new_session_the_order_is_read_anew_before_anything_else() -> None:
    async def scene(world: World) -> None:
        await world.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        world.obeying.cancel()
        member = world.store.zk
        assert isinstance(member, MemorySession)
        world.zk.suspend(member)
        await world.order(OffsetMode.KAFKA, 3)
        world.zk.expire(member)
        world.zk.resume(member)
        await world.commit(9)
        assert (world.in_zookeeper, world.in_kafka) == (None, 9)

    play(scene)


def test_a_member_that_comes_back_acknowledges_in_its_new_session() -> None:
    async def scene(world: World) -> None:
        await world.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        member = world.store.zk
        assert isinstance(member, MemorySession)
        world.zk.expire(member)
        await asyncio.sleep(0.01)
        node = world.zk.tree[MigrationMember.path("g", "g_a")]
        assert (node.ephemeral_owner, world.acknowledged) == (member.session_id, 1)

    play(scene)


def test_a_node_of_an_earlier_session_of_the_same_name_is_replaced() -> None:
    async def scene(world: World) -> None:
        before = world.zk.session()
        await before.start()
        world.obeying.cancel()
        content = MigrationMember(7, "kafka").encode()
        await before.create(
            MigrationMember.path("g", "g_a"), content, ephemeral=True, make_parents=True
        )
        await world.fetch()
        await before.close()
        assert world.acknowledged == 0

    play(scene)


def test_an_order_that_cannot_be_read_keeps_a_member_from_beginning() -> None:
    async def scene(world: World) -> None:
        world.obeying.cancel()
        await world.session.create(MIGRATION, b"{", make_parents=True)
        with pytest.raises(OffsetFetchFailed, match=MIGRATION):
            await world.fetch()

    play(scene)


def test_an_order_that_cannot_be_read_is_named_once_however_often_it_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        await world.session.create(MIGRATION, b"{", make_parents=True)
        await asyncio.sleep(60)
        assert caplog.text.count(f"group g: migration: ZnodeError: {MIGRATION}: not JSON") == 1

    play(scene)


def test_an_order_that_cannot_be_read_leaves_a_member_in_its_mode_until_it_can() -> None:
    async def scene(world: World) -> None:
        await world.order(OffsetMode.KAFKA, 1)
        await world.session.set(MIGRATION, b"{")
        await asyncio.sleep(5)
        await world.commit(9)
        assert (world.in_zookeeper, world.in_kafka) == (None, 9)
        await world.order(OffsetMode.DUAL_KAFKA, 2)
        await asyncio.sleep(5)
        assert world.acknowledged == 2

    play(scene)


def test_what_a_command_has_written_meanwhile_is_not_taken_for_our_own_last_write() -> None:
    async def scene(world: World) -> None:
        await world.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        await world.commit(100)
        await world.order(OffsetMode.KAFKA, 3)
        await world.session.set(ZK_OFFSET, b"60")
        await world.order(OffsetMode.DUAL_KAFKA, 4)
        await world.commit(100)
        assert world.in_zookeeper == 100

    play(scene)


def test_who_is_no_member_reads_the_order_and_is_not_listed() -> None:
    async def scene(world: World) -> None:
        world.obeying.cancel()
        world.store.takes_part = False
        await world.order(OffsetMode.KAFKA, 1)
        await world.commit(9)
        assert (world.in_zookeeper, world.in_kafka, world.acknowledged) == (None, 9, None)

    play(scene)


def test_who_withdraws_is_no_longer_listed() -> None:
    async def scene(world: World) -> None:
        await asyncio.sleep(0.01)
        assert world.acknowledged == 0
        world.obeying.cancel()
        await world.store.withdraw()
        await world.store.withdraw()
        assert world.acknowledged is None

    play(scene)
