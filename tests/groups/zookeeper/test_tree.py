"""A member's reads and writes in ZooKeeper, on the tree in memory."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from groups.zookeeper.events import GroupProblem, GroupSnapshot, Owner
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.registration import FilterSubscription, StaticSubscription, Subscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.api import SessionExpired, Stat, WatchEvent
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerRegistration, PartitionOwner, TopicAssignment

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))


def play(scene: Callable[[MemoryZooKeeper], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene(MemoryZooKeeper()))


async def a_tree(
    zk: MemoryZooKeeper,
    name: str,
    subscription: Subscription | None = None,
    session: MemorySession | None = None,
) -> GroupTree:
    """Build a member's tree, not registered yet; by default in a session of its own."""
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
    """Ignore a watch event."""


async def reading(tree: GroupTree) -> GroupSnapshot:
    read = await tree.read_group(unwatched, unwatched, unwatched)
    assert isinstance(read, GroupSnapshot)
    return read


class Counting:
    """A session that counts its calls by name; `before` runs before each call."""

    def __init__(self, session: MemorySession) -> None:
        self._session = session
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str], Coroutine[Any, Any, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def counted(*arguments: Any, **keywords: Any) -> Any:
            self.calls[name] += 1
            if self.before:
                await self.before(name)
            return await method(*arguments, **keywords)

        return counted


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
        snapshot = await reading(tree)
        assert snapshot.members == {"g_a": tree.subscription}
        assert snapshot.partitions == {"t": (0, 1, 2), "missing": ()}

    play(scene)


def test_a_filter_makes_the_reading_list_all_topics() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        await a_topic(zk, "t1", 1)
        await a_topic(zk, "u", 1)
        tree = await a_tree(zk, "a", FilterSubscription(Whitelist("t.*")))
        await tree.register()
        snapshot = await reading(tree)
        assert snapshot.all_topics == ("t1", "u")
        assert snapshot.partitions == {"t1": (0,)}

    play(scene)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"\xff\xfe{\x00}\x00",
        b'{"version":1}',
        b'{"pattern":"static","subscription":{"t":NaN}}',
        b'{"pattern":"static","subscription":{"t":1},"more":Infinity}',
        b'{"pattern":"static","subscription":{"":1}}',
        b'{"pattern":"static","subscription":{"..":1}}',
        b'{"pattern":"static","subscription":{"t//u":1}}',
        b'{"pattern":"static","subscription":{"\\ud800":1}}',
        b'{"pattern":"static","subscription":{"t":0}}',
        b'{"pattern":"static","subscription":{"t":1.5}}',
        b'{"pattern":"static","subscription":{"t":4294967297}}',
        b'{"pattern":"white_list","subscription":{"(":1}}',
        b'{"pattern":"white_list","subscription":{"[a-z&&[^b]]":1}}',
    ],
)
def test_a_malformed_registration_stops_the_group_and_is_named(content: bytes | None) -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        await a_topic(zk, "t", 1)
        tree = await a_tree(zk, "a")
        await tree.register()
        await tree.zk.create("/consumers/g/ids/g_broken", content)
        events: list[WatchEvent] = []
        problem = await tree.read_group(events.append, unwatched, unwatched)
        assert isinstance(problem, GroupProblem)
        assert "registration /consumers/g/ids/g_broken is malformed" in problem.text
        await tree.zk.delete("/consumers/g/ids/g_broken")
        assert events
        assert (await reading(tree)).members.keys() == {"g_a"}

    play(scene)


def test_what_no_jvm_member_reads_does_not_matter() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        content = b'{"pattern":"static","subscription":{"t":1},"timestamp":12e99,"version":"x"}'
        await tree.zk.create("/consumers/g/ids/g_b", content, make_parents=True)
        assert (await reading(tree)).members == {"g_b": StaticSubscription({"t": 1})}

    play(scene)


def test_the_reading_says_which_members_are_clustered() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        jvm, ours = await a_tree(zk, "jvm"), await a_tree(zk, "ours")
        ours.strategy = "clustered"
        await jvm.register()
        snapshot = await reading(ours)
        assert snapshot.members.keys() == {"g_jvm"}
        assert snapshot.strategies == {}
        await ours.register()
        assert (await reading(jvm)).strategies == {"g_ours": "clustered"}
        assert (await reading(ours)).strategies == {"g_ours": "clustered"}
        await jvm.zk.close()
        assert (await reading(ours)).members.keys() == {"g_ours"}
        assert (await reading(ours)).strategies == {"g_ours": "clustered"}

    play(scene)


def test_a_member_that_could_be_on_the_jvm_writes_what_one_there_writes() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        for strategy in ("range", "roundrobin"):
            tree = await a_tree(zk, strategy)
            tree.strategy = strategy
            await tree.register()
            content, _ = await tree.zk.get(ConsumerRegistration.path("g", tree.consumer_id))
            keys = json.loads(content or b"")
            assert keys.keys() == {"version", "subscription", "pattern", "timestamp"}

    play(scene)


def test_the_preferred_leader_of_each_partition_is_its_first_replica() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await tree.register()
        content = TopicAssignment({0: (3, 1), 1: (2, 3)}).encode()
        await tree.zk.create(TopicAssignment.path("t"), content, make_parents=True)
        assert (await reading(tree)).leaders == {P0: 3, P1: 2}

    play(scene)


def test_what_has_not_changed_is_not_read_again() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await a_topic(zk, "t", 3)
        for member_tree in (tree, other):
            await member_tree.register()
        counting = tree.zk = Counting(tree.zk)  # type: ignore[assignment, arg-type]
        first = await reading(tree)
        counting.calls.clear()
        assert await reading(tree) is first
        assert counting.calls == {"sync": 1, "children": 1, "exists": 1}
        counting.calls.clear()
        await (await a_tree(zk, "c")).register()
        assert (await reading(tree)).members.keys() == {"g_a", "g_b", "g_c"}
        assert counting.calls == {"sync": 1, "children": 1, "exists": 1, "get_many": 1}

    play(scene)


def test_all_members_that_are_new_to_a_member_are_read_in_one_request() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await tree.register()
        for number in range(30):
            await (await a_tree(zk, f"{number}")).register()
        counting = tree.zk = Counting(tree.zk)  # type: ignore[assignment, arg-type]
        assert len((await reading(tree)).members) == 31
        assert counting.calls["get_many"] == 1
        assert counting.calls["get"] == 1  # the topic's

    play(scene)


def test_who_comes_back_under_an_old_name_is_read_again() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        await other.register()
        await reading(tree)
        await other.release(frozenset(), unregister=True)
        changed = await a_tree(zk, "b", StaticSubscription({"u": 2}))
        await changed.register()
        assert (await reading(tree)).members["g_b"] == StaticSubscription({"u": 2})

    play(scene)


def test_who_comes_back_while_another_leaves_is_read_again() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other, third = [await a_tree(zk, name) for name in "abc"]
        for member_tree in (tree, other, third):
            await member_tree.register()
        await reading(tree)
        await other.release(frozenset(), unregister=True)
        await third.release(frozenset(), unregister=True)
        await (await a_tree(zk, "b", StaticSubscription({"u": 2}))).register()
        assert (await reading(tree)).members == {
            "g_a": StaticSubscription({"t": 1}),
            "g_b": StaticSubscription({"u": 2}),
        }

    play(scene)


def test_what_was_read_in_another_session_is_read_again() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await a_topic(zk, "t", 1)
        await tree.register()
        await reading(tree)
        zk.expire(tree.zk)  # type: ignore[arg-type]
        await tree.register()
        other = await a_tree(zk, "b")
        await other.zk.set(TopicAssignment.path("t"), TopicAssignment({0: (0,), 1: (0,)}).encode())
        assert (await reading(tree)).partitions == {"t": (0, 1)}

    play(scene)


def test_what_changes_while_its_answer_is_on_the_way_is_not_remembered() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await a_topic(zk, "t", 1)
        await tree.register()
        session = tree.zk

        class Late:
            """A session that changes the topic's partitions after it has returned them."""

            def __getattr__(self, name: str) -> Any:
                return getattr(session, name)

            async def get(self, path: str, watch: Any = None) -> tuple[bytes | None, Stat]:
                answer = await session.get(path, watch)
                if path == TopicAssignment.path("t"):
                    await session.set(path, TopicAssignment({0: (0,), 1: (0,)}).encode())
                return answer

        tree.zk = Late()  # type: ignore[assignment]
        assert (await reading(tree)).partitions == {"t": (0,)}
        tree.zk = session
        assert (await reading(tree)).partitions == {"t": (0, 1)}

    play(scene)


def test_the_group_is_read_as_of_now_though_the_server_asked_lags_behind() -> None:
    class Lagging:
        """A session whose server shows an old tree until `sync`."""

        def __init__(self, session: MemorySession) -> None:
            self._session = session
            self._shown = dict(session._zookeeper.tree)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        async def sync(self, path: str) -> None:
            self._shown = self._session._zookeeper.tree

        async def children(self, path: str, watch: Any = None) -> tuple[list[str], Stat]:
            await self._session.children(path, watch)
            node = self._shown[path]
            return sorted(node.children), node.stat

    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        await tree.zk.ensure_path("/brokers/ids")
        tree.zk = Lagging(tree.zk)  # type: ignore[assignment, arg-type]
        await other.register()
        assert (await reading(tree)).members.keys() == {"g_a", "g_b"}

    play(scene)


def test_a_group_that_changes_while_it_is_read_is_read_again() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        counting = Counting(tree.zk)  # type: ignore[arg-type]
        tree.zk = counting  # type: ignore[assignment]

        async def intrude(name: str) -> None:
            if name == "get" and counting.calls["get"] == 1:
                await other.register()

        counting.before = intrude
        assert (await reading(tree)).members.keys() == {"g_a", "g_b"}
        assert counting.calls["sync"] == 1

    play(scene)


def test_a_member_that_was_away_while_it_was_read_is_seen_when_it_is_back() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()
        await other.register()
        counting = Counting(tree.zk)  # type: ignore[arg-type]
        tree.zk = counting  # type: ignore[assignment]

        async def come_and_go(name: str) -> None:
            if name == "get" and counting.calls["get"] == 1:
                await other.release(frozenset(), unregister=True)

        counting.before = come_and_go
        assert (await reading(tree)).members.keys() == {"g_a"}
        await other.register()
        assert (await reading(tree)).members.keys() == {"g_a", "g_b"}

    play(scene)


def test_watches_tell_of_members_topics_and_partitions_even_of_topics_yet_to_come() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        events: list[str] = []
        tree, other = await a_tree(zk, "a"), await a_tree(zk, "b")
        await tree.register()

        def group_changed(event: WatchEvent) -> None:
            events.append("group")

        def topics_changed(event: WatchEvent) -> None:
            events.append("topics")

        def brokers_changed(event: WatchEvent) -> None:
            events.append("brokers")

        async def read() -> None:
            events.clear()
            await tree.read_group(group_changed, topics_changed, brokers_changed)

        await read()
        await a_topic(zk, "t", 1)
        assert events == ["topics"]
        await read()
        await tree.zk.set(TopicAssignment.path("t"), TopicAssignment({0: (0,), 1: (0,)}).encode())
        assert events == ["topics"]
        await read()
        await other.register()
        assert events == ["group"]
        await read()
        await tree.zk.create("/brokers/ids/7", None, make_parents=True)
        assert events == ["brokers"]
        await read()
        await tree.zk.delete("/brokers/ids/7")
        assert events == ["brokers"]
        await read()
        await other.zk.close()
        assert set(events) == {"group"}

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
