"""Owner nodes: claims, moves, releases and watches."""

import pytest

from groups.zookeeper.events import Owner
from groups.zookeeper.registration import StaticSubscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.tree.group_tree import P0, P1, P2, Counting, a_tree, play
from zk.api import SessionExpired, WatchEvent
from zk.memory import MemoryZooKeeper
from zk.znodes import PartitionOwner


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


def test_a_node_of_another_member_that_shares_our_session_is_not_released() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        ours = await a_tree(zk, "a")
        theirs = await a_tree(zk, "b", session=ours.zk)  # type: ignore[arg-type]
        for tree in (ours, theirs):
            await tree.register()
        await theirs.claim({P0: "g_b-0"}, {})
        await ours.release(frozenset({P0}))
        assert P0 in await ours.read_owners({P0})

    play(scene)


def test_a_node_that_changes_hands_between_look_and_release_is_not_released() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        ours, theirs = await a_tree(zk, "a"), await a_tree(zk, "b")
        for tree in (ours, theirs):
            await tree.register()
        await ours.claim({P0: "g_a-0", P1: "g_a-0"}, {})
        counting = Counting(ours.zk)  # type: ignore[arg-type]
        ours.zk = counting  # type: ignore[assignment]

        async def meddle(name: str) -> None:
            if name == "multi":
                await theirs.zk.set(PartitionOwner.path("g", *P0), b"g_b-0")

        counting.before = meddle
        await ours.release(frozenset({P0, P1}))
        assert (await ours.read_owners({P0, P1})).keys() == {P0}

    play(scene)


def test_a_claim_is_all_or_nothing() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        ours, theirs = await a_tree(zk, "a"), await a_tree(zk, "b")
        for tree in (ours, theirs):
            await tree.register()
        await theirs.claim({P1: "g_b-0"}, {})
        assert not await ours.claim(dict.fromkeys([P0, P1, P2], "g_a-0"), {})
        assert (await ours.read_owners({P0, P1, P2})).keys() == {P1}

    play(scene)


def test_a_move_rewrites_our_node_and_nobody_elses() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await tree.register()
        await tree.claim({P0: "g_a-0", P1: "g_a-0"}, {})
        assert await tree.claim({P2: "g_a-1"}, {P0: ("g_a-1", 0)})
        owners = await tree.read_owners({P0, P1, P2})
        assert owners[P0] == Owner("g_a-1", 1, tree.zk.session_id)
        assert not await tree.claim({}, {P1: ("g_a-1", 7)})

    play(scene)


def test_who_is_not_registered_can_claim_nothing() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        with pytest.raises(SessionExpired, match="ids/g_a is gone"):
            await tree.claim({P0: "g_a-0"}, {})
        assert await tree.read_owners({P0}) == {}

    play(scene)


def test_an_owner_node_that_is_gone_by_the_time_it_is_watched_is_told_at_once() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await other.register()
        await other.claim({P0: "g_b-0"}, {})
        events: list[WatchEvent] = []
        assert not await tree.watch_owners({P0}, events.append)
        await other.release(frozenset({P0}))
        assert events == [WatchEvent("deleted", PartitionOwner.path("g", "t", 0))]
        assert await tree.watch_owners({P0}, events.append)

    play(scene)


def test_a_large_claim_is_made_in_several_multis() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        await other.register()
        wanted = {TopicPartition("t", p): "g_a-0" for p in range(2500)}
        await other.claim({TopicPartition("t", 2400): "g_b-0"}, {})
        assert not await tree.claim(wanted, {})
        owners = await tree.read_owners(wanted.keys())
        assert owners.keys() == {TopicPartition("t", p) for p in (*range(2000), 2400)}

    play(scene)


def test_a_claim_whose_names_are_as_long_as_may_be_is_made_in_multis_that_a_server_takes() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        session = zk.session()
        await session.start()
        topic, consumer_id = "t" * 249, "c" * 600
        tree = GroupTree(session, "g" * 249, consumer_id, StaticSubscription({topic: 1}))
        await tree.register()
        partitions = [TopicPartition(topic, number) for number in range(1000)]
        assert await tree.claim(dict.fromkeys(partitions, f"{consumer_id}-0"), {})
        assert (await tree.read_owners(frozenset(partitions))).keys() == set(partitions)
        await tree.release(frozenset(partitions), unregister=True)
        assert await tree.read_owners(frozenset(partitions)) == {}

    play(scene)
