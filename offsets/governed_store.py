"""The offset store of one member: what its settings say, until its group's migration says more.

The znode of the migration is watched (`offsets.migration` has the theory), and every order it
gives is obeyed without a restart: new operations go by the new mode at once, and the epoch is
acknowledged when none of an earlier mode is under way. A member does nothing in a ZooKeeper session
before its node stands below the migration's and the order has been read after that, so that nobody
who has read the list of members goes on without it. Where it may not make that node and there is no
migration, it does without: it is to a migration then what members on the JVM are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import attrs

from offsets.store import CommitFailed, DualStore, OffsetFetchFailed, Offsets, OffsetStore
from offsets.zookeeper_store import ZooKeeperStore, code_of
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import (
    BadVersion,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    WatchEvent,
    ZkError,
    ZkSession,
)
from zk.migration_znodes import (
    GroupMigration,
    MigrationMember,
    MigrationPaths,
    OffsetMode,
    OffsetStorage,
)
from zk.znodes import ZnodeError

_log = logging.getLogger(__name__)

RETRY_S = 1.0
MAX_TRIES = 20  # to write a node that others make and delete meanwhile
EXPIRY_PATIENCE = 1.5  # session timeouts, for a node of an earlier session of ours


@attrs.define(eq=False)
class GovernedStore:
    """An `OffsetStore`. `settings` is what the member's own settings say, `configured` the store
    they make. Who is about to join the group sets `takes_part`, and runs `obey` from then on."""

    zk: ZkSession
    group: str
    consumer_id: str
    kafka: OffsetStore
    zookeeper: ZooKeeperStore
    settings: str
    configured: OffsetStore
    takes_part: bool = False
    _mode: OffsetMode | None = None  # None: by the settings
    _epoch: int = 0
    _informed_in: int = 0  # the session in which we stand in the list and have read since
    _is_unlisted: bool = False
    _under_way: Counter[OffsetMode | None] = attrs.field(factory=Counter)
    _ended: asyncio.Event = attrs.field(factory=asyncio.Event)
    _news: asyncio.Event = attrs.field(factory=asyncio.Event)
    _reading: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """By the mode in force. Raises OffsetFetchFailed."""
        try:
            await self._be_informed()
        except (ZkError, ZnodeError) as error:
            raise OffsetFetchFailed(dict.fromkeys(partitions, _told(error)), {}) from error
        async with self._in_force() as store:
            return await store.fetch(group, partitions)

    async def commit(self, group: str, offsets: Offsets) -> None:
        """By the mode in force. Raises CommitFailed."""
        try:
            await self._be_informed()
        except (ZkError, ZnodeError) as error:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(error, ZkError):
                code = code_of(error)
            raise CommitFailed(dict.fromkeys(offsets, code), _told(error)) from error
        async with self._in_force() as store:
            await store.commit(group, offsets)

    async def obey(self) -> None:
        """Follow the migration until cancelled."""
        self.zk.add_state_listener(self._session_changed)
        said = ""
        try:
            while True:
                self._news.clear()
                patience_s = None
                try:
                    await self._follow()
                    said = ""
                except (ZkError, ZnodeError) as error:
                    if said != (said := _told(error)):
                        _log.warning("%s: group %s: %s", self.consumer_id, self.group, said)
                    patience_s = RETRY_S
                try:
                    async with asyncio.timeout(patience_s):
                        await self._news.wait()
                except TimeoutError:
                    pass
        finally:
            self.zk.remove_state_listener(self._session_changed)

    async def withdraw(self) -> None:
        """Leave the list of members, which the session may outlive. The last to leave a group that
        has never been migrated removes the list. Raises ZkError."""
        self.zk.remove_watch(self._changed)
        stat = await self.zk.exists(MigrationMember.path(self.group, self.consumer_id))
        if stat is None or stat.ephemeral_owner != self.zk.session_id:
            return
        with contextlib.suppress(NoNode, NotEmpty, BadVersion, NoAuth):
            await self.zk.delete(MigrationMember.path(self.group, self.consumer_id))
            migration, stat = await self.zk.get(GroupMigration.path(self.group))
            if migration is None:
                await self.zk.delete(MigrationPaths.members_path(self.group))
                await self.zk.delete(GroupMigration.path(self.group), stat.version)

    # --- inside -------------------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._news.set()

    def _changed(self, event: WatchEvent) -> None:
        self._news.set()

    @asynccontextmanager
    async def _in_force(self) -> AsyncIterator[OffsetStore]:
        """The store to use for one operation, which is counted while it lasts."""
        mode = self._mode
        self._under_way[mode] += 1
        try:
            yield self._store_of(mode)
        finally:
            self._under_way[mode] -= 1
            self._ended.set()

    def _store_of(self, mode: OffsetMode | None) -> OffsetStore:
        if mode is None:
            return self.configured
        if mode.is_dual:
            return DualStore(self.kafka, self.zookeeper, leader=mode.reads)
        return self.kafka if mode.reads is OffsetStorage.KAFKA else self.zookeeper

    async def _be_informed(self) -> None:
        if not self.takes_part:
            await self._read()
            return
        while self._informed_in != (session_id := self.zk.session_id) or not session_id:
            forbidden = await self._try_to_appear(0)
            await self._read()
            self._accept_unless_migrated(forbidden)
            self._news.set()  # to have the order acknowledged
            if self.zk.session_id == session_id:
                self._informed_in = session_id

    async def _follow(self) -> None:
        """Read the order; acknowledge it when nothing goes by an earlier one any more."""
        await self._be_informed()
        await self._read()
        while any(count for mode, count in self._under_way.items() if mode is not self._mode):
            self._ended.clear()
            await self._ended.wait()
        self._accept_unless_migrated(await self._try_to_appear(self._epoch))

    def _accept_unless_migrated(self, forbidden: NoAuth | None) -> None:
        """Without the right to be listed, go by the settings as long as there is no migration.

        One that begins sees us as a member that does not obey, as it sees those on the JVM. It
        makes the migration's znode, we hear of that, and are listed if it lets us. Raises NoAuth.
        """
        if forbidden is None:
            return
        if self._mode is not None:
            raise forbidden
        if not self._is_unlisted:
            self._is_unlisted = True
            _log.warning(
                "%s: group %s: ZooKeeper does not let us create %s: a migration of the group's "
                "offsets will take us for a member that does not obey it",
                *(self.consumer_id, self.group, forbidden),
            )

    async def _read(self) -> None:
        """Read the order and go by it. One reader at a time: an older answer never comes last."""
        async with self._reading:
            content = await self._content(GroupMigration.path(self.group))
            if content is None:
                mode, epoch = None, 0
            else:
                migration = GroupMigration.decode(content, GroupMigration.path(self.group))
                mode, epoch = migration.mode, migration.epoch
            if mode is not self._mode:
                _log.info(
                    "%s: offsets from now on: %s (migration of %s, epoch %d)",
                    *(self.consumer_id, mode or "by the settings", self.group, epoch),
                )
                self.zookeeper.forget()  # others have written since it last looked
            self._mode, self._epoch = mode, epoch

    async def _content(self, path: str) -> bytes | None:
        while True:
            try:
                return (await self.zk.get(path, self._changed))[0]
            except NoNode:
                if await self.zk.exists(path, self._changed) is None:
                    return None

    async def _try_to_appear(self, epoch: int) -> NoAuth | None:
        try:
            await self._appear(epoch)
        except NoAuth as error:
            return error
        return None

    async def _appear(self, epoch: int) -> None:
        """Have our node, of this session, say so. Raises ZkError, when another session has it for
        longer than one of our own that has ended can live on."""
        path = MigrationMember.path(self.group, self.consumer_id)
        said = MigrationMember(epoch, self.settings).encode()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.zk.session_timeout_ms / 1000 * EXPIRY_PATIENCE
        for _ in range(MAX_TRIES):
            try:
                await self.zk.create(path, said, ephemeral=True, make_parents=True)
                return
            except NodeExists:
                pass
            except NoNode:  # the last member of all is leaving, and takes the list away
                continue
            try:
                content, stat = await self.zk.get(path)
                if stat.ephemeral_owner != self.zk.session_id:
                    await self._wait_for_the_end(path, deadline_s)
                elif content == said:
                    return
                else:
                    await self.zk.set(path, said, stat.version)
                    return
            except NoNode:
                continue
        raise ZkError(f"{path} changes faster than it can be written")

    async def _wait_for_the_end(self, path: str, deadline_s: float) -> None:
        """Until the node of another session is gone or changes. It may be a living member's."""
        changed = asyncio.Event()

        def note(event: WatchEvent) -> None:
            changed.set()

        try:
            stat = await self.zk.exists(path, note)
            if stat is not None:
                async with asyncio.timeout_at(deadline_s):
                    await changed.wait()
        except TimeoutError:
            raise NodeExists(f"{path}: consumer id {self.consumer_id} is in use") from None
        finally:
            self.zk.remove_watch(note)


def _told(error: ZkError | ZnodeError) -> str:
    return f"migration: {type(error).__name__}: {error}"
