"""Members of a group at its coordinator: the product's own, over a delivery that only counts.

They join, sync, beat and commit as any member of ours. What they would read from the partitions is
made up, so they cost a story little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from clients.cluster import Cluster as ClientCluster
from clients.config import ClusterConfig
from clients.high_level.group_coordinator import GroupCoordinatorCalls
from clients.high_level.heartbeats import HeartbeatIdentity, Heartbeats, PollClock
from clients.high_level.member_config import MemberConfig, load_member_config
from clients.known_cluster import KnownCluster
from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.member import GroupConsumer
from groups.consumer.member_failed import MemberFailed
from groups.consumer.state import Consumer, Phase
from offsets.requests import Committer
from offsets.store import CoordinatorStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ApiError, ErrorCode, KgroupError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.simulation.group_invariants import GroupInvariants

if TYPE_CHECKING:
    from kgroup.testing.simulation.world import Process
    from tests.simulation.cluster import Cluster

GROUP, TOPIC = "members", "t"
STRATEGIES = ("range", "sticky", "cooperative-sticky")
MEMBERS = 3
CONSUME_EVERY_S = 1.5
LIFE_S = (3.0, 15.0)
ABSENCE_S = (0.2, 9.0)
LEAVE_S = 3.0
SUPERVISED_EVERY_S = 1.0
SLOW_LISTENER = 0.1
"""Chance of a listener that takes its time, now and then more than the others wait."""
SLOW_S = (0.1, 10.0)
SETTINGS = {
    "membership": "coordinator",
    "group.id": GROUP,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1500,
    "socket.timeout.ms": 5000,
    "offsets.channel.socket.timeout.ms": 5000,
}
MAX_POLL_INTERVALS_MS = (8000, 90_000)
"""One in the whole story: a request that waits for so long may outlast the story, or may not."""
Partitions = Set[TopicPartition]


@attrs.define(eq=False)
class CountedDelivery:
    """What a member delivers: a position for each partition, which grows."""

    name: str
    store: CoordinatorStore
    committer: Callable[[], Committer]
    invariants: GroupInvariants
    rng: Random
    is_at_peace: Callable[[], bool]
    positions: dict[TopicPartition, int] = attrs.field(factory=dict)
    delivering: set[TopicPartition] = attrs.field(factory=set)
    is_paused: bool = False
    _one_commit: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    def consume(self) -> None:
        """Read a little of everything."""
        if self.is_paused:
            return
        for partition in sorted(self.delivering):
            self.positions[partition] += self.rng.randrange(5)

    # ---- what the member wants (groups.consumer.member.GroupDelivery)

    def stop(self, partitions: Partitions) -> None:
        self.delivering -= partitions

    def open_at(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        self.positions |= {partition: offset or 0 for partition, offset in offsets.items()}

    def fetch_opened(self, partitions: Partitions) -> None:
        self.delivering |= partitions

    def abandon(self) -> None:
        self.delivering.clear()
        self.positions.clear()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def fail(self, error: Exception) -> None:
        self.abandon()

    async def forget(self, partitions: Partitions) -> None:
        async with self._one_commit:
            for partition in partitions:
                self.positions.pop(partition, None)

    async def commit(self, partitions: Partitions) -> None:
        async with self._one_commit:
            offsets = {p: self.positions[p] for p in sorted(partitions) if p in self.positions}
            generation_id = self.committer().generation_id
            newest, before = self.invariants.newest_generation, self.invariants.committed()
            values = {p: OffsetAndMetadata(offset) for p, offset in offsets.items()}
            refused: Collection[TopicPartition] = ()
            try:
                await self.store.commit(GROUP, values)
            except CommitFailed as error:
                refused = error.errors.keys()
            except (KgroupError, ApiError, OSError):
                refused = offsets.keys()
            accepted = {p: offset for p, offset in offsets.items() if p not in refused}
            if accepted:
                self.invariants.commit_accepted(self.name, generation_id, newest, before, accepted)

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        before = self.invariants.committed()
        failed: Mapping[TopicPartition, str] = {}
        try:
            offsets = await self.store.fetch(GROUP, sorted(partitions))
        except OffsetFetchFailed as error:
            offsets, failed = dict(error.offsets), error.errors
        known = {p: offsets[p].offset if p in offsets else None for p in partitions - failed.keys()}
        found = {p: -1 if offset is None else offset for p, offset in sorted(known.items())}
        self.invariants.read(self.name, before, found)
        return known, failed

    async def notify_revoked(self, partitions: Partitions) -> None:
        if not self.is_at_peace() and self.rng.random() < SLOW_LISTENER:
            await asyncio.sleep(self.rng.uniform(*SLOW_S))

    async def notify_lost(self, partitions: Partitions) -> None: ...

    async def notify_assigned(self, partitions: Partitions, owned: Partitions) -> None: ...


@attrs.define(eq=False)
class WatchedCalls:
    """The calls of a member, of which the invariants hear."""

    name: str
    calls: GroupCoordinatorCalls
    invariants: GroupInvariants

    async def join(self, effect: do.SendJoin) -> on.JoinResponded:
        return await self.calls.join(effect)

    async def assign(self, effect: do.ComputeAssignment) -> on.AssignmentComputed:
        return await self.calls.assign(effect)

    async def sync(self, effect: do.SendSync) -> on.SyncResponded:
        newest = self.invariants.newest_generation
        responded = await self.calls.sync(effect)
        if responded.error is ErrorCode.NONE:
            partitions = responded.partitions or frozenset()
            self.invariants.assigned(self.name, effect.generation_id, newest, partitions)
        return responded

    async def leave(self, effect: do.SendLeave) -> None:
        await self.calls.leave(effect)

    def begin_heartbeats(self, effect: do.BeginHeartbeats) -> None:
        self.calls.begin_heartbeats(effect)

    def hasten_heartbeats(self) -> None:
        self.calls.hasten_heartbeats()

    def end_heartbeats(self) -> None:
        self.calls.end_heartbeats()

    def forget(self) -> None:
        self.calls.forget()

    def describe(self) -> str:
        return self.calls.describe()


class GroupMember:
    """One member, in a process of its own. `instance` is its group.instance.id, or None."""

    def __init__(
        self, group: MemberGroup, process: Process, strategy: str, instance: str | None
    ) -> None:
        self.group = group
        self.process = process
        self.consumer: GroupConsumer | None = None
        self.known = KnownCluster()
        self.has_left = False
        settings = SETTINGS | {
            "bootstrap.servers": group.cluster.draw_bootstrap(group.rng),
            "max.poll.interval.ms": group.max_poll_interval_ms,
            "client.id": process.name,
            "partition.assignment.strategy": strategy,
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        self.config: MemberConfig = load_member_config(settings)[0]

    async def live(self) -> None:
        """Join, and consume until the end."""
        cluster = self._new_cluster(self.config.cluster_config, self.known)
        calls = GroupCoordinatorCalls(
            cluster, self.config, self._heartbeats(cluster), self._count(cluster)
        )
        store = CoordinatorStore(
            lambda request: cluster.call_coordinator(GROUP, request),
            calls.forget,
            committer=self._committer,
            on_refused=self._commit_refused,
        )
        group = self.group
        delivery = CountedDelivery(
            self.process.name,
            store,
            self._committer,
            group.invariants,
            Random(group.rng.random()),
            lambda: group.is_at_peace,
        )
        watched = WatchedCalls(self.process.name, calls, group.invariants)
        self.consumer = GroupConsumer(Consumer(self.config.consumer_settings), watched, delivery)

        asyncio.get_running_loop().create_task(self._consume(delivery))
        try:
            await self.consumer.join(frozenset({TOPIC}))
        except MemberFailed as error:
            group.cluster.world.story.tell(self.process.name, f"fails: {error}")

    async def leave(self) -> None:
        """Commit, and leave."""
        self.has_left = True
        if self.consumer is not None:
            await self.consumer.leave(LEAVE_S)

    @property
    def is_settled(self) -> bool:
        """Return whether it has all that it was assigned."""
        return self.consumer is not None and self.consumer.is_settled

    @property
    def is_closed(self) -> bool:
        """Return whether it is out of the group for good."""
        return self.consumer is not None and self.consumer.consumer.phase is Phase.CLOSED

    @property
    def is_fenced(self) -> bool:
        """Return whether it is out because another one has the place of its instance id."""
        return self.is_closed and not self.has_left and self.config.group_instance_id is not None

    async def _consume(self, delivery: CountedDelivery) -> None:
        while not self.is_closed:
            await asyncio.sleep(CONSUME_EVERY_S)
            delivery.consume()
            await delivery.commit(frozenset(delivery.delivering))

    def _committer(self) -> Committer:
        assert self.consumer is not None
        consumer = self.consumer.consumer
        return Committer(consumer.generation_id, consumer.member_id, self.config.group_instance_id)

    def _commit_refused(self, committer: Committer, error: ErrorCode) -> None:
        self._heard(committer.generation_id, committer.member_id, error)

    def _heard(self, generation_id: int, member_id: str, error: ErrorCode) -> None:
        if self.consumer is not None:
            self.consumer.handle(on.HeartbeatResponded(generation_id, member_id, error))

    def _heartbeats(self, cluster: ClientCluster) -> Heartbeats:
        config = self.config
        return Heartbeats(
            GROUP,
            config.group_instance_id,
            config.heartbeat_interval_ms,
            config.session_timeout_ms,
            PollClock([], config.max_poll_interval_ms),
            lambda limit_ms: self._new_cluster(
                attrs.evolve(config.cluster_config, request_timeout_ms=limit_ms), cluster.known
            ),
            lambda identity, error: self._heard(identity.generation_id, identity.member_id, error),
            self._silent,
            self._failed,
            lambda overdue: None,
        )

    def _silent(self, identity: HeartbeatIdentity, silence_ms: int) -> None:
        if self.consumer is not None:
            generation_id, member_id = identity.generation_id, identity.member_id
            self.consumer.handle(on.HeartbeatsSilent(generation_id, member_id, silence_ms, "it"))

    def _failed(self, reason: str) -> None:
        raise AssertionError(f"{self.process.name}: heartbeats have failed: {reason}")

    def _new_cluster(self, config: ClusterConfig, known: KnownCluster) -> ClientCluster:
        return ClientCluster(self.config.bootstrap_servers, config=config, known=known)

    @staticmethod
    def _count(cluster: ClientCluster) -> Callable[[Collection[str]], Any]:
        async def count(topics: Collection[str]) -> Mapping[str, int]:
            await cluster.refresh(topics)
            known = cluster.view.topics
            return {topic: len(known[topic]) for topic in topics if known.get(topic)}

        return count


class MemberGroup:
    """All members of the group; they come and go until there is peace."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.invariants = GroupInvariants(cluster.invariants)
        self.is_at_peace = False
        self.strategy = rng.choice(STRATEGIES)
        # One of them keeps its place when it restarts.
        self.has_static = rng.random() < 0.5
        self.max_poll_interval_ms = rng.choice(MAX_POLL_INTERVALS_MS)
        self.members: dict[str, GroupMember] = {}

    def begin(self) -> None:
        """Start all members."""
        for number in range(MEMBERS):
            self._start(f"g{number}")

    async def come_and_go(self) -> None:
        """Let members leave, and crash, and come back; in nature's place."""
        while not self.is_at_peace:
            await asyncio.sleep(self.rng.uniform(*LIFE_S))
            name = self.rng.choice(sorted(self.members))
            member = self.members.get(name)
            if self.is_at_peace or member is None or member.process.paused:
                continue
            if self.rng.random() < 0.5:
                self._tell(name, "leaves")
                member.process.spawn(member.leave())
                await asyncio.sleep(LEAVE_S)
            self._kill(name)
            await asyncio.sleep(self.rng.uniform(*ABSENCE_S))
            self._start(name)

    def make_peace(self) -> None:
        """Have every member there, and quick; the members were resumed."""
        self.is_at_peace = True
        for name, member in list(self.members.items()):
            if member.has_left or member.is_closed or not member.process.alive:
                self._start_again(name)
        asyncio.get_running_loop().create_task(self._supervise())

    async def _supervise(self) -> None:
        """Start a static member again that is fenced, as whoever runs it would.

        Its id may be lost with a coordinator that died between its responses to JoinGroup and to
        the leader's SyncGroup, which alone is written: so it is in Kafka.
        """
        while True:
            await asyncio.sleep(SUPERVISED_EVERY_S)
            for name in [name for name, member in self.members.items() if member.is_fenced]:
                self.cluster.world.story.counts["static members fenced"] += 1
                self._start_again(name)

    @property
    def have_learned(self) -> bool:
        """Return whether all members know brokers, and not their first addresses alone."""
        return all(member.known.brokers for member in self.members.values())

    def unsettled(self) -> str:
        """Return what keeps the group from rest; "" if nothing does."""
        owned: list[TopicPartition] = []
        for name, member in self.members.items():
            if not member.is_settled or member.consumer is None:
                return f"{name} is not settled"
            owned += member.consumer.consumer.owned
        everything = [TopicPartition(TOPIC, number) for number in range(self.cluster.partitions)]
        return "" if sorted(owned) == everything else f"the members own {sorted(owned)}"

    def lacks_commits_since(self, virtual_s: float) -> str:
        """Return which member has had no commit accepted since then; "" if none."""
        idle = [
            name
            for name in self.members
            if self.invariants.committed_at.get(name, -1.0) < virtual_s
        ]
        return f"no commit of {', '.join(idle)} is accepted" if idle else ""

    def _start(self, name: str) -> None:
        process = self.cluster.client(name)
        instance = name if self.has_static and name == "g0" else None
        self.members[name] = member = GroupMember(self, process, self.strategy, instance)
        process.spawn(member.live())

    def _start_again(self, name: str) -> None:
        self._kill(name)
        self._start(name)

    def _kill(self, name: str) -> None:
        process = self.members[name].process
        if not process.alive:
            return
        self._tell(name, "is gone")
        self.cluster.network.stop(process, silent=False)
        process.kill()
        self.cluster.clients.remove(process)

    def _tell(self, name: str, what: str) -> None:
        self.cluster.world.story.tell(name, what)
