"""The offset store of one member: its settings choose it, until its group's migration does.

The migration's znode is watched (`offsets.migration` has the theory), and the mode it orders is
followed without a restart. New operations use the new mode at once, and the epoch is acknowledged
when no operation of an earlier mode is in flight.

In each ZooKeeper session a member does nothing before its node stands below the migration's and it
has read the order after that, so that whoever has read the list of members has seen all of them. A
member that may not create that node goes by its settings as long as there is no migration; to a
migration it is then what members on the JVM are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import attrs

from offsets.store import DualStore, Offsets, OffsetStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
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

logger = logging.getLogger(__name__)

RETRY_S = 1.0
MAX_TRIES = 20  # to write a node that others create and delete meanwhile
EXPIRY_PATIENCE = 1.5  # session timeouts, for a node of an earlier session of ours


@attrs.define(eq=False)
class GovernedStore:
    """An `OffsetStore` that follows its group's migration.

    `settings` is what the member's own settings say, `configured` the store that they choose. A
    member that is about to join the group sets `is_member`, and runs `follow_migration` from then
    on.
    """

    zk: ZkSession
    group: str
    consumer_id: str
    kafka: OffsetStore
    zookeeper: ZooKeeperStore
    settings: str
    configured: OffsetStore
    is_member: bool = False

    # The order that is followed.
    _mode: OffsetMode | None = None  # None: the settings decide
    _epoch: int = 0

    # Our node in the list of members.
    _listed_in: int = 0  # the session in which our node stands and the order was read after it
    _is_unlisted: bool = False

    # Operations that have not ended, and what `follow_migration` wakes up for.
    _in_flight: Counter[OffsetMode | None] = attrs.field(factory=Counter)
    _operation_ended: asyncio.Event = attrs.field(factory=asyncio.Event)
    _must_follow: asyncio.Event = attrs.field(factory=asyncio.Event)
    _reading: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read offsets in the mode in force. Raises OffsetFetchFailed."""
        # Our node stands before an offset is read, so that a migration waits for this member.
        try:
            await self._ensure_listed()
        except (ZkError, ZnodeError) as error:
            raise OffsetFetchFailed(dict.fromkeys(partitions, _describe(error)), {}) from error
        async with self._store_in_force() as store:
            return await store.fetch(group, partitions)

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit in the mode in force. Raises CommitFailed."""
        try:
            await self._ensure_listed()
        except (ZkError, ZnodeError) as error:
            # Without ZooKeeper a retry may help; nonsense in the migration's znode stays.
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(error, ZkError):
                code = code_of(error)
            raise CommitFailed(dict.fromkeys(offsets, code), _describe(error)) from error
        async with self._store_in_force() as store:
            await store.commit(group, offsets)

    @property
    def is_at_coordinator(self) -> bool:
        """True if the coordinator alone has the group's offsets, in the mode in force."""
        return self._store_of(self._mode) is self.kafka

    async def follow_migration(self) -> None:
        """Follow the migration until cancelled."""
        self.zk.add_state_listener(self._session_changed)
        last_warning = ""
        try:
            while True:
                # Clear first: what changes during the reading begins another.
                self._must_follow.clear()
                patience_s = None
                try:
                    await self._follow()
                    last_warning = ""
                except (ZkError, ZnodeError) as error:
                    # Warn once of each problem, and try again.
                    warning = _describe(error)
                    if warning != last_warning:
                        logger.warning("%s: group %s: %s", self.consumer_id, self.group, warning)
                    last_warning = warning
                    patience_s = RETRY_S

                # Sleep until something changes; after a problem, no longer than RETRY_S.
                try:
                    async with asyncio.timeout(patience_s):
                        await self._must_follow.wait()
                except TimeoutError:
                    pass
        finally:
            self.zk.remove_state_listener(self._session_changed)

    async def withdraw(self) -> None:
        """Leave the list of members, which the session may outlive. Raises ZkError.

        The last member that leaves deletes the list, if its group has never been migrated.
        """
        self.zk.remove_watch(self._changed)
        stat = await self.zk.exists(MigrationMember.path(self.group, self.consumer_id))
        # A node of another session is not ours: a member of the same name may be alive.
        if stat is None or stat.ephemeral_owner != self.zk.session_id:
            return

        # Who joins meanwhile keeps the list (NotEmpty), and who migrates the znode (BadVersion).
        with contextlib.suppress(NoNode, NotEmpty, BadVersion, NoAuth):
            await self.zk.delete(MigrationMember.path(self.group, self.consumer_id))
            migration, stat = await self.zk.get(GroupMigration.path(self.group))
            if migration is None:
                await self.zk.delete(MigrationPaths.members_path(self.group))
                await self.zk.delete(GroupMigration.path(self.group), stat.version)

    # --- the mode in force --------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._must_follow.set()

    def _changed(self, event: WatchEvent) -> None:
        self._must_follow.set()

    @asynccontextmanager
    async def _store_in_force(self) -> AsyncIterator[OffsetStore]:
        """Give the store for one operation, which is in flight until the block ends."""
        # The mode may change on the way: an operation ends in the mode in which it began.
        mode = self._mode
        self._in_flight[mode] += 1
        try:
            yield self._store_of(mode)
        finally:
            self._in_flight[mode] -= 1
            assert self._in_flight[mode] >= 0
            self._operation_ended.set()

    def _store_of(self, mode: OffsetMode | None) -> OffsetStore:
        if mode is None:
            return self.configured
        if mode.is_dual:
            return DualStore(self.kafka, self.zookeeper, leader=mode.reads)
        return self.kafka if mode.reads is OffsetStorage.KAFKA else self.zookeeper

    async def _ensure_listed(self) -> None:
        """See that our node stands in this session, and that the order was read after that."""
        # A member that has not joined, or a tool, goes by the order and is in no list.
        if not self.is_member:
            await self._read_order()
            return

        # Once more if the session ended on the way, as our node ended with it.
        while self._listed_in != (session_id := self.zk.session_id) or not session_id:
            # Epoch 0 acknowledges nothing: the order is read only behind this.
            forbidden = await self._try_to_list(0)
            await self._read_order()
            self._accept_unless_migrated(forbidden)
            # The order still has to be acknowledged.
            self._must_follow.set()
            if self.zk.session_id == session_id:
                self._listed_in = session_id

    async def _follow(self) -> None:
        """Read the order, and acknowledge it when no operation of an earlier mode is in flight."""
        await self._ensure_listed()
        await self._read_order()

        # To acknowledge an epoch is to say that no operation of an earlier mode is in flight.
        while any(count for mode, count in self._in_flight.items() if mode is not self._mode):
            self._operation_ended.clear()
            await self._operation_ended.wait()
        self._accept_unless_migrated(await self._try_to_list(self._epoch))

    def _accept_unless_migrated(self, forbidden: NoAuth | None) -> None:
        """Accept that we may not be listed, as long as there is no migration. Raises NoAuth.

        A migration that begins takes us for a member that does not obey, like those on the JVM. It
        creates its znode; our watch fires, and we are listed if that is allowed now.
        """
        if forbidden is None:
            return
        # A migration that does not see this member would go on without it.
        if self._mode is not None:
            raise forbidden

        if not self._is_unlisted:
            self._is_unlisted = True
            logger.warning(
                "%s: group %s: ACLs of ZooKeeper forbid %s: a migration of the group's "
                "offsets will take us for a member that does not obey it",
                *(self.consumer_id, self.group, forbidden),
            )

    async def _read_order(self) -> None:
        """Read the order and follow it. One reader at a time, so that no older order comes last."""
        async with self._reading:
            content = await self._read_watched(GroupMigration.path(self.group))
            mode: OffsetMode | None = None
            epoch = 0
            if content is not None:
                migration = GroupMigration.decode(content, GroupMigration.path(self.group))
                mode = migration.mode
                epoch = migration.epoch

            if mode is not self._mode:
                logger.info(
                    "%s: offsets from now on: %s (migration of %s, epoch %d)",
                    *(self.consumer_id, mode or "by the settings", self.group, epoch),
                )
                # Others have written to ZooKeeper since our store last read it.
                self.zookeeper.forget()
            self._mode = mode
            self._epoch = epoch

    async def _read_watched(self, path: str) -> bytes | None:
        """Read a node under a watch; None if it does not exist or has no payload."""
        while True:
            try:
                return (await self.zk.get(path, self._changed))[0]
            except NoNode:
                # Watch for the node that is not there. If it came between the two calls, read it.
                if await self.zk.exists(path, self._changed) is None:
                    return None

    # --- the list of members ------------------------------------------------------------------

    async def _try_to_list(self, epoch: int) -> NoAuth | None:
        """Write our node. Return the error if that is not allowed."""
        try:
            await self._list(epoch)
        except NoAuth as error:
            return error
        return None

    async def _list(self, epoch: int) -> None:
        """See that our node stands in this session and acknowledges `epoch`.

        Raises ZkError, also if another session holds the node for longer than an ended session of
        our own can live on.
        """
        path = MigrationMember.path(self.group, self.consumer_id)
        content = MigrationMember(epoch, self.settings).encode()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.zk.session_timeout_ms / 1000 * EXPIRY_PATIENCE

        for _ in range(MAX_TRIES):
            try:
                await self.zk.create(path, content, ephemeral=True, make_parents=True)
                return
            except NodeExists:
                pass
            except NoNode:
                # The last member of all is leaving, and deletes the list.
                continue

            # There is a node: it is ours, or that of another session.
            try:
                present, stat = await self.zk.get(path)
                # Perhaps our own, of an earlier session: then it is about to vanish.
                if stat.ephemeral_owner != self.zk.session_id:
                    await self._wait_for_the_end(path, deadline_s)
                elif present == content:
                    return
                else:
                    await self.zk.set(path, content, stat.version)
                    return
            except NoNode:
                continue
        raise ZkError(f"{path} changes faster than it can be written")

    async def _wait_for_the_end(self, path: str, deadline_s: float) -> None:
        """Wait until the node of another session is gone or changes; it may be a living member's.

        Raises NodeExists at the deadline.
        """
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
            # A watch that has not fired would live as long as the session.
            self.zk.remove_watch(note)


def _describe(error: ZkError | ZnodeError) -> str:
    return f"migration: {type(error).__name__}: {error}"
