"""A member of a group's story, its application, and what ties both to the story."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from clients.high_level.delivery import StreamDelivery
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.member import Member
from groups.zookeeper.membership_errors import ConsumerRebalanceFailed, MembershipLost
from groups.zookeeper.membership_state import Membership, MembershipSettings, Phase
from groups.zookeeper.registration import (
    FilterSubscription,
    StaticSubscription,
    Subscription,
    stream_index,
)
from groups.zookeeper.tree import GroupTree
from offsets.store_errors import CommitFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.stories.figures import BACKOFF_MS, GROUP, SESSION_TIMEOUT_MS, TOPICS
from tests.groups.zookeeper.stories.wire import Wire
from zk.api import SessionState
from zk.memory import MemorySession

if TYPE_CHECKING:
    from tests.groups.zookeeper.stories.story import Story


class ToldDelivery(StreamDelivery):
    """Real streams; the story checks them when deliveries begin."""

    story: Story

    def open(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        super().open(starts)
        self.story.promises.check_deliveries()

    def resume(self) -> None:
        super().resume()
        self.story.promises.check_deliveries()


class ToldMember(Member):
    """A real member whose events and effects the story records."""

    story: Story

    def _handle_event(self, event: on.Event) -> None:
        before = self.membership
        self.story.tell(self.consumer_id, event)
        try:
            super()._handle_event(event)
        except AssertionError as failure:
            self.story.violated(f"{self.consumer_id}: {failure}")
            raise
        late = getattr(event, "round", before.round) != before.round
        if late and not isinstance(event, on.Retry) and self.membership is before:
            self.story.bites["stale result"] += 1
        if bite := _BITES.get(type(event)):
            self.story.bites[bite] += 1
        if self.membership.blocked and self.membership.phase is Phase.BACKING_OFF:
            self.story.bites["partition in another's hands"] += 1

    async def _perform(self, effect: do.Ordered) -> on.Event | None:
        self.story.tell(self.consumer_id, effect)
        return await super()._perform(effect)


_BITES: dict[type[Any], str] = {
    on.ClaimFailed: "claim too late",
    on.SessionLost: "session lost",
    on.RoundFailed: "round failed",
    on.ReleaseFailed: "release failed",
    on.RegistrationFailed: "registration failed",
    on.GroupUnreadable: "group unreadable",
}


class Player:
    """A member, its application, and their connection to the world."""

    def __init__(self, story: Story, name: str, session: MemorySession, streams: int) -> None:
        self.story = story
        self.name = name
        self.session = session
        self.num_streams = streams
        self.wire: Any = Wire(session, story)
        self.consumer_id = f"{GROUP}_{name}"
        store = ZooKeeperStore(self.wire)
        self.delivery = ToldDelivery(
            *(GROUP, self.consumer_id, store, self._fetch), commit_retries=2, commit_backoff_ms=200
        )
        self.delivery.story = story
        self.delivery.entitled = self._entitled
        streams_made = [
            MessageStream(bytes_decoder, bytes_decoder, entitled=self._entitled)
            for _ in range(streams)
        ]
        self.delivery.streams = streams_made
        self.delivery.stream_of = lambda partition, thread: streams_made[stream_index(thread)]
        self.delivery.listener = Listener(self)
        wanted: Subscription = StaticSubscription(dict.fromkeys(TOPICS, streams))
        if story.random.random() < 0.3:
            wanted = FilterSubscription(Whitelist("[t-w]"), streams)
        settings = MembershipSettings(story.strategy, True, 99, BACKOFF_MS)
        self.member = ToldMember(
            GroupTree(self.wire, GROUP, self.consumer_id, wanted, strategy=story.strategy),
            self.delivery,
            Membership(self.consumer_id, settings),
            rng=story.random,
        )

        self.member.story = story
        self.crashed = False
        self.streams_lost = 0
        self.next_silence_s: float | None = None
        session.add_state_listener(self._state_changed)
        self.feeds: list[PartitionFeed] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            silent_s = self.next_silence_s
            self.next_silence_s = None
            if silent_s is None:  # a reply was lost
                silent_s = self.story.random.uniform(0.05, 1.0)
            self.story.troubles.connection_broke(self, silent_s)

    def _entitled(self) -> bool:
        """Return whether the lease holds. In every other story only its timers end it."""
        silence_ms: int = self.session.silence_ms
        return self.story.seed % 2 == 0 or silence_ms * 3 < SESSION_TIMEOUT_MS * 2

    def begin(self) -> None:
        life = [self._join(), self._fetcher(), self._commit_by_the_clock()]
        life += [self._application(stream) for stream in self.delivery.streams]
        self.tasks = [asyncio.ensure_future(part) for part in life]

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()

    @property
    def delivers(self) -> list[TopicPartition]:
        if self.delivery.paused or not self._entitled():
            return []
        return [feed.partition for feed in self.delivery.owned]

    async def _join(self) -> None:
        with contextlib.suppress(ConsumerRebalanceFailed, MembershipLost):  # it left before
            await self.member.join()

    async def _application(self, stream: MessageStream) -> None:
        try:
            async for message in stream:
                partition = TopicPartition(message.topic, message.partition)
                self.story.promises.handed_out(self, partition, message)
                await self.story.work()
        except MembershipLost:
            self.streams_lost += 1

    async def _commit_by_the_clock(self) -> None:
        while True:
            await asyncio.sleep(self.story.random.uniform(0.5, 1.5))
            with contextlib.suppress(CommitFailed):
                await self.delivery.commit_offsets()

    def _fetch(self, feeds: Iterable[PartitionFeed]) -> None:
        self.feeds += feeds

    async def _fetcher(self) -> None:
        while True:
            await asyncio.sleep(self.story.random.uniform(0.1, 0.5))
            self.feeds = [feed for feed in self.feeds if feed.live]
            fetched = [self._read(feed) for feed in self.feeds if feed.stream.has_room]
            await asyncio.sleep(self.story.random.uniform(0, 0.1))  # on the way, as others go on
            for take, feed, fetched_of_one in fetched:
                if feed.live:
                    take(feed, fetched_of_one)

    def _read(self, feed: PartitionFeed) -> tuple[Callable[..., None], PartitionFeed, Any]:
        """Return a call for the response of a broker, to be made when it arrives."""
        log_start, log_end = self.story.log_bounds(feed.partition)
        start = feed.fetch_offset
        if start is None:
            return self._reset, feed, log_end if self.story.reset == "largest" else log_start
        if start < log_start:
            return PartitionFeed.lose_place, feed, start
        end = min(log_end, start + 16)
        rows = [(offset, -1, None, None, ()) for offset in range(start, end)]
        return self._queue, feed, Chunk(feed, start, end, rows)

    def _reset(self, feed: PartitionFeed, offset: int) -> None:
        self.story.promises.check_reset(self, feed, offset)
        feed.reset(offset)

    def _queue(self, feed: PartitionFeed, chunk: Chunk) -> None:
        if chunk.rows:
            feed.stream.put(chunk)
            feed.fetch_offset = chunk.next_offset


class Listener:
    """An application's listener: it is slow, and fails now and then."""

    def __init__(self, player: Player) -> None:
        self.player = player

    async def before_releasing_partitions(
        self, partition_ownership: Mapping[str, Set[int]]
    ) -> None:
        self.player.story.promises.check_told(self.player, partition_ownership)
        await self._dawdle()

    async def before_starting_fetchers(
        self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
    ) -> None:
        await self._dawdle()

    async def _dawdle(self) -> None:
        story = self.player.story
        if story.random.random() < 0.2:
            await asyncio.sleep(story.random.uniform(0, 1))
        if story.random.random() < 0.1:
            raise RuntimeError(f"the application of {self.player.name} is out of sorts")
