"""Measure a large group: 10, 20 and 50 members of ours with 2,000 partitions.

All run in this process, on ZooKeeper's twin in memory, in virtual time: each call takes LATENCY_S
there and back, as does a watch event. First all start at once, then one more joins, then the first
leaves. Streams and stores are real. Every partition has a committed offset, and one message is
consumed before it is released. The twin's own time is not counted. Nor is garbage collection, which
would walk the memory of all members for the garbage of each.

Each member has its own work, so the cost of a step may grow as the number of members does: requests
per member should stay the same. So should processor time per member and partition, since each
member computes the assignment of all partitions.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from statistics import median
from typing import Any

import attrs

from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_most, format_number
from clients.high_level.delivery import StreamDelivery
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from groups.zookeeper.assignment import assign_range
from groups.zookeeper.member import Member
from groups.zookeeper.membership_state import Membership
from groups.zookeeper.registration import StaticSubscription, thread_ids
from groups.zookeeper.tree import GroupTree
from offsets.governed_store import GovernedStore
from offsets.zookeeper_store import ZooKeeperStore
from tests.stage.clock import VirtualTimeLoop
from zk.api import Create, WatchEvent, ZkError
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerGroup, ConsumerOffset, PartitionOwner, TopicAssignment

GROUP, TOPIC = "large", "t"
PARTITIONS = 2000
SIZES = (10, 20, 50)
STEPS = ("start at once", "and one more joins", "and one leaves")
LINEAR = at_most(1.25)
LATENCY_S = 0.001
_INSTANT_S = 1e-9
STEP_S = 8.0
"""Virtual seconds of a step; members at rest check the group less often."""

Figures = tuple[float, ...]


def measure(rounds: Rounds) -> Iterator[Row]:
    """Yield rows of requests and processor time for each step and size.

    The second column has what linear growth from the smallest size would give.
    """
    contestants = [partial(_figures, size) for size in SIZES]

    # Two figures for each step, requests and processor time.
    by_step = alternate(contestants, rounds)
    for step, requests, cpu in zip(STEPS, by_step[::2], by_step[1::2], strict=True):
        for size, figures in zip(SIZES, requests, strict=True):
            total = f"{format_number(median(figures) * _count_participants(size, step))} requests"
            yield _row(size, step, total, "a member", [figures, requests[0]])
        for size, figures in zip(SIZES, cpu, strict=True):
            seconds = median(figures) * _count_participants(size, step) * PARTITIONS / 1e6
            total = f"{format_number(seconds)} s of CPU"
            yield _row(size, step, total, "µs a member and partition", [figures, cpu[0]])


def _count_participants(size: int, step: str) -> int:
    """Count the members that work in a step; one that joins or leaves is one of them."""
    return size if step == STEPS[0] else size + 1


def _row(size: int, step: str, total: str, unit: str, figures: list[Figures]) -> Row:
    question = f"{size} members {step}, {total}"
    if size == SIZES[0]:
        return Row(question, unit, None, figures[:1], beside=Beside.LINEAR)
    return Row(f"{question} · linear from {SIZES[0]}", unit, LINEAR, figures, beside=Beside.LINEAR)


def _figures(size: int, _: float) -> Figures:
    """Return for each step requests per member, and CPU in µs per member and partition."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            costs = runner.run(_live(size))
    finally:
        gc.enable()
    return tuple(
        figure
        for step, (requests, cpu_s) in zip(STEPS, costs, strict=True)
        for members in [_count_participants(size, step)]
        for figure in (requests / members, cpu_s * 1e6 / members / PARTITIONS)
    )


async def _live(size: int) -> list[tuple[int, float]]:
    """Run all steps; return the requests and the seconds of processor time of each."""
    zookeeper = MemoryZooKeeper(lambda: int(asyncio.get_running_loop().time() * 1000))
    await _furnish(zookeeper)
    meter = Meter()

    # One member more than `size`: it joins in the second step.
    everyone = [await GroupMember.make(zookeeper, meter, f"{i:03}") for i in range(size + 1)]
    *first, newcomer = everyone

    async def start() -> None:
        await asyncio.gather(*(member.member.join() for member in first))

    # All start, one joins, the first leaves.
    steps = (
        (start, first),
        (newcomer.member.join, everyone),
        (first[0].member.leave, everyone[1:]),
    )
    costs = []
    for act, members in steps:
        costs.append(await meter.measure(act))
        _check_shares(zookeeper, members)
    return costs


async def _furnish(zookeeper: MemoryZooKeeper) -> None:
    session = zookeeper.session()
    await session.start()

    # The topic's partitions, and a committed offset for each.
    content = TopicAssignment(dict.fromkeys(range(PARTITIONS), (0,))).encode()
    await session.create(TopicAssignment.path(TOPIC), content, make_parents=True)
    await session.ensure_path(ConsumerGroup.topic_offsets_path(GROUP, TOPIC))
    paths = [ConsumerOffset.path(GROUP, TOPIC, p) for p in range(PARTITIONS)]
    await session.multi([Create(path, ConsumerOffset(7).encode()) for path in paths])


def _check_shares(zookeeper: MemoryZooKeeper, members: Sequence["GroupMember"]) -> None:
    threads = [thread for m in members for thread in thread_ids(m.member.consumer_id, 1)]
    for p, thread in assign_range({TOPIC: threads}, {TOPIC: range(PARTITIONS)}).items():
        # A wrong assignment may be a fast one.
        owner = zookeeper.tree[PartitionOwner.path(GROUP, *p)]
        assert owner.data == thread.encode(), f"{p} belongs to {owner.data!r}"


@attrs.define(eq=False)
class Meter:
    """The requests of all members, and the twin's share of the processor time."""

    requests: int = 0
    server_cpu_s: float = 0.0

    async def measure(self, act: Callable[[], Awaitable[None]]) -> tuple[int, float]:
        """Measure requests and our processor time of `act` and all that follows from it."""
        requests = self.requests
        began_s = time.process_time() - self.server_cpu_s
        await act()

        # Rebalances follow by watches, until the group is at rest.
        await asyncio.sleep(STEP_S)
        return self.requests - requests, time.process_time() - self.server_cpu_s - began_s


@attrs.define(eq=False)
class GroupMember:
    """A member with real streams and stores; it acknowledges migrations, as connectors do."""

    member: Member
    obeying: asyncio.Task[None]

    @staticmethod
    async def make(zookeeper: MemoryZooKeeper, meter: Meter, name: str) -> "GroupMember":
        session = zookeeper.session()
        await session.start()

        # Member and store see the server over the slow wire alone.
        wire: Any = Wire(session, meter)
        consumer_id = f"{GROUP}_{name}"
        offsets = ZooKeeperStore(wire)
        store = GovernedStore(
            *(wire, GROUP, consumer_id, offsets, offsets, "zookeeper", offsets), is_member=True
        )
        delivery = StreamDelivery(GROUP, consumer_id, store, _move_on, 0, 0)
        stream = MessageStream(bytes_decoder, bytes_decoder)
        delivery.stream_of = lambda partition, thread: stream
        tree = GroupTree(wire, GROUP, consumer_id, StaticSubscription({TOPIC: 1}))
        member = Member(tree, delivery, Membership(consumer_id), rng=Random(name))
        return GroupMember(member, asyncio.create_task(store.follow_migration()))


def _move_on(feeds: Iterable[PartitionFeed]) -> None:
    """Consume a message, so that there is something to commit."""
    for feed in feeds:
        feed.position = (feed.position or 0) + 1


class Wire:
    """A remote session: calls, replies and watch events take LATENCY_S and keep their order."""

    def __init__(self, session: MemorySession, meter: Meter) -> None:
        self._session = session
        self._meter = meter
        self._arrived_s = 0.0
        self._delivered_s = 0.0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if not asyncio.iscoroutinefunction(method):
            return method
        return lambda *arguments, **keywords: self._call(method, arguments, keywords)

    def _call(
        self, method: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._meter.requests += 1

        # A watch is the last argument, and its event is late too.
        if callable(arguments[-1]):
            arguments = (*arguments[:-1], LateWatch(self, arguments[-1]))

        def arrive() -> None:
            began_s = time.process_time()
            try:
                # The twin never waits, so one step runs the call to its end.
                method(*arguments, **keywords).send(None)
            except StopIteration as done:
                self.later(partial(_settle, reply, done.value, None))
            except ZkError as error:
                self.later(partial(_settle, reply, None, error))
            self._meter.server_cpu_s += time.process_time() - began_s

        # Calls of a session arrive in order.
        self._arrived_s = max(self._arrived_s + _INSTANT_S, loop.time() + LATENCY_S)
        loop.call_at(self._arrived_s, arrive)
        return reply

    def later(self, deliver: Callable[[], None]) -> None:
        """Deliver something from the server to the member after the latency."""
        loop = asyncio.get_running_loop()

        # Replies and events of a session arrive in order too.
        self._delivered_s = max(self._delivered_s + _INSTANT_S, loop.time() + LATENCY_S)
        loop.call_at(self._delivered_s, deliver)


@attrs.frozen
class LateWatch:
    """A watch that delivers its event late. Two of the same watch are equal."""

    wire: Wire
    watch: Callable[[WatchEvent], None]

    def __call__(self, event: WatchEvent) -> None:
        self.wire.later(partial(self.watch, event))


def _settle(reply: "asyncio.Future[Any]", result: object, error: ZkError | None) -> None:
    if reply.done():  # cancelled
        return
    if error:
        reply.set_exception(error)
    else:
        reply.set_result(result)
