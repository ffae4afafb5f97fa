"""The events of a producer's transactions: calls, responses, and what becomes of batches."""

from clients.producer.transactions.requests import Codes, CommitOffsets, Request
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# ---- the application's calls, which the shell has found legal


@frozen
class InitializeAsked:
    """The producer is to get its id."""


@frozen
class BeginAsked:
    """A transaction is to begin."""


@frozen
class OffsetsAsked:
    """Offsets are to be committed with the transaction."""

    commit: CommitOffsets


@frozen
class OffsetsForeign:
    """Offsets were to be committed of partitions that are not the consumer's, as the text says."""

    text: str


@frozen
class EndAsked:
    """The transaction is to be committed, or aborted."""

    commit: bool


# ---- batches


@frozen
class PartitionsUsed:
    """Batches for these partitions are queued."""

    partitions: frozenset[TopicPartition]


@frozen
class BatchesDone:
    """No batch is queued or in flight."""


@frozen
class BatchFailed:
    """A batch was given up. With `may_be_written` it may be in the log, or come to be there.

    `partitions` are those of the batch, or of several that were given up at once.
    """

    text: str
    code: ErrorCode
    may_be_written: bool
    partitions: frozenset[TopicPartition] = frozenset()


# ---- requests


@frozen
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


@frozen
class NotSent:
    """The request could not be sent now: there is no coordinator, or no connection to it."""

    request: Request
    reason: str = ""


@frozen
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
