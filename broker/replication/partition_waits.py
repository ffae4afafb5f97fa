"""Who waits for a partition: which of them what has moved there can end.

| key | moves | who waits under it |
|---|---|---|
| END | with each append | followers |
| WATERMARK | when the replicas in sync have fetched | consumers, producers with acks=all, commits |
| SETTLED | with a flush | producers with acks=1, where flushes are due |
| START | when a follower's log begins elsewhere | DeleteRecords |

Another leader, another in-sync set or a failed log may end any of them. A fetch of a session waits
under its session instead, which is told of the partitions it has (`fetch_sessions`).
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from enum import IntEnum

import attrs

from broker.network.purgatory import Purgatory
from broker.replication.fetch_sessions import FetchSessions
from protocol.topic_partition import TopicPartition


class Moving(IntEnum):
    """What of a partition may move."""

    END = 0
    WATERMARK = 1
    SETTLED = 2
    START = 3


Key = tuple[int, TopicPartition]
END, WATERMARK, SETTLED, START = map(int, Moving)


@attrs.define(eq=False)
class PartitionWaits:
    """The waits for partitions of a broker."""

    purgatory: Purgatory
    sessions: FetchSessions

    def grown(self, tp: TopicPartition) -> None:
        """The log has a new end."""
        self.purgatory.touch((END, tp))
        for session in self.sessions.mark(tp):
            if session.is_follower:
                self.purgatory.touch(session)

    def committed(self, tp: TopicPartition, high_watermark: int) -> None:
        """The high watermark has moved. Followers hear of it with what they get next."""
        self.purgatory.advance((WATERMARK, tp), high_watermark)
        for session in self.sessions.mark(tp):
            if not session.is_follower:
                self.purgatory.touch(session)

    def settled(self, tp: TopicPartition, durable_end_offset: int) -> None:
        """What is on disk reaches so far."""
        self.purgatory.advance((SETTLED, tp), durable_end_offset)

    def begins_elsewhere(self, tp: TopicPartition) -> None:
        """A replica's log start offset has moved."""
        self.sessions.mark(tp)
        self.purgatory.touch((START, tp))

    def changed(self, *partitions: TopicPartition) -> None:
        """Everything may be different: the leader, the in-sync set, what the log takes."""
        keys: list[Hashable] = []
        for tp in partitions:
            keys += [(END, tp), (WATERMARK, tp), (SETTLED, tp), (START, tp)]
            keys += self.sessions.mark(tp)
        self.purgatory.touch(*keys)

    def followed_by(self, replicas: Container[int]) -> None:
        """Partitions are led here that these brokers follow: a fetch of theirs that waits, without
        them, ends now, and the next one has them."""
        self.purgatory.touch(*self.sessions.hurry(replicas))
