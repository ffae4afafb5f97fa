"""The events of a producer's transactions: calls, responses, and what becomes of batches."""

import attrs

from clients.producer.transactions.requests import Codes, CommitOffsets, Request
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

# ---- the application's calls, which the shell has found legal


@attrs.frozen
class InitializeAsked:
    """The producer is to get its id."""


@attrs.frozen
class BeginAsked:
    """A transaction is to begin."""


@attrs.frozen
class OffsetsAsked:
    """Offsets are to be committed with the transaction."""

    commit: CommitOffsets


@attrs.frozen
class OffsetsForeign:
    """Offsets were to be committed of partitions that are not the consumer's, as the text says."""

    text: str


@attrs.frozen
class EndAsked:
    """The transaction is to be committed, or aborted."""

    commit: bool


# ---- batches


@attrs.frozen
class PartitionsUsed:
    """Batches for these partitions are queued."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class BatchesDone:
    """No batch is queued or in flight."""


@attrs.frozen
class BatchFailed:
    """A batch was given up. With `may_be_written` it may be in the log, or come to be there."""

    text: str
    code: ErrorCode
    may_be_written: bool


# ---- requests


@attrs.frozen
class Responded:
    """A response: `codes` has its errors, and `detail` the broker's words.

    `producer_id` and `producer_epoch` are those of InitProducerId; with `can_renew` the broker
    takes the version that names the epoch.
    """

    request: Request
    codes: Codes
    detail: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    can_renew: bool = False


@attrs.frozen
class NotSent:
    """The request could not be sent now: there is no coordinator, or no connection to it."""

    request: Request
    reason: str = ""


@attrs.frozen
class PauseOver:
    """The pause before the next request is over."""


Event = (
    InitializeAsked
    | BeginAsked
    | OffsetsAsked
    | OffsetsForeign
    | EndAsked
    | PartitionsUsed
    | BatchesDone
    | BatchFailed
    | Responded
    | NotSent
    | PauseOver
)
