"""A group whose members register in ZooKeeper: one session for registration, ownership, offsets."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from clients.cluster import Cluster
from clients.errors import NoBrokersAvailable, from_zookeeper
from clients.high_level.config import ConsumerConfig
from clients.high_level.delivery import StreamDelivery
from clients.high_level.group_events import GroupEventSender
from clients.high_level.group_side import CLOSE_S, LEAVE_S
from clients.high_level.metrics import Meters
from clients.high_level.other_kind import (
    COORDINATOR_KIND,
    OtherKind,
    conflict_event,
    find_members_at_coordinator,
)
from clients.registered_brokers import registered_brokers
from groups.group_event import ZOOKEEPER
from groups.zookeeper.member import Member
from groups.zookeeper.membership_errors import ConsumerRebalanceFailed
from groups.zookeeper.membership_state import Membership
from groups.zookeeper.registration import Subscription, new_consumer_id
from groups.zookeeper.tree import GroupTree
from offsets.governed_store import GovernedStore
from offsets.requests import NO_MEMBER, Committer
from offsets.store import CoordinatorStore, DualStore, OffsetStore
from offsets.zookeeper_store import ZooKeeperStore
from protocol.internal_topics import ADMIN_CLIENT_ID, OFFSETS_TOPIC
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from zk.api import ConnectionLoss, SessionState, ZkError, ZkSession
from zk.login import login_of
from zk.session import KazooSession
from zk.znodes import TopicAssignment

logger = logging.getLogger(__name__)


class ZooKeeperSide:
    """The membership of a connector in ZooKeeper (`group_side.GroupSide`).

    `zk` is a session to use in place of an own one. `connect_store` makes the store of the offsets
    that the coordinator keeps, and `cluster` has the brokers.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        zk: ZkSession | None,
        cluster: Cluster,
        connect_store: Callable[[], CoordinatorStore],
        meters: Meters,
        on_problem: Callable[[str | None], None],
    ) -> None:
        self.config = config
        group_id = config.group_id
        name = config.consumer_id

        # A generated name meets no other member's; a fixed one may (ConsumerIdInUse).
        if name is None:
            self.consumer_id = new_consumer_id(
                group_id, socket.gethostname(), _now_ms(), uuid.uuid4().int
            )
        else:
            self.consumer_id = f"{group_id}_{name}"

        self._owns_zk = zk is None
        self._zk = zk or self._new_session()
        self._cluster = cluster
        self._connect_store = connect_store
        self._meters = meters
        self._on_problem = on_problem
        self.store: GovernedStore = self._new_offset_store()
        self._member: Member | None = None
        self._is_leaving = False
        self._events = GroupEventSender(self._open_cluster)
        self._other_kind = OtherKind(
            group_id, COORDINATOR_KIND, self._find_other_members, self._other_members_seen
        )

    # ---- start

    def is_entitled(self) -> bool:
        """Return whether ZooKeeper cannot have given our partitions to others yet."""
        # A lease of two thirds; the last third is for clocks that differ and for what is in flight.
        return self._zk.silence_ms * 3 < self._zk.session_timeout_ms * 2

    def may_commit(self) -> bool:
        """Return whether we are entitled: a commit from outside of generations is not checked."""
        return self.is_entitled()

    async def start(self) -> None:
        """Start the session, if it is our own. Raises ZooKeeperError."""
        if not self._owns_zk:
            return

        try:
            with from_zookeeper():
                await self._zk.start()
        except BaseException:
            self._zk = self._new_session()  # a session starts once
            self.store = self._new_offset_store()
            raise

    async def wait_until_ready(self) -> None:
        """Wait until the session is connected, or closed for good. Raises ZooKeeperError."""
        async with self._limit_unreachable_time():
            await self._wait_for_connection()

    async def _wait_for_connection(self) -> None:
        changed = asyncio.Event()

        def on_state(state: SessionState) -> None:
            changed.set()

        # Listen first, then look: a change in between is not missed.
        self._zk.add_state_listener(on_state)
        try:
            while self._zk.state not in (SessionState.CONNECTED, SessionState.CLOSED):
                changed.clear()
                await changed.wait()
        finally:
            self._zk.remove_state_listener(on_state)

    @asynccontextmanager
    async def _limit_unreachable_time(self) -> AsyncIterator[None]:
        """End the block with ZooKeeperError if ZooKeeper is unreachable for too long.

        The limit is zookeeper.connection.timeout.ms.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = self.config.zookeeper_connection_timeout_ms or self._zk.session_timeout_ms

        def on_state(state: SessionState) -> None:
            # An expired timeout cannot be rescheduled.
            if patience.expired():
                return

            # The time runs only while there is no connection.
            if state in (SessionState.CONNECTED, SessionState.CLOSED):
                patience.reschedule(None)
            elif patience.when() is None:
                patience.reschedule(loop.time() + timeout_ms / 1000)

        try:
            async with asyncio.timeout(None) as patience:
                on_state(self._zk.state)
                self._zk.add_state_listener(on_state)
                try:
                    yield
                finally:
                    self._zk.remove_state_listener(on_state)
        except TimeoutError:
            # Any other timeout belongs to the block.
            if not patience.expired():
                raise

            with from_zookeeper():
                raise ConnectionLoss(f"unreachable for {timeout_ms} ms") from None

    # ---- membership

    async def join(self, subscription: Subscription, delivery: StreamDelivery) -> None:
        """Join; return when the first rebalance has ended.

        Raises as `Member.join`, and MembershipConflict.
        """
        await self._other_kind.refuse()

        # A shutdown that came meanwhile had no member to end. From here on there is one.
        if self._is_leaving:
            raise ConsumerRebalanceFailed(f"{self.consumer_id} was shut down before it joined")

        tree = GroupTree(
            self._zk,
            self.config.group_id,
            self.consumer_id,
            subscription,
            self.config.exclude_internal_topics,
            self.config.partition_assignment_strategy,
        )
        self._member = Member(
            tree,
            delivery,
            Membership(self.consumer_id, self.config.membership_settings),
            on_problem=self._on_problem,
            on_rebalance=self._meters.rebalances.mark,
            on_failure=self._meters.rebalance_failures.mark,
            on_group_event=self._events.add,
            now_ms=_now_ms,
        )

        # From here on the store lists this member as one that follows migrations.
        self.store.is_member = True
        async with self._limit_unreachable_time():
            await self._member.join()

    def committer(self) -> Committer:
        """Return who members of ZooKeeper are to the coordinator: nobody of a generation."""
        return NO_MEMBER

    def refuse_transactions(self) -> None:
        """Raise SettingError unless the group's offsets are with its coordinator alone."""
        if not self.store.is_at_coordinator:
            raise SettingError(
                "offsets.storage",
                "must be kafka, without dual.commit.enabled, for offsets in transactions: they are "
                "with the group's coordinator, and this group reads others",
            )

    @property
    def has_member(self) -> bool:
        """True if there is a member, which goes on trying."""
        return self._member is not None

    def background(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Follow migrations of the group's offsets; watch its other members, and write events."""
        return [self.store.follow_migration(), self._other_kind.watch(), self._events.run()]

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that we hold."""
        return frozenset() if self._member is None else self._member.membership.held

    def explain_loss(self) -> str:
        """Return what takes a member's partitions: the end of its session, or somebody's hand."""
        timeout_ms = self._zk.session_timeout_ms
        return (
            "it never did, its ZooKeeper session has expired (zookeeper.session.timeout.ms is "
            f"{timeout_ms}), or somebody has deleted its nodes"
        )

    @property
    def is_called_by_listener(self) -> bool:
        """True if the caller is the application's rebalance listener, or a task it has started."""
        return self._member is not None and self._member.is_called_by_listener

    # ---- end

    async def leave(self) -> None:
        """Commit, release, unregister; join no more."""
        self._is_leaving = True
        if self._member is not None:
            await self._member.leave(LEAVE_S)
            await self._try_briefly(self._withdraw())

    async def close(self) -> None:
        """Close the session, if it is our own."""
        if self._owns_zk:
            await self._try_briefly(self._zk.close())

    async def _try_briefly(self, end: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await end
        except TimeoutError:
            logger.warning("%s: ZooKeeper did not confirm that we left", self.consumer_id)

    async def _withdraw(self) -> None:
        """Leave the list of members that follow migrations, as the session's end would."""
        try:
            await self.store.withdraw()
        except ZkError as error:
            # The node is ephemeral, so it goes with the session at the latest.
            logger.info("%s: still listed as following migrations: %r", self.consumer_id, error)

    # ---- members at the coordinator, and events

    async def _find_other_members(self) -> Sequence[str]:
        # To look for a coordinator would create the topic of coordinators.
        with from_zookeeper():
            if await self._zk.exists(TopicAssignment.path(OFFSETS_TOPIC)) is None:
                return ()
        return await find_members_at_coordinator(self._cluster, self.config.group_id)

    def _other_members_seen(self, sentence: str) -> None:
        # Those of the first in the group are enough.
        snapshot = self._member.membership.snapshot if self._member else None
        if snapshot is not None and self.consumer_id == min(snapshot.members, default=None):
            group_id = self.config.group_id
            self._events.add(conflict_event(group_id, ZOOKEEPER, sentence, _now_ms()))

    def _open_cluster(self) -> Cluster:
        return Cluster(
            self.config.bootstrap_servers,
            client_id=ADMIN_CLIENT_ID,
            config=self.config.cluster_config,
            find_brokers=self.find_brokers,
            known=self._cluster.known,
        )

    # ---- ZooKeeper

    async def find_brokers(self) -> list[str]:
        """Return brokers to ask without bootstrap.servers, or when all known ones are gone."""
        try:
            protocol = self.config.security_protocol.upper()
            return await registered_brokers(self._zk, protocol)
        except ZkError as error:
            raise NoBrokersAvailable(f"ZooKeeper: {error}") from error

    def _new_session(self) -> ZkSession:
        return KazooSession(
            self.config.zookeeper_connect,
            session_timeout_ms=self.config.zookeeper_session_timeout_ms,
            connection_timeout_ms=self.config.zookeeper_connection_timeout_ms,
            login=login_of(self.config),
        )

    def _new_offset_store(self) -> GovernedStore:
        """Return the store of the settings, under the group's migration if there is one."""
        zookeeper = ZooKeeperStore(self._zk, on_written=self._meters.zookeeper_commits.mark)
        kafka = self._connect_store()
        stores: dict[str, OffsetStore] = {
            "zookeeper": zookeeper,
            "kafka": kafka,
            "dual": DualStore(kafka, zookeeper),
        }

        # The settings name the store in use while no migration orders another.
        settings = "dual" if self.config.commits_to_both else self.config.offsets_storage
        return GovernedStore(
            zk=self._zk,
            group=self.config.group_id,
            consumer_id=self.consumer_id,
            kafka=kafka,
            zookeeper=zookeeper,
            settings=settings,
            configured=stores[settings],
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
