"""Leaders are looked for as long as needed, and only their partitions wait for them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import pytest

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.complaints import AGAIN_S, Complaints
from clients.errors import BrokerError, ConnectionFailed, NoBrokersAvailable
from clients.high_level.leader_finder import LEADERLESS_S, LeaderFinder
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time

BACKOFF_MS = 200
MAX_AGE_MS = 300_000


class View:
    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.errors: dict[str, ErrorCode] = {}

    def leader_epoch(self, partition: TopicPartition) -> int:
        return self.epochs.get(partition, -1)


class Brokers:
    """A cluster as the leader finder uses it."""

    def __init__(self) -> None:
        self.view = View()
        self.complaints = Complaints()
        self.brokers = {1: BrokerEndpoint(1, "h", 9)}
        self.asked: list[set[str]] = []
        self.failures: list[Exception] = []
        self.others_asked = 0
        self.just_read: set[str] = set()
        self.each_asked: list[set[str]] = []
        self.responding = True
        """Whether all brokers respond."""

    def ask_another(self) -> None:
        self.others_asked += 1

    def is_just_read(self, topics: set[str]) -> bool:
        return topics <= self.just_read

    async def refresh(self, topics: Iterable[str]) -> None:
        self.asked.append(set(topics))
        if self.failures:
            raise self.failures.pop(0)

    async def settle(self, topics: Iterable[str]) -> frozenset[str]:
        self.each_asked.append(set(topics))
        return frozenset(topics if self.responding else ())


class Scene:
    def __init__(self) -> None:
        self.cluster = Brokers()
        self.led: list[tuple[int, TopicPartition]] = []
        self.owned: list[PartitionFeed] = []
        self.finder = LeaderFinder(
            cast(Cluster, self.cluster),
            self._lead,
            BACKOFF_MS,
            MAX_AGE_MS,
            owned=lambda: self.owned,
        )

    def _lead(self, broker: int, feed: PartitionFeed) -> None:
        feed.leader = broker
        self.led.append((broker, feed.partition))

    def feed(self, topic: str) -> PartitionFeed:
        stream = MessageStream(bytes_decoder, bytes_decoder)
        return PartitionFeed(TopicPartition(topic, 0), stream, 0)


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        work = Scene()
        running = asyncio.ensure_future(work.finder.run())
        await scene(work)
        running.cancel()

    run_in_virtual_time(whole())


def test_a_partition_without_leader_waits_and_holds_up_no_other() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.view.leaders = {TopicPartition("t", 0): 1, TopicPartition("u", 0): 9}
        feeds = [work.feed("t"), work.feed("u")]
        work.finder.add(feeds)
        assert {feed.trouble for feed in feeds} == {"its leader is not known yet"}
        await asyncio.sleep(1)
        assert work.led == [(1, TopicPartition("t", 0))]
        assert [feed.trouble for feed in feeds] == [None, "no leader"]
        work.cluster.view.leaders[TopicPartition("u", 0)] = 1
        await asyncio.sleep(1)
        assert work.led[1:] == [(1, TopicPartition("u", 0))]

    play(scene)


@pytest.mark.fault("strangers-178")
def test_a_partition_of_which_brokers_may_not_tell_raises_so() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.view.errors["t"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        feed = work.feed("t")
        work.finder.add([feed])
        await asyncio.sleep(1)
        why = "TOPIC_AUTHORIZATION_FAILED: t; ask for READ on the topic"
        assert feed.trouble == why
        for _ in range(5):
            with pytest.raises(BrokerError, match=why):
                await anext(feed.stream)
            await asyncio.sleep(1)
        work.cluster.view.leaders[TopicPartition("t", 0)] = 1
        await asyncio.sleep(1)
        assert work.led == [(1, TopicPartition("t", 0))]

    play(scene)


@pytest.mark.fault("strangers-60")
def test_feeds_have_the_epochs_of_their_leaders_whether_these_move_or_not() -> None:
    async def scene(work: Scene) -> None:
        of_t, of_u = TopicPartition("t", 0), TopicPartition("u", 0)
        work.cluster.view.leaders = {of_t: 1}
        work.cluster.view.epochs = {of_t: 3, of_u: 5}
        led, leaderless = work.feed("t"), work.feed("u")
        work.owned = [led]
        work.finder.add([led, leaderless])
        await asyncio.sleep(1)
        assert (led.leader_epoch, leaderless.leader_epoch) == (3, 5)

        work.cluster.view.leaders[of_u] = 1
        work.cluster.view.epochs = {of_t: 4, of_u: 6}
        await asyncio.sleep(1)
        assert (led.leader_epoch, leaderless.leader_epoch) == (4, 6)

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


def test_a_new_feed_is_led_at_once_by_metadata_that_was_just_read() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        work.cluster.just_read = {"t", "u"}
        work.finder.add([work.feed("t"), work.feed("u")])
        assert work.led == [(1, TopicPartition("t", 0))]
        await asyncio.sleep(0.1)
        assert work.cluster.asked == [{"u"}]

    play(scene)


def test_a_feed_whose_broker_does_not_lead_it_waits_for_newer_metadata() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        work.cluster.just_read = {"t"}
        work.finder.add_again([work.feed("t")])
        assert work.led == []
        await asyncio.sleep(0.1)
        assert work.cluster.asked == [{"t"}]
        assert work.led == [(1, TopicPartition("t", 0))]

    play(scene)


@pytest.mark.fault("strangers-80")
def test_a_leader_older_than_what_was_read_is_believed_when_all_brokers_have_responded() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        work.cluster.responding = False
        feed = work.feed("t")
        feed.is_doubted = True
        for number in range(1, 100):
            work.finder.add_again([feed])
            await asyncio.sleep(1)
            assert work.cluster.each_asked == [{"t"}] * number
            assert not feed.is_believed
        work.cluster.responding = True
        work.finder.add_again([feed])
        await asyncio.sleep(1)
        assert feed.is_believed

    play(scene)


@pytest.mark.fault("strangers-91")
def test_a_younger_leader_that_is_known_by_then_is_asked_first() -> None:
    """It may die before it responds, and the older one must not be believed for that."""

    async def scene(work: Scene) -> None:
        t0 = TopicPartition("t", 0)
        work.cluster.view.leaders = {t0: 1}
        feed = work.feed("t")
        for epochs, is_believed in (((3, 4), False), ((4, 4), True), ((4, 0), True)):
            feed.leader_epoch, work.cluster.view.epochs[t0] = epochs
            feed.is_doubted = True
            work.finder.add_again([feed])
            await asyncio.sleep(1)
            assert feed.is_believed == is_believed

    play(scene)


def test_a_cluster_that_cannot_be_asked_is_asked_again() -> None:
    async def scene(work: Scene) -> None:
        work.cluster.failures = [NoBrokersAvailable("none"), ConnectionFailed("h", 9, "lost")]
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        feed = work.feed("t")
        work.finder.add([feed])
        await asyncio.sleep(0.1)
        assert feed.trouble == "none"
        await asyncio.sleep(5)
        assert work.led == [(1, TopicPartition("t", 0))]
        assert len(work.cluster.asked) == 3

    play(scene)


def test_what_is_fetched_is_looked_up_again_and_follows_its_leader() -> None:
    async def scene(work: Scene) -> None:
        topic = TopicPartition("t", 0)
        work.cluster.brokers[2] = BrokerEndpoint(2, "h", 9)
        work.cluster.view.leaders = {topic: 1}
        work.owned = [work.feed("t")]
        work.finder.add(work.owned)
        await asyncio.sleep(1)
        work.cluster.view.leaders = {topic: 2}  # which broker 1, cut off, does not know
        await asyncio.sleep(MAX_AGE_MS / 1000 - 2)
        assert work.led == [(1, topic)]

        await asyncio.sleep(2)
        assert work.led == [(1, topic), (2, topic)]
        assert work.cluster.others_asked == 1

        await asyncio.sleep(10 * MAX_AGE_MS / 1000)
        assert len(work.led) == 2
        assert len(work.cluster.asked) == 11

    play(scene)


def test_a_leader_that_is_no_live_broker_is_not_followed() -> None:
    async def scene(work: Scene) -> None:
        topic = TopicPartition("t", 0)
        work.cluster.view.leaders = {topic: 1}
        work.owned = [work.feed("t")]
        work.finder.add(work.owned)
        await asyncio.sleep(1)
        work.cluster.view.leaders = {topic: -1}
        await asyncio.sleep(MAX_AGE_MS / 1000)
        work.cluster.view.leaders = {topic: 9}
        await asyncio.sleep(MAX_AGE_MS / 1000)
        assert work.led == [(1, topic)]

    play(scene)


def test_brokers_that_are_away_are_worth_two_lines_whatever_each_attempt_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(work: Scene) -> None:
        work.cluster.failures = [NoBrokersAvailable(f"reason {n}") for n in range(100)]
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        work.finder.add([work.feed("t")])
        await asyncio.sleep(AGAIN_S - 1)
        assert work.cluster.failures == []
        first, second = (record.message for record in caplog.records)
        assert first.startswith("looking up leaders: reason ")
        assert second == "looking up leaders: works again, after 20 s"

    play(scene)


def test_partitions_that_nobody_leads_for_long_are_named_once_in_half_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(work: Scene) -> None:
        work.finder.add([work.feed("t")])
        await asyncio.sleep(LEADERLESS_S - 1)
        assert not warnings()
        await asyncio.sleep(AGAIN_S)
        trouble = "leaders of all partitions: no leader for t-0; trying again"
        assert warnings() == [trouble]
        work.cluster.view.leaders = {TopicPartition("t", 0): 1}
        await asyncio.sleep(1)
        assert warnings() == [trouble, "leaders of all partitions: works again, after 34 s"]
        work.cluster.view.leaders = {}
        work.finder.add([work.feed("t")])
        await asyncio.sleep(AGAIN_S)
        assert warnings()[2:] == [trouble]

    def warnings() -> list[str]:
        return [record.message for record in caplog.records if record.levelname == "WARNING"]

    play(scene)
