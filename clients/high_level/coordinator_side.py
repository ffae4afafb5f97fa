"""A group whose members are with its coordinator: JoinGroup, SyncGroup, heartbeats."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence, Set
from functools import partial
from itertools import groupby
from typing import Any

import attrs

from clients.cluster import Cluster
from clients.config import ClusterConfig
from clients.errors import BrokerError, ClientError
from clients.high_level.delivery import StreamDelivery
from clients.high_level.group_coordinator import GroupCoordinatorCalls, changed_topics
from clients.high_level.group_events import GroupEventSender
from clients.high_level.group_side import CLOSE_S, LEAVE_S
from clients.high_level.heartbeats import (
    POLL_TIMEOUT_REASON,
    HeartbeatIdentity,
    Heartbeats,
    Overdue,
    PollClock,
    WatchedStream,
    describe_work,
)
from clients.high_level.member_config import MemberConfig
from clients.high_level.metrics import Meters
from clients.high_level.other_kind import (
    ZOOKEEPER_KIND,
    OtherKind,
    conflict_event,
    find_members_in_zookeeper,
)
from groups.consumer import events as on
from groups.consumer.dealing import deal
from groups.consumer.decide import IDENTITY_LOST
from groups.consumer.member import GroupConsumer
from groups.consumer.member_failed import MemberFailed
from groups.consumer.refusals import Refused, explain, explain_poll_timeout
from groups.consumer.state import Consumer, Phase
from groups.group_event import COORDINATOR
from groups.zookeeper.registration import FilterSubscription, Subscription, describe_missing
from offsets.requests import Committer
from offsets.store import CoordinatorStore
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import ADMIN_CLIENT_ID
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Partitions = Set[TopicPartition]

GONE_AFTER_MS = 5000
"""Time between two responses that do not know a topic, after which it was deleted."""


@attrs.define(eq=False)
class GroupStreams:
    """The streams as a coordinator's member sees them (`groups.consumer.member.GroupDelivery`)."""

    consumer_id: str
    delivery: StreamDelivery
    subscription: Subscription
    _dealt: dict[TopicPartition, int] = attrs.field(factory=dict)

    def stop(self, partitions: Partitions) -> None:
        """Close the feeds; their positions can still be committed."""
        self.delivery.stop(partitions)

    def open_at(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Deal partitions to streams, and open them at these offsets."""
        self._dealt = self._deal({*self._dealt, *offsets})
        self.delivery.open(
            {
                partition: (f"{self.consumer_id}-{self._dealt[partition]}", offset)
                for partition, offset in offsets.items()
            }
        )

    def fetch_opened(self, partitions: Partitions) -> None:
        """Fetch and deliver partitions that are open still."""
        self.delivery.fetch_opened(partitions)

    def _deal(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the number of each partition's stream."""
        subscription = self.subscription
        # A filter's streams carry all topics, so that only together they are even.
        if isinstance(subscription, FilterSubscription):
            return deal(partitions, subscription.num_streams, self._dealt)

        dealt: dict[TopicPartition, int] = {}
        for topic, of_topic in groupby(sorted(partitions), lambda partition: partition.topic):
            dealt |= deal(of_topic, subscription.streams[topic], self._dealt)
        return dealt

    def abandon(self) -> None:
        """Close all feeds and drop their positions: other members own the partitions."""
        self._dealt.clear()
        self.delivery.abandon()

    def pause(self) -> None:
        """Hand out no message. Commits go on: the coordinator checks who we are."""
        for stream in self.delivery.streams:
            stream.pause()

    def resume(self) -> None:
        """Hand out messages again."""
        for stream in self.delivery.streams:
            stream.resume()

    def fail(self, error: Exception) -> None:
        """Raise `error` from every stream."""
        self.delivery.fail(error)

    async def forget(self, partitions: Partitions) -> None:
        """Drop the positions when no commit of them is in flight."""
        for partition in partitions:
            self._dealt.pop(partition, None)
        await self.delivery.forget(partitions)

    async def commit(self, partitions: Partitions) -> None:
        """Commit partitions before they are given up."""
        await self.delivery.commit(partitions)

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        """Return committed offsets, None for partitions without one; and errors of the others."""
        return await self.delivery.fetch_offsets(partitions)

    # ---- the application's listener

    async def notify_revoked(self, partitions: Partitions) -> None:
        """Call the listener: these partitions are ours still, and may be committed."""
        await self.delivery.notify_revoked(partitions)
        owned = {feed.partition for feed in self.delivery.owned} | partitions
        await self.delivery.before_releasing(owned)

    async def notify_lost(self, partitions: Partitions) -> None:
        """Call the listener: these partitions are others' already."""
        await self.delivery.notify_lost(partitions)

    async def notify_assigned(self, partitions: Partitions, owned: Partitions) -> None:
        """Call the listener: these partitions are ours from now on."""
        await self.delivery.notify_assigned(partitions)
        # A member of this kind knows no other's partitions.
        await self.delivery.before_starting(dict.fromkeys(sorted(owned), self.consumer_id))


class CoordinatorSide:
    """The membership of a connector at a coordinator (`group_side.GroupSide`)."""

    def __init__(
        self,
        config: MemberConfig,
        cluster: Cluster,
        call_coordinator: Callable[[Any], Awaitable[Any]],
        meters: Meters,
        on_problem: Callable[[str | None], None],
    ) -> None:
        self.config = config
        self.consumer_id = f"{config.client_id or config.group_id}-{uuid.uuid4().hex[:8]}"
        self._cluster = cluster
        self._meters = meters
        self._on_problem = on_problem
        self.store = CoordinatorStore(
            call_coordinator,
            lambda: cluster.forget_coordinator(config.group_id),
            meters.kafka_commits.mark,
            committer=self.committer,
            on_refused=self._commit_refused,
        )
        self._member: GroupConsumer | None = None
        self._calls: GroupCoordinatorCalls | None = None
        self._is_leaving = False
        self._heartbeats: Heartbeats | None = None
        self._subscription: Subscription | None = None
        self._assigned: Mapping[str, int] = {}
        """The partitions of the group's topics when we, its leader, have assigned them."""
        self._missing: Sequence[str] = ()
        """Those of these topics that had none."""
        self._gone: frozenset[str] = frozenset()
        """Topics that were deleted; metadata keep what was known of them."""
        self._topics: frozenset[str] = frozenset()
        """The topics that we subscribed to when we joined."""
        self._unmatched = ""
        """What is logged of a filter that no topic passes."""
        self._overdue: Overdue | None = None
        self._loss = ""
        """Why partitions were last lost."""
        self._events = GroupEventSender(
            lambda: self._new_cluster(config.cluster_config, ADMIN_CLIENT_ID)
        )
        self._other_kind = OtherKind(
            config.group_id, ZOOKEEPER_KIND, self._find_other_members, self._other_members_seen
        )

    # ---- start

    def is_entitled(self) -> bool:
        """Return whether others cannot own our partitions yet: the session lasts by our clock."""
        is_entitled = True
        if self._heartbeats is not None:
            # A member that is out and does not hear of it consumes beside others (fault groups-1).
            is_entitled = self._heartbeats.is_entitled
        return is_entitled

    def may_commit(self) -> bool:
        """Return True: commits are refused where others own our partitions."""
        return True

    async def start(self) -> None:
        """Start nothing: calls connect when they are made."""

    async def wait_until_ready(self) -> None:
        """Wait for nothing: joining waits for the coordinator."""

    # ---- membership

    async def join(self, subscription: Subscription, delivery: StreamDelivery) -> None:
        """Join; return when the first assignment is delivered.

        Raises MemberFailed, MembershipConflict, ClientError, and BrokerError for a topic that may
        not be seen.
        """
        await self._other_kind.refuse()
        self._subscription = subscription
        topics = await self._find_topics()
        # A member tries for ever, but who starts one must hear of a wrong address
        # (fault strangers-152).
        await self._wait_for_brokers(topics)
        self._topics = topics
        self._raise_refused(topics)

        # A shutdown that came meanwhile had no member to end. From here on there is one.
        if self._is_leaving:
            detail = f"group {self.config.group_id}: left before it had joined"
            raise MemberFailed(ErrorCode.NONE, detail)

        config = self.config
        meters = self._meters
        streams = GroupStreams(self.consumer_id, delivery, subscription)
        for stream in delivery.streams:
            stream.on_asked = self._asked
        self._heartbeats = Heartbeats(
            config.group_id,
            config.group_instance_id,
            config.heartbeat_interval_ms,
            config.session_timeout_ms,
            PollClock(delivery.streams, config.max_poll_interval_ms),
            self._heartbeat_cluster,
            self._heartbeat_responded,
            self._heartbeats_silent,
            self._heartbeats_failed,
            self._application_overdue,
        )
        self._calls = calls = GroupCoordinatorCalls(
            self._cluster, config, self._heartbeats, self._count_partitions, self._note_assigned
        )
        self._member = GroupConsumer(
            Consumer(config.consumer_settings),
            calls,
            streams,
            on_problem=self._on_problem,
            on_rebalance=lambda: meters.rebalances.mark(0.0),
        )
        await self._member.join(topics)

    async def _wait_for_brokers(self, topics: Collection[str]) -> None:
        """Wait until a broker responds, for default.api.timeout.ms. Raises DeadlineExceeded."""
        try:
            refresh = partial(self._cluster.refresh_unless_just_read, topics)
            await self._cluster.retrying(refresh, "metadata")
        except ClientError:
            # A shutdown closes the connections.
            if not self._is_leaving:
                raise

    def _raise_refused(self, topics: Collection[str]) -> None:
        """Raise BrokerError for a topic of which brokers tell nothing, as Kafka's consumers do."""
        errors = self._cluster.view.errors
        for topic in sorted(topics):
            # The member would wait for it without an end (fault strangers-178).
            if topic in errors and not errors[topic].retriable:
                # Who may read may see.
                raise BrokerError(errors[topic], topic, ApiKey.FETCH)

    @property
    def has_member(self) -> bool:
        """True if there is a member, which goes on trying."""
        return self._member is not None

    def background(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Watch topics and partitions, and members in ZooKeeper; write events."""
        work = [self._watch_topics(), self._other_kind.watch(), self._events.run()]
        # Who subscribes to a topic that does not exist yet waits for it (fault users-0).
        work.append(self._watch_missing_topics())
        return work

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are ours."""
        return frozenset() if self._member is None else self._member.consumer.owned

    @property
    def is_called_by_listener(self) -> bool:
        """True if the caller is the application's rebalance listener, or a task it has started."""
        return self._member is not None and self._member.is_called_by_listener

    # ---- end

    async def leave(self) -> None:
        """Commit and leave; join no more."""
        self._is_leaving = True
        if self._member is not None:
            await self._member.leave(LEAVE_S)
        if self._calls is not None:
            await self._calls.settle(CLOSE_S)

    async def close(self) -> None:
        """End the thread of the heartbeats."""
        if self._heartbeats is not None:
            await self._heartbeats.close()

    # ---- identity

    def committer(self) -> Committer:
        """Return with which identity offsets are committed now."""
        instance = self.config.group_instance_id
        if self._member is None:
            return Committer(group_instance_id=instance)
        consumer = self._member.consumer
        return Committer(consumer.generation_id, consumer.member_id, instance)

    def refuse_transactions(self) -> None:
        """Refuse nothing: the group's offsets are with its coordinator."""

    def _commit_refused(self, committer: Committer, error: ErrorCode) -> str:
        # It says of our membership what a heartbeat would say.
        if self._member is None or not committer.member_id:
            return ""
        return self._refused(committer.generation_id, committer.member_id, error)

    def _heartbeat_responded(self, identity: HeartbeatIdentity, error: ErrorCode) -> None:
        if self._member is not None:
            self._refused(identity.generation_id, identity.member_id, error)

    def _heartbeats_silent(self, identity: HeartbeatIdentity, silence_ms: int) -> None:
        if self._member is not None:
            generation_id, member_id = identity.generation_id, identity.member_id
            assert self._heartbeats is not None, "they have called"
            coordinator = self._heartbeats.coordinator
            self._member.handle(
                on.HeartbeatsSilent(generation_id, member_id, silence_ms, coordinator)
            )

    def _heartbeats_failed(self, reason: str) -> None:
        if self._member is not None:
            self._member.handle(on.HeartbeatsFailed(reason))

    def _refused(self, generation_id: int, member_id: str, error: ErrorCode) -> str:
        """Let the member decide, and return what the error means."""
        assert self._member is not None, "only a member is refused"
        assert self._heartbeats is not None, "a member has heartbeats"
        config = self.config
        refused = Refused(
            config.group_id,
            member_id,
            generation_id,
            config.group_instance_id,
            self._heartbeats.silence_ms,
            config.session_timeout_ms,
            config.max_poll_interval_ms,
        )
        meaning = explain(refused, error)
        consumer = self._member.consumer
        is_current = (generation_id, member_id) == (consumer.generation_id, consumer.member_id)
        if is_current and error in IDENTITY_LOST:
            logger.warning("%s", meaning)
            self._loss = meaning
        self._member.handle(on.HeartbeatResponded(generation_id, member_id, error))
        return meaning

    def explain_loss(self) -> str:
        """Return why partitions were last lost, in the user's words."""
        return self._loss

    def _heartbeat_cluster(self, limit_ms: int) -> Cluster:
        """Return the connections of the heartbeats; no wait of theirs is longer than `limit_ms`."""
        config = self.config.cluster_config
        return self._new_cluster(
            attrs.evolve(
                config,
                request_timeout_ms=min(config.request_timeout_ms, limit_ms),
                default_api_timeout_ms=min(config.default_api_timeout_ms, limit_ms),
                socket_connection_setup_timeout_ms=min(
                    config.socket_connection_setup_timeout_ms, limit_ms
                ),
            )
        )

    def _new_cluster(self, config: ClusterConfig, client_id: str | None = None) -> Cluster:
        """Return connections of their own, to a cluster of which this member knows already."""
        return Cluster(
            config.bootstrap_servers,
            client_id=client_id,
            config=config,
            # What one part learns is the others' to know: which brokers there are, what ends waits
            # (fault groups-1, was: None).
            known=self._cluster.known,
        )

    # ---- members in ZooKeeper

    async def _find_other_members(self) -> Sequence[str]:
        return await find_members_in_zookeeper(self._cluster, self.config.group_id)

    def _other_members_seen(self, sentence: str) -> None:
        # Those of the leader are enough.
        consumer = self._member.consumer if self._member else None
        if consumer is not None and consumer.is_leader:
            event = conflict_event(
                self.config.group_id,
                COORDINATOR,
                sentence,
                time.time_ns() // 1_000_000,
                consumer.generation_id,
            )
            self._events.add(event)

    # ---- the application that takes too long

    def _application_overdue(self, overdue: Overdue) -> None:
        limit_ms = self.config.max_poll_interval_ms
        self._loss = explain_poll_timeout(self.consumer_id, overdue.worked_ms, limit_ms)
        logger.warning("group %s: %s", self.config.group_id, self._loss)
        self._overdue = overdue
        if self._member is not None:
            self._member.handle(on.PollTimedOut(POLL_TIMEOUT_REASON, has_left=True))
        # It has asked while its loop was busy with this.
        if overdue.stream.is_asked:
            self._asked(overdue.stream)

    def _asked(self, stream: WatchedStream) -> None:
        """Join again when the stream that took too long is asked for its next message."""
        overdue = self._overdue
        if overdue is None or overdue.stream is not stream or self._member is None:
            return
        self._overdue = None

        # Others that look at the group's events see how long it really took.
        worked_ms = int((asyncio.get_running_loop().time() - overdue.since_s) * 1000)
        work = describe_work(worked_ms, self.config.max_poll_interval_ms)
        self._member.handle(on.PollResumed(f"the application asks for messages again. {work}"))

    # ---- topics

    async def _find_topics(self) -> frozenset[str]:
        """Return the topics that we subscribe to. Raises ClientError, ApiError."""
        assert self._subscription is not None
        # A filter is for all topics that there are.
        if isinstance(self._subscription, FilterSubscription):
            await self._cluster.refresh(all_topics=True)
        all_topics = tuple(sorted(self._cluster.view.topics))
        excludes_internal = self.config.exclude_internal_topics

        topics = frozenset(self._subscription.streams_of(all_topics, excludes_internal))
        unmatched = describe_missing(self._subscription, dict.fromkeys(topics, 1))
        if unmatched and not self._unmatched:
            logger.warning("group %s: %s", self.config.group_id, unmatched)
        self._unmatched = unmatched
        return topics

    async def _count_partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        # Two rebalances in a row read the same: the second one would wait for its turn.
        await self._cluster.refresh_unless_just_read(topics)
        known = self._cluster.view.topics
        self._gone = frozenset(filter(self._is_unknown, self._gone))
        there = [topic for topic in topics if topic not in self._gone]
        counts = {topic: len(known[topic]) for topic in there if known.get(topic)}
        # What does not exist yet may change like all others (fault users-0).
        counts |= {topic: 0 for topic in topics if topic not in counts}
        return counts

    def _note_assigned(self, counts: Mapping[str, int]) -> None:
        self._assigned = counts
        missing = sorted(topic for topic, count in counts.items() if not count)
        if missing and missing != self._missing:
            names = ", ".join(missing)
            logger.warning(
                "group %s: no partitions of %s are known yet", self.config.group_id, names
            )
        self._missing = missing

    async def _find_brokers(self) -> None:
        """Read which brokers there are, before those of bootstrap.servers are gone."""
        try:
            await self._cluster.refresh()
        except (ClientError, ApiError) as error:
            logger.info("group %s: cannot look for brokers: %s", self.config.group_id, error)

    async def _watch_topics(self) -> None:
        """Look for topics, partitions and brokers every metadata.max.age.ms."""
        while True:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            member = self._member
            if member is None or member.consumer.phase is Phase.CLOSED:
                continue
            if self._cluster.stale:
                await self._find_brokers()
            try:
                member.handle(on.TopicsRead(await self._find_topics()))
                await self._compare_partitions(member, self._assigned.keys())
            except (ClientError, ApiError) as error:
                logger.info("group %s: cannot look for topics: %s", self.config.group_id, error)

    async def _watch_missing_topics(self) -> None:
        """Look for topics that do not exist yet, as often as for leaders: who waits wants them.

        And for those that have other partitions than we, the leader, have assigned.
        """
        while True:
            await asyncio.sleep(self.config.refresh_leader_backoff_ms / 1000)
            member = self._member
            errors = self._cluster.view.errors
            # What is forbidden, or no name, is looked for with all others.
            missing = [
                topic
                for topic in self._missing
                if errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).retriable
            ]
            # Where a partition is gone, or led by another, fetchers have read the metadata since.
            known = self._cluster.view.topics
            other = [
                topic
                for topic, count in self._assigned.items()
                if count and topic in known
                if len(known[topic]) != count or self._is_unknown(topic)
            ]
            if member is None or not (missing or other):
                continue
            try:
                await self._compare_partitions(member, [*missing, *other])
            except (ClientError, ApiError) as error:
                logger.debug("group %s: cannot look for topics: %s", self.config.group_id, error)

    async def _compare_partitions(self, member: GroupConsumer, topics: Collection[str]) -> None:
        """Have the group assigned again, if we lead it and topics have other partitions now."""
        # While it joins or assigns, it reads the partitions anyway.
        if member.consumer.phase is not Phase.STABLE or not member.consumer.is_leader or not topics:
            return
        await self._cluster.refresh_unless_just_read(topics)
        gone = await self._find_gone(topics)
        # Or all commits fail for them, as long as they are gone (fault strangers-129).
        self._gone |= gone
        assigned = self._assigned
        before = {topic: assigned.get(topic, 0) for topic in topics}
        now = await self._count_partitions(topics)
        changed = changed_topics(before, now)
        if changed and member.consumer.phase is Phase.STABLE and member.consumer.is_leader:
            reason = f"the partitions of {', '.join(changed)} have changed"
            member.handle(on.PartitionsChanged(reason))

    async def _find_gone(self, topics: Collection[str]) -> frozenset[str]:
        """Return those that brokers do not know, twice: one that just starts knows none."""
        known = self._cluster.view.topics
        unknown = [topic for topic in topics if topic in known and self._is_unknown(topic)]
        if not unknown:
            return frozenset()
        await asyncio.sleep(GONE_AFTER_MS / 1000)
        await self._cluster.refresh(unknown)
        return frozenset(filter(self._is_unknown, unknown))

    def _is_unknown(self, topic: str) -> bool:
        code = self._cluster.view.errors.get(topic)
        return code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
