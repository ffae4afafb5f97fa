"""Since when a log directory has been in use: `in-use-since`.

    version: 0
    zxid: 4294967400                       a transaction of ZooKeeper before which it was in use
    cluster_czxid: 4294967302              that which created /cluster/id, and its time in ms
    cluster_ctime_ms: 1400000000000

A replica whose log is missing has lost it, or its broker died before it made the log. Where all
directories were in use before the topic was created, and none has ever named the log, it was never
made. A disk that was emptied or replaced is in use since then only, and proves nothing of earlier
topics. The file is written when the broker has registered, if there is none; Kafka ignores it.
"""

from __future__ import annotations

from core_log.value_lines import decode_values, get_number, require_version
from protocol.frozen import frozen
from protocol.topic_identity import TopicIdentity

IN_USE_SINCE = "in-use-since"
VERSION = 0


@frozen
class FirstUse:
    """A moment by ZooKeeper's transactions, of the ZooKeeper that /cluster/id tells of."""

    zxid: int
    cluster_czxid: int
    cluster_ctime_ms: int

    def is_before(self, topic: TopicIdentity) -> bool:
        """Return whether the topic was created later. False where nobody can tell."""
        # Transactions of a ZooKeeper that was restored are others.
        is_comparable = (self.cluster_czxid, self.cluster_ctime_ms) == (
            topic.cluster_czxid,
            topic.cluster_ctime_ms,
        )
        # If the topics' nodes were put back since, their topics may be older than these are.
        is_comparable = is_comparable and topic.topics_czxid < self.zxid
        return is_comparable and self.zxid < topic.topic_czxid

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return (
            f"version: {VERSION}\nzxid: {self.zxid}\ncluster_czxid: {self.cluster_czxid}\n"
            f"cluster_ctime_ms: {self.cluster_ctime_ms}\n"
        ).encode()

    @staticmethod
    def decode(data: bytes | None) -> FirstUse | None:
        """Read the bytes of the file; None if there are none, or if they cannot be read."""
        try:
            values = decode_values(data or b"")
            require_version(values, VERSION)
            return FirstUse(
                get_number(values, "zxid"),
                get_number(values, "cluster_czxid"),
                get_number(values, "cluster_ctime_ms"),
            )
        except ValueError:
            return None
