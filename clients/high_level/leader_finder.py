"""Find the leaders of partitions that are to be fetched, however long that takes.

A partition without a leader, or a cluster without brokers, never fails a rebalance: the partition
is owned, and is fetched when it has a leader. A leader that is cut off from the others may still
respond, so leaders are looked up again every metadata.max.age.ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

import attrs

from clients.cluster import Cluster
from clients.errors import AuthenticationFailed, BrokerError, ClientError
from clients.high_level.streams import PartitionFeed
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

LEADERLESS_S = 5.0
"""Time before missing leaders are logged. An election of a broker that stops is shorter."""

MAX_NAMED = 3

# Why a partition is not read, before anything has failed.
UNKNOWN_LEADER = "its leader is not known yet"
NO_LEADER = "no leader"

# What the log calls the things that may fail.
LOOKING = "looking up leaders"
LEADERS = "leaders of all partitions"


@attrs.define(eq=False)
class LeaderFinder:
    """Finds leaders, and calls `lead` with (broker id, feed). `owned` returns all live feeds."""

    cluster: Cluster
    lead: Callable[[int, PartitionFeed], None]
    backoff_ms: int
    max_age_ms: int
    owned: Callable[[], Iterable[PartitionFeed]] = tuple
    _leaderless_since: float | None = None
    _leaderless: list[PartitionFeed] = attrs.field(factory=list)
    _wanted: asyncio.Event = attrs.field(factory=asyncio.Event)

    def add(self, feeds: Iterable[PartitionFeed]) -> None:
        """Find leaders for these new feeds too, at once where metadata has just been read."""
        leaderless = list(feeds)
        for feed in leaderless:
            feed.trouble = UNKNOWN_LEADER
        if self.cluster.is_just_read({feed.partition.topic for feed in leaderless}):
            leaderless = self._lead(leaderless)
        if leaderless:
            self.add_again(leaderless)

    def add_again(self, feeds: Iterable[PartitionFeed]) -> None:
        """Find other leaders: the brokers of these feeds do not lead them."""
        self._leaderless += feeds
        self._wanted.set()

    def look_again(self) -> None:
        """Look whether leaders have moved: something else has, away from a broker."""
        self._wanted.set()

    async def run(self) -> None:
        """Look up leaders for waiting feeds, `backoff_ms` apart, and for all every `max_age_ms`."""
        loop = asyncio.get_running_loop()
        complaints = self.cluster.complaints
        while True:
            await self._wait()
            began_s = loop.time()
            try:
                await self._find()
                complaints.succeeded(LOOKING, loop.time())
                self._note_leaderless(loop.time())
            except AuthenticationFailed as error:
                # It will not pass: the application has to know.
                for feed in self._leaderless:
                    feed.stream.end(error)
                complaints.failed(LOOKING, error, began_s, loop.time())
            except (ClientError, ApiError) as error:
                # Brokers that cannot be asked may be back after the pause.
                for feed in self._leaderless:
                    feed.trouble = str(error)
                complaints.failed(LOOKING, error, began_s, loop.time())

            # Feeds without a leader are looked up again after the pause.
            if not self._leaderless:
                self._wanted.clear()
            await asyncio.sleep(self.backoff_ms / 1000)

    def _note_leaderless(self, now: float) -> None:
        """Log partitions that had no leader for long."""
        complaints = self.cluster.complaints
        if not self._leaderless:
            # The time counts from the beginning of each absence.
            self._leaderless_since = None
            complaints.succeeded(LEADERS, now)
        elif self._leaderless_since is None:
            self._leaderless_since = now
        elif now - self._leaderless_since >= LEADERLESS_S:
            names = [str(feed.partition) for feed in self._leaderless]
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            reason = f"no leader for {', '.join(names[:MAX_NAMED])}{more}"
            complaints.failed(LEADERS, reason, self._leaderless_since, now)

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.max_age_ms / 1000):
                await self._wanted.wait()
                return
        self.cluster.ask_another()  # a broker that is cut off does not know it

    async def _find(self) -> None:
        self._leaderless = [feed for feed in self._leaderless if feed.live]

        # Owned partitions are asked for too, since their leaders may have moved.
        topics = {feed.partition.topic for feed in (*self._leaderless, *self.owned())}
        if not topics:  # a request without topics would ask for all
            return

        await self.cluster.refresh(topics)
        await self._look_for_younger()
        self._leaderless = self._lead(self._leaderless)
        self._follow_leaders()

    async def _look_for_younger(self) -> None:
        """Have each broker asked where a leader is older than what was read from another.

        It is believed if none knows of a younger one: the topic was made again.
        """
        doubted = [feed for feed in self._leaderless if feed.is_doubted]
        if doubted:
            settled = await self.cluster.settle({feed.partition.topic for feed in doubted})
            for feed in doubted:
                # One that is known by now is asked first (fault strangers-91, was: False).
                has_younger = self.cluster.view.leader_epoch(feed.partition) > feed.leader_epoch
                # A younger one may not have responded (fault strangers-80, was: not has_younger).
                feed.is_believed = feed.partition.topic in settled and not has_younger

    def _follow_leaders(self) -> None:
        for feed in self.owned():
            leader = self.cluster.view.leaders.get(feed.partition, -1)
            feed.note_leader(self.cluster.view.leader_epoch(feed.partition))

            # A feed without a leader waits in `_leaderless` already.
            if feed.leader not in (None, leader) and leader in self.cluster.brokers:
                logger.info("%s: broker %d is the leader now", feed.partition, leader)
                self.lead(leader, feed)

    def _lead(self, feeds: Iterable[PartitionFeed]) -> list[PartitionFeed]:
        """Give feeds to the leaders of their partitions; return those whose leader is not known."""
        leaderless: list[PartitionFeed] = []
        for feed in feeds:
            leader = self.cluster.view.leaders.get(feed.partition, -1)

            # Its feed was closed while metadata was read.
            if not feed.live:
                continue
            feed.note_leader(self.cluster.view.leader_epoch(feed.partition))
            if leader in self.cluster.brokers:
                # What kept its last leader from responding may last.
                if feed.trouble in (UNKNOWN_LEADER, NO_LEADER):
                    feed.trouble = None
                self.lead(leader, feed)
            else:
                self._explain_absence(feed)
                leaderless.append(feed)
        return leaderless

    def _explain_absence(self, feed: PartitionFeed) -> None:
        topic = feed.partition.topic
        code = self.cluster.view.errors.get(topic, ErrorCode.NONE)
        if code is ErrorCode.NONE or code.retriable:
            feed.trouble = NO_LEADER
            return
        # It has one, of which brokers do not tell us. Who may read may see.
        error = BrokerError(code, topic, ApiKey.FETCH)
        feed.trouble = str(error)
        if feed.stream.has_room:
            # Whoever waits for its messages would do so without an end (fault strangers-178).
            feed.fail(error)
