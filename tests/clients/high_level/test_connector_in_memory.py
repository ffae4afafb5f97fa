"""Connectors on a ZooKeeper in memory, in virtual time: their calls, and when these end."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Mapping, Set
from typing import Any

import pytest

from clients.errors import ZooKeeperError
from clients.high_level.connector import ConsumerConnector
from clients.high_level.delivery import ConsumerRebalanceListener
from clients.high_level.streams import Chunk
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.membership_errors import ConsumerRebalanceFailed, MembershipLost
from offsets.store_errors import CommitFailed
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerOffset, PartitionOwner, TopicAssignment

P0 = TopicPartition("t", 0)


class Told:
    """A session that records its calls: (name, path)."""

    def __init__(self, session: MemorySession) -> None:
        self.session = session
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)
        if asyncio.iscoroutinefunction(method):

            def call(*arguments: Any, **keywords: Any) -> Any:
                self.calls.append((name, str(arguments[0]) if arguments else ""))
                return method(*arguments, **keywords)

            return call
        return method

    def asked_of_migrations(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if "/kgroup/" in call[1]]


class GroupStage:
    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(lambda: int(asyncio.get_running_loop().time() * 1000))

    async def session(self) -> MemorySession:
        session = self.zookeeper.session()
        await session.start()
        return session

    async def topic(self, partitions: int) -> None:
        content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
        await (await self.session()).create(TopicAssignment.path("t"), content, make_parents=True)

    async def consumer(
        self,
        name: str,
        *,
        session: MemorySession | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> tuple[ConsumerConnector, Told]:
        """Yield a member of group g that has joined."""
        zk = Told(session or await self.session())
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": name}
        connector = ConsumerConnector(settings, zk=zk)  # type: ignore[arg-type]
        if listener:
            connector.set_consumer_rebalance_listener(listener)
        await connector.create_message_streams({"t": 1})
        await asyncio.sleep(1)
        return connector, zk

    def owners(self) -> dict[str, str]:
        """Return the owning thread of each partition of t."""
        directory = "/consumers/g/owners/t/"
        return {
            path.removeprefix(directory): (node.data or b"").decode()
            for path, node in self.zookeeper.tree.items()
            if path.startswith(directory)
        }

    def committed(self) -> bytes | None:
        return self.zookeeper.tree[ConsumerOffset.path("g", "t", 0)].data


def play(scene: Callable[[GroupStage], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scene(GroupStage())

    run_in_virtual_time(whole())


def test_who_has_left_commits_nothing_though_the_session_is_the_callers_and_lives_on() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        connector, _ = await work.consumer("a")
        await connector.commit_offsets({P0: OffsetAndMetadata(7)})
        await connector.shutdown()
        successor, _ = await work.consumer("b")
        await successor.commit_offsets({P0: OffsetAndMetadata(9)})
        with pytest.raises(CommitFailed, match="does not own"):
            await connector.commit_offsets({P0: OffsetAndMetadata(8)})
        await connector.commit_offsets()
        assert work.committed() == b"9"
        await successor.shutdown()

    play(scene)


def test_without_a_migration_a_session_asks_for_one_at_its_start_and_never_again() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(4)
        first, zk = await work.consumer("a")
        assert len(zk.asked_of_migrations()) <= 8
        zk.calls.clear()
        second, _ = await work.consumer("b")
        await first.commit_offsets({P0: OffsetAndMetadata(7)})
        await second.shutdown()
        await asyncio.sleep(30)
        assert first.metrics.owned_partitions_count == 4
        assert zk.calls
        assert zk.asked_of_migrations() == []
        await first.shutdown()

    play(scene)


class Listener:
    """A listener that does what the test sets."""

    def __init__(self) -> None:
        self.before_going: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self.before_starting: Callable[[], Coroutine[Any, Any, Any]] | None = None

    async def before_releasing_partitions(self, ownership: Mapping[str, Set[int]]) -> None:
        if self.before_going:
            await self.before_going()

    async def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, str]
    ) -> None:
        if self.before_starting:
            await self.before_starting()


class Changes(Listener):
    """A listener that notes which partitions come and go, and commits those that go."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, set[int]]] = []
        """(what happens to them, their numbers)"""
        self.connector: ConsumerConnector | None = None

    def _note(self, what: str, partitions: Set[TopicPartition]) -> None:
        self.calls.append((what, {partition.partition for partition in partitions}))

    def on_partitions_assigned(self, partitions: Set[TopicPartition]) -> None:
        self._note("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Set[TopicPartition]) -> None:
        self._note("revoked", partitions)
        if self.connector:
            await self.connector.commit_offsets({p: OffsetAndMetadata(7) for p in partitions})

    def on_partitions_lost(self, partitions: Set[TopicPartition]) -> None:
        self._note("lost", partitions)


def test_a_listener_hears_which_partitions_come_and_which_go() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        first, second = Changes(), Changes()
        session = await work.session()
        one, _ = await work.consumer("b", session=session, listener=first)
        first.connector = one

        # Another comes, and takes the first half.
        other, _ = await work.consumer("a", listener=second)
        await asyncio.sleep(5)
        assert first.calls == [("assigned", {0, 1}), ("revoked", {0})]
        assert second.calls == [("assigned", {0})]

        # What was revoked was still to be committed, and is.
        assert work.committed() == b"7"

        # Its session ends, and begins anew.
        work.zookeeper.expire(session)
        await asyncio.sleep(10)
        assert first.calls[2:] == [("lost", {1}), ("assigned", {1})]
        await one.shutdown()
        assert first.calls[4:] == [("revoked", {1})]

        # The other has both from then on, and leaves them in good order.
        await asyncio.sleep(5)
        await other.shutdown()
        assert second.calls == [
            ("assigned", {0}),
            ("assigned", {1}),
            ("revoked", {0, 1}),
        ]

    play(scene)


def test_a_shutdown_that_was_cancelled_goes_on_and_another_call_waits_for_its_end() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        listener = Listener()
        first, _ = await work.consumer("a", listener=listener)
        listener.before_going = lambda: asyncio.sleep(5)
        joining = asyncio.ensure_future(work.consumer("b"))
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first.shutdown(), 0.5)

        assert set(work.owners().values()) == {"g_a-0"}

        await first.shutdown()
        assert "g_a-0" not in work.owners().values()

        second, _ = await joining
        await asyncio.sleep(1)
        assert work.owners() == {"0": "g_b-0", "1": "g_b-0"}

        await second.shutdown()

    play(scene)


def test_a_rebalance_listener_may_shut_its_consumer_down() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        listener = Listener()
        first, _ = await work.consumer("a", listener=listener)
        listener.before_going = first.shutdown
        second, _ = await work.consumer("b")
        await first.shutdown()
        await asyncio.sleep(1)
        assert work.owners() == {"0": "g_b-0", "1": "g_b-0"}
        await second.shutdown()

    play(scene)


def test_a_task_that_a_listener_made_waits_for_the_end_of_the_shutdown_once_that_has_returned() -> (
    None
):
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        listener = Listener()
        ends = asyncio.Event()
        first, _ = await work.consumer("a", listener=listener)
        tasks: list[asyncio.Task[None]] = []

        async def end_later() -> None:
            await ends.wait()
            await first.shutdown()
            assert "g_a-0" not in work.owners().values()

        async def before_starting() -> None:
            tasks.append(asyncio.create_task(end_later()))

        listener.before_starting = before_starting
        second, _ = await work.consumer("b")
        ends.set()
        await tasks[0]
        await second.shutdown()

    play(scene)


def test_consumers_that_come_and_go_leave_nothing_in_a_session_that_is_not_theirs() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        session = await work.session()
        stays, _ = await work.consumer("b")  # or the last to leave deletes what was watched
        gone: list[weakref.ref[ConsumerConnector]] = []
        for _ in range(3):
            consumer, _ = await work.consumer("a", session=session)
            gone.append(weakref.ref(consumer))
            await consumer.shutdown()
            del consumer

        assert session._watches.paths == {"data": {}, "absent": {}, "children": {}}
        assert session._listeners == []

        await asyncio.sleep(60)  # until the last timer that knew of them has rung
        gc.collect()
        assert [consumer() for consumer in gone] == [None] * 3

        await stays.shutdown()

    play(scene)


def test_an_application_hears_that_its_session_was_closed_under_its_consumer() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        session = await work.session()
        settings = {"group.id": "g", "zookeeper.connect": "z:1"}
        connector = ConsumerConnector(settings, zk=session)
        (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        await session.close()
        with pytest.raises(MembershipLost):
            await waiting
        assert "closed" in str(connector.metrics.rebalance_error)
        await connector.shutdown()

    play(scene)


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        ({"": 1}, "topic name ''"),
        ({"..": 1}, "topic name '..'"),
        ({"a/b": 1}, "topic name 'a/b'"),
        ({"t": 1, "x" * 250: 1}, "topic name 'xxx"),
        ({"t": 0}, "'t': 0 streams"),
        ({"t": 100_001}, "'t': 100001 streams"),
        ({f"{n}-{'x' * 240}": 1 for n in range(5000)}, "bytes in ZooKeeper"),
    ],
)
def test_what_other_members_could_not_read_is_refused_and_nothing_is_registered(
    wanted: dict[str, int], what: str
) -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": "a"}
        connector = ConsumerConnector(settings, zk=await work.session())
        with pytest.raises(ValueError, match=what):
            await connector.create_message_streams(wanted)
        assert "/consumers" not in work.zookeeper.tree
        assert (await connector.create_message_streams({"t": 1})).keys() == {"t"}
        await connector.shutdown()

    play(scene)


def test_too_many_streams_of_a_filter_are_refused() -> None:
    async def scene(work: GroupStage) -> None:
        settings = {"group.id": "g", "zookeeper.connect": "z:1"}
        connector = ConsumerConnector(settings, zk=await work.session())
        with pytest.raises(ValueError, match="100001 streams"):
            await connector.create_message_streams_by_filter(Whitelist("t"), 100_001)

    play(scene)


@pytest.mark.parametrize("by_filter", [False, True])
def test_streams_of_a_member_that_needed_longer_than_its_retries_are_at_hand(
    by_filter: bool,
) -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        holder = await work.session()
        owner = PartitionOwner.path("g", "t", 0)
        await holder.create(owner, b"g_former-0", ephemeral=True, make_parents=True)
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": "a"}
        connector = ConsumerConnector(settings, zk=await work.session())
        assert connector.streams == {}

        joining: Any = (
            connector.create_message_streams_by_filter(Whitelist("t"))
            if by_filter
            else connector.create_message_streams({"t": 1})
        )
        with pytest.raises(ConsumerRebalanceFailed):
            await joining
        ((stream,),) = connector.streams.values()
        assert connector.streams.keys() == {"*" if by_filter else "t"}

        await holder.close()
        await asyncio.sleep(10)
        (feed,) = connector._delivery.owned
        assert feed.stream is stream

        await connector.shutdown()

    play(scene)


def test_a_message_is_committed_with_all_before_it() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        connector, _ = await work.consumer("a")
        ((stream,),) = connector.streams.values()
        (feed,) = connector._delivery.owned
        stream.put(Chunk(feed, 40, 44, [(offset, -1, None, None, ()) for offset in range(40, 44)]))
        for _ in range(3):
            message = await anext(stream)
        await connector.commit(message)
        assert work.committed() == b"43"
        await connector.shutdown()

    play(scene)


def test_what_zookeeper_refuses_is_counted_and_named_until_it_is_allowed() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(2)
        session = await work.session()
        owners = "/consumers/g/owners/t"
        await session.ensure_path(owners)
        work.zookeeper.read_only.add(owners)
        settings = {"group.id": "g", "zookeeper.connect": "z:1"}
        connector = ConsumerConnector(settings, zk=session)
        with pytest.raises(ConsumerRebalanceFailed, match=f"NoAuth {owners}/0"):
            await connector.create_message_streams({"t": 1})
        metrics = connector.metrics
        assert metrics.rebalance_failures_per_sec.count == 4
        assert "NoAuth" in str(metrics.rebalance_error)

        work.zookeeper.read_only.clear()
        await asyncio.sleep(5)
        assert connector.metrics.rebalance_error is None
        assert connector.metrics.owned_partitions_count == 2

        await connector.shutdown()

    play(scene)


def test_without_zookeeper_streams_are_refused_in_time_and_may_be_created_later() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        session = await work.session()
        work.zookeeper.suspend(session)
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": "a"}
        connector = ConsumerConnector(
            settings | {"zookeeper.connection.timeout.ms": 4000}, zk=session
        )
        loop = asyncio.get_running_loop()
        for until_s in (4.0, 8.0):
            with pytest.raises(ZooKeeperError, match="unreachable for 4000 ms") as refused:
                await connector.create_message_streams({"t": 1})
            assert refused.value.retriable
            assert (loop.time(), connector.streams) == (until_s, {})

        work.zookeeper.resume(session)
        await connector.create_message_streams({"t": 1})
        assert work.owners() == {"0": "g_a-0"}

        await connector.shutdown()

    play(scene)


def test_a_member_that_loses_zookeeper_while_it_joins_says_so_and_goes_on_trying() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        session = await work.session()
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": "a"}
        connector = ConsumerConnector(
            settings | {"zookeeper.connection.timeout.ms": 4000}, zk=session
        )
        joining = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        while "/consumers/g/ids/g_a" not in work.zookeeper.tree:
            await asyncio.sleep(0)
        work.zookeeper.suspend(session)
        with pytest.raises(ZooKeeperError):
            await joining

        assert list(connector.streams) == ["t"]

        work.zookeeper.resume(session)
        await asyncio.sleep(10)
        assert work.owners() == {"0": "g_a-0"}

        await connector.shutdown()

    play(scene)


def test_a_connector_that_is_shut_down_while_it_waits_for_zookeeper_does_not_join_later() -> None:
    async def scene(work: GroupStage) -> None:
        await work.topic(1)
        session = await work.session()
        work.zookeeper.suspend(session)
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": "a"}
        connector = ConsumerConnector(settings, zk=session)
        joining = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        await asyncio.sleep(1)
        await connector.shutdown()
        work.zookeeper.resume(session)
        with pytest.raises(ConsumerRebalanceFailed, match="shut down"):
            await joining
        assert not any("/consumers/g" in path for path in work.zookeeper.tree)

    play(scene)
