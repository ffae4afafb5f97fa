"""Members on real ZooKeepers: two share, one leaves, one is killed, one has a name in use."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Set

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from groups.zookeeper.member import Member
from groups.zookeeper.membership_errors import ConsumerIdInUse, ConsumerRebalanceFailed
from groups.zookeeper.membership_state import Membership, MembershipSettings
from groups.zookeeper.registration import StaticSubscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.stage.ensemble import Ensemble, kill
from tests.stage.network import silent_host
from tests.stage.sessions import SESSION_MS, RealStage, an_administrator
from tests.stage.waiting import until
from tests.stage.zookeeper import EMBEDDED, VERSIONS, ZooKeepers
from zk.api import ZkSession
from zk.session import KazooSession
from zk.znodes import ConsumerRegistration, PartitionOwner, TopicAssignment

USUAL_MS = 6000
BRIEF_MS = 2000
"""Session timeout of members whose session ends, and of those that wait for it."""


@pytest.fixture(params=VERSIONS)
def zk_chroot(request: pytest.FixtureRequest, zookeepers: ZooKeepers) -> str:
    """Provide a chroot on each ZooKeeper that Kafka has been shipped with."""
    return zookeepers.chroot(request.param)


class Streams:
    """Streams that record their member's calls, in order."""

    def __init__(self) -> None:
        self.paused = False
        self.opened: dict[TopicPartition, str] = {}
        self.delivering: dict[TopicPartition, str] = {}
        self.calls: list[str] = []

    def stop(self, partitions: Set[TopicPartition]) -> None:
        self.calls.append("stop")
        for partition in partitions:
            self.delivering.pop(partition, None)

    async def forget(self, partitions: Set[TopicPartition]) -> None:
        self.calls.append("forget")

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        self.delivering |= threads

    def open(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        self.opened = {p: thread for p, (thread, _) in starts.items()}

    def fetch_opened(self, partitions: Set[TopicPartition]) -> None:
        self.calls.append("start")
        self.delivering |= {p: self.opened[p] for p in partitions}

    def pause(self) -> None:
        self.paused = True
        self.calls.append("pause")

    def resume(self) -> None:
        self.paused = False

    def abandon(self) -> None:
        self.delivering.clear()

    def fail(self, error: Exception) -> None:
        self.failure = error

    async def commit(self, partitions: Set[TopicPartition]) -> None:
        self.calls.append("commit")

    async def fetch_offsets(
        self, partitions: Set[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        return dict.fromkeys(partitions), {}

    async def before_releasing(self, owned: Set[TopicPartition]) -> None:
        self.calls.append("before_releasing")
        raise RuntimeError("a listener that fails")

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None:
        self.calls.append("before_starting")

    async def notify_revoked(self, partitions: Set[TopicPartition]) -> None: ...

    async def notify_lost(self, partitions: Set[TopicPartition]) -> None: ...

    async def notify_assigned(self, partitions: Set[TopicPartition]) -> None: ...


@contextlib.asynccontextmanager
async def a_session(hosts: str, timeout_ms: int = SESSION_MS) -> AsyncIterator[KazooSession]:
    session = KazooSession(hosts, session_timeout_ms=timeout_ms, connection_timeout_ms=SESSION_MS)
    await session.start()
    try:
        yield session
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def a_member(
    hosts: str, name: str, session_timeout_ms: int = SESSION_MS
) -> AsyncIterator[tuple[Member, Streams]]:
    """Yield a member that has joined; it leaves at the end."""
    async with a_session(hosts, session_timeout_ms) as session:
        member, streams = member_of(session, name)
        try:
            await member.join()
            yield member, streams
        finally:
            await member.leave()


def member_of(
    session: ZkSession, name: str, rebalance_max_retries: int = 50
) -> tuple[Member, Streams]:
    consumer_id = f"g_{name}"
    streams = Streams()
    tree = GroupTree(session, "g", consumer_id, StaticSubscription({"t": 1}))
    settings = MembershipSettings(
        rebalance_backoff_ms=200, rebalance_max_retries=rebalance_max_retries
    )
    return Member(tree, streams, Membership(consumer_id, settings)), streams


async def make_topic(hosts: str, partitions: int) -> None:
    async with a_session(hosts) as session:
        content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
        await session.create(TopicAssignment.path("t"), content, make_parents=True)


async def owners(session: ZkSession, partitions: int) -> list[str | None]:
    threads: list[str | None] = []
    for partition in range(partitions):
        path = PartitionOwner.path("g", "t", partition)
        stat = await session.exists(path)
        threads.append(((await session.get(path))[0] or b"").decode() if stat else None)
    return threads


def test_members_share_and_take_over_from_one_that_leaves(zk_chroot: str) -> None:
    async def scene() -> None:
        await make_topic(zk_chroot, 4)
        async with a_session(zk_chroot) as session, a_member(zk_chroot, "a") as (_, first):
            assert await owners(session, 4) == ["g_a-0"] * 4
            assert first.calls == ["before_releasing", "before_starting", "start"]
            first.calls.clear()
            async with a_member(zk_chroot, "b") as (_, second):
                await until(
                    lambda: len(second.delivering) == 2 and "before_starting" in first.calls,
                    "the two share",
                )
                assert await owners(session, 4) == ["g_a-0", "g_a-0", "g_b-0", "g_b-0"]
                assert first.calls == [
                    "stop",
                    "commit",
                    "before_releasing",
                    "forget",
                    "before_starting",
                ]
            await until(lambda: len(first.delivering) == 4, "the first has all")
            assert await owners(session, 4) == ["g_a-0"] * 4

    asyncio.run(scene())


def test_a_member_that_leaves_leaves_no_node_of_its_own(zk_chroot: str) -> None:
    async def scene() -> None:
        await make_topic(zk_chroot, 2)
        async with a_session(zk_chroot) as session:
            async with a_member(zk_chroot, "a"):
                path = ConsumerRegistration.path("g", "g_a")
                content, stat = await session.get(path)
                assert json.loads(content or b"") | {"timestamp": ""} == {
                    "version": 1,
                    "subscription": {"t": 1},
                    "pattern": "static",
                    "timestamp": "",
                }
                assert stat.ephemeral_owner
            assert await session.exists(path) is None
            assert await owners(session, 2) == [None, None]

    asyncio.run(scene())


def test_a_new_partition_and_a_topic_that_comes_later_are_taken(zk_chroot: str) -> None:
    async def scene() -> None:
        async with a_member(zk_chroot, "a") as (_, streams):
            assert streams.delivering == {}
            await make_topic(zk_chroot, 1)
            await until(lambda: len(streams.delivering) == 1, "one is delivered")
            async with a_session(zk_chroot) as session:
                content = TopicAssignment({0: (0,), 1: (0,)}).encode()
                await session.set(TopicAssignment.path("t"), content)
            await until(lambda: len(streams.delivering) == 2, "both are delivered")

    asyncio.run(scene())


def test_a_second_member_of_the_same_name_is_refused(zk_chroot: str) -> None:
    async def scene() -> None:
        await make_topic(zk_chroot, 1)
        async with a_member(zk_chroot, "a") as (_, streams):
            with pytest.raises(ConsumerIdInUse, match="g_a is in use by session 0x"):
                async with a_member(zk_chroot, "a", BRIEF_MS):
                    pass
            assert len(streams.delivering) == 1

    asyncio.run(scene())


def test_a_claim_that_an_acl_forbids_is_named_and_succeeds_once_it_is_allowed(
    zk_chroot: str,
) -> None:
    owners_of_t = "/consumers/g/owners/t"

    async def scene() -> None:
        await make_topic(zk_chroot, 2)
        with an_administrator(zk_chroot) as administrator:
            administrator.create(owners_of_t, makepath=True)
            administrator.set_acls(
                owners_of_t, [make_acl("world", "anyone", read=True, admin=True)]
            )
            async with a_session(zk_chroot) as session:
                member, streams = member_of(session, "a", rebalance_max_retries=2)
                with pytest.raises(ConsumerRebalanceFailed, match=f"NoAuth {owners_of_t}/0"):
                    await member.join()
                administrator.set_acls(owners_of_t, OPEN_ACL_UNSAFE)
                await until(lambda: len(streams.delivering) == 2, "both are delivered")
                await member.leave()

    asyncio.run(scene())


def test_an_owner_node_deleted_by_hand_is_made_again_at_the_next_change(zk_chroot: str) -> None:
    async def scene() -> None:
        await make_topic(zk_chroot, 2)
        async with a_session(zk_chroot) as session, a_member(zk_chroot, "a") as (_, streams):
            await session.delete(PartitionOwner.path("g", "t", 0))
            content, _ = await session.get(TopicAssignment.path("t"))
            streams.calls.clear()
            await session.set(TopicAssignment.path("t"), content)
            await until(lambda: "start" in streams.calls, "streams start")
            assert await owners(session, 2) == ["g_a-0", "g_a-0"]

    asyncio.run(scene())


def test_a_member_whose_session_expires_in_silence_pauses_and_comes_back(zk_chroot: str) -> None:
    stage = RealStage(zk_chroot, BRIEF_MS)

    async def scene(cut_off: ZkSession) -> None:
        async with a_session(zk_chroot) as healthy:
            await expires(cut_off, healthy)

    async def expires(cut_off: ZkSession, healthy: ZkSession) -> None:
        await make_topic(zk_chroot, 2)
        (first, first_streams), (second, second_streams) = (
            member_of(cut_off, "a"),
            member_of(healthy, "b"),
        )
        await first.join()
        await second.join()
        await until(lambda: len(second_streams.delivering) == 1, "the second has one")
        taken_over_while_delivered: list[bool] = []
        fetch_opened = second_streams.fetch_opened

        def watched_fetch(partitions: Set[TopicPartition]) -> None:
            delivered = first_streams.delivering and not first_streams.paused
            taken_over_while_delivered.append(bool(delivered))
            fetch_opened(partitions)

        second_streams.fetch_opened = watched_fetch  # type: ignore[method-assign]
        expired_id = cut_off.session_id
        stage.silence(cut_off)
        await until(lambda: taken_over_while_delivered, "the look back")
        assert "pause" in first_streams.calls
        assert taken_over_while_delivered == [False]
        await stage.suspend(cut_off)
        await stage.resume(cut_off)
        assert cut_off.session_id != expired_id
        await until(
            lambda: len(first_streams.delivering) == len(second_streams.delivering) == 1,
            "each has one",
        )
        assert not first_streams.paused
        assert await owners(cut_off, 2) == ["g_a-0", "g_b-0"]
        await first.leave()
        await second.leave()

    stage.run(scene)


def test_a_short_loss_of_the_connection_disturbs_nothing(zk_chroot: str) -> None:
    stage = RealStage(zk_chroot)

    async def scene(session: ZkSession) -> None:
        await make_topic(zk_chroot, 2)
        member, streams = member_of(session, "a")
        await member.join()
        streams.calls.clear()
        round_before = member.membership.round
        await stage.suspend(session)
        await stage.resume(session)
        await until(
            lambda: member.membership.round > round_before and member.is_settled,
            "a new round is over",
        )
        assert streams.calls == []
        assert len(streams.delivering) == 2
        await member.leave()

    stage.run(scene)


def test_a_group_on_an_ensemble_whose_leader_is_killed_keeps_what_it_owns_and_goes_on(
    ensemble: Ensemble,
) -> None:
    async def scene() -> None:
        hosts = ensemble.hosts
        await make_topic(hosts, 4)
        async with a_member(hosts, "a") as (_, first), a_member(hosts, "b") as (_, second):
            await until(lambda: len(second.delivering) == 2, "the second has both")
            first.calls.clear(), second.calls.clear()
            await asyncio.to_thread(kill, ensemble.leader())
            async with a_member(hosts, "c") as (_, third):
                await until(lambda: len(third.delivering) == 1, "the third has one")
                await until(
                    lambda: len(first.delivering) == 2 and len(second.delivering) == 1,
                    "the others give one up",
                )
                assert "pause" not in first.calls + second.calls
                async with a_session(hosts) as session:
                    assert await owners(session, 4) == ["g_a-0", "g_a-0", "g_b-0", "g_c-0"]

    asyncio.run(scene())


def test_a_group_forms_though_one_of_three_machines_answers_nothing(
    zookeepers: ZooKeepers,
) -> None:
    address, _, chroot = zookeepers.chroot(EMBEDDED).partition("/")

    async def scene() -> None:
        with silent_host() as silent:
            hosts = f"{silent},{address},{address}/{chroot}"
            await make_topic(hosts, 4)
            async with contextlib.AsyncExitStack() as stack:
                for name in "abcd":
                    await stack.enter_async_context(a_member(hosts, name, USUAL_MS))
                session = await stack.enter_async_context(a_session(hosts, USUAL_MS))
                expected = [f"g_{name}-0" for name in "abcd"]
                async with asyncio.timeout(USUAL_MS / 1000):
                    while await owners(session, 4) != expected:
                        await asyncio.sleep(0.02)

    asyncio.run(scene())
