"""The identity of a topic: what tells it from another topic of the same name.

A topic that is deleted and created again has its name, and often the leader epochs, of the earlier
one. Its identity is read from ZooKeeper, whichever broker is the controller:

- the id in the topic's znode, which Kafka writes from 2.8 on (KIP-516) and our controllers write
  too (it is *pinned*), or an id that is derived from the cluster's id, the name and the czxid of
  the znode, the transaction that created it;
- that czxid itself: a controller before 2.8 drops a pinned id while the topic lives on, and a later
  one may write another;
- czxid and creation time of `/cluster/id`, and the czxid of `/brokers/topics`: they tell whether
  ZooKeeper's nodes, or those of all topics, were copied.

**After a restore.** A ZooKeeper that was filled from a copy of its nodes has other czxids
everywhere, and so other derived ids, though all topics are what they were. `/cluster/id` and
`/brokers/topics` show it: they were created again as well. Then a topic is another one only if both
ids were pinned before the copy was made, and differ; otherwise it counts as the same. So a cluster
whose ZooKeeper was restored starts with all its data, also from a copy of a time when topics had no
ids: those that a controller derives for it are new, and say nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

import attrs

from protocol.frozen import frozen

ID_BYTES = 16
RESERVED_IDS = (bytes(ID_BYTES), bytes(ID_BYTES - 1) + b"\1")
"""Ids that no topic has: none, and that of Kafka's own metadata."""


@frozen
class TopicIdentity:
    """The identity of a topic. Compare with `is_same_topic`: equality says more."""

    topic_id: bytes
    is_pinned: bool
    """True if the id stands in the topic's znode."""
    topic_czxid: int
    cluster_czxid: int
    cluster_ctime_ms: int
    topics_czxid: int = 0
    """That of the directory of all topics' nodes; 0 where it is not known."""
    is_derived: bool = attrs.field(default=False, eq=False)
    """True if the id follows from `topic_czxid`, as far as the reader of the znode knows."""

    def is_same_topic(self, other: TopicIdentity) -> bool:
        """Return whether both are of one topic, of the same name.

        This one is in ZooKeeper now, `other` was found beside a log.
        """
        if self.topic_id == other.topic_id:
            return True

        # A czxid, and what is derived from it, says nothing.
        if self._was_restored_since(other):
            # The id is as new as the copy of the node: a controller has pinned it since
            # (fault core-R1).
            if self.is_derived:
                return True
            return not (self.is_pinned and other.is_pinned)
        return self.topic_czxid == other.topic_czxid

    def is_surely_another(self, other: TopicIdentity) -> bool:
        """Return whether they are two topics, by the transactions of one ZooKeeper."""
        return not self.is_same_topic(other) and not self._was_restored_since(other)

    def _was_restored_since(self, other: TopicIdentity) -> bool:
        """Return whether the nodes of ZooKeeper, or those of topics, were created again."""
        if (self.cluster_czxid, self.cluster_ctime_ms) != (
            other.cluster_czxid,
            other.cluster_ctime_ms,
        ):
            return True
        # Somebody has deleted the topics' nodes, and put copies of them there (fault core-R1).
        if 0 not in (self.topics_czxid, other.topics_czxid):
            return self.topics_czxid != other.topics_czxid
        return False


def derive_topic_id(cluster_id: str, topic: str, czxid: int) -> bytes:
    """Return the id of a topic whose znode has none: a UUID of version 4 by its bits.

    The same in every broker, and another one after the topic was created again.
    """
    text = f"kgroup topic id 1{cluster_id}\0{topic}\0".encode()
    digest = bytearray(hashlib.sha256(text + struct.pack(">q", czxid)).digest()[:ID_BYTES])
    # Without the top bit the text of an id never begins with a dash.
    digest[0] &= 0x7F
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)


def encode_id(topic_id: bytes) -> str:
    """Return Kafka's text of an id: 22 characters of base64url."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def decode_id(text: object) -> bytes | None:
    """Read the text of an id; None if it is none, or one that no topic has."""
    try:
        topic_id = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    is_id = len(topic_id) == ID_BYTES and topic_id not in RESERVED_IDS
    return topic_id if is_id else None
