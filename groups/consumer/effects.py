"""The effects of a consumer's decisions.

Urgent effects are performed as soon as they are decided, all others in the order in which they were
decided, each finished before the next begins. So "fetchers stop, then offsets are committed, then
the application is told, then we join" is true, and no step has to wait for another.

An arrow (->) names the event in which a result comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from groups.consumer.events import Event, GroupMember
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

# ---- urgent


@attrs.frozen
class Abandon:
    """Delete every effect not yet performed, all fetchers, queued messages and positions.

    Partitions whose revocation the application was to be told are lost with the others.
    """


@attrs.frozen
class Interrupt:
    """Wait no longer for the response of a call."""


@attrs.frozen
class BeginHeartbeats:
    """Send heartbeats with this identity from now on -> HeartbeatResponded."""

    member_id: str
    generation_id: int


@attrs.frozen
class HastenHeartbeats:
    """Send the next heartbeats soon: another rebalance is likely, and they tell of it."""


@attrs.frozen
class ForgetCoordinator:
    """Look for the coordinator before the next call."""


@attrs.frozen
class SetTimer:
    """Bring `event` after a pause. Equal events share one timer."""

    event: Event
    after_ms: int


@attrs.frozen
class Fail:
    """End every stream with this error: the consumer has no place in the group."""

    error: ErrorCode


@attrs.frozen
class Report:
    """Report to the application what keeps it from consuming."""

    problem: str


# ---- in order: to the coordinator


@attrs.frozen
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


@attrs.frozen
class ComputeAssignment:
    """Share out all partitions among all members -> AssignmentComputed."""

    round: int
    protocol_name: str
    members: Sequence[GroupMember]


@attrs.frozen
class SendSync:
    """Send SyncGroup -> SyncResponded | CallFailed."""

    round: int
    member_id: str
    generation_id: int
    protocol_name: str
    assignments: Mapping[str, bytes]


@attrs.frozen
class EndHeartbeats:
    """Send no more heartbeats. It waits its turn: who leaves is a member until all is committed."""


@attrs.frozen
class SendLeave:
    """Send LeaveGroup. Nothing waits for the response."""

    member_id: str
    reason: str


# ---- in order: to the streams and the application


@attrs.frozen
class StopFetchers:
    """Stop fetching, and delete what is queued; positions stay."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class CommitPositions:
    """Commit the positions of these partitions."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class NotifyRevoked:
    """Call the application's listener: these partitions are still ours, and go."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class NotifyLost:
    """Call the application's listener: these partitions are others' already."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class ForgetPositions:
    """Delete the positions when no commit of them is in flight."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class FetchOffsets:
    """Read the committed offsets -> OffsetsFetched."""

    round: int
    partitions: frozenset[TopicPartition]


@attrs.frozen
class OpenFeeds:
    """Give partitions these positions, None: auto.offset.reset decides. Nothing is fetched yet."""

    starts: Mapping[TopicPartition, int | None]


@attrs.frozen
class StartFetchers:
    """Fetch and deliver partitions whose feeds are open."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class NotifyAssigned:
    """Call the application's listener: these partitions are ours now, `owned` is all we have."""

    partitions: frozenset[TopicPartition]
    owned: frozenset[TopicPartition]


@attrs.frozen
class Settle:
    """Report that all of the assignment is delivered."""


Urgent = (
    Abandon
    | Interrupt
    | BeginHeartbeats
    | HastenHeartbeats
    | ForgetCoordinator
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
