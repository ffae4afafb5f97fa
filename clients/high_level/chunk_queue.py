"""The chunks that wait in a stream, by feed: each step costs the same however many feeds there are.

Feeds take turns in the order in which their chunks came. Those that are paused keep their chunks
and have no turn. Numbers are kept as chunks come and go: with thousands of partitions a walk over
all of them, for each of them, would take seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from clients.high_level.streams import Chunk, PartitionFeed


@attrs.define(eq=False)
class ChunkQueue:
    """Chunks that wait. `num_ready` counts those of feeds that are not paused."""

    num_ready: int = 0
    num_waiting: int = 0
    _of_feeds: dict[PartitionFeed, deque[Chunk]] = attrs.field(factory=dict)
    _turns: dict[PartitionFeed, None] = attrs.field(factory=dict)
    """Feeds that have chunks and are not paused, the next one first."""

    def append(self, chunk: Chunk) -> None:
        """Add a chunk behind those of its feed."""
        feed = chunk.feed
        self._of_feeds.setdefault(feed, deque()).append(chunk)
        self._count(feed, 1)
        if not feed.is_paused:
            self._turns.setdefault(feed)

    def put_back(self, chunk: Chunk) -> None:
        """Add a chunk of a paused feed before those that wait."""
        assert chunk.feed.is_paused, "who has turns keeps its chunk"
        self._of_feeds.setdefault(chunk.feed, deque()).appendleft(chunk)
        self._count(chunk.feed, 1)

    def take(self) -> Chunk | None:
        """Remove and return the next chunk; None if only paused feeds have some."""
        feed = next(iter(self._turns), None)
        if feed is None:
            return None

        chunks = self._of_feeds[feed]
        chunk = chunks.popleft()
        self._count(feed, -1)
        # The others have a turn before the next one of this feed.
        del self._turns[feed]
        if chunks:
            self._turns[feed] = None
        else:
            del self._of_feeds[feed]
        return chunk

    def of(self, feed: PartitionFeed) -> Sequence[Chunk]:
        """Return the chunks of a feed."""
        return self._of_feeds.get(feed, ())

    def drop(self, feed: PartitionFeed) -> None:
        """Remove the chunks of a feed."""
        self._count(feed, -len(self.of(feed)))
        self._turns.pop(feed, None)
        # Nor is there a new queue without this feed's (fault outside-O19).
        self._of_feeds.pop(feed, None)

    def pause(self, feed: PartitionFeed) -> None:
        """Give a feed no turn; it `is_paused` from now on."""
        if not feed.is_paused:
            feed.is_paused = True
            self.num_ready -= len(self.of(feed))
            self._turns.pop(feed, None)

    def resume(self, feed: PartitionFeed) -> None:
        """Give a feed turns again."""
        if feed.is_paused:
            feed.is_paused = False
            self.num_ready += len(self.of(feed))
            if self.of(feed):
                self._turns[feed] = None

    def _count(self, feed: PartitionFeed, number: int) -> None:
        self.num_waiting += number
        # To count them when they are asked for would be a walk over all (fault outside-O19).
        if not feed.is_paused:
            self.num_ready += number
