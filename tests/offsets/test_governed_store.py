"""A member's store during a migration: when it follows the order, and what it publishes."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from offsets.governed_store import GovernedStore
from offsets.store import Offsets
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.clock import run_in_virtual_time
from tests.stage.sessions import SESSION_MS, an_administrator
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import (
    GroupMigration,
    MigrationMember,
    MigrationPaths,
    OffsetMode,
    OffsetStorage,
)
from zk.session import KazooSession
from zk.znodes import ConsumerOffset

P = TopicPartition("t", 0)
MIGRATION = GroupMigration.path("g")
MEMBER = MigrationMember.path("g", "g_a")
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


class StoreStage:
    """A member whose settings say ZooKeeper, and the nodes around it."""

    def __init__(self, member_session: Any, session: MemorySession, zk: MemoryZooKeeper) -> None:
        self.zk = zk
        self.session = session
        self.kafka = Kafka()
        self.store = a_store(member_session, ZooKeeperStore(member_session), self.kafka)
        self.obeying = asyncio.create_task(self.store.follow_migration())

    async def order(self, mode: OffsetMode, epoch: int) -> None:
        await self.session.ensure_path(MIGRATION)
        await self.session.set(MIGRATION, an_order(mode, epoch))
        await asyncio.sleep(0.01)

    async def commit(self, offset: int) -> None:
        await self.store.commit("g", {P: OffsetAndMetadata(offset)})

    async def fetch(self) -> int | None:
        offsets = await self.store.fetch("g", [P])
        return offsets[P].offset if P in offsets else None

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


def a_store(session: Any, zookeeper: ZooKeeperStore, kafka: Any) -> GovernedStore:
    return GovernedStore(
        zk=session,
        group="g",
        consumer_id="g_a",
        kafka=kafka,
        zookeeper=zookeeper,
        settings="zookeeper",
        configured=zookeeper,
        is_member=True,
    )


def an_order(mode: OffsetMode, epoch: int) -> bytes:
    return GroupMigration(
        target=OffsetStorage.KAFKA,
        goal=mode.reads,
        mode=mode,
        came_from=NEIGHBOUR[mode],
        epoch=epoch,
        started_at_ms=0,
    ).encode()


def play(
    scene: Callable[[StoreStage], Coroutine[Any, Any, None]],
    around: Callable[[MemorySession], Any] = lambda session: session,
    before_it: Callable[[MemorySession], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Play a scene. `before_it` changes ZooKeeper before the member comes."""

    async def whole() -> None:
        zk = MemoryZooKeeper(lambda: int(asyncio.get_running_loop().time() * 1000))
        member, other = zk.session(), zk.session()
        await member.start()
        await other.start()
        if before_it:
            await before_it(other)
        stage = StoreStage(around(member), other, zk)
        await scene(stage)
        stage.obeying.cancel()

    run_in_virtual_time(whole())


def test_without_a_migration_a_member_goes_by_its_settings() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.commit(5)
        assert (stage.in_zookeeper, stage.in_kafka, await stage.fetch()) == (5, None, 5)
        assert stage.acknowledged == 0

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
    async def scene(stage: StoreStage) -> None:
        stage.kafka.committed[P] = OffsetAndMetadata(900)
        await stage.commit(5)
        await stage.order(mode, 1)
        assert stage.acknowledged == 1
        await stage.commit(6)
        assert (stage.in_zookeeper, stage.in_kafka) == (zookeeper, kafka)
        assert await stage.fetch() == fetched

    play(scene)


def test_a_larger_offset_is_not_read_where_zookeeper_leads() -> None:
    async def scene(stage: StoreStage) -> None:
        stage.kafka.committed[P] = OffsetAndMetadata(900)
        await stage.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        assert await stage.fetch() is None
        await stage.session.create(ZK_OFFSET, b"5", make_parents=True)
        assert await stage.fetch() == 5

    play(scene)


def test_an_order_is_acknowledged_when_nothing_of_the_former_is_under_way() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.order(OffsetMode.KAFKA, 1)
        stage.kafka.latency_s = 3.0
        under_way = asyncio.create_task(stage.commit(7))
        await asyncio.sleep(1)
        await stage.order(OffsetMode.DUAL_KAFKA, 2)
        await asyncio.sleep(1)
        assert stage.acknowledged == 1
        await under_way
        await asyncio.sleep(0.01)
        assert (stage.acknowledged, stage.in_zookeeper) == (2, None)

    play(scene)


class Recorded:
    """A session that records its calls."""

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

    async def scene(stage: StoreStage) -> None:
        stage.obeying.cancel()
        await stage.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        recorded[0].calls.clear()
        await stage.fetch()
        paths = [path for _, path in recorded[0].calls]
        listed = MigrationMember.path("g", "g_a")
        read = MIGRATION
        assert paths.index(listed) < paths.index(read)
        assert ("create", listed) in recorded[0].calls
        assert all(path in (listed, read) for path in paths[: paths.index(read) + 1])

    play(scene, around)


def test_in_a_new_session_the_order_is_read_anew_before_anything_else() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        stage.obeying.cancel()
        member = stage.store.zk
        assert isinstance(member, MemorySession)
        stage.zk.suspend(member)
        await stage.order(OffsetMode.KAFKA, 3)
        stage.zk.expire(member)
        stage.zk.resume(member)
        await stage.commit(9)
        assert (stage.in_zookeeper, stage.in_kafka) == (None, 9)

    play(scene)


def test_a_member_that_comes_back_acknowledges_in_its_new_session() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        member = stage.store.zk
        assert isinstance(member, MemorySession)
        stage.zk.expire(member)
        await asyncio.sleep(0.01)
        node = stage.zk.tree[MigrationMember.path("g", "g_a")]
        assert (node.ephemeral_owner, stage.acknowledged) == (member.session_id, 1)

    play(scene)


def test_a_node_of_an_earlier_session_of_the_same_name_is_waited_out() -> None:
    async def scene(stage: StoreStage) -> None:
        before = stage.zk.session()
        await before.start()
        await before.create(MEMBER, MigrationMember(7, "kafka").encode(), ephemeral=True)
        fetching = asyncio.create_task(stage.fetch())
        await asyncio.sleep(5)
        assert stage.acknowledged == 7
        await before.close()
        await fetching
        assert stage.acknowledged == 0

    play(scene, before_it=lambda session: session.ensure_path(MigrationPaths.members_path("g")))


def test_a_node_of_a_living_member_of_the_same_name_is_left_alone() -> None:
    async def scene(stage: StoreStage) -> None:
        living = stage.zk.session()
        await living.start()
        node_data = MigrationMember(7, "kafka").encode()
        await living.create(MEMBER, node_data, ephemeral=True)
        stage.obeying.cancel()
        with pytest.raises(OffsetFetchFailed, match="consumer id g_a is in use"):
            await stage.fetch()
        await stage.store.withdraw()
        assert stage.zk.tree[MEMBER].data == node_data
        assert isinstance(stage.store.zk, MemorySession)
        assert MEMBER not in stage.store.zk._watches.paths["data"]

    play(scene, before_it=lambda session: session.ensure_path(MigrationPaths.members_path("g")))


def forbid(*paths: str) -> Callable[[MemorySession], Coroutine[Any, Any, None]]:
    """Return a change that forbids all to write to these nodes."""

    async def make_read_only(session: MemorySession) -> None:
        for path in paths:
            await session.ensure_path(path)
            session._zookeeper.read_only.add(path)

    return make_read_only


@pytest.mark.parametrize("forbidden", ["/", "/kgroup", "/kgroup/migrations", MIGRATION])
def test_without_a_migration_nothing_of_kgroup_is_needed(
    forbidden: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.session.create(ZK_OFFSET, b"5", make_parents=True)
        assert await stage.fetch() == 5
        await stage.commit(6)
        assert stage.in_zookeeper == 6
        assert isinstance(stage.store.zk, MemorySession)
        stage.zk.expire(stage.store.zk)
        await stage.commit(7)
        assert stage.in_zookeeper == 7
        await asyncio.sleep(60)
        assert caplog.text.count("ACLs of ZooKeeper forbid") == 1
        assert MEMBER not in stage.zk.tree

    play(scene, before_it=with_consumers(forbid(forbidden)))


def with_consumers(
    first: Callable[[MemorySession], Coroutine[Any, Any, None]],
) -> Callable[[MemorySession], Coroutine[Any, Any, None]]:
    """Return a change that makes an open `/consumers`, and then does `first`."""

    async def make(session: MemorySession) -> None:
        await session.ensure_path("/consumers")
        await first(session)

    return make


def test_a_migration_that_begins_with_rights_we_lack_is_obeyed_and_acknowledged_if_it_lets_us() -> (
    None
):
    async def scene(stage: StoreStage) -> None:
        await stage.commit(5)
        stage.zk.read_only.clear()  # as for a command with other rights, whose nodes are open
        await stage.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        await stage.commit(6)
        assert (stage.in_zookeeper, stage.in_kafka, stage.acknowledged) == (6, 6, 1)

    play(scene, before_it=with_consumers(forbid("/")))


def test_under_a_migration_a_member_that_may_not_be_listed_does_not_begin() -> None:
    async def scene(stage: StoreStage) -> None:
        stage.zk.read_only.add(MIGRATION)
        with pytest.raises(OffsetFetchFailed, match="NoAuth"):
            await stage.fetch()
        with pytest.raises(CommitFailed, match="NoAuth") as refused:
            await stage.commit(5)
        assert refused.value.errors == {P: ErrorCode.UNKNOWN_SERVER_ERROR}
        assert not refused.value.retriable  # it fails again until somebody gives the right

    async def begun(session: MemorySession) -> None:
        await session.create(MIGRATION, an_order(OffsetMode.KAFKA, 1), make_parents=True)
        session._zookeeper.read_only.add(MIGRATION)

    play(scene, before_it=begun)


@pytest.mark.parametrize("others", [0, 1])
def test_the_last_member_of_a_group_without_a_migration_leaves_nothing_of_kgroup(
    others: int,
) -> None:
    async def scene(stage: StoreStage) -> None:
        await asyncio.sleep(0.01)
        for number in range(others):
            other = MigrationMember.path("g", f"g_{number}")
            await stage.session.create(other, MigrationMember(0, "kafka").encode(), ephemeral=True)
        stage.obeying.cancel()
        await stage.store.withdraw()
        assert len(stage.zk.tree["/kgroup/migrations"].children) == others

    play(scene)


def test_on_a_real_zookeeper_without_a_migration_nothing_of_kgroup_is_needed(
    zk_chroot: str,
) -> None:
    async def scene() -> None:
        session = KazooSession(zk_chroot, session_timeout_ms=SESSION_MS)
        await session.start()
        await session.ensure_path("/consumers")
        with an_administrator(zk_chroot) as administrator:
            administrator.set_acls("/", [make_acl("world", "anyone", read=True, admin=True)])
        store = a_store(session, ZooKeeperStore(session), Kafka())
        await store.commit("g", {P: OffsetAndMetadata(5)})
        assert await store.fetch("g", [P]) == {P: OffsetAndMetadata(5)}
        await store.withdraw()
        await session.close()

    try:
        asyncio.run(scene())
    finally:
        with an_administrator(zk_chroot) as administrator:
            administrator.set_acls("/", OPEN_ACL_UNSAFE)


def test_the_last_member_of_a_group_that_was_migrated_leaves_the_migration() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.order(OffsetMode.KAFKA, 1)
        stage.obeying.cancel()
        await stage.store.withdraw()
        assert stage.zk.tree[MIGRATION].data

    play(scene)


def test_an_order_that_cannot_be_read_keeps_a_member_from_beginning() -> None:
    async def scene(stage: StoreStage) -> None:
        stage.obeying.cancel()
        await stage.session.create(MIGRATION, b"{", make_parents=True)
        with pytest.raises(OffsetFetchFailed, match=MIGRATION):
            await stage.fetch()

    play(scene)


def test_an_order_that_cannot_be_read_is_named_once_however_often_it_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.session.create(MIGRATION, b"{", make_parents=True)
        await asyncio.sleep(60)
        assert caplog.text.count(f"group g: migration: ZnodeError: {MIGRATION}: not JSON") == 1

    play(scene)


def test_an_order_that_cannot_be_read_leaves_a_member_in_its_mode_until_it_can() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.order(OffsetMode.KAFKA, 1)
        await stage.session.set(MIGRATION, b"{")
        await asyncio.sleep(5)
        await stage.commit(9)
        assert (stage.in_zookeeper, stage.in_kafka) == (None, 9)
        await stage.order(OffsetMode.DUAL_KAFKA, 2)
        await asyncio.sleep(5)
        assert stage.acknowledged == 2

    play(scene)


def test_what_a_command_has_written_meanwhile_is_not_taken_for_our_own_last_write() -> None:
    async def scene(stage: StoreStage) -> None:
        await stage.order(OffsetMode.DUAL_ZOOKEEPER, 1)
        await stage.commit(100)
        await stage.order(OffsetMode.KAFKA, 3)
        await stage.session.set(ZK_OFFSET, b"60")
        await stage.order(OffsetMode.DUAL_KAFKA, 4)
        await stage.commit(100)
        assert stage.in_zookeeper == 100

    play(scene)


def test_who_is_no_member_reads_the_order_and_is_not_listed() -> None:
    async def scene(stage: StoreStage) -> None:
        stage.obeying.cancel()
        stage.store.is_member = False
        await stage.order(OffsetMode.KAFKA, 1)
        await stage.commit(9)
        assert (stage.in_zookeeper, stage.in_kafka, stage.acknowledged) == (None, 9, None)

    play(scene)


def test_who_withdraws_is_no_longer_listed() -> None:
    async def scene(stage: StoreStage) -> None:
        await asyncio.sleep(0.01)
        assert stage.acknowledged == 0
        stage.obeying.cancel()
        await stage.store.withdraw()
        await stage.store.withdraw()
        assert stage.acknowledged is None

    play(scene)
