"""Deliver messages to streams: feeds and their positions, as the group's member directs.

This is `groups.zookeeper.member.Delivery` for real streams. Only the positions here are ever
committed, and only while they are ours to commit.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any, Protocol

import attrs

from clients.arguments import check_partitions
from clients.epoch_trail import UNKNOWN_EPOCH
from clients.errors import ClientError
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.patience import patience
from offsets.store import OffsetStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Partitions = Set[TopicPartition]

COMMIT_RETRIES_IN_REBALANCE = 1
COMMIT_PATIENCE_S = 4.0
"""Most time for a commit in a rebalance. Other members wait for the partitions that it releases,
and those on the JVM give up after 4 attempts 2 s apart."""


class ConsumerRebalanceListener(Protocol):
    """The application's part in a rebalance. Methods may be plain functions or coroutines.

    Three more are called where they exist, with the partitions that change and no others. Each
    partition that is assigned is revoked or lost later, and once.

    - `on_partitions_revoked(partitions)`: they are ours still, and may be committed.
    - `on_partitions_assigned(partitions)`: they are ours, and are fetched when it returns; here
      the connector's `seek`, `pause`, `position` and `assignment` know them already.
    - `on_partitions_lost(partitions)`: others have them already, so nothing can be committed.
    """

    def before_releasing_partitions(
        self, partition_ownership: Mapping[str, Set[int]]
    ) -> Awaitable[None] | None:
        """Prepare for losing partitions. `partition_ownership` has all that we own, by topic.

        Partitions that leave are no longer fetched but still ours: processed messages can be
        flushed and committed here.
        """

    def before_starting_fetchers(
        self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
    ) -> Awaitable[None] | None:
        """See the group's new assignment: partition -> consumer thread id."""


@attrs.define(eq=False)
class StreamDelivery:
    """The feeds of one connector.

    `stream_of` returns the stream of a thread, `fetch` starts to fetch feeds. `entitled` is true
    while commits cannot meet those of the next owners: at ZooKeeper, while the session cannot have
    ended by the clock. It is checked besides `paused`, because a process that was stopped may
    continue before its timers fire.
    """

    group_id: str
    consumer_id: str
    store: OffsetStore
    fetch: Callable[[Iterable[PartitionFeed]], None]
    commit_retries: int
    commit_backoff_ms: int
    stream_of: Callable[[TopicPartition, str], MessageStream] = attrs.field(init=False)
    streams: list[MessageStream] = attrs.field(factory=list)
    listener: ConsumerRebalanceListener | None = None
    entitled: Callable[[], bool] = lambda: True
    paused: bool = False
    is_closing: bool = False
    """True once the connector leaves: no later generation owns what it drops."""
    _feeds: dict[TopicPartition, PartitionFeed] = attrs.field(factory=dict)
    _unfetched: set[TopicPartition] = attrs.field(factory=set)
    """Partitions whose feeds are open, and are fetched when the listener has been told of them."""
    explain_loss: Callable[[], str] = lambda: ""
    """Returns why partitions were last lost, in the user's words; "" if that is not known."""
    _fetched: dict[TopicPartition, OffsetAndMetadata] = attrs.field(factory=dict)
    """Committed offsets that were fetched for feeds that are not open yet."""
    _lost: set[TopicPartition] = attrs.field(factory=set)
    """Partitions that were lost with consumed messages that are not committed."""
    _announced: set[TopicPartition] = attrs.field(factory=set)
    """Partitions that the listener has been told are ours, and not yet that they go."""
    _committing: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _commit_timeout: asyncio.Timeout | None = None

    def stop(self, partitions: Partitions) -> None:
        """Close the feeds; their positions can still be committed."""
        for partition in partitions & self._feeds.keys():
            self._feeds[partition].close()

    async def forget(self, partitions: Partitions) -> None:
        """Drop the positions when no commit of them is in flight."""
        async with self._committing:
            dropped = [self._feeds.pop(p) for p in partitions if p in self._feeds]
            self._unfetched -= partitions
        # Whoever commits afterwards hears that it is too late (fault strangers-114, was: set()).
        uncommitted = {feed.partition for feed in dropped if feed.has_uncommitted}
        if self.is_closing:
            self._lost |= uncommitted

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        """Give each partition a new feed, to another stream, at its old position."""
        # Closed feeds have their last position, at which the new ones start.
        self.stop(threads.keys())
        moved = {partition: self._feeds[partition] for partition in threads}
        self.start(
            {partition: (threads[partition], feed.position) for partition, feed in moved.items()}
        )

        # What is committed belongs to the partition, whichever stream has it.
        for partition, feed in moved.items():
            self._feeds[partition].committed = feed.committed
            self._feeds[partition].start_position = feed.start_position
            self._feeds[partition].rewinds = feed.rewinds
            self._feeds[partition].is_paused = feed.is_paused
            self._feeds[partition].leader_epoch = feed.leader_epoch
            self._feeds[partition].youngest_epoch = feed.youngest_epoch
            if feed.position is not None:
                epoch = feed.epochs.before(feed.position)
                self._feeds[partition].know_epoch(feed.position, epoch)

    def start(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        """Open feeds and fetch for them."""
        self.open(starts)
        self.fetch_opened(starts.keys())

    def open(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        """Open feeds, which have positions and can be sought; nothing is fetched for them yet."""
        opened = {
            partition: PartitionFeed(partition, self.stream_of(partition, thread), position)
            for partition, (thread, position) in starts.items()
        }
        for partition, feed in opened.items():
            place = self._fetched.pop(partition, None)
            if place is not None and place.offset == feed.position:
                feed.know_epoch(place.offset, place.leader_epoch)

        # A feed that is replaced delivers nothing more.
        self.stop(opened.keys())
        self._feeds |= opened
        # What is consumed once more is committed once more.
        self._lost -= opened.keys()
        self._unfetched |= opened.keys()

    def fetch_opened(self, partitions: Partitions) -> None:
        """Fetch for feeds that were opened and are live still."""
        due = [self._feeds[partition] for partition in sorted(self._unfetched & partitions)]
        self._unfetched -= partitions
        self.fetch([feed for feed in due if feed.live])

    # --- where the application wants to be ------------------------------------------------------

    def feed_of(self, partition: TopicPartition) -> PartitionFeed:
        """Return the feed of a partition. Raises ValueError if it is not ours, TypeError."""
        check_partitions(partition)
        feed = self._feeds.get(partition)
        if feed is None or not feed.live:
            raise ValueError(f"{partition} is not assigned to {self.consumer_id}")
        return feed

    def seek(
        self, partition: TopicPartition, offset: int | None, leader_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Go on at another offset, None for auto.offset.reset; what is queued is dropped.

        `leader_epoch` is that of the record before it. Raises ValueError.
        """
        former = self.feed_of(partition)
        former.close()

        # The group may go back below what is committed.
        feed = PartitionFeed(partition, former.stream, offset)
        feed.committed = None
        feed.start_position = None if former.has_uncommitted else offset
        feed.rewinds = former.rewinds + 1
        feed.is_paused = former.is_paused
        feed.youngest_epoch = former.youngest_epoch
        if offset is not None:
            feed.know_epoch(offset, leader_epoch)
        self._feeds[partition] = feed
        # The listener has not returned: it is fetched with the others.
        if partition not in self._unfetched:
            self.fetch([feed])

    def pause_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no messages of these partitions. Raises ValueError."""
        for feed in [self.feed_of(partition) for partition in partitions]:
            feed.stream.hold(feed)

    def resume_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out messages of these partitions again. Raises ValueError."""
        for feed in [self.feed_of(partition) for partition in partitions]:
            feed.stream.release(feed)

    def handed_out(self) -> dict[TopicPartition, int | None]:
        """Return our partitions, with the offset behind the last message that was handed out.

        There are none while others may own them.
        """
        if self.paused or not self.entitled():
            return {}
        return {feed.partition: feed.stream.next_offset(feed) for feed in self.owned}

    # --- for the member -------------------------------------------------------------------------

    def pause(self) -> None:
        """Hand out and commit nothing."""
        self.paused = True
        for stream in self.streams:
            stream.pause()
        self._interrupt_commit()

    def resume(self) -> None:
        """Hand out and commit again."""
        self.paused = False
        for stream in self.streams:
            stream.resume()

    def abandon(self) -> None:
        """Close all feeds and drop their positions: other members own the partitions."""
        self.stop(self._feeds.keys())
        self._lost |= {partition for partition, feed in self._feeds.items() if feed.has_uncommitted}
        self._feeds.clear()
        self._unfetched.clear()
        self._interrupt_commit()

    def fail(self, error: Exception) -> None:
        """Raise `error` from every stream."""
        for stream in self.streams:
            stream.end(error)

    def _interrupt_commit(self) -> None:
        """Interrupt a commit that still looks for its coordinator.

        It would be sent when others own its partitions.
        """
        if self._commit_timeout:
            self._commit_timeout.reschedule(0)
            self._commit_timeout = None

    # --- offsets ------------------------------------------------------------------------------

    @property
    def owned(self) -> list[PartitionFeed]:
        """The feeds that deliver now."""
        return [feed for feed in self._feeds.values() if feed.live]

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset to consume of each partition we own.

        Partitions with a later committed offset are left out: only a reset, or the application's
        own commit, takes a group back.
        """
        # Or who begins there cannot tell that records were lost (fault strangers-45).
        return {
            partition: OffsetAndMetadata(position, leader_epoch=feed.epochs.before(position))
            for partition, feed in self._feeds.items()
            if (position := feed.position) is not None
            and (feed.committed is None or position >= feed.committed)
        }

    def with_epochs(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets with the epochs of the records before them, where we have read these.

        Who begins at such an offset learns then whether the log has them still.
        """
        return {
            partition: attrs.evolve(offset, leader_epoch=self._epoch_before(partition, offset))
            for partition, offset in offsets.items()
        }

    def _epoch_before(self, partition: TopicPartition, committed: OffsetAndMetadata) -> int:
        feed = self._feeds.get(partition)
        if committed.leader_epoch != UNKNOWN_EPOCH or feed is None:
            return committed.leader_epoch
        return feed.epoch_before(committed.offset)

    async def commit(self, partitions: Partitions) -> None:
        """Commit partitions before their release. After a failure the next owner consumes again."""
        retries = min(self.commit_retries, COMMIT_RETRIES_IN_REBALANCE)
        try:
            async with patience(COMMIT_PATIENCE_S):
                await self.commit_offsets(only=partitions, retries=retries)
        except CommitFailed as failure:
            logger.error("%s: offsets not committed: %s", self.consumer_id, failure)
        except TimeoutError:
            self._interrupt_commit()  # a periodic commit may be what takes long; it would go on
            logger.error(
                "%s: offsets not committed within %.0f s", self.consumer_id, COMMIT_PATIENCE_S
            )

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        *,
        only: Partitions | None = None,
        retries: int | None = None,
    ) -> None:
        """Commit these offsets, or all positions (`only`: of these partitions), with retries.

        Raises CommitFailed, also if some of `offsets` are for partitions that we do not own, and
        once if partitions were lost of which messages were consumed and not committed, or if the
        connector was shut down with such partitions; ValueError.
        """
        foreign: set[TopicPartition] = set()
        wanted = only
        retries_left = self.commit_retries if retries is None else retries
        while True:
            try:
                await self._try_to_commit(offsets, wanted, foreign)
                break
            except CommitFailed as failure:
                # While paused, others may come to own the partitions.
                if not failure.retriable or not retries_left or self.paused:
                    if not foreign:
                        raise
                    errors = failure.errors | dict.fromkeys(foreign, ErrorCode.ILLEGAL_GENERATION)
                    raise CommitFailed(errors, failure.detail) from failure
                logger.info("%s: commit is repeated: %s", self.consumer_id, failure)

                # Repeat only the partitions that failed.
                wanted = failure.errors.keys()

            retries_left -= 1
            await asyncio.sleep(self.commit_backoff_ms / 1000)

        # Partitions that others own are an error, though the rest is committed.
        if offsets is None and only is None:
            foreign |= self._lost
            self._lost.clear()
        if foreign:
            loss = self.explain_loss()
            reason = f"{self.consumer_id} does not own them"
            if loss:
                reason = f"{reason}: {loss}"
            raise CommitFailed(dict.fromkeys(foreign, ErrorCode.ILLEGAL_GENERATION), reason)

    async def _try_to_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        only: Partitions | None,
        foreign: set[TopicPartition],
    ) -> None:
        """Commit once; add to `foreign` the partitions of `offsets` that we do not own.

        Commits run one at a time, and each reads the owned partitions and positions only when it
        starts. So it leaves out partitions that were released meanwhile, and an older position
        never follows a newer one.
        """
        async with self._committing:
            candidates = self.positions() if offsets is None else self.with_epochs(offsets)
            if only is not None:
                candidates = {
                    partition: offset
                    for partition, offset in candidates.items()
                    if partition in only
                }

            # Leave out partitions that we do not own (any longer).
            foreign |= {partition for partition in candidates if partition not in self._feeds}
            owned = {
                partition: offset
                for partition, offset in candidates.items()
                if partition not in foreign
            }

            # A reset during the commit makes its result void for that partition.
            rewinds = {partition: self._feeds[partition].rewinds for partition in owned}
            if not owned:
                return

            # The session may have ended: others may own the partitions and have gone on.
            if self.paused or not self.entitled():
                raise _all_failed(owned, "ZooKeeper is unreachable")

            try:
                # No limit of its own: `_interrupt_commit` sets one.
                async with asyncio.timeout(None) as self._commit_timeout:
                    await self.store.commit(self.group_id, owned)
            except CommitFailed as failure:
                # The partitions without an error are committed.
                self._note_committed(owned, owned.keys() - failure.errors.keys(), rewinds)
                raise
            except (ClientError, ApiError, TimeoutError) as error:
                # A TimeoutError comes from `_interrupt_commit`.
                raise _all_failed(owned, str(error) or "interrupted") from error
            finally:
                self._commit_timeout = None

            self._note_committed(owned, owned.keys(), rewinds)

    def _note_committed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        partitions: Partitions,
        rewinds: Mapping[TopicPartition, int],
    ) -> None:
        """Note committed offsets, unless a reset to an earlier offset came during the commit."""
        for partition in partitions & self._feeds.keys():
            feed = self._feeds[partition]
            if feed.rewinds == rewinds[partition]:
                feed.committed = offsets[partition].offset

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        """Return committed offsets, None for partitions without one; and errors of the others."""
        errors: Mapping[TopicPartition, str] = {}
        try:
            committed = await self.store.fetch(self.group_id, partitions)
        except OffsetFetchFailed as failure:
            # What could be read counts; the other partitions have errors.
            committed = failure.offsets
            errors = failure.errors
        except (ClientError, ApiError) as error:
            return {}, dict.fromkeys(partitions, str(error))

        self._fetched |= committed
        readable = sorted(partitions - errors.keys())
        return {
            partition: committed[partition].offset if partition in committed else None
            for partition in readable
        }, errors

    # --- the listener -------------------------------------------------------------------------

    async def _call_listener(self, name: str, *arguments: Any) -> None:
        method = getattr(self.listener, name, None)
        result = None if method is None else method(*arguments)
        if inspect.isawaitable(result):
            await result

    async def before_releasing(self, owned: Partitions) -> None:
        """Call the application's listener before partitions are released."""
        ownership: dict[str, set[int]] = {}
        for topic, partition in owned:
            ownership.setdefault(topic, set()).add(partition)
        await self._call_listener("before_releasing_partitions", ownership)

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None:
        """Call the application's listener before partitions are fetched."""
        await self._call_listener("before_starting_fetchers", self.consumer_id, assignment)

    async def notify_revoked(self, partitions: Partitions) -> None:
        """Call the application's listener: these partitions are ours still, and go."""
        await self._notify_gone("on_partitions_revoked", partitions)

    async def notify_lost(self, partitions: Partitions) -> None:
        """Call the application's listener: these partitions are others' already."""
        await self._notify_gone("on_partitions_lost", partitions)

    async def _notify_gone(self, name: str, partitions: Partitions) -> None:
        # A partition may be lost before it was announced, or again.
        gone = self._announced & partitions
        self._announced -= gone
        if gone:
            await self._call_listener(name, gone)

    async def notify_assigned(self, partitions: Partitions) -> None:
        """Call the application's listener: these partitions are ours from now on."""
        new = set(partitions - self._announced)
        self._announced |= new
        if new:
            await self._call_listener("on_partitions_assigned", new)


def _all_failed(partitions: Iterable[TopicPartition], reason: str) -> CommitFailed:
    return CommitFailed(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION), reason)
