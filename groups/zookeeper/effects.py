"""The effects of `membership.decide`: what a member of a ZooKeeper group wants done.

Urgent effects are performed as soon as they are decided. All others are performed in the order in
which they were decided, each finished before the next begins. This order makes "fetchers stop, then
offsets are committed, then ownership is released" true, and no step has to wait for another.

An arrow (->) names the event in which a result comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from groups.zookeeper.events import Event
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# --- urgent -----------------------------------------------------------------------------------


@frozen
class Abandon:
    """Forget every effect not yet performed, all fetchers, queued messages and positions."""


@frozen
class Interrupt:
    """Stop waiting for a read. A write goes on, within the time that the member has for leaving."""


@frozen
class PauseDelivery:
    """Hand out no message and commit nothing until ResumeDelivery."""


@frozen
class ResumeDelivery:
    """Undo a pause, if there is one."""


@frozen
class FailDelivery:
    """End every stream with an error: no message will come."""

    reason: str


@frozen
class SetTimer:
    """Bring `event` at a random time in [at_ms, at_ms + spread_ms]. Equal events are one timer."""

    event: Event
    at_ms: int
    spread_ms: int = 0


class FailureKind(Enum):
    """Kinds of failure, by what an application can do about each."""

    RETRIES = auto()
    """The round has failed rebalance.max.retries times; the member keeps trying."""
    ID_IN_USE = auto()
    """Another living member has our consumer id; this one has given up."""
    UNREADABLE = auto()
    """Nobody can read some member's registration: nothing can be claimed."""
    STRATEGY = auto()
    """Another member's strategy conflicts with ours. A member that had not joined has given up."""
    SESSION_CLOSED = auto()
    """The ZooKeeper session has been closed; this member has ended."""


@frozen
class Report:
    """Report to the application, and to `Member.join`, how the round went.

    `error`: None, or what is wrong.
    """

    error: str | None = None
    failure: FailureKind | None = None


# --- in order: to ZooKeeper -------------------------------------------------------------------


@frozen
class Register:
    """Create our ids node in this session -> Registered | RegistrationFailed."""

    session_id: int


@frozen
class ReadGroup:
    """Arm the watches and read members and topics, consistently -> GroupRead | GroupUnreadable."""

    round: int


@frozen
class ReadOwners:
    """Read the owner nodes of these partitions -> OwnersRead."""

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class ReleaseOwners:
    """Delete these owner nodes, except those that are not ours in this session."""

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class ClaimOwners:
    """Create and rewrite owner nodes in one multi (or a few) -> Claimed | ClaimFailed.

    `create`: partition -> thread id. `move`: partition -> (thread id, version of our node).

    Each multi is done whole or not at all, and the first that fails is the last. A multi also
    checks that our registration exists, so that it fails if it reaches the server in a later
    session than the one in which it was decided.
    """

    round: int
    create: Mapping[TopicPartition, str]
    move: Mapping[TopicPartition, tuple[str, int]]


@frozen
class WatchOwners:
    """Watch these nodes -> OwnerChanged when one changes or goes, at once if one is gone already.

    One node of each owner is enough: what a member gives up it gives up in one go.
    """

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class LeaveGroup:
    """Delete our owner nodes among these, then our registration."""

    partitions: frozenset[TopicPartition]


# --- in order: to the streams -----------------------------------------------------------------


@frozen
class StopFetchers:
    """Stop delivering these partitions, delete what is queued of them, keep their positions."""

    partitions: frozenset[TopicPartition]


@frozen
class CommitPositions:
    """Commit the positions of these partitions."""

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class ForgetPositions:
    """Forget the positions of these partitions: they are no longer ours to commit."""

    partitions: frozenset[TopicPartition]


@frozen
class FetchOffsets:
    """Read the committed offsets of these partitions -> OffsetsFetched."""

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class MoveFetchers:
    """Deliver these partitions, from their positions, to other streams: partition -> thread id."""

    threads: Mapping[TopicPartition, str]


@frozen
class OpenFeeds:
    """Give partition -> (thread id, offset) positions; offset None: auto.offset.reset decides.

    Nothing is fetched yet.
    """

    starts: Mapping[TopicPartition, tuple[str, int | None]]


@frozen
class StartFetchers:
    """Fetch and deliver partitions whose feeds are open."""

    partitions: frozenset[TopicPartition]


@frozen
class NotifyReleasing:
    """Call the listener's before_releasing_partitions with what we have owned so far."""

    round: int
    owned: frozenset[TopicPartition]


@frozen
class NotifyStarting:
    """Call the listener's before_starting_fetchers with the whole group's assignment."""

    round: int
    assignment: Mapping[TopicPartition, str]


@frozen
class NotifyRevoked:
    """Call the listener's on_partitions_revoked: these partitions are still ours, and go."""

    round: int
    partitions: frozenset[TopicPartition]


@frozen
class NotifyLost:
    """Call the listener's on_partitions_lost: these partitions are others' already."""

    partitions: frozenset[TopicPartition]


@frozen
class NotifyAssigned:
    """Call the listener's on_partitions_assigned: these partitions are about to be delivered."""

    round: int
    partitions: frozenset[TopicPartition]


Urgent = Abandon | Interrupt | FailDelivery | PauseDelivery | ResumeDelivery | SetTimer | Report
Ordered = (
    Register
    | ReadGroup
    | ReadOwners
    | ReleaseOwners
    | ClaimOwners
    | WatchOwners
    | LeaveGroup
    | StopFetchers
    | CommitPositions
    | ForgetPositions
    | FetchOffsets
    | MoveFetchers
    | OpenFeeds
    | StartFetchers
    | NotifyReleasing
    | NotifyStarting
    | NotifyRevoked
    | NotifyLost
    | NotifyAssigned
)
Effect = Urgent | Ordered
