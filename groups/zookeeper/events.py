"""The events of `membership.decide`: what can happen to a member of a ZooKeeper group.

A result carries the round (one attempt to rebalance) in which it was asked for; results of an older
round are ignored. Timers are events too.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from groups.zookeeper.registration import Subscription, consumer_of
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# --- the session ------------------------------------------------------------------------------


@frozen
class SessionEstablished:
    """ZooKeeper is connected, in a new session or, after a lost connection, in the old one."""

    session_id: int


@frozen
class Suspended:
    """The connection is lost; the session may live on.

    `since_ms`: when the server last answered, on the member's clock.
    """

    since_ms: int
    session_timeout_ms: int


@frozen
class LeaseEnded:
    """Timer: the server, silent since `since_ms`, may soon give our partitions to others."""

    since_ms: int


@frozen
class SessionLost:
    """The session has expired: our registration and owner nodes are gone."""


@frozen
class SessionClosed:
    """The session has been closed, by its owner or by ZooKeeper, and no other will follow it."""


@frozen
class Registered:
    """Our registration stands in this session."""

    session_id: int


@frozen
class RegistrationFailed:
    """Our registration does not stand. `in_use`: a living member with the same id holds it."""

    session_id: int
    reason: str
    in_use: bool = False


# --- changes ----------------------------------------------------------------------------------


@frozen
class GroupChanged:
    """Watch: members came or left."""


@frozen
class TopicsChanged:
    """Watch: topics or their partitions came or left."""


@frozen
class BrokersChanged:
    """Watch: brokers came or left."""


@frozen
class ReadDue:
    """Timer: the burst of changes is over, and the group can be read. `round`: the last round."""

    round: int


@frozen
class OwnerChanged:
    """Watch: the node of a partition that we want and another member held is gone or rewritten.

    If it was rewritten, its owner has moved it to another of its threads, and may still release it.
    """


# --- results ----------------------------------------------------------------------------------


@frozen
class GroupSnapshot:
    """One consistent reading of the group.

    - `members`: consumer id -> what it subscribes to.
    - `all_topics`: every topic of the cluster, if a member has a filter; else empty.
    - `partitions`: every topic that a member consumes; a topic that does not exist has none.
    - `leaders`: the preferred leaders.
    - `strategies`: consumer id -> strategy, for the members whose registration names one.
    """

    members: Mapping[str, Subscription]
    all_topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    strategies: Mapping[str, str] = attrs.field(factory=dict)


@frozen
class GroupRead:
    """The group has been read."""

    round: int
    snapshot: GroupSnapshot


@frozen
class GroupProblem:
    """A registration that nobody can read, so that nobody can compute an assignment.

    `text` names it.
    """

    text: str


@frozen
class GroupUnreadable:
    """The group has been read, and it makes no sense."""

    round: int
    problem: GroupProblem


@frozen
class Owner:
    """An owner node as it was read."""

    thread_id: str
    version: int
    session_id: int

    def is_held_by(self, consumer_id: str, session_id: int) -> bool:
        """Return whether this member created the node in this session.

        A node of an earlier session of the same member does not count: it is about to vanish.
        """
        return self.session_id == session_id and consumer_of(self.thread_id) == consumer_id


@frozen
class OwnersRead:
    """The owner nodes of the partitions asked about; those without a node are absent."""

    round: int
    owners: Mapping[TopicPartition, Owner]


@frozen
class Claimed:
    """The whole claim stands."""

    round: int


@frozen
class ClaimFailed:
    """A partition's node was not as we had read it; of a large claim, a part may stand."""

    round: int


@frozen
class OffsetsFetched:
    """Committed offsets; None for a partition that has none.

    `failed`: partition -> reason, for those that cannot be read just now.
    """

    round: int
    offsets: Mapping[TopicPartition, int | None]
    failed: Mapping[TopicPartition, str] = attrs.field(factory=dict)


@frozen
class RoundFailed:
    """An effect of the round could not be performed, or nobody knows whether it was."""

    round: int
    reason: str


@frozen
class ReleaseFailed:
    """Owner nodes that we release are still ours, or may be."""

    round: int
    reason: str


@frozen
class Retry:
    """Timer: try again what the round left undone, or check that its work still stands."""

    round: int


@frozen
class Shutdown:
    """The application wants to leave the group."""


Event = (
    SessionEstablished
    | Suspended
    | LeaseEnded
    | SessionLost
    | SessionClosed
    | Registered
    | RegistrationFailed
    | GroupChanged
    | TopicsChanged
    | BrokersChanged
    | ReadDue
    | OwnerChanged
    | GroupRead
    | GroupUnreadable
    | OwnersRead
    | Claimed
    | ClaimFailed
    | OffsetsFetched
    | RoundFailed
    | ReleaseFailed
    | Retry
    | Shutdown
)
