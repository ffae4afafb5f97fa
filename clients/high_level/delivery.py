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

COMMIT_RETRIES_IN_REBALANCE = 1  # peers wait for what we release


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
    """`stream_of` says which stream a thread feeds; `fetch` begins to fetch feeds."""

    group_id: str
    consumer_id: str
    store: OffsetStore
    fetch: Callable[[Iterable[PartitionFeed]], None]
    commit_retries: int
    commit_backoff_ms: int
    stream_of: Callable[[TopicPartition, str], MessageStream] = attrs.field(init=False)
    streams: list[MessageStream] = attrs.field(factory=list)
    listener: ConsumerRebalanceListener | None = None
    paused: bool = False
    _feeds: dict[TopicPartition, PartitionFeed] = attrs.field(factory=dict)
    _committing: asyncio.Lock = attrs.field(factory=asyncio.Lock)

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
        self.start({p: (thread, self._feeds[p].position) for p, thread in threads.items()})

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

    def resume(self) -> None:
        """Go on."""
        self.paused = False
        for stream in self.streams:
            stream.resume()

    def abandon(self) -> None:
        """Close all feeds and drop their positions: others own them."""
        self.stop(self._feeds.keys())
        self._feeds.clear()

    # --- offsets ------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset to consume of each partition we own."""
        return {
            partition: OffsetAndMetadata(feed.position)
            for partition, feed in self._feeds.items()
            if feed.position is not None
        }

    async def commit(self, partitions: Partitions) -> None:
        """Commit what leaves. A failure is logged: who gets the partition consumes again."""
        offsets = {p: offset for p, offset in self.positions().items() if p in partitions}
        retries = min(self.commit_retries, COMMIT_RETRIES_IN_REBALANCE)
        try:
            await self.commit_offsets(offsets, retries=retries)
        except CommitFailed as failure:
            _log.error("%s: not committed: %s", self.consumer_id, failure)

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        *,
        retries: int | None = None,
    ) -> None:
        """Commit these, or all positions; again after a pause while that can help.

        Raises CommitFailed.
        """
        wanted = dict(self.positions() if offsets is None else offsets)
        left = self.commit_retries if retries is None else retries
        while wanted:
            try:
                await self._try_to_commit(wanted)
                return
            except CommitFailed as failure:
                if not failure.retriable or not left or self.paused:
                    raise
                _log.info("%s: commit: %s", self.consumer_id, failure)
                failed = failure.errors.keys()
            left -= 1
            await asyncio.sleep(self.commit_backoff_ms / 1000)
            # What has left meanwhile is another's to commit, and what stayed may have moved on.
            current = self.positions() if offsets is None else offsets
            wanted = {p: offset for p, offset in current.items() if p in failed}

    async def _try_to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """One attempt; one at a time, so that an older position never follows a newer."""
        async with self._committing:
            if self.paused:
                raise _all_failed(offsets, "ZooKeeper is out of reach")
            try:
                await self.store.commit(self.group_id, offsets)
            except (ClientError, ApiError) as error:
                raise _all_failed(offsets, str(error)) from error

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        """Committed offsets, None where there is none; and what is wrong with the others."""
        errors: Mapping[TopicPartition, str] = {}
        try:
            found = await self.store.fetch(self.group_id, partitions)
        except OffsetFetchFailed as failure:
            found, errors = failure.found, failure.errors
        except (ClientError, ApiError) as error:
            return {}, dict.fromkeys(partitions, str(error))
        committed = {p: found[p].offset if p in found else None for p in partitions - errors.keys()}
        return committed, errors

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
