"""Events of transactional ids, as values that `decide` takes.

Each names the id, or the ids, that it concerns. Each request has an id of its own, and gets one
response.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from groups.runtime.effects import RequestId
from groups.transactions.state import NO_EPOCH, NO_PRODUCER_ID, Transaction
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# ---- requests


@frozen
class InitProducer:
    """InitProducerId with a transactional id.

    `producer_id` and `epoch` are those that the producer had, -1 for one that begins (KIP-360).
    `new_producer_id` is given where `needs_producer_id` says so.
    """

    request_id: RequestId
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    new_producer_id: int = NO_PRODUCER_ID


@frozen
class AddPartitions:
    """AddPartitionsToTxn, and AddOffsetsToTxn as the partition that keeps the group."""

    request_id: RequestId
    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]


@frozen
class EndTransaction:
    """EndTxn."""

    request_id: RequestId
    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool


# ---- ends of appends


@frozen
class ProducerStored:
    """The record of an InitProducer is replicated and replayed; or it failed with `error`.

    `last_producer_id` and `last_epoch` are what the producer said that it had.
    """

    request_id: RequestId
    transactional_id: str
    stored: Transaction
    last_producer_id: int
    last_epoch: int
    error: ErrorCode = ErrorCode.NONE


@frozen
class PartitionsStored:
    """The record of an AddPartitions ended."""

    request_id: RequestId
    transactional_id: str
    error: ErrorCode = ErrorCode.NONE


@frozen
class DecisionStored:
    """The record of a decision ended: of an EndTransaction, or of an abort that fences a producer.

    `response` is the error that the request gets if all went well; without a request it is None.
    """

    request_id: RequestId | None
    transactional_id: str
    response: ErrorCode = ErrorCode.NONE
    error: ErrorCode = ErrorCode.NONE


@frozen
class CompletionStored:
    """The record of a transaction whose markers are all written ended."""

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE


@frozen
class RemovalStored:
    """The tombstone of an id that expired ended."""

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE


# ---- markers


@frozen
class MarkersWritten:
    """The leaders of these partitions have the marker, or are gone with their partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]


@frozen
class CompletionDue:
    """Time to write again that all markers are written."""

    transactional_id: str


# ---- times


@frozen
class IdsLoaded:
    """These ids are loaded, and served from now on."""

    transactional_ids: Sequence[str]


@frozen
class TimeoutCheck:
    """Time to abort those of these transactions that are open for too long."""

    transactional_ids: Sequence[str]


@frozen
class ExpiryCheck:
    """Time to remove those of these ids that were not used for `expiration_ms`."""

    transactional_ids: Sequence[str]
    expiration_ms: int


Request = InitProducer | AddPartitions | EndTransaction
AppendEnded = ProducerStored | PartitionsStored | DecisionStored | CompletionStored | RemovalStored
TransactionEvent = (
    Request | AppendEnded | MarkersWritten | CompletionDue | IdsLoaded | TimeoutCheck | ExpiryCheck
)
"""The events that `decide` takes, beside those of the runtime."""


# ---- responses and what is published


@frozen
class ProducerGiven:
    """The response to InitProducer; with an error there is no producer."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@frozen
class Done:
    """The response to other requests."""

    error: ErrorCode = ErrorCode.NONE


@frozen
class Marker:
    """The end of a transaction, which the leaders of its partitions have to write."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool


@frozen
class SendMarkers:
    """Published when a transaction is decided: its marker is to be written to these partitions."""

    marker: Marker
    partitions: frozenset[TopicPartition]
