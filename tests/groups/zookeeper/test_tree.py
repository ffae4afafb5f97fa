"""What a member reads and writes in ZooKeeper, on the tree in memory."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from groups.zookeeper.events import Owner
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.registration import FilterSubscription, StaticSubscription, Subscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.virtual_time import VirtualTimeLoop
from zk.memory import MemorySession, MemoryZooKeeper
from zk.session import MultiFailed, NoNode, WatchEvent
from zk.znodes import ConsumerRegistration, PartitionOwner, TopicAssignment

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))


def play(scene: Callable[[MemoryZooKeeper], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scene(MemoryZooKeeper()))


async def a_tree(
    zk: MemoryZooKeeper,
    name: str,
    subscription: Subscription | None = None,
    session: MemorySession | None = None,
) -> GroupTree:
    """A member's tree, in a session of its own unless told otherwise; not registered yet."""
    if session is None:
        session = zk.session()
        await session.start()
    return GroupTree(session, "g", f"g_{name}", subscription or StaticSubscription({"t": 1}))


async def a_topic(zk: MemoryZooKeeper, topic: str, partitions: int) -> None:
    session = zk.session()
    await session.start()
    content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
    await session.create(TopicAssignment.path(topic), content, make_parents=True)


def unwatched(event: WatchEvent) -> None:
    """A watch nobody minds."""


def test_an_owner_node_of_another_member_is_not_released() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        ours, theirs = await a_tree(zk, "a"), await a_tree(zk, "b")
        for tree in (ours, theirs):
            await tree.register()
        await theirs.claim({P0: "g_b-0"}, {})
        await ours.claim({P1: "g_a-0"}, {})
        await ours.release(frozenset({P0, P1, P2}))
        assert (await ours.read_owners({P0, P1, P2})).keys() == {P0}

    play(scene)


def test_a_node_with_our_name_of_another_session_is_not_released() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        old, new = await a_tree(zk, "a"), await a_tree(zk, "a")
        await old.register()
        await old.claim({P0: "g_a-0"}, {})
        await new.release(frozenset({P0}))
        assert P0 in await new.read_owners({P0})

    play(scene)


def test_a_claim_is_all_or_nothing_and_names_the_partition_in_its_way() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        ours, theirs = await a_tree(zk, "a"), await a_tree(zk, "b")
        for tree in (ours, theirs):
            await tree.register()
        await theirs.claim({P1: "g_b-0"}, {})
        claimed, conflict = await ours.claim(dict.fromkeys([P0, P1, P2], "g_a-0"), {})
        assert (claimed, conflict) == (frozenset(), P1)
        assert (await ours.read_owners({P0, P1, P2})).keys() == {P1}

    play(scene)


def test_a_move_rewrites_our_node_and_nobody_elses() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await tree.register()
        await tree.claim({P0: "g_a-0", P1: "g_a-0"}, {})
        assert await tree.claim({P2: "g_a-1"}, {P0: ("g_a-1", 0)}) == ({P0, P2}, None)
        owners = await tree.read_owners({P0, P1, P2})
        assert owners[P0] == Owner("g_a-1", 1, tree.zk.session_id)
        assert await tree.claim({}, {P1: ("g_a-1", 7)}) == (frozenset(), P1)

    play(scene)


def test_who_is_not_registered_can_claim_nothing() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        with pytest.raises(MultiFailed) as failure:
            await tree.claim({P0: "g_a-0"}, {})
        assert isinstance(failure.value.error, NoNode)
        assert await tree.read_owners({P0}) == {}

    play(scene)


def test_registering_again_in_the_same_session_is_no_conflict() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        assert await tree.register() is None
        assert await tree.register() is None

    play(scene)


def test_a_registration_waits_for_the_node_of_an_earlier_session_to_vanish() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        old, new = await a_tree(zk, "a"), await a_tree(zk, "a")
        await old.register()
        loop = asyncio.get_running_loop()
        loop.call_later(5, asyncio.ensure_future, old.zk.close())
        assert await new.register() is None
        assert loop.time() == 5
        stat = await new.zk.exists(ConsumerRegistration.path("g", "g_a"))
        assert stat is not None
        assert stat.ephemeral_owner == new.zk.session_id

    play(scene)


def test_a_registration_that_a_living_member_holds_is_refused_in_the_end() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        first, second = await a_tree(zk, "a"), await a_tree(zk, "a")
        await first.register()
        assert await second.register() == first.zk.session_id
        assert asyncio.get_running_loop().time() == 9  # one and a half session timeouts

    play(scene)


def test_a_reading_has_the_members_and_the_partitions_of_what_they_consume() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        await a_topic(zk, "t", 3)
        await a_topic(zk, "unwanted", 1)
        tree = await a_tree(zk, "a", StaticSubscription({"t": 2, "missing": 1}))
        await tree.register()
        snapshot = await tree.read_group(unwatched, unwatched)
        assert snapshot.members == {"g_a": tree.subscription}
        assert snapshot.partitions == {"t": (0, 1, 2), "missing": ()}

    play(scene)


def test_a_filter_makes_the_reading_list_all_topics() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        await a_topic(zk, "t1", 1)
        await a_topic(zk, "u", 1)
        tree = await a_tree(zk, "a", FilterSubscription(Whitelist("t.*")))
        await tree.register()
        snapshot = await tree.read_group(unwatched, unwatched)
        assert snapshot.all_topics == ("t1", "u")
        assert snapshot.partitions == {"t1": (0,)}

    play(scene)


@pytest.mark.parametrize(
    "content",
    [None, b"", b"{", b'{"version":1}', b'{"pattern":"white_list","subscription":{"(":1}}'],
)
def test_a_malformed_registration_is_named_in_the_log_and_its_member_skipped(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        await a_topic(zk, "t", 1)
        tree = await a_tree(zk, "a")
        await tree.register()
        await tree.zk.create("/consumers/g/ids/g_broken", content)
        snapshot = await tree.read_group(unwatched, unwatched)
        assert snapshot.members.keys() == {"g_a"}

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert "/consumers/g/ids/g_broken" in caplog.text


def test_a_group_that_changes_while_it_is_read_is_read_again() -> None:
    class Intruded:
        """A session in which another member registers between the first two reads."""

        def __init__(self, session: Any, intrude: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            self._session, self._intrude, self._done = session, intrude, False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        async def get(self, *arguments: Any) -> Any:
            if not self._done:
                self._done = True
                await self._intrude()
            return await self._session.get(*arguments)

    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        tree.zk = Intruded(tree.zk, other.register)  # type: ignore[assignment]
        snapshot = await tree.read_group(unwatched, unwatched)
        assert snapshot.members.keys() == {"g_a", "g_b"}

    play(scene)


def test_watches_tell_of_members_topics_and_partitions_even_of_topics_yet_to_come() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        told: list[str] = []
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()

        def group_changed(event: WatchEvent) -> None:
            told.append("group")

        def topics_changed(event: WatchEvent) -> None:
            told.append("topics")

        async def read() -> None:
            told.clear()
            await tree.read_group(group_changed, topics_changed)

        await read()
        await a_topic(zk, "t", 1)
        assert told == ["topics"]
        await read()
        await tree.zk.set(TopicAssignment.path("t"), TopicAssignment({0: (0,), 1: (0,)}).encode())
        assert told == ["topics"]
        await read()
        await other.register()
        assert told == ["group"]

    play(scene)


def test_an_owner_node_that_is_gone_by_the_time_it_is_watched_is_told_at_once() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await other.register()
        await other.claim({P0: "g_b-0"}, {})
        told: list[WatchEvent] = []
        assert not await tree.watch_owners({P0}, told.append)
        await other.release(frozenset({P0}))
        assert told == [WatchEvent("deleted", PartitionOwner.path("g", "t", 0))]
        assert await tree.watch_owners({P0}, told.append)

    play(scene)


def test_a_large_claim_is_made_in_several_multis() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        await other.register()
        wanted = {TopicPartition("t", p): "g_a-0" for p in range(2500)}
        await other.claim({TopicPartition("t", 2400): "g_b-0"}, {})
        claimed, conflict = await tree.claim(wanted, {})
        assert conflict == TopicPartition("t", 2400)
        assert claimed == {TopicPartition("t", p) for p in range(2000)}
        assert (await tree.read_owners(wanted.keys())).keys() == claimed | {conflict}

    play(scene)
