"""Simulate a group for sixty seconds of virtual time, and record everything that happens.

The members, streams and offsets are real. ZooKeeper is in memory, behind wires that keep the order
within a session, as ZooKeeper does, and delay each direction at random. Applications read; the
clock jumps. A seed decides the faults: joins, leaves, crashes, connections cut for shorter or
longer than the session lasts, sessions closed for good, replies lost, wires that become slow, nodes
and whole directories deleted by hand, claims that ZooKeeper refuses, a topic deleted while it is
consumed. Rebalance listeners are slow, and raise.

These things are checked:

- at each commit, and whenever ownership or deliveries change: only the owner of a partition
  delivers and commits it, and no commit goes back. An exception holds for a while after somebody
  has deleted owner nodes.
- whenever a listener is called: the partitions it gets are still owned.
- at the end: all partitions are shared out evenly, and no message was missed.

In every fifth story the group has `auto.offset.reset=largest`, its applications are slow, and all
events are clean: members come and go, the whole group is deployed again, topics grow, old messages
are deleted. Then a partition is reset once, unless messages that the group had still to consume
were deleted, and nothing is missed from the reset on.

A story ends at its first violation, and its transcript shows what led to it. The same seed gives
the same transcript, word for word.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import string
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from random import Random
from typing import Any

from clients.high_level.delivery import StreamDelivery
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.assignment import ASSIGNORS
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.member import ConsumerRebalanceFailed, Member, MembershipLost
from groups.zookeeper.membership_state import Membership, MembershipSettings, Phase
from groups.zookeeper.registration import (
    FilterSubscription,
    StaticSubscription,
    Subscription,
    consumer_of,
    stream_index,
    thread_ids,
)
from groups.zookeeper.tree import GroupTree
from offsets.store import CommitFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import TopicPartition
from tests.stage.checked_states import checking_states
from tests.stage.clock import run_in_virtual_time
from zk.api import (
    ConnectionLoss,
    Create,
    Delete,
    Op,
    SessionExpired,
    SessionState,
    Stat,
    WatchEvent,
    ZkError,
)
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerOffset, ConsumerRegistration, TopicAssignment

GROUP = "g"
TOPICS = {"t": 16, "u": 5, "v": 3, "w": 4}
MORTAL = "w"
FIRST_MEMBERS = 5
MOST_MEMBERS = 8
SESSION_TIMEOUT_MS = 6000
BACKOFF_MS = 500
LATENCY_S = 0.02
SLOW = 25  # times the latency of a wire in trouble
TROUBLE_S = (2.5, 44.0)  # when it begins, at the earliest and at the latest
LENGTH_S = 60.0
LAST_MESSAGE_S = 52.0
LARGEST_EVERY = 5
FEWEST_FAULTS = 10
NOTICED_S = 16.0
"""Time until owners notice that their nodes were deleted. No watch tells them: they see it in their
next round, within 11 s, or a little later if something delays it."""
HEARD_S = 2.0  # from the end of a session for good until the application knows
OWNERS, OFFSETS = f"/consumers/{GROUP}/owners/", f"/consumers/{GROUP}/offsets/"


class Wire:
    """A session behind a wire that delays calls, replies and watch events, and keeps their order.

    A connection that breaks loses the replies on the way.
    """

    def __init__(self, session: MemorySession, story: Story) -> None:
        self.session = session
        self.slowness = 1
        self._story = story
        self._arrives_s = self._heard_s = 0.0
        self._breaks = 0
        self._watches: dict[Any, Callable[[WatchEvent], None]] = {}
        session.add_state_listener(self._state_changed)

    def _state_changed(self, state: SessionState) -> None:
        self._breaks += state is SessionState.SUSPENDED

    def _delay_s(self) -> float:
        return self._story.random.uniform(0, LATENCY_S * self.slowness)

    def _heard_at(self) -> float:
        self._heard_s = max(self._heard_s, self._story.now_s() + self._delay_s())
        return self._heard_s

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)
        if not asyncio.iscoroutinefunction(method):
            return method
        return lambda *arguments, **keywords: self._call(method, arguments, keywords)

    def remove_watch(self, watch: Callable[[WatchEvent], None]) -> None:
        if late := self._watches.pop(watch, None):
            self.session.remove_watch(late)

    def _call(self, method: Any, arguments: Any, keywords: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        session_id = self.session.session_id
        number = self._story.calls_sent()
        if callable(arguments[-1]):  # a watch
            arguments = (*arguments[:-1], self._late(arguments[-1]))

        def arrive() -> None:
            self._story.call_arrives(number)
            result, error = None, None
            try:
                if self.session.session_id != session_id:
                    raise SessionExpired("of an earlier session")
                method(*arguments, **keywords).send(None)
            except StopIteration as done:
                result = done.value
            except ZkError as raised:
                error = raised
            loop.call_at(self._heard_at(), come_back, result, error, self._breaks)

        def come_back(result: Any, error: ZkError | None, breaks: int) -> None:
            if reply.done():  # nobody waits any more
                return
            if error is None and breaks != self._breaks:
                error = ConnectionLoss("the reply was lost")
            if isinstance(error, ConnectionLoss | SessionExpired):
                self._story.bites["call lost"] += 1
            if error:
                reply.set_exception(error)
            else:
                reply.set_result(result)

        self._arrives_s = max(self._arrives_s, loop.time() + self._delay_s())
        loop.call_at(self._arrives_s, arrive)
        return reply

    def _late(self, watch: Callable[[WatchEvent], None]) -> Callable[[WatchEvent], None]:
        """Return a delayed watch, the same for each watch: a session runs a callable once."""
        if watch not in self._watches:
            session_id = self.session.session_id

            def late(event: WatchEvent) -> None:
                asyncio.get_running_loop().call_at(self._heard_at(), tell, event)

            def tell(event: WatchEvent) -> None:
                if self.session.session_id == session_id or watch != self._watches.get(watch):
                    watch(event)

            self._watches[watch] = late
        return self._watches[watch]


class WatchedZooKeeper(MemoryZooKeeper):
    """A ZooKeeper that shows the story every transaction."""

    def __init__(self, story: Story) -> None:
        super().__init__(lambda: int(story.now_s() * 1000))
        self.story = story

    def commit(self, ops: Sequence[Op], session_id: int) -> list[str | Stat | None]:
        offsets = [op for op in ops if op.path.startswith(OFFSETS) and not isinstance(op, Delete)]
        before = {op.path: self.tree.get(op.path) for op in offsets}
        results = super().commit(ops, session_id)
        for op in offsets:
            if op.path.count("/") == 5:
                node = before[op.path]
                self.story.check_commit(op, session_id, node.data if node else None)
        if any(op.path.startswith(OWNERS) for op in ops):
            self.story.check_deliveries()
        return results


class ToldDelivery(StreamDelivery):
    """Real streams; the story checks them when deliveries begin."""

    story: Story

    def start(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        super().start(starts)
        self.story.check_deliveries()

    def resume(self) -> None:
        super().resume()
        self.story.check_deliveries()


class ToldMember(Member):
    """A real member whose events and effects the story records."""

    story: Story

    def _handle_event(self, event: on.Event) -> None:
        before = self.membership
        self.story.tell(self.consumer_id, event)
        try:
            super()._handle_event(event)
        except AssertionError as failure:
            self.story.violated(f"{self.consumer_id}: {failure}")
            raise
        late = getattr(event, "round", before.round) != before.round
        if late and not isinstance(event, on.Retry) and self.membership is before:
            self.story.bites["stale result"] += 1
        if bite := _BITES.get(type(event)):
            self.story.bites[bite] += 1
        if self.membership.blocked and self.membership.phase is Phase.BACKING_OFF:
            self.story.bites["partition in another's hands"] += 1

    async def _perform(self, effect: do.Ordered) -> on.Event | None:
        self.story.tell(self.consumer_id, effect)
        return await super()._perform(effect)


_BITES: dict[type[Any], str] = {
    on.ClaimFailed: "claim too late",
    on.SessionLost: "session lost",
    on.RoundFailed: "round failed",
    on.ReleaseFailed: "release failed",
    on.RegistrationFailed: "registration failed",
    on.GroupUnreadable: "group unreadable",
}


class Player:
    """A member, its application, and their connection to the world."""

    def __init__(self, story: Story, name: str, session: MemorySession, streams: int) -> None:
        self.story = story
        self.name = name
        self.session = session
        self.num_streams = streams
        self.wire: Any = Wire(session, story)
        self.consumer_id = f"{GROUP}_{name}"
        store = ZooKeeperStore(self.wire)
        self.delivery = ToldDelivery(
            *(GROUP, self.consumer_id, store, self._fetch), commit_retries=2, commit_backoff_ms=200
        )
        self.delivery.story = story
        self.delivery.entitled = self._entitled
        streams_made = [
            MessageStream(bytes_decoder, bytes_decoder, entitled=self._entitled)
            for _ in range(streams)
        ]
        self.delivery.streams = streams_made
        self.delivery.stream_of = lambda partition, thread: streams_made[stream_index(thread)]
        self.delivery.listener = Listener(self)
        wanted: Subscription = StaticSubscription(dict.fromkeys(TOPICS, streams))
        if story.random.random() < 0.3:
            wanted = FilterSubscription(Whitelist("[t-w]"), streams)
        settings = MembershipSettings(story.strategy, True, 99, BACKOFF_MS)
        self.member = ToldMember(
            GroupTree(self.wire, GROUP, self.consumer_id, wanted, strategy=story.strategy),
            self.delivery,
            Membership(self.consumer_id, settings),
            rng=story.random,
        )

        self.member.story = story
        self.crashed = False
        self.streams_lost = 0
        self.next_silence_s: float | None = None
        session.add_state_listener(self._state_changed)
        self.feeds: list[PartitionFeed] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            silent_s = self.next_silence_s
            self.next_silence_s = None
            if silent_s is None:  # a reply was lost
                silent_s = self.story.random.uniform(0.05, 1.0)
            self.story.connection_broke(self, silent_s)

    def _entitled(self) -> bool:
        """Return whether the lease holds. In every other story only its timers end it."""
        silence_ms: int = self.session.silence_ms
        return self.story.seed % 2 == 0 or silence_ms * 3 < SESSION_TIMEOUT_MS * 2

    def begin(self) -> None:
        life = [self._join(), self._fetcher(), self._commit_by_the_clock()]
        life += [self._application(stream) for stream in self.delivery.streams]
        self.tasks = [asyncio.ensure_future(part) for part in life]

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()

    @property
    def delivers(self) -> list[TopicPartition]:
        if self.delivery.paused or not self._entitled():
            return []
        return [feed.partition for feed in self.delivery.owned]

    async def _join(self) -> None:
        with contextlib.suppress(ConsumerRebalanceFailed, MembershipLost):  # it left before
            await self.member.join()

    async def _application(self, stream: MessageStream) -> None:
        try:
            async for message in stream:
                partition = TopicPartition(message.topic, message.partition)
                self.story.handed_out(self, partition, message)
                await self.story.work()
        except MembershipLost:
            self.streams_lost += 1

    async def _commit_by_the_clock(self) -> None:
        while True:
            await asyncio.sleep(self.story.random.uniform(0.5, 1.5))
            with contextlib.suppress(CommitFailed):
                await self.delivery.commit_offsets()

    def _fetch(self, feeds: Iterable[PartitionFeed]) -> None:
        self.feeds += feeds

    async def _fetcher(self) -> None:
        while True:
            await asyncio.sleep(self.story.random.uniform(0.1, 0.5))
            self.feeds = [feed for feed in self.feeds if feed.live]
            fetched = [self._read(feed) for feed in self.feeds if feed.stream.has_room]
            await asyncio.sleep(self.story.random.uniform(0, 0.1))  # on the way, as others go on
            for take, feed, fetched_of_one in fetched:
                if feed.live:
                    take(feed, fetched_of_one)

    def _read(self, feed: PartitionFeed) -> tuple[Callable[..., None], PartitionFeed, Any]:
        """Return a call for the response of a broker, to be made when it arrives."""
        log_start, log_end = self.story.log_bounds(feed.partition)
        start = feed.fetch_offset
        if start is None:
            return self._reset, feed, log_end if self.story.reset == "largest" else log_start
        if start < log_start:
            return PartitionFeed.lose_place, feed, start
        end = min(log_end, start + 16)
        rows = [(offset, -1, None, None, ()) for offset in range(start, end)]
        return self._queue, feed, Chunk(feed, start, end, rows)

    def _reset(self, feed: PartitionFeed, offset: int) -> None:
        self.story.check_reset(self, feed, offset)
        feed.reset(offset)

    def _queue(self, feed: PartitionFeed, chunk: Chunk) -> None:
        if chunk.rows:
            feed.stream.put(chunk)
            feed.fetch_offset = chunk.next_offset


class Listener:
    """An application's listener: it is slow, and fails now and then."""

    def __init__(self, player: Player) -> None:
        self.player = player

    async def before_releasing_partitions(
        self, partition_ownership: Mapping[str, Set[int]]
    ) -> None:
        self.player.story.check_told(self.player, partition_ownership)
        await self._dawdle()

    async def before_starting_fetchers(
        self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
    ) -> None:
        await self._dawdle()

    async def _dawdle(self) -> None:
        story = self.player.story
        if story.random.random() < 0.2:
            await asyncio.sleep(story.random.uniform(0, 1))
        if story.random.random() < 0.1:
            raise RuntimeError(f"the application of {self.player.name} is out of sorts")


class Violation(AssertionError):
    """Something happened that must not happen; the message is the whole transcript."""


class Story:
    """The sixty seconds of one seed. `run` it, or `tell_whole` it from outside a loop."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults: Counter[str] = Counter()
        self.bites: Counter[str] = Counter()
        self.told: list[tuple[float, str, Any]] = []
        self.violation: str | None = None
        self.players: dict[str, Player] = {}
        self.strategy = sorted(ASSIGNORS)[seed % len(ASSIGNORS)]
        self.reset = "largest" if seed % LARGEST_EVERY == LARGEST_EVERY - 1 else "smallest"
        self.partitions = dict(TOPICS)
        self.zk = WatchedZooKeeper(self)
        self.seen: dict[TopicPartition, set[int]] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.resets: dict[TopicPartition, int] = {}
        self.taken: dict[str, float] = {}
        """Owner node that was deleted by hand -> time until which that may go unnoticed."""
        self.repeated = self.delays = self.reorderings = 0
        self._names = _short_names()
        self._sent = 0
        self._on_the_way: set[int] = set()
        self._over = asyncio.Event()
        self._admin: MemorySession = self.zk.session()

    # --- the plot -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the story. Raises Violation."""
        await self._admin.start()
        for topic, count in TOPICS.items():
            await self._write_topic(topic, count)
        plot = [(self.random.uniform(0, 2), Story.arrive) for _ in range(FIRST_MEMBERS)]
        troubles = CLEAN_TROUBLES if self.reset == "largest" else TROUBLES
        for _ in range(self.random.randint(FEWEST_FAULTS, FEWEST_FAULTS + 6)):
            plot.append((self.random.uniform(*TROUBLE_S), self.random.choice(troubles)))
        for at_s, befall in sorted(plot, key=lambda scene: scene[0]):
            await self._wait_until(at_s)
            await befall(self)

        await self._wait_until(LENGTH_S)
        if self.violation is None:
            await self._wait_until_nobody_looks_around()
            self._check_end()

        for player in self.players.values():
            await self._leave(player)
        if self.violation is not None:
            raise Violation(self.transcript())

    async def _wait_until(self, at_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                await self._over.wait()

    async def _wait_until_nobody_looks_around(self) -> None:
        for _ in range(200):
            if all(player.member.is_settled for player in self.players.values()):
                return
            await asyncio.sleep(0.01)

    # --- what befalls a group -----------------------------------------------------------------

    async def join(self) -> None:
        """Let a member join."""
        if len(self.players) == MOST_MEMBERS:
            return await self.leave()
        self.faults["join"] += 1
        return await self.arrive()

    async def arrive(self) -> None:
        """Let one of the first members join, which does not count as a fault."""
        name = next(self._names)
        streams = self.random.randint(1, 2)
        self.tell("", f"-- {name} joins with {streams} streams")
        session = self.zk.session(SESSION_TIMEOUT_MS)
        await session.start()
        self.players[name] = player = Player(self, name, session, streams)
        player.begin()

    async def leave(self) -> None:
        """Let a member leave properly."""
        if len(self.players) < 3:
            return await self.join()
        player = self._somebody()
        self._befalls("leave", f"{player.name} leaves")
        del self.players[player.name]
        self._later(0, lambda: self._spawn(self._leave(player)))
        return None

    async def redeploy(self) -> None:
        """Let a topic grow; soon all members leave properly, and as many join."""
        await self.more_partitions()
        await asyncio.sleep(self.random.uniform(0.5, 2.5))
        players = list(self.players.values())
        self._befalls("redeployed", "the whole group is deployed again")
        self.players.clear()
        await asyncio.gather(*map(self._leave, players))
        for _ in players:
            await self.arrive()

    async def _leave(self, player: Player) -> None:
        await player.member.leave()
        player.end()
        await player.session.close()

    async def crash(self) -> None:
        """Crash a process; ZooKeeper notices it when the session ends."""
        if len(self.players) < 3:
            return await self.join()
        player = self._somebody()
        self._befalls("crash", f"{player.name} crashes")
        del self.players[player.name]
        self._be_gone(player)
        player.crashed = True
        self._silence(player, 0.0)
        self._later(SESSION_TIMEOUT_MS / 1000, lambda: self.zk.expire(player.session))
        return None

    def _be_gone(self, player: Player) -> None:
        with contextlib.suppress(ValueError):  # it ended with its session
            player.session.remove_state_listener(player.member._session_changed)
        player.end()
        if player.member._runner:
            player.member._runner.cancel()
        player.member._timers.cancel_all()
        player.delivery.abandon()

    async def blip(self) -> None:
        """Cut a connection for less than a lease lasts."""
        await self._cut(self.random.uniform(0.05, 3.9), "blip")

    async def silence(self) -> None:
        """Cut a connection for longer than the lease lasts, and less than the session."""
        await self._cut(self.random.uniform(4.1, 5.9), "silence")

    async def expiry(self) -> None:
        """Cut a connection for longer than the session lasts."""
        await self._cut(self.random.uniform(6.1, 9.0), "expiry")

    async def _cut(self, silent_s: float, kind: str) -> None:
        player = self._somebody()
        if player.session.state is not SessionState.CONNECTED:
            return await self.slow()
        self._befalls(kind, f"{player.name} is cut off from ZooKeeper for {silent_s:.2f} s")
        self._silence(player, silent_s)
        return None

    def _silence(self, player: Player, silent_s: float) -> None:
        player.next_silence_s = silent_s
        self.zk.suspend(player.session)

    def connection_broke(self, player: Player, silent_s: float) -> None:
        """End a silence: the connection comes back, or the session expires."""
        session = player.session
        timeout_s = SESSION_TIMEOUT_MS / 1000
        if silent_s >= timeout_s:
            self._later(timeout_s, lambda: self.zk.expire(session))
        self._later(silent_s, lambda: player.crashed or self.zk.resume(session))

    async def lost_reply(self) -> None:
        """Break a connection behind a write, which is done and gets no response."""
        player = self._somebody()
        if player.session.state is not SessionState.CONNECTED:
            return await self.slow()
        self._befalls("lost reply", f"{player.name} will get no reply to its next write")
        self.zk.lose_reply(player.session)
        return None

    async def slow(self) -> None:
        """Make a wire very slow for a while; later events of others overtake those on it."""
        player = self._somebody()
        lasts_s = self.random.uniform(0.5, 3.0)
        self._befalls("slow wire", f"{player.name}'s wire is slow for {lasts_s:.2f} s")
        player.wire.slowness = SLOW
        self._later(lasts_s, lambda: setattr(player.wire, "slowness", 1))

    async def more_partitions(self) -> None:
        """Let a topic grow."""
        topic = self.random.choice(sorted(self.partitions))
        self.partitions[topic] += self.random.randint(1, 3)
        self._befalls("more partitions", f"{topic} has {self.partitions[topic]} partitions now")
        await self._write_topic(topic, self.partitions[topic])

    async def retention(self) -> None:
        """Delete the messages of a topic, consumed or not."""
        topic = self.random.choice(sorted(self.partitions))
        self._befalls("retention", f"the messages of {topic} are deleted")
        for number in range(self.partitions[topic]):
            partition = TopicPartition(topic, number)
            self.log_starts[partition] = self.log_bounds(partition)[1]

    async def topic_deleted(self) -> None:
        """Delete a topic for good."""
        if MORTAL not in self.partitions:
            return await self.more_partitions()
        self._befalls("topic deleted", f"{MORTAL} is deleted")
        del self.partitions[MORTAL]
        await self._admin.delete(TopicAssignment.path(MORTAL))
        return None

    async def unregistered(self) -> None:
        """Delete the registration of a living member."""
        player = self._somebody()
        path = ConsumerRegistration.path(GROUP, player.consumer_id)
        self._befalls("unregistered", f"{player.name}'s registration is deleted by hand")
        with contextlib.suppress(ZkError):
            await self._admin.delete(path)

    async def directories_deleted(self) -> None:
        """Delete the group's directories, or the whole group, as somebody who tidies up would."""
        below = self.random.choice(["", "/ids", "/owners", f"/owners/{self._some_topic()}"])
        path = f"/consumers/{GROUP}{below}"
        self._befalls("directories deleted", f"{path} is deleted by hand, with all below it")
        until_s = self.now_s() + NOTICED_S
        for owned, node in self.zk.tree.items():
            if owned.startswith(OWNERS) and owned.startswith(f"{path}/") and node.ephemeral_owner:
                self.taken[owned] = until_s
        with contextlib.suppress(ZkError):  # where claims are refused, deletions are
            await self._admin.delete_recursive(path)

    async def session_closed(self) -> None:
        """Close the session of a member; its applications notice it."""
        player = self._somebody()
        if len(self.players) < 3 or player.session.state is not SessionState.CONNECTED:
            return await self.join()
        self._befalls("session closed", f"the session of {player.name} is closed for good")
        await player.session.close()
        del self.players[player.name]
        if player.delivery.owned:
            self.violated(f"{player.name} delivers {player.delivers} without a session")
        self._later(HEARD_S, lambda: self._spawn(self._ends_lost(player)))
        return None

    async def _ends_lost(self, player: Player) -> None:
        if player.streams_lost < player.num_streams:
            self.violated(f"{player.name} waits for messages that nobody will send")
        await self._leave(player)

    async def claims_refused(self) -> None:
        """Forbid to claim partitions of a topic, and to release them, for a while."""
        topic = self._some_topic()
        lasts_s = self.random.uniform(0.5, 4.0)
        self._befalls("claims refused", f"nobody may claim of {topic} for {lasts_s:.2f} s")
        path = f"{OWNERS}{topic}"
        self.zk.read_only.add(path)
        self._later(lasts_s, lambda: self.zk.read_only.discard(path))

    def _some_topic(self) -> str:
        return self.random.choice(sorted(self.partitions))

    async def malformed(self) -> None:
        """Register a member with unreadable content, and delete it again."""
        lasts_s = self.random.uniform(0.2, 3.0)
        path = ConsumerRegistration.path(GROUP, f"broken{self.faults['malformed']}")
        self._befalls("malformed", f"a registration nobody can read stands for {lasts_s:.2f} s")
        await self._admin.create(path, b"{", make_parents=True)
        self._later(lasts_s, lambda: self._spawn(self._admin.delete_recursive(path)))

    async def broker(self) -> None:
        """Register a second broker, or delete it."""
        self._befalls("broker", "a broker comes or goes")
        if await self._admin.exists("/brokers/ids/1"):
            await self._admin.delete("/brokers/ids/1")
        else:
            await self._admin.create("/brokers/ids/1", None, make_parents=True)

    async def _write_topic(self, topic: str, count: int) -> None:
        content = TopicAssignment({number: (number % 3,) for number in range(count)}).encode()
        path = TopicAssignment.path(topic)
        if await self._admin.exists(path):
            await self._admin.set(path, content)
        else:
            await self._admin.create(path, content, make_parents=True)

    def _somebody(self) -> Player:
        return self.players[self.random.choice(sorted(self.players))]

    def _befalls(self, kind: str, what: str) -> None:
        self.faults[kind] += 1
        self.tell("", f"-- {what}")

    def _later(self, delay_s: float, call: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(delay_s, call)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.ensure_future(work).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.violated(f"unexpected: {error!r}")

    # --- the world ----------------------------------------------------------------------------

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def log_bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the log's start and end; every partition gets messages at its own pace."""
        pace = 0.7 + (7 * partition.partition + len(partition.topic)) % 4
        log_end = int(min(self.now_s(), LAST_MESSAGE_S) * pace)
        return self.log_starts.get(partition, 0), log_end

    async def work(self) -> None:
        """Take the time of an application for a message: hardly any, or seldom a long one."""
        seldom, longest_s = (0.01, 5.0) if self.reset == "largest" else (0.05, 0.1)
        if self.random.random() < seldom and self.now_s() < LAST_MESSAGE_S:
            await asyncio.sleep(self.random.uniform(0, longest_s))

    def calls_sent(self) -> int:
        self._sent += 1
        self._on_the_way.add(self._sent)
        return self._sent

    def call_arrives(self, number: int) -> None:
        self._on_the_way.remove(number)
        self.delays += 1
        self.reorderings += any(earlier < number for earlier in self._on_the_way)

    # --- what must hold -----------------------------------------------------------------------

    def check_deliveries(self) -> None:
        """Check that a partition is delivered only by its owner in its present session."""
        for name, player in self.players.items():
            for partition in player.delivers:
                owner = self._owner(partition)
                if owner != (player.consumer_id, player.session.session_id):
                    self._violated_unless_taken(
                        partition, f"{name} delivers {partition}, which is owned by {owner}"
                    )

    def _violated_unless_taken(self, partition: TopicPartition, what: str) -> None:
        """Record a violation, unless somebody has deleted the owner node a moment ago."""
        taken_until_s = self.taken.get(f"{OWNERS}{partition.topic}/{partition.partition}", 0.0)
        if self.now_s() > taken_until_s:
            self.violated(what)

    def check_commit(self, op: Any, session_id: int, before: bytes | None) -> None:
        topic, partition = op.path.split("/")[-2:]
        topic_partition = TopicPartition(topic, int(partition))
        owner = self._owner(topic_partition)
        if owner is None or owner[1] != session_id:
            what = f"session {session_id} commits {topic_partition}, which is owned by {owner}"
            self._violated_unless_taken(topic_partition, what)
        if isinstance(op, Create) or before is None:
            return
        if ConsumerOffset.decode(op.data).offset < ConsumerOffset.decode(before).offset:
            what = f"the commit of {topic_partition} goes back from {before!r} to {op.data!r}"
            self._violated_unless_taken(topic_partition, what)

    def check_reset(self, player: Player, feed: PartitionFeed, offset: int) -> None:
        """Check that no group is reset again while messages exist that came after a reset."""
        partition = feed.partition
        former = self.resets.get(feed.partition)
        self.tell(player.name, f"{partition} is reset to {offset}")
        if self.reset == "largest":
            self.bites["reset behind queued messages"] += feed.stream.queue_size > 0
            if former is not None and former >= self.log_bounds(partition)[0]:
                what = f"{partition} to {offset}, and all since {former} is there"
                self.violated(f"{player.name} resets {what}")
        self.resets[partition] = offset

    def check_told(self, player: Player, ownership: Mapping[str, Set[int]]) -> None:
        """Check that a listener is called while the partitions are still its own to commit."""
        if player.session.server_expired or player.name not in self.players:
            return
        for topic, numbers in ownership.items():
            for partition in (TopicPartition(topic, number) for number in sorted(numbers)):
                owner = self._owner(partition)
                if owner != (player.consumer_id, player.session.session_id):
                    what = f"{partition}, which is owned by {owner}"
                    what = f"the listener of {player.name} is called for {what}"
                    self._violated_unless_taken(partition, what)

    def handed_out(self, player: Player, partition: TopicPartition, message: Any) -> None:
        if player.name in self.players:  # one that leaves has been stopped, and then has left
            owner = self._owner(partition)
            if owner != (player.consumer_id, player.session.session_id):
                what = f"{message.offset} of {partition}"
                what = f"{player.name} hands out {what}, which is owned by {owner}"
                self._violated_unless_taken(partition, what)
        seen = self.seen.setdefault(partition, set())
        self.repeated += message.offset in seen
        seen.add(message.offset)

    def _owner(self, partition: TopicPartition) -> tuple[str, int] | None:
        node = self.zk.tree.get(f"{OWNERS}{partition.topic}/{partition.partition}")
        if node is None:
            return None
        return consumer_of((node.data or b"").decode()), node.ephemeral_owner

    def _check_end(self) -> None:
        threads = [
            thread
            for player in self.players.values()
            for thread in thread_ids(player.consumer_id, player.num_streams)
        ]
        partitions = {topic: range(count) for topic, count in self.partitions.items()}
        leaders = {TopicPartition(t, p): p % 3 for t, some in partitions.items() for p in some}
        assign = ASSIGNORS[self.strategy]
        shares = assign(dict.fromkeys(partitions, threads), partitions, leaders)
        stray = [path for path in self.zk.tree if path.startswith(f"{OWNERS}{MORTAL}/")]
        if stray and MORTAL not in partitions:
            self.violated(f"in the end {stray} are owned, of a topic that is deleted")

        for partition, thread in shares.items():
            node = self.zk.tree.get(f"{OWNERS}{partition.topic}/{partition.partition}")
            owner = (node.data or b"").decode() if node else None
            if owner != thread:
                self.violated(f"in the end {partition} is owned by {owner}, not by {thread}")
            name = consumer_of(thread).removeprefix(f"{GROUP}_")
            if partition not in self.players[name].delivers:
                self.violated(f"in the end {name} does not deliver {partition}")
            due = range(self.resets.get(partition, 0), self.log_bounds(partition)[1])
            if missed := set(due) - self.seen.get(partition, set()):
                self.violated(f"nobody was handed {sorted(missed)} of {partition}")

    # --- the telling --------------------------------------------------------------------------

    def tell(self, who: str, what: Any) -> None:
        """Record an event. `what` becomes words only for a transcript."""
        if self.violation is None:
            self.told.append((self.now_s(), who, what))

    def violated(self, what: str) -> None:
        if self.violation is None:
            self.tell("", f"VIOLATION: {what}")
            self.violation = what
            self._over.set()

    def transcript(self) -> str:
        """Return the story so far, in words."""
        lines = [f"seed {self.seed}: {self.counts()}"]
        for at_s, who, what in self.told:
            if words := what if isinstance(what, str) else _in_words(what):
                name = who.removeprefix(f"{GROUP}_")
                lines.append(f"{at_s:7.3f}  {name:2}{words}")
        lines.append(f"to replay: make simulate SEEDS={self.seed}")
        return "\n".join(lines)

    def counts(self) -> str:
        """Return the faults of the story, and how often they took effect."""
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        bites = ", ".join(f"{count} {kind}" for kind, count in sorted(self.bites.items()))
        return (
            f"{self.faults.total()} faults ({faults}); they bit: {bites or 'never'}; "
            f"{self.delays} calls delayed, {self.reorderings} overtaken, "
            f"{sum(map(len, self.seen.values()))} messages, {self.repeated} repeated"
        )


TROUBLES: tuple[Callable[[Story], Coroutine[Any, Any, None]], ...] = (
    *(Story.join, Story.leave, Story.crash, Story.blip, Story.silence, Story.expiry),
    *(Story.expiry, Story.lost_reply, Story.lost_reply, Story.slow, Story.slow),
    *(Story.more_partitions, Story.topic_deleted, Story.unregistered, Story.malformed),
    *(Story.broker, Story.directories_deleted, Story.session_closed, Story.claims_refused),
)
CLEAN_TROUBLES: tuple[Callable[[Story], Coroutine[Any, Any, None]], ...] = (
    *(Story.join, Story.leave, Story.leave, Story.redeploy, Story.redeploy, Story.slow),
    *(Story.more_partitions, Story.more_partitions, Story.retention, Story.topic_deleted),
    Story.broker,
)


def _short_names() -> Iterator[str]:
    """Yield a to z, A to Z, a1, b1, ..."""
    for letter in string.ascii_letters:
        yield letter
    for number, letter in itertools.product(itertools.count(1), string.ascii_letters):
        yield f"{letter}{number}"


def tell_whole(seed: int) -> Story:
    """Run the story of a seed. Raises Violation, with the transcript."""

    async def live() -> Story:
        story = Story(seed)
        await story.run()
        return story

    with checking_states():
        return run_in_virtual_time(live())


def _in_words(what: Any) -> str | None:
    words = _WORDS.get(type(what))
    return words(what) if words else None


def _names(partitions: Iterable[TopicPartition]) -> str:
    """Return `t-0…3, u-1`: consecutive partitions are joined."""
    runs: list[list[TopicPartition]] = []
    for partition in sorted(partitions):
        last = runs[-1][-1] if runs else None
        if last and (last.topic, last.partition + 1) == (partition.topic, partition.partition):
            runs[-1].append(partition)
        else:
            runs.append([partition])
    return ", ".join(
        f"{run[0]}…{run[-1].partition}" if len(run) > 1 else str(run[0]) for run in runs
    )


def _members(snapshot: on.GroupSnapshot) -> str:
    return ", ".join(name.removeprefix(f"{GROUP}_") for name in sorted(snapshot.members))


_WORDS: dict[type[Any], Callable[[Any], str | None]] = {
    on.SessionEstablished: lambda e: f"is connected, in session {e.session_id}",
    on.Suspended: lambda e: "has no connection to ZooKeeper",
    on.LeaseEnded: lambda e: "has had no connection for two thirds of its session",
    on.SessionLost: lambda e: "learns that its session has ended, and with it all ownership",
    on.SessionClosed: lambda e: "learns that its session is closed, and is out for good",
    on.Registered: lambda e: "is registered",
    on.RegistrationFailed: lambda e: f"could not register: {e.reason}",
    on.GroupChanged: lambda e: "sees that the group has changed",
    on.TopicsChanged: lambda e: "sees that topics have changed",
    on.BrokersChanged: lambda e: "sees that brokers have changed",
    on.OwnerChanged: lambda e: "sees a change of the owner that it waits for",
    on.GroupRead: lambda e: f"round {e.round}: sees {_members(e.snapshot)}",
    on.GroupUnreadable: lambda e: f"round {e.round}: {e.problem.text}",
    on.Claimed: lambda e: f"round {e.round}: its claim stands",
    on.ClaimFailed: lambda e: f"round {e.round}: its claim came too late",
    on.RoundFailed: lambda e: f"round {e.round} failed: {e.reason}",
    on.ReleaseFailed: lambda e: f"round {e.round}: could not release: {e.reason}",
    on.Retry: lambda e: "looks again",
    on.Shutdown: lambda e: "is asked to leave",
    do.Register: lambda e: "registers",
    do.ReleaseOwners: lambda e: f"releases {_names(e.partitions)}",
    do.ClaimOwners: lambda e: f"claims {_names({*e.create, *e.move})}",
    do.WatchOwners: lambda e: f"waits for {_names(e.partitions)}",
    do.StopFetchers: lambda e: f"stops {_names(e.partitions)}" if e.partitions else None,
    do.CommitPositions: lambda e: f"commits {_names(e.partitions)}" if e.partitions else None,
    do.FetchOffsets: lambda e: f"asks for the offsets of {_names(e.partitions)}",
    do.StartFetchers: lambda e: f"delivers {_names(e.starts)}",
    do.MoveFetchers: lambda e: f"moves {_names(e.threads)} to other streams",
    do.LeaveGroup: lambda e: "leaves the group",
}
