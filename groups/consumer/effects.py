"""The effects of a consumer's decisions.

Urgent effects are performed as soon as they are decided, all others in the order in which they were
decided, each finished before the next begins. So "fetchers stop, then offsets are committed, then
the application is told, then we join" is true, and no step has to wait for another.

An arrow (->) names the event in which a result comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groups.consumer.events import Event, GroupMember
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# ---- urgent


@frozen
class Abandon:
    """Delete every effect not yet performed, all fetchers, queued messages and positions.

    Partitions whose revocation the application was to be told are lost with the others.
    """


@frozen
class Interrupt:
    """Wait no longer for the response of a call."""


@frozen
class BeginHeartbeats:
    """Send heartbeats with this identity from now on -> HeartbeatResponded."""

    member_id: str
    generation_id: int


@frozen
class HastenHeartbeats:
    """Send the next heartbeats soon: another rebalance is likely, and they tell of it."""


@frozen
class ForgetCoordinator:
    """Look for the coordinator before the next call."""


@frozen
class PauseDelivery:
    """Hand out no message until ResumeDelivery."""


@frozen
class ResumeDelivery:
    """Undo a pause, if there is one."""


@frozen
class SetTimer:
    """Bring `event` after a pause. Equal events share one timer."""

    event: Event
    after_ms: int


@frozen
class Fail:
    """End every stream with this error: the consumer has no place in the group."""

    error: ErrorCode
    reason: str = ""
    """What happened, where the error does not say it."""


@frozen
class Report:
    """Report to the application what keeps it from consuming; None: nothing does any longer."""

    problem: str | None


# ---- in order: to the coordinator


@frozen
class SendJoin:
    """Send JoinGroup -> JoinResponded | CallFailed.

    `owned` are the partitions that we hold on to, and the generation in which we got them.
    """

    round: int
    member_id: str
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition]
    generation_id: int
    reason: str


@frozen
class ComputeAssignment:
    """Share out all partitions among all members -> AssignmentComputed."""

    round: int
    protocol_name: str
    members: Sequence[GroupMember]


@frozen
class SendSync:
    """Send SyncGroup -> SyncResponded | CallFailed."""

    round: int
    member_id: str
    generation_id: int
    protocol_name: str
    assignments: Mapping[str, bytes]


@frozen
class EndHeartbeats:
    """Send no more heartbeats. It waits its turn: who leaves is a member until all is committed."""


@frozen
class SendLeave:
    """Send LeaveGroup. Nothing waits for the response."""

    member_id: str
    reason: str


# ---- in order: to the streams and the application


@frozen
class StopFetchers:
    """Stop fetching, and delete what is queued; positions stay."""

    partitions: frozenset[TopicPartition]


@frozen
class CommitPositions:
    """Commit the positions of these partitions."""

    partitions: frozenset[TopicPartition]


@frozen
class NotifyRevoked:
    """Call the application's listener: these partitions are still ours, and go."""

    partitions: frozenset[TopicPartition]


@frozen
class NotifyLost:
    """Call the application's listener: these partitions are others' already."""

    partitions: frozenset[TopicPartition]


@frozen
class ForgetPositions:
    """Delete the positions when no commit of them is in flight."""

    partitions: frozenset[TopicPartition]


@frozen
class FetchOffsets:
    """Read the committed offsets -> OffsetsFetched."""

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class OpenFeeds:
    """Give partitions these positions, None: auto.offset.reset decides. Nothing is fetched yet."""

    starts: Mapping[TopicPartition, int | None]


@frozen
class StartFetchers:
    """Fetch and deliver partitions whose feeds are open."""

    partitions: frozenset[TopicPartition]


@frozen
class NotifyAssigned:
    """Call the application's listener: these partitions are ours now, `owned` is all we have."""

    partitions: frozenset[TopicPartition]
    owned: frozenset[TopicPartition]


@frozen
class Settle:
    """Report that all of the assignment is delivered."""


Urgent = (
    Abandon
    | Interrupt
    | BeginHeartbeats
    | HastenHeartbeats
    | ForgetCoordinator
    | PauseDelivery
    | ResumeDelivery
    | SetTimer
    | Fail
    | Report
)
Ordered = (
    SendJoin
    | ComputeAssignment
    | SendSync
    | EndHeartbeats
    | SendLeave
    | StopFetchers
    | CommitPositions
    | NotifyRevoked
    | NotifyLost
    | ForgetPositions
    | FetchOffsets
    | OpenFeeds
    | StartFetchers
    | NotifyAssigned
    | Settle
)
Effect = Urgent | Ordered
