"""Leaders are looked for as long as it takes, and nothing waits for them but the partition."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.errors import ConnectionFailed, NoBrokersAvailable
from clients.high_level.leader_finder import LeaderFinder
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from protocol.topic_partition import TopicPartition
from tests.virtual_time import VirtualTimeLoop

BACKOFF_MS = 200


class View:
    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}


class Brokers:
    """A cluster as its finder sees it."""

    def __init__(self) -> None:
        self.view = View()
        self.brokers = {1: BrokerEndpoint(1, "h", 9)}
        self.asked: list[set[str]] = []
        self.failures: list[Exception] = []

    async def refresh(self, topics: Iterable[str]) -> None:
        self.asked.append(set(topics))
        if self.failures:
            raise self.failures.pop(0)


class Scene:
    def __init__(self) -> None:
        self.cluster = Brokers()
        self.led: list[tuple[int, TopicPartition]] = []
        self.finder = LeaderFinder(
            cast(Cluster, self.cluster),
            lambda broker, feed: self.led.append((broker, feed.partition)),
            BACKOFF_MS,
        )

    def feed(self, topic: str) -> PartitionFeed:
        stream = MessageStream(bytes_decoder, bytes_decoder)
        return PartitionFeed(TopicPartition(topic, 0), stream, 0)


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        work = Scene()
        running = asyncio.ensure_future(work.finder.run())
        await scene(work)
        running.cancel()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(whole())


def test_a_partition_without_leader_waits_and_holds_up_no_other() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.view.leaders = {TopicPartition("t", 0): 1, TopicPartition("u", 0): 9}
        work.finder.add([work.feed("t"), work.feed("u")])
        await asyncio.sleep(1)
        assert work.led == [(1, TopicPartition("t", 0))]
        work.cluster.view.leaders[TopicPartition("u", 0)] = 1
        await asyncio.sleep(1)
        assert work.led[1:] == [(1, TopicPartition("u", 0))]

    play(scene)


def test_it_asks_for_the_topics_in_question_after_pauses_and_never_for_none() -> None:
    async def scene(work: Scene) -> None:
        feed = work.feed("t")
        work.finder.add([feed])
        await asyncio.sleep(0.9)
        assert work.cluster.asked == [{"t"}] * 5
        feed.close()
        await asyncio.sleep(10)
        assert work.cluster.asked == [{"t"}] * 5
        assert work.led == []

    play(scene)


def test_a_cluster_that_cannot_be_asked_is_asked_again() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.failures = [NoBrokersAvailable("none"), ConnectionFailed("h", 9, "lost")]
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        work.finder.add([work.feed("t")])
        await asyncio.sleep(5)
        assert work.led == [(1, TopicPartition("t", 0))]
        assert len(work.cluster.asked) == 3

    play(scene)
