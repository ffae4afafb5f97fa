"""Consumers and their coordinator, both as pure decisions, on a net that delays and loses calls.

The coordinator is a desk (tests.groups.coordinator.membership.desk); its appends take their time,
and another broker may take over. Consumers perform their effects here: each has a queue of ordered
effects, heartbeats of its own, and positions that grow while a partition is delivered.

After every step: each id has at most one response; in a generation a partition has one owner; no
commit of an older generation is accepted, and none goes back. Once it is quiet, all is owned.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import attrs

from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.decide import ACCEPTED, decide
from groups.consumer.state import Consumer, ConsumerSettings, Phase
from groups.coordinator.config import GroupConfig
from groups.coordinator.membership.events import Leaver
from groups.coordinator.membership.leave import RESET_REASON
from groups.coordinator.membership.responses import Joined
from protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.groups.consumer.pair_node import Node
from tests.groups.consumer.sharing import TOPIC, share_out
from tests.groups.coordinator.membership.desk import GROUP_ID, NOW_MS, Desk, Request

SESSION_MS = 10_000
REBALANCE_MS = 20_000
HEARTBEAT_MS = 1000
SOON_MS = 10
CALL_TIMEOUT_MS = 5000
COMMIT_EVERY_MS = 700
CONFIG = GroupConfig(
    min_session_timeout_ms=10, max_session_timeout_ms=600_000, initial_rebalance_delay_ms=300
)
RESET_CONNECTION = 7


class Pair:
    """The whole: consumers, coordinator, net and clock, from a seed."""

    def __init__(self, seed: int, *, is_cooperative: bool, partitions: int = 6) -> None:
        self.rng = random.Random(seed)
        self.is_cooperative = is_cooperative
        self.partitions = partitions
        self.desk = Desk(CONFIG)
        self.desk.holds = True
        self.nodes: list[Node] = []
        self.is_rough = True
        self.committed: dict[TopicPartition, int] = {}
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._names = itertools.count()
        self._waiting: list[tuple[Request, Callable[[Any], None]]] = []

    # ---- time

    @property
    def now_ms(self) -> int:
        """Return the time since the beginning."""
        return self.desk.now_ms - NOW_MS

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after a delay."""
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, next(self._numbers), action))

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        until_ms = self.now_ms + duration_ms
        while self._agenda and self._agenda[0][0] <= until_ms:
            due_ms, _, action = heapq.heappop(self._agenda)
            self.desk.advance(due_ms - self.now_ms)
            self._respond()
            action()
            self._respond()
            self.check()
        self.desk.advance(until_ms - self.now_ms)

    # ---- the net

    def latency_ms(self) -> int:
        """Return how long a message takes."""
        return self.rng.choice([1, 2, 5, 20, 300 if self.is_rough else 5])

    def loses(self, node: Node) -> bool:
        """Return whether a message from or to a consumer is lost."""
        return node.is_cut or (self.is_rough and self.rng.random() < 0.03)

    def cut(self, node: Node, duration_ms: int) -> None:
        """Cut a consumer off from its coordinator for a while."""

        def join_again() -> None:
            node.is_cut = False

        node.is_cut = True
        self.later(duration_ms, join_again)

    def send(
        self,
        node: Node,
        ask: Callable[[], Request],
        answer: Callable[[Any], None],
        fail: Callable[[], None],
    ) -> None:
        """Send a request; call `answer` with its response, or `fail` once, after the time-out."""
        ended = [False]

        def end(action: Callable[[], None]) -> None:
            if not ended[0]:
                ended[0] = True
                action()

        def arrive() -> None:
            request = ask()

            def respond(response: Any) -> None:
                if not self.loses(node):
                    self.later(self.latency_ms(), lambda: end(lambda: answer(response)))

            self._waiting.append((request, respond))

        if not self.loses(node):
            self.later(self.latency_ms(), arrive)
        patience_ms = CALL_TIMEOUT_MS + REBALANCE_MS
        self.later(patience_ms, lambda: end(fail))

    def _respond(self) -> None:
        # Appends are replicated after some time.
        if self.desk.in_flight:
            self.later(self.rng.randint(0, 30), self.desk.replicate)
        waiting, self._waiting = self._waiting, []
        for request, respond in waiting:
            if request.is_parked:
                self._waiting.append((request, respond))
            else:
                respond(request.response)

    # ---- the coordinator

    def move_coordinator(self) -> None:
        """Let another broker coordinate the group."""
        self.desk.move()
        self._respond()

    def reset(self) -> None:
        """Reset the offset of partition 0, as `kgroup reset` does: remove all, then commit.

        As long as nobody else coordinates the group, the commit is accepted: nobody joins before.
        """
        group = self.desk.shard.live_group(GROUP_ID)
        if group is None or not group.members:
            return
        leavers = [Leaver(name, reason=f"{RESET_REASON}to 0") for name in group.members]
        self.desk.leave(*leavers, client_id="kgroup", connection=RESET_CONNECTION)
        shard, partition = self.desk.shard, TopicPartition(TOPIC, 0)

        def note(response: Any) -> None:
            if response.error is ErrorCode.NONE:
                self.committed[partition] = 0
            assert not response.error or self.desk.shard is not shard, "a reset is refused"

        def write() -> None:
            request = self.desk.commit(0, partition=0, connection=RESET_CONNECTION)
            self._waiting.append((request, note))

        self.later(self.rng.randint(1, 1000), write)
        self._respond()

    # ---- consumers

    def start(self) -> Node:
        """Start a consumer."""
        strategies = ("cooperative-sticky",) if self.is_cooperative else ("range",)
        settings = ConsumerSettings(GROUP_ID, strategies, self.is_cooperative)
        node = Node(f"c{next(self._names)}", Consumer(settings))
        self.nodes.append(node)
        self.handle(node, on.TopicsRead(frozenset({TOPIC})))
        self.later(COMMIT_EVERY_MS, lambda: self._live(node))
        return node

    def kill(self, node: Node) -> None:
        """End a consumer without a word."""
        node.is_alive = False
        self.nodes.remove(node)

    def stop(self, node: Node) -> None:
        """Let a consumer leave."""
        self.handle(node, on.Shutdown())
        node.heartbeats = None

    def handle(self, node: Node, event: on.Event) -> None:
        """Decide an event of a consumer, and perform what comes of it."""
        if not node.is_alive:
            return
        node.consumer, effects = decide(node.consumer, event)
        node.consumer.check()
        for effect in effects:
            perform = URGENT.get(type(effect))
            if perform is not None:
                perform(self, node, effect)
            else:
                node.queue.append(effect)  # type: ignore[arg-type]
        self._work(node)

    def _work(self, node: Node) -> None:
        """Perform ordered effects until one takes time."""
        while node.queue and not node.is_busy and node.is_alive:
            effect = node.queue.popleft()
            if isinstance(effect, do.SendJoin):
                self._send_join(node, effect)
            elif isinstance(effect, do.SendSync):
                self._send_sync(node, effect)
            else:
                ORDERED[type(effect)](self, node, effect)

    def _begin(self, node: Node) -> Callable[[on.Event], None]:
        """Begin a step that takes time; return what ends it with an event."""
        node.is_busy = True
        node.call += 1
        call = node.call

        def end(event: on.Event) -> None:
            # It was interrupted.
            if node.call != call:
                return
            node.is_busy = False
            self.handle(node, event)
            self._work(node)

        return end

    # ---- ordered effects

    def _send_join(self, node: Node, effect: do.SendJoin) -> None:
        end = self._begin(node)
        owned = tuple(sorted(effect.owned))
        subscription = Subscription(effect.topics, None, owned, effect.generation_id)
        protocols = ((node.consumer.settings.strategies[0], encode_subscription(subscription)),)

        def ask() -> Request:
            return self.desk.join(
                effect.member_id,
                protocols=protocols,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                client_id=node.name,
                reason=effect.reason,
            )

        def answer(joined: Joined) -> None:
            members = [
                on.GroupMember(member.member_id, member.group_instance_id, member.metadata)
                for member in joined.members
            ]
            end(
                on.JoinResponded(
                    effect.round,
                    joined.error,
                    joined.member_id,
                    joined.generation_id,
                    joined.protocol_name or "",
                    joined.leader_id,
                    members,
                )
            )

        self.send(node, ask, answer, lambda: end(on.CallFailed(effect.round, "timed out")))

    def _send_sync(self, node: Node, effect: do.SendSync) -> None:
        end = self._begin(node)
        identity = Joined(member_id=effect.member_id, generation_id=effect.generation_id)

        def answer(synced: Any) -> None:
            partitions = frozenset(partitions_of(synced.assignment))
            end(on.SyncResponded(effect.round, synced.error, partitions))

        self.send(
            node,
            lambda: self.desk.sync(identity, dict(effect.assignments)),
            answer,
            lambda: end(on.CallFailed(effect.round, "timed out")),
        )

    def _compute(self, node: Node, effect: do.ComputeAssignment) -> None:
        members = {
            member.member_id: decode_subscription(member.metadata) for member in effect.members
        }
        if not self.is_cooperative:
            members = {name: attrs.evolve(s, owned_partitions=()) for name, s in members.items()}
        shared = share_out(members, self.partitions)
        assignments = {member: encode_assignment(given) for member, given in shared.items()}
        end = self._begin(node)
        computed = on.AssignmentComputed(effect.round, assignments)
        self.later(self.rng.randint(0, 50), lambda: end(computed))

    def _leave(self, node: Node, effect: do.SendLeave) -> None:
        leaver = Leaver(effect.member_id, reason=effect.reason)
        if not self.loses(node):
            self.later(
                self.latency_ms(), lambda: self.desk.leave(leaver, client_id=node.name) and None
            )

    def _stop_fetchers(self, node: Node, effect: do.StopFetchers) -> None:
        node.delivering -= effect.partitions

    def _commit(self, node: Node, effect: do.CommitPositions) -> None:
        end = self._begin(node)
        self._send_commit(node, effect.partitions, lambda: end(on.OffsetsDue(-1)))

    def _notify_revoked(self, node: Node, effect: do.NotifyRevoked) -> None:
        assert effect.partitions <= node.told, "what is revoked was assigned"
        node.told -= effect.partitions
        # The application takes its time, now and then more than the others wait.
        if self.is_rough and self.rng.random() < 0.2:
            end = self._begin(node)
            pause_ms = self.rng.choice([10, 500, 3000, REBALANCE_MS + 1000])
            self.later(pause_ms, lambda: end(on.OffsetsDue(-1)))

    def _notify_lost(self, node: Node, effect: do.NotifyLost) -> None:
        node.told -= effect.partitions

    def _forget(self, node: Node, effect: do.ForgetPositions) -> None:
        for partition in effect.partitions:
            node.positions.pop(partition, None)

    def _fetch_offsets(self, node: Node, effect: do.FetchOffsets) -> None:
        end = self._begin(node)
        failed = {p: "lost" for p in effect.partitions if self.loses(node)}

        def answer() -> None:
            fetch = self.desk.shard.offsets.fetch
            offsets = {}
            for partition in effect.partitions - failed.keys():
                committed = fetch(GROUP_ID, *partition)
                offsets[partition] = None if committed is None else committed.offset
            end(on.OffsetsFetched(effect.round, offsets, failed))

        self.later(self.latency_ms(), answer)

    def _notify_assigned(self, node: Node, effect: do.NotifyAssigned) -> None:
        assert not effect.partitions & node.told, "what is assigned is new"
        node.told |= effect.partitions

    def _settle(self, node: Node, effect: do.Settle) -> None:
        node.problem = None

    def _open(self, node: Node, effect: do.OpenFeeds) -> None:
        node.positions |= {partition: offset or 0 for partition, offset in effect.starts.items()}

    def _start_fetchers(self, node: Node, effect: do.StartFetchers) -> None:
        node.delivering |= effect.partitions

    # ---- urgent effects

    def _abandon(self, node: Node, effect: do.Abandon) -> None:
        # What was to be revoked is lost.
        for waiting in node.queue:
            if isinstance(waiting, do.NotifyRevoked):
                node.told -= waiting.partitions
        node.queue.clear()
        node.delivering.clear()
        node.positions.clear()
        self._interrupt(node)

    def _interrupt(self, node: Node, effect: do.Interrupt | None = None) -> None:
        node.call += 1
        node.is_busy = False

    def _begin_heartbeats(self, node: Node, effect: do.BeginHeartbeats) -> None:
        node.heartbeats = effect.member_id, effect.generation_id
        node.accepted_ms = self.now_ms
        self.later(HEARTBEAT_MS, lambda: self._beat(node, effect.member_id, effect.generation_id))

    def _hasten_heartbeats(self, node: Node, effect: do.HastenHeartbeats) -> None:
        if node.heartbeats is not None:
            member_id, generation_id = node.heartbeats
            self.later(SOON_MS, lambda: self._beat(node, member_id, generation_id))

    def _beat(self, node: Node, member_id: str, generation_id: int) -> None:
        if not node.is_alive or node.heartbeats != (member_id, generation_id):
            return
        identity = Joined(member_id=member_id, generation_id=generation_id)

        def arrive() -> None:
            error = self.desk.beat(identity)
            responded = on.HeartbeatResponded(generation_id, member_id, error)

            def respond() -> None:
                if error in ACCEPTED:
                    node.accepted_ms = max(node.accepted_ms, sent_ms)
                self.handle(node, responded)

            if not self.loses(node):
                self.later(self.latency_ms(), respond)

        sent_ms = self.now_ms
        if not self.loses(node):
            self.later(self.latency_ms(), arrive)
        if sent_ms - node.accepted_ms >= SESSION_MS:
            silence_ms = sent_ms - node.accepted_ms
            self.handle(node, on.HeartbeatsSilent(generation_id, member_id, silence_ms, "it"))
        self.later(HEARTBEAT_MS, lambda: self._beat(node, member_id, generation_id))

    def _end_heartbeats(self, node: Node, effect: do.EndHeartbeats) -> None:
        node.heartbeats = None

    def _pause(self, node: Node, effect: do.PauseDelivery) -> None:
        node.is_paused = True

    def _resume(self, node: Node, effect: do.ResumeDelivery) -> None:
        assert node.is_paused, "what resumes was paused"
        node.is_paused = False

    def _set_timer(self, node: Node, effect: do.SetTimer) -> None:
        self.later(effect.after_ms, lambda: self.handle(node, effect.event))

    def _fail(self, node: Node, effect: do.Fail) -> None:
        raise AssertionError(f"{node.name} fails: {effect.error}")

    def _report(self, node: Node, effect: do.Report) -> None:
        node.problem = effect.problem

    # ---- consuming

    def _live(self, node: Node) -> None:
        """Consume a little, and commit."""
        if not node.is_alive or node.consumer.phase is Phase.CLOSED:
            return
        for partition in node.delivering:
            # Who is paused hands out nothing.
            if not node.is_paused:
                node.positions[partition] += self.rng.randint(0, 5)
        self._send_commit(node, frozenset(node.delivering), lambda: None)
        self.later(COMMIT_EVERY_MS, lambda: self._live(node))

    def _send_commit(
        self, node: Node, partitions: frozenset[TopicPartition], done: Callable[[], None]
    ) -> None:
        """Commit positions one partition at a time, with the identity of now."""
        consumer = node.consumer
        identity = Joined(member_id=consumer.member_id, generation_id=consumer.generation_id)
        offsets = {p: node.positions[p] for p in sorted(partitions) if p in node.positions}

        def arrive() -> None:
            for partition, offset in offsets.items():
                self._commit_one(node, identity, partition, offset)
            self.later(self.latency_ms(), done)

        if consumer.has_generation and offsets and not self.loses(node):
            self.later(self.latency_ms(), arrive)
        else:
            self.later(1, done)

    def _commit_one(
        self, node: Node, identity: Joined, partition: TopicPartition, offset: int
    ) -> None:
        live = self.desk.shard.live_group(GROUP_ID)
        generation_id = -1 if live is None else live.generation_id
        request = self.desk.commit(offset, joined=identity, partition=partition.partition)

        def note(response: Any) -> None:
            if response.error is not ErrorCode.NONE:
                return
            assert identity.generation_id == generation_id, "a commit of another generation"
            before = self.committed.get(partition, 0)
            assert offset >= before, f"{node.name} takes {partition} from {before} to {offset}"
            self.committed[partition] = offset

        self._waiting.append((request, note))

    # ---- checks

    def check(self) -> None:
        """Assert what must hold after every step."""
        live = self.desk.shard.live.get(GROUP_ID)
        if live is not None and live.is_stable:
            owners = [
                p for member in live.members.values() for p in partitions_of(member.assignment)
            ]
            assert len(set(owners)) == len(owners), "a partition has two owners in a generation"

        # Those who deliver in the present generation do not meet.
        for node in self.nodes:
            assert node.delivering <= node.told, "what is delivered was assigned"

    def assert_quiet(self) -> None:
        """Assert that all have settled, and own everything once."""
        self.desk.replicate()
        self._respond()
        alive = [node for node in self.nodes if node.consumer.phase is not Phase.CLOSED]
        assert [node.consumer.phase for node in alive] == [Phase.STABLE] * len(alive)
        assert [node.problem for node in alive] == [None] * len(alive)
        assert not any(node.is_paused for node in alive), "all hand out messages"
        delivered = sorted(p for node in alive for p in node.delivering)
        everything = [TopicPartition(TOPIC, number) for number in range(self.partitions)]
        assert delivered == (everything if alive else [])
        assert not self._waiting, "a request has no response"
        sizes = [len(node.delivering) for node in alive]
        assert not sizes or max(sizes) - min(sizes) <= 1, "it is shared out evenly"


@functools.lru_cache(1000)
def partitions_of(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return what is assigned. Checks look at the same assignments after every step."""
    return tuple(decode_assignment(assignment).partitions)


URGENT: dict[type[Any], Callable[[Pair, Node, Any], None]] = {
    do.Abandon: Pair._abandon,
    do.Interrupt: Pair._interrupt,
    do.BeginHeartbeats: Pair._begin_heartbeats,
    do.HastenHeartbeats: Pair._hasten_heartbeats,
    do.ForgetCoordinator: lambda pair, node, effect: None,
    do.PauseDelivery: Pair._pause,
    do.ResumeDelivery: Pair._resume,
    do.SetTimer: Pair._set_timer,
    do.Fail: Pair._fail,
    do.Report: Pair._report,
}
ORDERED: dict[type[Any], Callable[[Pair, Node, Any], None]] = {
    do.ComputeAssignment: Pair._compute,
    do.EndHeartbeats: Pair._end_heartbeats,
    do.SendLeave: Pair._leave,
    do.StopFetchers: Pair._stop_fetchers,
    do.CommitPositions: Pair._commit,
    do.NotifyRevoked: Pair._notify_revoked,
    do.NotifyLost: Pair._notify_lost,
    do.ForgetPositions: Pair._forget,
    do.FetchOffsets: Pair._fetch_offsets,
    do.OpenFeeds: Pair._open,
    do.StartFetchers: Pair._start_fetchers,
    do.NotifyAssigned: Pair._notify_assigned,
    do.Settle: Pair._settle,
}
