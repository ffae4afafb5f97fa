"""Simulate whole groups in virtual time: real members on a ZooKeeper in memory, chance from a seed.

Each ZooKeeper call takes a random time before it is applied, and another before its reply comes, so
the members' steps interleave in every order. After every step no partition may be delivered by two
members. At the end every partition must be owned and delivered. A `JvmMember` does what Kafka's
ZookeeperConsumerConnector does, in its order.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from random import Random
from typing import Any

import pytest

from groups.zookeeper.assignment import assign_range
from groups.zookeeper.member import Member
from groups.zookeeper.membership_errors import ConsumerRebalanceFailed
from groups.zookeeper.membership_state import Membership, MembershipSettings
from groups.zookeeper.registration import (
    StaticSubscription,
    build_registration,
    consumer_of,
    subscription_of,
    thread_ids,
)
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.api import NodeExists, NoNode, SessionState, WatchEvent
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerRegistration, PartitionOwner, TopicAssignment

GROUP = "g"
SESSION_TIMEOUT_MS = 6000
BACKOFF_MS = 400
MAX_LATENCY_S = 0.05
QUIET_S = 30.0


class SlowSession:
    """A MemorySession with slow calls and replies; `step` is called after each of them."""

    def __init__(self, session: MemorySession, random: Random, step: Callable[[], None]) -> None:
        self.session = session
        self._random = random
        self._step = step

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def slow(*arguments: Any, **keywords: Any) -> Any:
            await asyncio.sleep(self._random.uniform(0, MAX_LATENCY_S))
            try:
                return await method(*arguments, **keywords)
            finally:
                self._step()
                await asyncio.sleep(self._random.uniform(0, MAX_LATENCY_S))
                self._step()

        return slow


class Deliveries:
    """The partitions that one member's streams would deliver: a `Delivery` without messages."""

    def __init__(self) -> None:
        self.opened: dict[TopicPartition, str] = {}
        self.threads: dict[TopicPartition, str] = {}
        self.paused = False

    @property
    def delivering(self) -> Set[TopicPartition]:
        return set() if self.paused else self.threads.keys()

    def stop(self, partitions: Set[TopicPartition]) -> None:
        for partition in partitions:
            self.threads.pop(partition, None)

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        assert threads.keys() <= self.threads.keys()
        self.threads |= threads

    def open(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        self.opened = {p: thread for p, (thread, _) in starts.items()}

    def fetch_opened(self, partitions: Set[TopicPartition]) -> None:
        assert not partitions & self.threads.keys(), "started twice"
        self.threads |= {p: self.opened[p] for p in partitions}

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def abandon(self) -> None:
        self.threads.clear()

    async def forget(self, partitions: Set[TopicPartition]) -> None:
        assert not partitions & self.threads.keys(), "forgotten while delivered"

    async def commit(self, partitions: Set[TopicPartition]) -> None:
        assert not partitions & self.threads.keys(), "committed while delivered"

    async def fetch_offsets(
        self, partitions: Set[TopicPartition]
    ) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, str]]:
        return dict.fromkeys(partitions), {}

    async def before_releasing(self, owned: Set[TopicPartition]) -> None: ...

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None: ...

    async def notify_revoked(self, partitions: Set[TopicPartition]) -> None: ...

    async def notify_lost(self, partitions: Set[TopicPartition]) -> None: ...

    async def notify_assigned(self, partitions: Set[TopicPartition]) -> None: ...


class JvmMember:
    """Kafka's connector: stop all, release all, claim one by one; undo and wait if one fails.

    It deletes nodes that it takes for its own without looking, and gives up after four attempts
    until something changes again.
    """

    def __init__(self, zk: Any, name: str, streams: Mapping[str, int]) -> None:
        self.zk = zk
        self.consumer_id = f"{GROUP}_{name}"
        self.streams = streams
        self.delivering: Set[TopicPartition] = set()
        self._registry: dict[TopicPartition, str] = {}
        self._changed = asyncio.Event()

    async def live(self) -> None:
        path = ConsumerRegistration.path(GROUP, self.consumer_id)
        registration = build_registration(StaticSubscription(self.streams), 0).encode()
        await self.zk.create(path, registration, ephemeral=True, make_parents=True)
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._synced_rebalance()

    async def _synced_rebalance(self) -> None:
        for _ in range(4):
            try:
                if await self._rebalance():
                    return
            except NoNode:
                pass
            self.delivering = set()
            await asyncio.sleep(BACKOFF_MS / 1000)

    def _watch(self, event: WatchEvent) -> None:
        self._changed.set()

    async def _rebalance(self) -> bool:
        self.delivering = set()
        for partition in self._registry:
            await self._delete(partition)
        self._registry = {}
        mine = await self._assignment()
        claimed: list[TopicPartition] = []
        for partition, thread in mine.items():
            if await self._claimed(partition, thread):
                claimed.append(partition)

        if len(claimed) < len(mine):
            for partition in claimed:
                await self._delete(partition)
            return False

        self._registry = mine
        self.delivering = mine.keys()
        return True

    async def _assignment(self) -> dict[TopicPartition, str]:
        consumers, _ = await self.zk.children(f"/consumers/{GROUP}/ids", self._watch)
        threads: dict[str, list[str]] = {}
        for consumer in consumers:
            content, _ = await self.zk.get(ConsumerRegistration.path(GROUP, consumer))
            wanted = subscription_of(ConsumerRegistration.decode(content))
            assert isinstance(wanted, StaticSubscription)
            for topic, streams in wanted.streams.items():
                threads.setdefault(topic, []).extend(thread_ids(consumer, streams))
        partitions = {}
        for topic in self.streams:
            content, _ = await self.zk.get(TopicAssignment.path(topic), self._watch)
            partitions[topic] = tuple(TopicAssignment.decode(content).partitions)
        assignment = assign_range({t: threads[t] for t in self.streams}, partitions)
        return {p: t for p, t in assignment.items() if consumer_of(t) == self.consumer_id}

    async def _claimed(self, partition: TopicPartition, thread: str) -> bool:
        path = PartitionOwner.path(GROUP, *partition)
        try:
            await self.zk.create(path, thread.encode(), ephemeral=True, make_parents=True)
        except NodeExists:
            with contextlib.suppress(NoNode):
                content, _ = await self.zk.get(path)
                return bool(content == thread.encode())
            return False
        return True

    async def _delete(self, partition: TopicPartition) -> None:
        with contextlib.suppress(NoNode):
            await self.zk.delete(PartitionOwner.path(GROUP, *partition))


class Simulation:
    """A group that `seed`'s dice change, and that is checked at each step."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = asyncio.get_running_loop().time
        self.zk = MemoryZooKeeper(lambda: int(self.clock() * 1000))
        self.partitions: dict[str, int] = {}
        self.members: dict[str, tuple[MemorySession, Member, Deliveries]] = {}
        self.jvm: dict[str, tuple[MemorySession, JvmMember, asyncio.Task[None]]] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.leaving: set[str] = set()

    async def set_partitions(self, topic: str, count: int) -> None:
        session = self.zk.session()
        await session.start()
        content = TopicAssignment(dict.fromkeys(range(count), (0,))).encode()
        if topic in self.partitions:
            await session.set(TopicAssignment.path(topic), content)
        else:
            await session.create(TopicAssignment.path(topic), content, make_parents=True)
        self.partitions[topic] = count
        await session.close()

    async def _session(self) -> tuple[MemorySession, Any]:
        session = self.zk.session(SESSION_TIMEOUT_MS)
        await session.start()
        return session, SlowSession(session, self.random, self.check_no_partition_has_two)

    async def join(self, name: str, streams: int = 1) -> None:
        session, slow = await self._session()
        wanted = StaticSubscription(dict.fromkeys(self.partitions, streams))
        consumer_id = f"{GROUP}_{name}"
        settings = MembershipSettings(rebalance_backoff_ms=BACKOFF_MS, rebalance_max_retries=99)
        deliveries = Deliveries()
        member = Member(
            GroupTree(slow, GROUP, consumer_id, wanted),
            deliveries,
            Membership(consumer_id, settings),
            rng=self.random,
        )
        self.members[name] = session, member, deliveries
        self._spawn(self._join(name, member))

    async def _join(self, name: str, member: Member) -> None:
        try:
            await member.join()
        except ConsumerRebalanceFailed:
            assert name not in self.members or name in self.leaving

    async def leave(self, name: str) -> None:
        session, member, _ = self.members[name]
        self.leaving.add(name)
        await member.leave()
        await session.close()
        del self.members[name]

    def kill(self, name: str) -> None:
        """Kill a process; its session ends after its timeout."""
        session, member, deliveries = self.members.pop(name)
        self.zk.suspend(session)
        deliveries.abandon()
        session.remove_state_listener(member._session_changed)
        assert member._runner is not None
        member._runner.cancel()
        member._timers.cancel_all()
        self._later(SESSION_TIMEOUT_MS / 1000, lambda: self.zk.expire(session))

    async def cut(self, name: str, silent_s: float) -> None:
        """Cut a member from ZooKeeper; its session ends if that lasts too long."""
        session, _, _ = self.members[name]
        if session.state is not SessionState.CONNECTED:
            return
        self.zk.suspend(session)
        if silent_s * 1000 >= SESSION_TIMEOUT_MS:
            self._later(SESSION_TIMEOUT_MS / 1000, lambda: self.zk.expire(session))
        self._later(silent_s, lambda: self.zk.resume(session))

    async def join_jvm(self, name: str, streams: int = 1) -> None:
        session, slow = await self._session()
        member = JvmMember(slow, name, dict.fromkeys(self.partitions, streams))
        self.jvm[name] = session, member, self._spawn(member.live())

    async def stop_jvm(self, name: str) -> None:
        session, member, life = self.jvm.pop(name)
        life.cancel()
        member.delivering = set()
        await session.close()

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, call)

    # --- what must hold -----------------------------------------------------------------------

    def deliveries(self) -> list[tuple[str, TopicPartition]]:
        ours = [(n, p) for n, (_, _, d) in self.members.items() for p in d.delivering]
        return ours + [(n, p) for n, (_, jvm, _) in self.jvm.items() for p in jvm.delivering]

    def check_no_partition_has_two(self) -> None:
        by_partition: dict[TopicPartition, list[str]] = {}
        for name, partition in self.deliveries():
            by_partition.setdefault(partition, []).append(name)
        twice = {p: names for p, names in by_partition.items() if len(names) > 1}
        assert not twice, f"delivered twice at {self.clock():.3f} s: {twice}"

    async def check_all_is_settled(self) -> None:
        await asyncio.sleep(QUIET_S)
        async with asyncio.timeout(1):  # one of them may be looking whether all is still well
            while not all(member.is_settled for _, member, _ in self.members.values()):
                await asyncio.sleep(0.01)

        self.check_no_partition_has_two()
        everything = {
            TopicPartition(t, p) for t, count in self.partitions.items() for p in range(count)
        }
        if not self.members and not self.jvm:
            everything = set()

        assert {partition for _, partition in self.deliveries()} == everything

        owners = {
            TopicPartition(path.split("/")[-2], int(path.split("/")[-1])): node.data
            for path, node in self.zk.tree.items()
            if path.startswith(f"/consumers/{GROUP}/owners/") and node.ephemeral_owner
        }

        assert owners.keys() == everything

        for name, partition in self.deliveries():
            owner = owners[partition]
            assert owner is not None
            assert consumer_of(owner.decode()) == f"{GROUP}_{name}"

        for _, _, deliveries in self.members.values():
            for partition, thread in deliveries.threads.items():
                assert owners[partition] == thread.encode()

        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def end(self) -> None:
        for name in [*self.jvm]:
            await self.stop_jvm(name)
        for name in [*self.members]:
            await self.leave(name)


def simulate(seed: int, scenario: Callable[[Simulation], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        simulation = Simulation(seed)
        await simulation.set_partitions("t", 7)
        await simulation.set_partitions("u", 2)
        await scenario(simulation)
        await simulation.check_all_is_settled()
        await simulation.end()

    run_in_virtual_time(play())


@pytest.mark.parametrize("seed", range(10))
def test_members_that_join_at_once_share_everything(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        for name in "abcd":
            await group.join(name, streams=group.random.randint(1, 3))

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_members_that_leave_during_a_rebalance_leave_nothing_behind(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        for name in "abc":
            await group.join(name)
        await asyncio.sleep(group.random.uniform(0, 0.5))
        await group.leave("b")
        await group.join("d")
        await asyncio.sleep(group.random.uniform(0, 0.5))
        await group.leave("a")

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_killed_member_owned_is_taken_over_when_its_session_ends(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        for name in "abc":
            await group.join(name)
        await asyncio.sleep(group.random.uniform(0, 1))
        group.kill("b")

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(20))
def test_a_session_that_expires_during_a_rebalance_is_survived(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        for name in "abc":
            await group.join(name, streams=2)
        await asyncio.sleep(group.random.uniform(0, 0.6))
        group.zk.expire(group.members["b"][0])
        group.check_no_partition_has_two()

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("silent_s", [0.5, 5.5, 9.0])
def test_a_member_cut_off_pauses_before_others_take_over(seed: int, silent_s: float) -> None:
    async def scenario(group: Simulation) -> None:
        for name in "abc":
            await group.join(name)
        await asyncio.sleep(group.random.uniform(0, 1))
        await group.cut("a", silent_s)
        await asyncio.sleep(group.random.uniform(0, silent_s))
        group.check_no_partition_has_two()
        await group.join("d")
        await asyncio.sleep(silent_s)

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_partitions_that_are_added_find_an_owner(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        for name in "ab":
            await group.join(name, streams=2)
        await asyncio.sleep(group.random.uniform(0, 0.6))
        await group.set_partitions("t", 12)

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(20))
def test_a_reply_that_is_lost_leaves_no_partition_without_owner(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        await group.join("a")
        await group.join("b")
        for _ in range(4):
            await asyncio.sleep(group.random.uniform(0, 0.4))
            session = group.members["a"][0]
            group.zk.lose_reply(session)
            await asyncio.sleep(group.random.uniform(0, 0.4))
            group.zk.resume(session)
        group.members["a"][0].loses_next_reply = False
        await group.set_partitions("t", 9)

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(30))
def test_a_group_shared_with_jvm_members_settles(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        steps = [group.join("a", 2), group.join_jvm("b"), group.join("c"), group.join_jvm("d")]
        group.random.shuffle(steps)
        for step in steps:
            await step
            await asyncio.sleep(group.random.uniform(0, 1))
        await group.leave("c")
        await asyncio.sleep(group.random.uniform(0, 1))
        await group.stop_jvm("d")
        await group.set_partitions("t", 8)

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(40))
def test_a_group_in_which_anything_happens_settles(seed: int) -> None:
    async def scenario(group: Simulation) -> None:
        names = iter("abcdefghijklmnopqrstuvwxyz")
        await group.join(next(names))

        for _ in range(12):
            await asyncio.sleep(group.random.expovariate(2))
            somebody = group.random.choice([*group.members]) if group.members else None
            happening = group.random.randrange(6)
            if happening <= 1 or somebody is None:
                await group.join(next(names), group.random.randint(1, 2))
            elif happening == 2:
                await group.leave(somebody)
            elif happening == 3:
                group.kill(somebody)
            elif happening == 4:
                await group.cut(somebody, group.random.choice([1.0, 5.0, 8.0]))
            elif group.members[somebody][0].state is SessionState.CONNECTED:
                group.zk.expire(group.members[somebody][0])
            group.check_no_partition_has_two()

    simulate(seed, scenario)
