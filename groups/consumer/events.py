"""Events of a consumer in a group: responses, timers, and what its application does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# ---- the application, and what it subscribes to


@frozen
class TopicsRead:
    """The topics that we subscribe to: at first, and when others match our filter."""

    topics: frozenset[str]


@frozen
class PartitionsChanged:
    """Topics of the group have other partitions than when we, its leader, have assigned them."""

    reason: str


@frozen
class PollTimedOut:
    """The application has worked on one message for longer than max.poll.interval.ms.

    `has_left`: the group was told already, by the thread that noticed it.
    """

    reason: str
    has_left: bool = False


@frozen
class PollResumed:
    """The application asks for messages again; `reason` may say how long it did not."""

    reason: str = "the application asks for messages again"


@frozen
class Shutdown:
    """The application leaves."""


# ---- joining


@frozen
class GroupMember:
    """A member as the leader gets to know it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinResponded:
    """The response to the JoinGroup of `round`."""

    round: int
    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_name: str = ""
    leader_id: str = ""
    members: Sequence[GroupMember] = ()
    skip_assignment: bool = False


@frozen
class AssignmentComputed:
    """The assignments are there: member id -> bytes; or the reason why they cannot be computed."""

    round: int
    assignments: Mapping[str, bytes] = attrs.field(factory=dict)
    problem: str | None = None


@frozen
class SyncResponded:
    """The response to the SyncGroup of `round`; None for partitions that cannot be read."""

    round: int
    error: ErrorCode
    partitions: frozenset[TopicPartition] | None = frozenset()


@frozen
class CallFailed:
    """A JoinGroup or SyncGroup of `round` has no response: its coordinator is away, or refused us.

    `error` is what a broker said when it was asked for the coordinator.
    """

    round: int
    reason: str
    error: ErrorCode = ErrorCode.NONE


@frozen
class RetryDue:
    """The pause before the next attempt is over."""

    round: int


# ---- being a member


@frozen
class HeartbeatResponded:
    """The response to a heartbeat, or to a commit that says something of our membership.

    Generation and member are those with which it was sent.
    """

    generation_id: int
    member_id: str
    error: ErrorCode


@frozen
class HeartbeatsSilent:
    """No heartbeat with this identity has been accepted for the session timeout.

    `coordinator` names the broker that should have.
    """

    generation_id: int
    member_id: str
    silence_ms: int
    coordinator: str


@frozen
class HeartbeatsFailed:
    """No heartbeats are sent any longer: what sends them has ended with an error."""

    reason: str


# ---- consuming


@frozen
class OffsetsFetched:
    """Committed offsets of partitions, None where there is none; and why others cannot be read."""

    round: int
    offsets: Mapping[TopicPartition, int | None]
    failed: Mapping[TopicPartition, str] = attrs.field(factory=dict)


@frozen
class OffsetsDue:
    """Time to read the offsets again that could not be read."""

    round: int


Event = (
    TopicsRead
    | PartitionsChanged
    | PollTimedOut
    | PollResumed
    | Shutdown
    | JoinResponded
    | AssignmentComputed
    | SyncResponded
    | CallFailed
    | RetryDue
    | HeartbeatResponded
    | HeartbeatsSilent
    | HeartbeatsFailed
    | OffsetsFetched
    | OffsetsDue
)
"""The events that `decide` takes."""
