"""Registrations: our own, an earlier session's, and those that nobody can read."""

import asyncio
import json

import pytest

from groups.zookeeper.events import GroupProblem
from groups.zookeeper.registration import StaticSubscription
from tests.groups.zookeeper.tree.group_tree import a_topic, a_tree, play, reading, unwatched
from zk.api import WatchEvent
from zk.memory import MemoryZooKeeper
from zk.znodes import ConsumerRegistration


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
