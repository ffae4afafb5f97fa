"""Members on a ZooKeeper in memory, in virtual time: their operations on the tree, call by call."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any

import pytest

from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.events import Owner
from groups.zookeeper.member import (
    ConsumerRebalanceFailed,
    MalformedMember,
    Member,
    MembershipLost,
    StrategyConflict,
)
from groups.zookeeper.membership_state import Membership, MembershipSettings
from groups.zookeeper.registration import StaticSubscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.api import Op, Stat
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerRegistration, PartitionOwner, TopicAssignment

Partitions = Set[TopicPartition]
BROKERS = "/brokers/ids"
OWNERS = "/consumers/g/owners/t"
REGISTRATION = ConsumerRegistration({"t": 1}, "static", timestamp_ms=0).encode()


class Counting(MemoryZooKeeper):
    """A session that counts operations below `owners`."""

    def __init__(self) -> None:
        super().__init__(lambda: int(asyncio.get_running_loop().time() * 1000))
        self.owner_writes: Counter[str] = Counter()

    def commit(self, ops: Sequence[Op], session_id: int) -> list[str | Stat | None]:
        results = super().commit(ops, session_id)
        self.owner_writes.update(
            type(op).__name__ for op in ops if op.path.startswith("/consumers/g/owners/t/")
        )
        return results


class Streams:
    """A Delivery that records its calls."""

    def __init__(self) -> None:
        self.delivering: dict[TopicPartition, str] = {}
        self.diary: list[str] = []
        self.failure: Exception | None = None
        self.releasing_takes_s = 0.0
        self.offsets_trouble = ""
        self.offsets_known = asyncio.Event()
        self.offsets_known.set()

    def stop(self, partitions: Partitions) -> None:
        self.diary.append("stop")
        for partition in partitions:
            self.delivering.pop(partition, None)

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        self.delivering |= threads

    def start(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        self.diary.append("start")
        self.delivering |= {p: thread for p, (thread, _) in starts.items()}

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abandon(self) -> None:
        self.delivering.clear()

    def fail(self, error: Exception) -> None:
        self.failure = error

    async def forget(self, partitions: Partitions) -> None: ...
    async def commit(self, partitions: Partitions) -> None:
        self.diary.append("commit")

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        self.diary.append("fetch_offsets")
        await self.offsets_known.wait()
        if self.offsets_trouble:
            return {}, dict.fromkeys(partitions, self.offsets_trouble)
        return dict.fromkeys(partitions), {}

    async def before_releasing(self, owned: Partitions) -> None:
        await asyncio.sleep(self.releasing_takes_s)

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.zk = Counting()

    async def session(self) -> MemorySession:
        session = self.zk.session()
        await session.start()
        return session

    async def topic(self, partitions: int) -> None:
        content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
        await (await self.session()).create(TopicAssignment.path("t"), content, make_parents=True)

    async def member(self, name: str, strategy: str = "range") -> tuple[Member, Streams]:
        streams = Streams()
        consumer_id = f"g_{name}"
        session = await self.session()
        wanted = StaticSubscription({"t": 1})
        tree = GroupTree(session, "g", consumer_id, wanted, strategy=strategy)
        settings = MembershipSettings(partition_assignment_strategy=strategy)
        return Member(tree, streams, Membership(consumer_id, settings)), streams


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scene(Scene())

    run_in_virtual_time(whole())


def test_a_broker_that_restarts_ten_times_costs_no_release_and_stops_no_fetcher() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(8)
        members = [await work.member(name) for name in "abc"]
        for member, _ in members:
            await member.join()
        await asyncio.sleep(5)
        admin = await work.session()
        rounds = [member.membership.round for member, _ in members]
        work.zk.owner_writes.clear()
        for _, streams in members:
            streams.diary.clear()
        for _ in range(10):
            await admin.create(f"{BROKERS}/0", b"{}", make_parents=True)
            await asyncio.sleep(0.2)
            await admin.delete(f"{BROKERS}/0")
            await asyncio.sleep(0.2)

        for (member, streams), before in zip(members, rounds, strict=True):
            assert member.membership.round >= before + 10
            assert streams.diary == []

        assert work.zk.owner_writes == {}

    play(scene)


def test_who_leaves_does_not_wait_for_offsets_that_nobody_tells() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(1)
        member, streams = await work.member("a")
        streams.offsets_known.clear()
        joining = asyncio.ensure_future(member.join())
        await asyncio.sleep(3)
        assert streams.diary == ["fetch_offsets"]
        await member.leave()
        assert asyncio.get_running_loop().time() == 3
        assert streams.diary == ["fetch_offsets", "stop", "commit"]
        with pytest.raises(ConsumerRebalanceFailed, match="has left"):
            await joining
        assert await member.tree.zk.exists(PartitionOwner.path("g", "t", 0)) is None

    play(scene)


def test_who_leaves_a_session_that_lives_on_leaves_no_node_though_a_reply_is_lost() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, _ = await work.member("a")
        await member.join()
        session: Any = member.tree.zk
        work.zk.lose_reply(session)
        leaving = asyncio.ensure_future(member.leave())
        session.add_state_listener(
            lambda state: asyncio.get_running_loop().call_soon(work.zk.resume, session)
        )
        await leaving
        assert work.zk.tree["/consumers/g/ids"].children == frozenset()
        assert work.zk.tree["/consumers/g/owners/t"].children == frozenset()
        await member.leave()

    play(scene)


def test_a_leave_that_is_cancelled_goes_on_and_the_next_call_waits_for_it() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, streams = await work.member("a")
        await member.join()
        streams.releasing_takes_s = 2.0
        newcomer, _ = await work.member("b")
        joining = asyncio.ensure_future(newcomer.join())
        await asyncio.sleep(0.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(member.leave(), 0.5)
        await member.leave()
        assert asyncio.get_running_loop().time() > 2.0
        assert work.zk.tree["/consumers/g/ids"].children == {"g_b"}

        await joining
        await asyncio.sleep(1)
        assert set(work.zk.tree[OWNERS].children) == {"0", "1"}
        assert await member.tree.read_owners({TopicPartition("t", 0)}) == {
            TopicPartition("t", 0): Owner("g_b-0", 0, newcomer.membership.session_id)
        }

    play(scene)


@pytest.mark.parametrize("listener_takes_s", [0.0, 30.0])
def test_who_leaves_without_zookeeper_is_gone_in_time_but_for_its_listener(
    listener_takes_s: float,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, streams = await work.member("a")
        session = member.tree.zk = Silent(member.tree.zk)  # type: ignore[assignment]
        await member.join()
        streams.releasing_takes_s = listener_takes_s
        await (await work.session()).create(ConsumerRegistration.path("g", "g_b"), REGISTRATION)
        await asyncio.sleep(1)
        session.is_silent = True
        await member.leave(5.0)
        assert asyncio.get_running_loop().time() == pytest.approx(
            max(1.0, listener_takes_s) + 5.0, abs=0.1
        )

    play(scene)


class Silent:
    """A session that does not respond any more once it is silent."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.is_silent = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if asyncio.iscoroutinefunction(method) and self.is_silent:
            return self._never
        return method

    async def _never(self, *arguments: Any, **keywords: Any) -> None:
        await asyncio.get_running_loop().create_future()


def test_a_member_whose_session_is_closed_under_it_ends_its_streams_with_an_error() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, streams = await work.member("a")
        await member.join()
        problems: list[str | None] = []
        member.on_problem = problems.append
        await member.tree.zk.close()
        assert streams.delivering == {}
        assert isinstance(streams.failure, MembershipLost)
        assert problems == ["g_a: the ZooKeeper session has been closed: this member has ended"]
        other, other_streams = await work.member("b")
        await other.join()
        assert len(other_streams.delivering) == 2
        await member.leave()
        assert "commit" not in streams.diary

    play(scene)


def test_a_member_of_a_session_that_is_closed_already_does_not_wait_for_it() -> None:
    async def scene(work: Scene) -> None:
        member, _ = await work.member("a")
        await member.tree.zk.close()
        with pytest.raises(MembershipLost):
            await member.join()
        await member.leave()

    play(scene)


def test_a_member_that_waits_hears_of_the_owner_again_after_it_was_rewritten() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(1)
        holder = await work.session()
        path = PartitionOwner.path("g", "t", 0)
        await holder.create(path, b"g_b-0", ephemeral=True, make_parents=True)
        member, streams = await work.member("a")
        joining = asyncio.ensure_future(member.join())
        await asyncio.sleep(0.1)
        await holder.set(path, b"g_b-1")
        await asyncio.sleep(0.1)
        await holder.delete(path)
        await asyncio.sleep(0.1)
        assert len(streams.delivering) == 1
        await joining

    play(scene)


def test_who_leaves_a_session_that_lives_on_takes_its_watches_back() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        other, _ = await work.member("b")
        await other.join()
        member, _ = await work.member("a")
        session: Any = member.tree.zk
        await member.join()
        await asyncio.sleep(1)
        assert watches_of(session) > 0
        await member.leave()
        assert watches_of(session) == 0

    play(scene)


def test_a_member_whose_id_is_held_watches_it_once_however_often_it_tries() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, _ = await work.member("a")
        session: Any = member.tree.zk
        await member.join()
        thief = await work.session()
        path = ConsumerRegistration.path("g", "g_a")
        await thief.delete(path)
        await thief.create(path, REGISTRATION, ephemeral=True)
        work.zk.expire(session)
        await asyncio.sleep(120)
        assert member.membership.attempts > 5
        assert watches_of(session, path) == 1

    play(scene)


def watches_of(session: MemorySession, path: str = "") -> int:
    """Return the number of callables that a session would call."""
    return sum(
        len(watches)
        for table in session._watches.paths.values()
        for watched, watches in table.items()
        if watched.startswith(path)
    )


def test_an_expiry_does_not_wait_for_offsets_that_nobody_tells() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(1)
        member, streams = await work.member("a")
        streams.offsets_known.clear()
        joining = asyncio.ensure_future(member.join())
        await asyncio.sleep(1)
        work.zk.expire(member.tree.zk)  # type: ignore[arg-type]
        streams.offsets_known.set()
        await joining
        assert streams.delivering.keys() == {TopicPartition("t", 0)}
        assert asyncio.get_running_loop().time() == 1

    play(scene)


def test_a_malformed_neighbour_is_named_to_who_waits_and_the_member_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        admin = await work.session()
        path = ConsumerRegistration.path("g", "g_broken")
        await admin.create(path, b"{", make_parents=True)
        member, streams = await work.member("a")
        problems: list[str | None] = []
        member.on_problem = problems.append
        with pytest.raises(MalformedMember, match=path):
            await member.join()
        await asyncio.sleep(60)
        assert len(problems) == 1
        assert streams.delivering == {}

        await admin.delete(path)
        await asyncio.sleep(0.2)
        assert len(streams.delivering) == 2
        assert problems[1:] == [None]

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert caplog.text.count(ConsumerRegistration.path("g", "g_broken")) == 1


def test_a_neighbour_that_becomes_malformed_costs_nobody_what_it_owns() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, streams = await work.member("a")
        await member.join()
        admin = await work.session()
        await admin.create(ConsumerRegistration.path("g", "g_broken"), b"{")
        await asyncio.sleep(60)
        assert len(streams.delivering) == 2
        other, other_streams = await work.member("b")
        with pytest.raises(MalformedMember):
            await other.join()
        assert other_streams.delivering == {}
        await other.leave()

    play(scene)


def test_clustered_members_go_together_and_refuse_one_that_could_be_on_the_jvm() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        members = [await work.member(name, CLUSTERED) for name in "ab"]
        for member, _ in members:
            await member.join()
        await asyncio.sleep(1)
        assert [len(streams.delivering) for _, streams in members] == [2, 2]
        jvm, _ = await work.member("jvm")
        with pytest.raises(StrategyConflict, match="strategy=clustered"):
            await jvm.join()
        await jvm.leave()
        path = ConsumerRegistration.path("g", "g_jvm")
        assert await jvm.tree.zk.exists(path) is None

    play(scene)


def test_a_clustered_member_does_not_stay_in_a_group_with_jvm_members() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        jvm, streams = await work.member("jvm")
        await jvm.join()
        clustered, _ = await work.member("c", CLUSTERED)
        with pytest.raises(StrategyConflict, match=r"the member g_jvm: .* as those of JVM members"):
            await clustered.join()
        await asyncio.sleep(1)
        assert len(streams.delivering) == 4
        assert jvm.is_settled

    play(scene)


@pytest.mark.parametrize("removed", ["/consumers/g", "/consumers/g/ids", "/consumers/g/owners"])
def test_a_member_whose_group_somebody_removes_is_in_it_again_within_the_audit(
    removed: str,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        first, streams = await work.member("a")
        await first.join()
        await (await work.session()).delete_recursive(removed)
        await asyncio.sleep(12)
        assert await first.tree.zk.exists(ConsumerRegistration.path("g", "g_a"))
        second, other_streams = await work.member("b")
        await second.join()
        await asyncio.sleep(1)
        assert len(streams.delivering) == len(other_streams.delivering) == 2
        assert not streams.delivering.keys() & other_streams.delivering.keys()

    play(scene)


def test_a_claim_that_zookeeper_refuses_is_tried_again_after_a_pause_and_reported() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        admin = await work.session()
        await admin.ensure_path(OWNERS)
        work.zk.read_only.add(OWNERS)
        member, streams = await work.member("a")
        calls: Counter[str] = Counter()
        member.tree.zk = Watched(member.tree.zk, calls)  # type: ignore[assignment]
        problems: list[str | None] = []
        member.on_problem = problems.append
        with pytest.raises(ConsumerRebalanceFailed, match=rf"NoAuth {OWNERS}/0"):
            await member.join()
        tries = member.membership.settings.rebalance_max_retries
        assert calls["multi"] == tries
        assert len(problems) == 1

        work.zk.read_only.clear()
        await asyncio.sleep(3)
        assert len(streams.delivering) == 4
        assert problems[1:] == [None]

    play(scene)


def test_a_release_that_zookeeper_refuses_is_reported_and_tried_again() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        first, streams = await work.member("a")
        await first.join()
        problems: list[str | None] = []
        first.on_problem = problems.append
        work.zk.read_only.add(OWNERS)
        second, other_streams = await work.member("b")
        joining = asyncio.ensure_future(second.join())
        await asyncio.sleep(12)
        assert "ReleaseOwners: NoAuth" in str(problems[-1])
        assert other_streams.delivering == {}

        work.zk.read_only.clear()
        await asyncio.sleep(5)
        await asyncio.gather(joining, return_exceptions=True)
        assert len(streams.delivering) == len(other_streams.delivering) == 2
        assert problems[-1] is None

    play(scene)


def test_who_leaves_when_somebody_has_deleted_its_registration_leaves_no_owner_node() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, _ = await work.member("a")
        await member.join()
        await (await work.session()).delete(ConsumerRegistration.path("g", "g_a"))
        await member.leave()
        assert work.zk.tree[OWNERS].children == frozenset()

    play(scene)


def test_who_reads_no_offset_leaves_its_share_to_others_and_comes_back_when_it_does() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        first, streams = await work.member("a")
        await first.join()
        second, other_streams = await work.member("b")
        other_streams.offsets_trouble = "no coordinator"
        with pytest.raises(ConsumerRebalanceFailed, match="out of the group until"):
            await second.join()
        await asyncio.sleep(60)
        assert len(streams.delivering) == 4
        assert work.zk.tree["/consumers/g/ids"].children == {"g_a"}
        other_streams.offsets_trouble = ""
        await asyncio.sleep(5)
        assert len(streams.delivering) == len(other_streams.delivering) == 2

    play(scene)


def test_when_nobody_reads_an_offset_all_come_back_as_soon_as_they_can() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        members = [await work.member(name) for name in "ab"]
        for _, streams in members:
            streams.offsets_trouble = "no coordinator"
        joining = [asyncio.ensure_future(member.join()) for member, _ in members]
        await asyncio.sleep(300)
        for _, streams in members:
            streams.offsets_trouble = ""
        await asyncio.sleep(5)
        assert [len(streams.delivering) for _, streams in members] == [2, 2]
        await asyncio.gather(*joining, return_exceptions=True)

    play(scene)


def test_an_owner_node_that_somebody_deletes_is_there_again_within_the_audit() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, _ = await work.member("a")
        await member.join()
        path = PartitionOwner.path("g", "t", 0)
        await (await work.session()).delete(path)
        await asyncio.sleep(12)
        assert await member.tree.zk.exists(path)

    play(scene)


@pytest.mark.parametrize("size", [4, 12])
def test_what_a_member_asks_of_zookeeper_when_another_joins_does_not_grow_with_the_group(
    size: int,
) -> None:
    """Herd effect: each of `size` members sees the newcomer, and reads only what is new to it."""

    async def scene(work: Scene) -> None:
        await work.topic(60)
        members = [(await work.member(f"{i:02}"))[0] for i in range(size)]
        for member in members:
            await member.join()
        await asyncio.sleep(5)
        calls: Counter[str] = Counter()
        for member in members:
            member.tree.zk = Watched(member.tree.zk, calls)  # type: ignore[assignment]
        newcomer, _ = await work.member("zz")
        await newcomer.join()
        await asyncio.sleep(5)
        assert all(member.is_settled for member in members)
        assert sum(calls.values()) <= 20 * size

    play(scene)


class Watched:
    """A session that counts calls."""

    def __init__(self, session: Any, calls: Counter[str]) -> None:
        self._session = session
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if asyncio.iscoroutinefunction(method):
            self._calls[name] += 1
        return method
