"""What members watch and ask of ZooKeeper, and how little."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.member.scene import REGISTRATION, Scene, Watched, play
from zk.memory import MemorySession
from zk.znodes import ConsumerRegistration, PartitionOwner


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


def test_who_waits_for_a_topic_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(work: Scene) -> None:
        member, streams = await work.member("a")
        await member.join()
        other, _ = await work.member("b")
        await other.join()
        await asyncio.sleep(10)
        waits = [line for line in caplog.messages if "no partitions of t are known yet" in line]
        assert [line.split(":")[0] for line in waits] == ["g_a", "g_b"]

        await work.topic(1)
        await asyncio.sleep(10)
        assert len(streams.delivering) == 1

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
