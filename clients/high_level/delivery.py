"""What a connector delivers: its feeds and their positions, as its group member directs.

This is `groups.zookeeper.member.Delivery` for real streams. The positions here are the only ones
that are ever committed, and only while they are ours to commit.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Protocol

import attrs

from clients.errors import ClientError
from clients.high_level.streams import MessageStream, PartitionFeed
from offsets.store import CommitFailed, OffsetFetchFailed, OffsetStore
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)

Partitions = Set[TopicPartition]

COMMIT_RETRIES_IN_REBALANCE = 1
COMMIT_PATIENCE_S = 4.0
"""Peers wait for what is to be released, and those on the JVM give up after 4 tries 2 s apart."""


class ConsumerRebalanceListener(Protocol):
    """The application's say in a rebalance. Both may be plain functions or coroutines."""

    def before_releasing_partitions(
        self, partition_ownership: Mapping[str, Set[int]]
    ) -> Awaitable[None] | None:
        """What we own until now, some of which is about to go (topic -> partitions).

        What goes is no longer fetched, and is still ours: what has been processed may be flushed
        and committed here.
        """

    def before_starting_fetchers(
        self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
    ) -> Awaitable[None] | None:
        """The whole group's new assignment: partition -> consumer thread id."""


@attrs.define(eq=False)
class StreamDelivery:
    """`stream_of` says which stream a thread feeds; `fetch` begins to fetch feeds. `entitled`: the
    ZooKeeper session, as far as a clock can tell, has not ended; asked besides `paused`, because a
    process that was stopped may go on before its timers ring."""

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
    _feeds: dict[TopicPartition, PartitionFeed] = attrs.field(factory=dict)
    _committing: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _under_way: asyncio.Timeout | None = None

    def stop(self, partitions: Partitions) -> None:
        """Close the feeds; their positions can still be committed."""
        for partition in partitions & self._feeds.keys():
            self._feeds[partition].close()

    async def forget(self, partitions: Partitions) -> None:
        """Drop the positions, once no commit of them is on its way."""
        async with self._committing:
            for partition in partitions:
                self._feeds.pop(partition, None)

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        """Give each partition a new feed, to another stream, at its old position."""
        self.stop(threads.keys())
        moved = {p: self._feeds[p] for p in threads}
        self.start({p: (threads[p], feed.position) for p, feed in moved.items()})
        for partition, feed in moved.items():
            self._feeds[partition].committed = feed.committed
            self._feeds[partition].rewinds = feed.rewinds

    def start(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        """Open feeds."""
        opened = {
            partition: PartitionFeed(partition, self.stream_of(partition, thread), position)
            for partition, (thread, position) in starts.items()
        }
        self._feeds |= opened
        self.fetch(opened.values())

    def pause(self) -> None:
        """Hand out nothing, commit nothing."""
        self.paused = True
        for stream in self.streams:
            stream.pause()
        self._interrupt_commit()

    def resume(self) -> None:
        """Go on."""
        self.paused = False
        for stream in self.streams:
            stream.resume()

    def abandon(self) -> None:
        """Close all feeds and drop their positions: others own them."""
        self.stop(self._feeds.keys())
        self._feeds.clear()
        self._interrupt_commit()

    def fail(self, error: Exception) -> None:
        """Raise `error` from every stream."""
        for stream in self.streams:
            stream.end(error)

    def _interrupt_commit(self) -> None:
        """One that still looks for the coordinator would be sent when others own what is in it."""
        if self._under_way:
            self._under_way.reschedule(0)
            self._under_way = None

    # --- offsets ------------------------------------------------------------------------------

    @property
    def owned(self) -> list[PartitionFeed]:
        """What is delivered now."""
        return [feed for feed in self._feeds.values() if feed.live]

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset to consume of each partition we own, unless the group has committed a
        later one: nothing but a reset, or the application's word, takes a group back."""
        return {
            partition: OffsetAndMetadata(position)
            for partition, feed in self._feeds.items()
            if (position := feed.position) is not None
            and (feed.committed is None or position >= feed.committed)
        }

    async def commit(self, partitions: Partitions) -> None:
        """Commit what leaves. A failure is logged: who gets the partition consumes again."""
        retries = min(self.commit_retries, COMMIT_RETRIES_IN_REBALANCE)
        try:
            async with asyncio.timeout(COMMIT_PATIENCE_S):
                await self.commit_offsets(only=partitions, retries=retries)
        except CommitFailed as failure:
            _log.error("%s: not committed: %s", self.consumer_id, failure)
        except TimeoutError:
            self._interrupt_commit()  # one by the clock may be what took so long, and goes on
            _log.error("%s: not committed within %.0f s", self.consumer_id, COMMIT_PATIENCE_S)

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        *,
        only: Partitions | None = None,
        retries: int | None = None,
    ) -> None:
        """Commit these, or all positions (of some partitions); again after a pause while that can
        help.

        Raises CommitFailed, for those of `offsets` that we do not own too; ValueError.
        """
        for partition, committed in (offsets or {}).items():
            if committed.offset < 0:
                raise ValueError(f"{partition}: offset {committed.offset} cannot be committed")
        left = self.commit_retries if retries is None else retries
        while True:
            try:
                foreign = await self._try_to_commit(offsets, only)
                break
            except CommitFailed as failure:
                if not failure.retriable or not left or self.paused:
                    raise
                _log.info("%s: commit: %s", self.consumer_id, failure)
                only = failure.errors.keys()
            left -= 1
            await asyncio.sleep(self.commit_backoff_ms / 1000)
        if foreign:
            reason = f"{self.consumer_id} does not own them"
            raise CommitFailed(dict.fromkeys(foreign, ErrorCode.ILLEGAL_GENERATION), reason)

    async def _try_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, only: Partitions | None
    ) -> Partitions:
        """One attempt; returns what of `offsets` is not ours to commit.

        One at a time, and each looks only then at what is owned and how far it has got: what has
        left meanwhile is another's to commit, and an older position never follows a newer.
        """
        async with self._committing:
            wanted = dict(self.positions() if offsets is None else offsets)
            if only is not None:
                wanted = {p: offset for p, offset in wanted.items() if p in only}
            foreign = wanted.keys() - self._feeds.keys()
            owned = {p: offset for p, offset in wanted.items() if p not in foreign}
            rewinds = {p: self._feeds[p].rewinds for p in owned}
            if not owned:
                return foreign
            if self.paused or not self.entitled():
                raise _all_failed(owned, "ZooKeeper is out of reach")
            try:
                async with asyncio.timeout(None) as self._under_way:
                    await self.store.commit(self.group_id, owned)
            except CommitFailed as failure:
                self._note_committed(owned, owned.keys() - failure.errors.keys(), rewinds)
                raise
            except (ClientError, ApiError, TimeoutError) as error:
                raise _all_failed(owned, str(error) or "interrupted") from error
            finally:
                self._under_way = None
            self._note_committed(owned, owned.keys(), rewinds)
            return foreign

    def _note_committed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        partitions: Partitions,
        rewinds: Mapping[TopicPartition, int],
    ) -> None:
        """A reset that came while they were under way may lead back, to before them."""
        for partition in partitions & self._feeds.keys():
            feed = self._feeds[partition]
            if feed.rewinds == rewinds[partition]:
                feed.committed = offsets[partition].offset

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        """Committed offsets, None where there is none; and what is wrong with the others."""
        errors: Mapping[TopicPartition, str] = {}
        try:
            found = await self.store.fetch(self.group_id, partitions)
        except OffsetFetchFailed as failure:
            found, errors = failure.offsets, failure.errors
        except (ClientError, ApiError) as error:
            return {}, dict.fromkeys(partitions, str(error))
        sure = sorted(partitions - errors.keys())
        return {p: found[p].offset if p in found else None for p in sure}, errors

    # --- the listener -------------------------------------------------------------------------

    async def before_releasing(self, owned: Partitions) -> None:
        """Tell the application."""
        if self.listener is None:
            return
        ownership: dict[str, set[int]] = {}
        for topic, partition in owned:
            ownership.setdefault(topic, set()).add(partition)
        await _finish(self.listener.before_releasing_partitions(ownership))

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None:
        """Tell the application."""
        if self.listener is not None:
            await _finish(self.listener.before_starting_fetchers(self.consumer_id, assignment))


def _all_failed(partitions: Iterable[TopicPartition], reason: str) -> CommitFailed:
    return CommitFailed(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION), reason)


async def _finish(outcome: Awaitable[None] | None) -> None:
    if inspect.isawaitable(outcome):
        await outcome
