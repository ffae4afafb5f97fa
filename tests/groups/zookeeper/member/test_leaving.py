"""Members that leave, in time and without a trace, and sessions that are closed."""

import asyncio
from typing import Any

import pytest

from groups.zookeeper.events import Owner
from groups.zookeeper.membership_errors import ConsumerRebalanceFailed, MembershipLost
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.member.scene import OWNERS, REGISTRATION, Scene, play
from zk.znodes import ConsumerRegistration, PartitionOwner

BROKERS = "/brokers/ids"


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
        assert streams.diary == ["fetch_offsets", "stop"]
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
