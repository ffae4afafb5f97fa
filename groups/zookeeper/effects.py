"""What a member of a ZooKeeper group wants done: the effects of `membership.decide`.

The urgent ones are done at once, when they are decided. All others are done one after the other in
the order of deciding, each ended before the next begins: that order is what makes "fetchers stop,
then offsets are committed, then ownership is released" true without a step waiting for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import attrs

from groups.zookeeper.events import Event
from protocol.topic_partition import TopicPartition

# --- urgent -----------------------------------------------------------------------------------


@attrs.frozen
class Abandon:
    """Forget every effect not yet done; drop all fetchers, queued messages and positions."""


@attrs.frozen
class Interrupt:
    """Wait no longer for what is being read; what is to be written is still written, within the
    time that the member has for leaving."""


@attrs.frozen
class PauseDelivery:
    """Hand out no message and commit nothing until told to resume."""


@attrs.frozen
class ResumeDelivery:
    """Undo a pause, if there is one."""


@attrs.frozen
class FailDelivery:
    """End every stream with an error: nothing will come any more."""

    reason: str


@attrs.frozen
class SetTimer:
    """Bring `event` at a random time in [at_ms, at_ms + spread_ms]. Equal events are one timer."""

    event: Event
    at_ms: int
    spread_ms: int = 0


class Failure(Enum):
    """Kinds of failure, as far as an application can do something else about each."""

    RETRIES = auto()
    ID_IN_USE = auto()
    """Another living member has our consumer id; this one has given up."""
    UNREADABLE = auto()
    """Some member's registration means nothing to us: nothing can be claimed."""
    STRATEGY = auto()
    """Some member's strategy is not ours; before we had joined, this one has given up."""
    SESSION_CLOSED = auto()
    """There is no ZooKeeper session any more; this member has ended."""


@attrs.frozen
class Report:
    """Tell the application, and who waits for the first rebalance, how it went.

    `error`: None, or what is wrong.
    """

    error: str | None = None
    failure: Failure | None = None


# --- in order: to ZooKeeper -------------------------------------------------------------------


@attrs.frozen
class Register:
    """Create our ids node in this session -> Registered | RegistrationFailed."""

    session_id: int


@attrs.frozen
class ReadGroup:
    """Arm the watches and read members and topics, consistently -> GroupRead | GroupUnreadable."""

    round: int


@attrs.frozen
class ReadOwners:
    """Read the owner nodes of these partitions -> OwnersRead."""

    round: int
    partitions: frozenset[TopicPartition]


@attrs.frozen
class ReleaseOwners:
    """Delete those of these owner nodes that are ours in this session, and no other."""

    round: int
    partitions: frozenset[TopicPartition]


@attrs.frozen
class ClaimOwners:
    """Create and rewrite owner nodes in one multi (or a few) -> Claimed | ClaimFailed.

    Each multi is done whole or not at all, and the first that fails is the last.

    `create`: partition -> thread id. `move`: partition -> (thread id, version of our node).
    The multi also checks that our registration exists, so that a claim that reaches the server
    in a later session than it was decided in fails.
    """

    round: int
    create: Mapping[TopicPartition, str]
    move: Mapping[TopicPartition, tuple[str, int]]


@attrs.frozen
class WatchOwners:
    """Bring OwnerChanged when one of these nodes changes or goes, or at once when one is gone.

    One of each owner's is enough: what a member gives up it gives up in one go.
    """

    round: int
    partitions: frozenset[TopicPartition]


@attrs.frozen
class LeaveGroup:
    """Delete our owner nodes among these, then our registration."""

    partitions: frozenset[TopicPartition]


# --- in order: to the streams -----------------------------------------------------------------


@attrs.frozen
class StopFetchers:
    """Stop delivering these partitions and drop what is queued of them; keep their positions."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class CommitOffsets:
    """Commit the positions of these partitions."""

    round: int
    partitions: frozenset[TopicPartition]


@attrs.frozen
class ForgetPositions:
    """These partitions are no longer ours: their positions may not be committed any more."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class FetchOffsets:
    """Read the committed offsets of these partitions -> OffsetsFetched."""

    round: int
    partitions: frozenset[TopicPartition]


@attrs.frozen
class MoveFetchers:
    """Deliver these partitions, from where they are, to other streams: partition -> thread id."""

    threads: Mapping[TopicPartition, str]


@attrs.frozen
class StartFetchers:
    """Deliver partition -> (thread id, offset); None: where auto.offset.reset says."""

    starts: Mapping[TopicPartition, tuple[str, int | None]]


@attrs.frozen
class NotifyReleasing:
    """Call the listener's before_releasing_partitions with what we own until now."""

    round: int
    owned: frozenset[TopicPartition]


@attrs.frozen
class NotifyStarting:
    """Call the listener's before_starting_fetchers with the whole group's assignment."""

    round: int
    assignment: Mapping[TopicPartition, str]


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
    | CommitOffsets
    | ForgetPositions
    | FetchOffsets
    | MoveFetchers
    | StartFetchers
    | NotifyReleasing
    | NotifyStarting
)
Effect = Urgent | Ordered
