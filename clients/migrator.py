"""Carry out what `offsets.migration` decides: look at a group, perform the next effect, repeat.

One command at a time works on a group: before its first write it creates an ephemeral node below
the migration's znode. A command waits for the node of a killed one, which lasts as long as that
command's session.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

import attrs

from clients.admin.descriptions import GroupDescription, ListedOffset
from clients.command_line.output import INTERRUPTED
from clients.command_line.sessions import Sessions
from clients.errors import ClientError, from_zookeeper
from clients.groups.group_reader import GroupReader
from clients.groups.zookeeper_groups import ZooKeeperGroups
from offsets.migration import (
    Copy,
    Effect,
    Finish,
    Look,
    Rewrite,
    Run,
    decide,
    is_settled,
)
from offsets.migration_observation import MemberSeen, Observation, Obstacle
from offsets.migration_words import status_text, step_of
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import (
    BadVersion,
    NodeExists,
    NoNode,
    WatchEvent,
    ZkSession,
    children_if_there,
    get_if_there,
)
from zk.migration_znodes import GroupMigration, MigrationMember, MigrationPaths, OffsetStorage
from zk.znodes import ConsumerGroup, ConsumerRegistration, TopicAssignment, ZnodeError


class AnotherCommandAtWork(ClientError):
    """Another command migrates the group at this moment."""


class OffsetsAdmin(Protocol):
    """The requests to brokers; `Admin` is one."""

    async def group_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> Mapping[TopicPartition, OffsetAndMetadata]: ...
    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None: ...
    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription]: ...
    async def list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListedOffset]: ...


@attrs.define(eq=False)
class Migrator:
    """Migrates one group. `name` is shown to other commands while this one works, and `options`
    say where the group is, for the next command."""

    zk: ZkSession
    admin: OffsetsAdmin
    group: str
    name: str = "kgroup migrate"
    options: str = ""
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds before it looks again; an interrupt may end it."""
    is_interrupted: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda sentence: None
    """Is told each write when it is done."""
    _at_work_in: int = 0  # the session that holds our node

    async def carry_out(self, run: Run) -> tuple[Run, Finish]:
        """Look and act until the command has finished; return its last state and the result.

        Raises AnotherCommandAtWork and other KgroupErrors. The same command, run again, continues
        where this one stopped.
        """
        with from_zookeeper():
            return await self._carry_out(run)

    async def _carry_out(self, run: Run) -> tuple[Run, Finish]:
        while True:
            # Every decision rests on a fresh look, so a killed command can simply be run again.
            observation = await self._look()
            run, effect = decide(run, observation, self.now_ms())
            if isinstance(effect, Finish):
                await self._end_work()
                return run, effect

            # All is kept in the znode, so nothing is lost (fault scale-C3).
            if self.is_interrupted():
                await self._end_work()
                return run, _interrupted(observation)

            if not isinstance(effect, Look) and self._at_work_in != self.zk.session_id:
                # Waiting for another command may take long: look again.
                await self._begin_work()
                continue

            await self._perform(effect)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case Look(after_ms):
                await self.pause(after_ms / 1000)
            case Copy(OffsetStorage.ZOOKEEPER, offsets):
                await ZooKeeperStore(self.zk).commit(self.group, _plain(offsets))
                self.say(f"copied: {len(offsets)} offsets to ZooKeeper")
            case Copy(OffsetStorage.KAFKA, offsets):
                await self.admin.commit_group_offsets(self.group, _plain(offsets))
                self.say(f"copied: {len(offsets)} offsets to Kafka")
            case Rewrite(migration, version):
                path = GroupMigration.path(self.group)
                with contextlib.suppress(BadVersion):  # the node changed since the look
                    await self.zk.set(path, migration.encode(), version)
                    self.say(f"written: {self.group} is {step_of(migration)}, {migration.mode}")

    # --- one command at a time ----------------------------------------------------------------

    async def _begin_work(self) -> None:
        path = MigrationPaths.command_path(self.group)
        text = f"{self.name}, process {os.getpid()} on {socket.gethostname()}"
        # A killed command's node lasts for its session, which servers end in coarse steps.
        patience_s = self.zk.session_timeout_ms * 1.5 / 1000

        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            # Read before the call: a session that ends meanwhile takes the node with it.
            session_id = self.zk.session_id
            try:
                await self.zk.create(path, text.encode(), ephemeral=True, make_parents=True)
                self._at_work_in = session_id
                return
            except NoNode:  # the last member left, and deleted the group's empty directory
                # Another `create` makes the parents again.
                if asyncio.get_running_loop().time() > deadline:
                    raise
                continue

            except NodeExists:
                gone = asyncio.Event()

            # The default binds this attempt's event.
            def on_change(event: WatchEvent, gone: asyncio.Event = gone) -> None:
                gone.set()

            try:
                other, stat = await self.zk.get(path, on_change)
            except NoNode:
                # The other command has just ended.
                continue

            # The node is ours: only the reply to the creation was lost.
            if stat.ephemeral_owner == session_id:
                self._at_work_in = session_id
                return

            # Its end deletes the node; so does the end of its session.
            try:
                async with asyncio.timeout_at(deadline):
                    await gone.wait()
            except TimeoutError:
                who = (other or b"").decode("utf-8", "replace")
                raise AnotherCommandAtWork(f"group {self.group}: {who} is at work") from None

    async def _end_work(self) -> None:
        # A node of an earlier session is gone, or another command's.
        if self._at_work_in and self._at_work_in == self.zk.session_id:
            await self.zk.delete(MigrationPaths.command_path(self.group))
        self._at_work_in = 0

    # --- looking ------------------------------------------------------------------------------

    async def look(self) -> Observation:
        """Look once, in the order that `Observation` promises. Raises KgroupError."""
        with from_zookeeper():
            return await self._look()

    async def _look(self) -> Observation:
        path = GroupMigration.path(self.group)
        # A server may lag behind; this look must see what others have written.
        await self.zk.sync(path)

        migration = None
        version = -1
        mzxid = 0
        if node := await get_if_there(self.zk, path):
            content, stat = node
            version = stat.version
            mzxid = stat.mzxid
            migration = _decode_migration(content, path) if content else None

        # Read members before offsets, and offsets before owners.
        members = await self._members()
        reader = GroupReader(Sessions(self.admin, self.zk))  # type: ignore[arg-type]
        kafka = {
            partition: committed.offset
            for partition, committed in (await self._kafka_offsets()).items()
        }
        zookeeper_groups = ZooKeeperGroups(self.zk, reader.failures)
        in_zookeeper = await zookeeper_groups.offsets([self.group])
        zookeeper = {
            partition: committed.offset for partition, committed in in_zookeeper[self.group].items()
        }

        # Offsets of deleted topics are not moved.
        lost = await self._find_lost(kafka.keys() | zookeeper.keys())

        # Logs matter only before a migration begins; later looks are spared the requests.
        may_begin = migration is None or is_settled(migration)
        existing = (kafka.keys() | zookeeper.keys()) - lost if may_begin else ()
        owners = await zookeeper_groups.owners(self.group)

        # A reader of its own keeps failures of logs apart from those of offsets.
        logs_reader = GroupReader(reader.sessions)
        logs = await logs_reader.log_offsets(existing) if existing else {}

        return Observation(
            group=self.group,
            migration=migration,
            version=version,
            mzxid=mzxid,
            members=members,
            coordinated_members=await self._coordinated_members(),
            owners=owners,
            kafka=kafka,
            zookeeper=zookeeper,
            lost=lost,
            unreadable=_obstacles(reader),
            log_starts={
                partition: log.start for partition, log in logs.items() if log.start is not None
            },
            log_ends={partition: log.end for partition, log in logs.items() if log.end is not None},
            unknown_logs=_obstacles(logs_reader),
            options=self.options,
        )

    async def _kafka_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        # What an open transaction commits later would be in one store alone (fault strangers-43).
        return await self.admin.group_offsets(self.group, require_stable=True)

    async def _members(self) -> dict[str, MemberSeen]:
        """Return the registered members, and those of ours that are joining or leaving."""
        names = await children_if_there(self.zk, ConsumerGroup.ids_path(self.group))
        ours = await children_if_there(self.zk, MigrationPaths.members_path(self.group))
        registered = await asyncio.gather(
            *(self.zk.exists(ConsumerRegistration.path(self.group, name)) for name in names)
        )
        nodes = await asyncio.gather(
            *(get_if_there(self.zk, MigrationMember.path(self.group, name)) for name in ours)
        )

        # Every registered member, with the data of those that are ours.
        members = {
            name: MemberSeen(stat.czxid)
            for name, stat in zip(names, registered, strict=True)
            if stat
        }

        for name, node in zip(ours, nodes, strict=True):
            if node:
                content, stat = node
                member = MigrationMember.decode(content, MigrationMember.path(self.group, name))
                members[name] = MemberSeen(stat.czxid, member.epoch, member.settings)

        return members

    async def _coordinated_members(self) -> int:
        # Members at a coordinator commit to Kafka and know no migration.
        described = await self.admin.describe_groups([self.group])
        return len(described[self.group].group.members)

    async def _find_lost(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        existing: set[TopicPartition] = set()

        # Each topic is read once, however many of its partitions have offsets.
        for topic in {partition.topic for partition in partitions}:
            path = TopicAssignment.path(topic)
            if node := await get_if_there(self.zk, path):
                partition_ids = TopicAssignment.decode(node[0], path).partitions
                existing |= {TopicPartition(topic, partition_id) for partition_id in partition_ids}
        return frozenset(set(partitions) - existing)


def _interrupted(observation: Observation) -> Finish:
    """Return the end of a command that was interrupted before it had done all."""
    text = "the command was interrupted: run again, it continues from here"
    return Finish(status_text(observation), (Obstacle(observation.group, INTERRUPTED, text),))


def _obstacles(reader: GroupReader) -> tuple[Obstacle, ...]:
    return tuple(
        Obstacle(failure.what, failure.error, failure.message) for failure in reader.failures
    )


def _decode_migration(content: bytes, path: str) -> GroupMigration:
    """Decode the znode. The ZnodeError says what members do without it, and what to do about it."""
    try:
        return GroupMigration.decode(content, path)
    except ZnodeError as error:
        advice = (
            "members that run go on as before, and new members cannot join; correct the node, or "
            "delete it when all members' settings name the store that has their offsets"
        )
        raise ZnodeError(path, f"{error.reason}: {advice}") from None


def _plain(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
