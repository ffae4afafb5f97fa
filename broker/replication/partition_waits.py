"""Wake the requests that wait for a partition.

| key | moves | who waits under it |
|---|---|---|
| END | with each append | followers |
| WATERMARK | when the in-sync replicas have fetched | consumers, producers with acks=all, commits |
| DURABLE_END | with a flush | producers with acks=1, where flushes are due |
| START | when the log start offset of a replica moves | DeleteRecords |

Another leader, another ISR or a failed log may end any of these waits. A fetch of a session waits
under its session instead; the session has marks for the partitions that moved (`fetch_sessions`).
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from enum import IntEnum

import attrs

from broker.network.purgatory import Purgatory
from broker.replication.fetch_sessions import FetchSessions
from protocol.topic_partition import TopicPartition


class Moving(IntEnum):
    """The things in a partition that move."""

    END = 0
    WATERMARK = 1
    DURABLE_END = 2
    START = 3


Key = tuple[int, TopicPartition]
END, WATERMARK, DURABLE_END, START = map(int, Moving)


@attrs.define(eq=False)
class PartitionWaits:
    """The requests of a broker that wait for its partitions."""

    purgatory: Purgatory
    sessions: FetchSessions

    def wake_at_end(self, tp: TopicPartition) -> None:
        """Wake followers: the log has a new end."""
        self.purgatory.touch((END, tp))
        # Consumers' sessions are marked too, but cannot read before the watermark moves.
        for session in self.sessions.mark(tp):
            if session.is_follower:
                self.purgatory.touch(session)

    def wake_at_watermark(self, tp: TopicPartition, high_watermark: int) -> None:
        """Wake those who wait for this high watermark, but not followers.

        A follower gets the high watermark with its next response.
        """
        self.purgatory.advance((WATERMARK, tp), high_watermark)
        for session in self.sessions.mark(tp):
            if not session.is_follower:
                self.purgatory.touch(session)

    def wake_at_durable_end(self, tp: TopicPartition, durable_end_offset: int) -> None:
        """Wake those who wait until the log is flushed up to this offset."""
        self.purgatory.advance((DURABLE_END, tp), durable_end_offset)

    def wake_at_start(self, tp: TopicPartition) -> None:
        """Wake those who wait for log start offsets: that of a replica has moved."""
        # A mark is enough for sessions: their next response has the new start.
        self.sessions.mark(tp)
        self.purgatory.touch((START, tp))

    def wake_all(self, *partitions: TopicPartition) -> None:
        """Wake all who wait for these partitions: their leader, ISR or log state changed."""
        keys: list[Hashable] = []
        for tp in partitions:
            keys += [(END, tp), (WATERMARK, tp), (DURABLE_END, tp), (START, tp)]
            keys += self.sessions.mark(tp)
        self.purgatory.touch(*keys)

    def wake_followers(self, replicas: Container[int]) -> None:
        """End the waiting fetches of these brokers, so that their next ones have new partitions."""
        self.purgatory.touch(*self.sessions.hurry(replicas))
