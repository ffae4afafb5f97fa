"""What can happen to a member of a ZooKeeper group: the events of `membership.decide`.

Results carry the round (one attempt to rebalance) they were asked for in; one that belongs to an
older round is ignored. Timers are events too.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from groups.zookeeper.registration import Subscription
from protocol.topic_partition import TopicPartition


@attrs.frozen
class SessionEstablished:
    """ZooKeeper is connected: a new session, or after a mere loss of connection the old one."""

    session_id: int


@attrs.frozen
class Suspended:
    """The connection is lost; the session may live on. The server was last heard at `since_ms`,
    on the member's clock."""

    since_ms: int
    session_timeout_ms: int


@attrs.frozen
class LeaseEnded:
    """Timer: the server, silent since `since_ms`, may soon give our partitions to others."""

    since_ms: int


@attrs.frozen
class SessionExpired:
    """The session has ended: our registration and owner nodes are gone."""


@attrs.frozen
class SessionClosed:
    """The session has been closed, by its owner or by ZooKeeper, and no other will follow it."""


@attrs.frozen
class Registered:
    """Our registration stands in this session."""

    session_id: int


@attrs.frozen
class RegistrationFailed:
    """It does not stand. `in_use`: a living member of the same id holds it."""

    session_id: int
    reason: str
    in_use: bool = False


@attrs.frozen
class GroupChanged:
    """Watch: members came or left."""


@attrs.frozen
class TopicsChanged:
    """Watch: topics or their partitions came or left."""


@attrs.frozen
class BrokersChanged:
    """Watch: brokers came or left."""


@attrs.frozen
class ReadDue:
    """Timer: the group, which has changed, has had time to change more; `round` was the last."""

    round: int


@attrs.frozen
class OwnerChanged:
    """Watch: the node of a partition that we want and another member held is gone, or rewritten:
    its owner has moved it to another of its threads, and may go on to release it."""


@attrs.frozen
class GroupSnapshot:
    """One consistent reading of the group.

    `partitions` knows every topic some member consumes; a topic that does not exist has none.
    `leaders`: the preferred ones.
    """

    members: Mapping[str, Subscription]
    all_topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int] = attrs.field(factory=dict)


@attrs.frozen
class GroupRead:
    """Who is in the group and what there is to consume."""

    round: int
    snapshot: GroupSnapshot


@attrs.frozen
class GroupProblem:
    """Why nobody can say who is to have what: one member's registration, which `text` names.

    `conflict`: it can be read, and its strategy is not ours.
    """

    text: str
    conflict: bool = False


@attrs.frozen
class GroupUnreadable:
    """There is a group, and no making sense of it."""

    round: int
    problem: GroupProblem


@attrs.frozen
class Owner:
    """An owner node as it was read."""

    thread_id: str
    version: int
    session_id: int


@attrs.frozen
class OwnersRead:
    """The owner nodes of the partitions asked about; those without a node are absent."""

    round: int
    owners: Mapping[TopicPartition, Owner]


@attrs.frozen
class Claimed:
    """The whole claim stands."""

    round: int


@attrs.frozen
class ClaimFailed:
    """A partition's node was not as we had read it; of a large claim, a part may stand."""

    round: int


@attrs.frozen
class OffsetsFetched:
    """Committed offsets; None where there is none. `failed` could not be read just now."""

    round: int
    offsets: Mapping[TopicPartition, int | None]
    failed: Mapping[TopicPartition, str] = attrs.field(factory=dict)


@attrs.frozen
class RoundFailed:
    """An effect of the round could not be carried out, or nobody knows whether it was."""

    round: int
    reason: str


@attrs.frozen
class ReleaseFailed:
    """Owner nodes that are no longer to be ours still are, or may be."""

    round: int
    reason: str


@attrs.frozen
class Retry:
    """Timer: try again what the round left undone, or see whether its work still stands."""

    round: int


@attrs.frozen
class Shutdown:
    """The application wants to leave the group."""


Event = (
    SessionEstablished
    | Suspended
    | LeaseEnded
    | SessionExpired
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
