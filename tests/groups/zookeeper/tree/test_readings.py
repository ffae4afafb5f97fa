"""What a reading of the group holds, and what its watches tell."""

from groups.zookeeper.filters import Whitelist
from groups.zookeeper.registration import FilterSubscription, StaticSubscription
from tests.groups.zookeeper.tree.group_tree import P0, P1, a_topic, a_tree, play, reading
from zk.api import WatchEvent
from zk.memory import MemoryZooKeeper
from zk.znodes import TopicAssignment


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


def test_the_preferred_leader_of_each_partition_is_its_first_replica() -> None:
    async def scene(zk: MemoryZooKeeper) -> None:
        tree = await a_tree(zk, "a")
        await tree.register()
        content = TopicAssignment({0: (3, 1), 1: (2, 3)}).encode()
        await tree.zk.create(TopicAssignment.path("t"), content, make_parents=True)
        assert (await reading(tree)).leaders == {P0: 3, P1: 2}

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
