"""A group deleted in ZooKeeper, or its offsets: what goes, what stays, and races with members."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from groups.zookeeper.deletion import delete_group, delete_offsets, find_owned, read_offsets
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.api import children_if_there
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import GroupMigration, MigrationMember, MigrationPaths
from zk.znodes import ConsumerGroup, ConsumerOffset, ConsumerRegistration, PartitionOwner

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
REGISTRATION = ConsumerRegistration.path("g", "g_m")
REGISTERED = ConsumerRegistration({"t": 1}, "static", 0).encode()


def play(scene: Callable[[MemorySession, MemorySession], Awaitable[Any]]) -> None:
    """Play a scene of a deleter and a member; groups `g` and `h` have committed."""

    async def run() -> None:
        zookeeper = MemoryZooKeeper()
        deleter, member = zookeeper.session(), zookeeper.session()
        for session in (deleter, member):
            await session.start()
        for group in ("g", "h"):
            await member.ensure_path(ConsumerGroup.ids_path(group))
            await member.ensure_path(ConsumerGroup.topic_owners_path(group, "t"))
            for partition in (T0, T1, U0):
                await member.create(
                    ConsumerOffset.path(group, *partition), b"42", make_parents=True
                )
        await scene(deleter, member)

    run_in_virtual_time(run())


async def is_there(zk: MemorySession, path: str) -> bool:
    return await zk.exists(path) is not None


def test_group_goes_with_all_that_is_below_it_and_no_other() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await member.create("/consumers/g/of somebody/else", b"", make_parents=True)
        assert await delete_group(zk, "g")
        assert await children_if_there(zk, "/consumers") == ["h"]
        assert await read_offsets(zk, "h", "t") == {T0: 42, T1: 42}
        assert not await delete_group(zk, "g")

    play(scene)


@pytest.mark.parametrize("name", ["g/offsets", "g/offsets/t", "..", ".", "", "a\x00b"])
def test_group_whose_name_no_node_can_have_is_not_there(name: str) -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        assert not await delete_group(zk, name)
        assert await read_offsets(zk, "g", "t") == {T0: 42, T1: 42}

    play(scene)


def test_group_with_a_member_is_left_as_it_is() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await member.create(REGISTRATION, REGISTERED, ephemeral=True)
        with pytest.raises(ApiError, match="NON_EMPTY_GROUP: group 'g' has members") as refused:
            await delete_group(zk, "g")
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        assert await read_offsets(zk, "g", "t") == {T0: 42, T1: 42}
        await member.close()
        assert await delete_group(zk, "g")

    play(scene)


def test_group_that_never_had_members_goes() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await zk.delete(ConsumerGroup.ids_path("g"))
        assert await delete_group(zk, "g")
        assert not await is_there(zk, ConsumerGroup.path("g"))

    play(scene)


class Meeting:
    """The deleter's session; a member joins at the moment when a certain node is deleted."""

    def __init__(self, zk: MemorySession, member: MemorySession, path: str) -> None:
        self._zk = zk
        self._member = member
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zk, name)

    async def delete_recursive(self, path: str) -> None:
        await self._zk.delete_recursive(path)
        if path == self._path:
            await self._member.create(REGISTRATION, REGISTERED, ephemeral=True, make_parents=True)


def test_member_that_joins_meanwhile_stays_and_is_told_of() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        with pytest.raises(ApiError, match="NON_EMPTY_GROUP"):
            await delete_group(Meeting(zk, member, ConsumerGroup.owners_path("g")), "g")
        assert await is_there(zk, REGISTRATION)

    play(scene)


def test_migration_that_has_ended_goes_with_its_group() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await member.ensure_path(MigrationPaths.members_path("g"))
        assert await delete_group(zk, "g")
        assert not await is_there(zk, GroupMigration.path("g"))

    play(scene)


@pytest.mark.parametrize(
    "live", [MigrationMember.path("g", "g_m"), MigrationPaths.command_path("g")]
)
def test_migration_that_somebody_is_at_work_with_stays(live: str) -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await member.ensure_path(GroupMigration.path("g"))
        await member.create(live, b"", ephemeral=True, make_parents=True)
        assert await delete_group(zk, "g")
        assert await is_there(zk, live)

    play(scene)


def test_offsets_that_are_no_numbers_are_seen_so_that_they_can_be_deleted() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await member.set(ConsumerOffset.path("g", *T1), b"many")
        await member.create("/consumers/g/offsets/t/last", b"1")
        await member.create("/consumers/g/offsets/t/01", b"1")
        assert await read_offsets(zk, "g", "t") == {T0: 42, T1: None}
        assert await read_offsets(zk, "g", "none") == {}

    play(scene)


def test_offsets_deleted_take_an_empty_topic_with_them_and_nothing_else() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await delete_offsets(zk, "g", [T0, U0, TopicPartition("none", 0)])
        assert await children_if_there(zk, ConsumerGroup.offsets_path("g")) == ["t"]
        assert await read_offsets(zk, "g", "t") == {T1: 42}

    play(scene)


def test_partition_with_an_owner_is_known() -> None:
    async def scene(zk: MemorySession, member: MemorySession) -> None:
        await member.create(PartitionOwner.path("g", *T1), b"g_m-0", ephemeral=True)
        assert await find_owned(zk, "g", [T0, T1, U0]) == {T1}
        await member.close()
        assert await find_owned(zk, "g", [T0, T1, U0]) == set()

    play(scene)
