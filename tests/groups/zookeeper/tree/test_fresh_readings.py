"""What is read again, and what is remembered from the last reading."""

from typing import Any

from groups.zookeeper.registration import StaticSubscription
from tests.groups.zookeeper.tree.group_tree import Counting, a_topic, a_tree, play, reading
from zk.api import Stat
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import TopicAssignment


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
