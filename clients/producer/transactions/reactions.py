"""The meaning of each error of a coordinator, or of a leader, for a transaction: one table. Pure.

The reactions are those of Kafka's producer. An error that is not listed, and that Kafka calls
retriable, is repeated; any other has the reaction of its row's end.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from clients.producer.transactions.requests import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    End,
    Initialize,
    Request,
)
from protocol.errors import ErrorCode


class Reaction(IntEnum):
    """The consequence of an error; of several errors the greatest one counts."""

    RETRY = 0
    LOOK_UP = 1
    """Find the coordinator again, and repeat the request."""
    ABORT = 2
    """The transaction can only be aborted."""
    RENEW = 3
    """The same, and then the producer needs another epoch."""
    FENCE = 4
    """Another producer has the transactional id."""
    FAIL = 5
    """The producer can do nothing more."""


_COORDINATOR: Mapping[ErrorCode, Reaction] = MappingProxyType(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.LOOK_UP,
        ErrorCode.NOT_COORDINATOR: Reaction.LOOK_UP,
        ErrorCode.NETWORK_EXCEPTION: Reaction.LOOK_UP,
        # Before 2.7 brokers send the first for the second.
        ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCE,
        ErrorCode.PRODUCER_FENCED: Reaction.FENCE,
        ErrorCode.SASL_AUTHENTICATION_FAILED: Reaction.FAIL,
    }
)
"""What all requests to coordinators have in common."""

_UNKNOWN_PRODUCER = dict.fromkeys(
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID), Reaction.RENEW
)

REACTIONS: Mapping[type[Request], tuple[Mapping[ErrorCode, Reaction], Reaction]] = {
    Initialize: (_COORDINATOR, Reaction.FAIL),
    AddPartitions: (
        {
            **_COORDINATOR,
            **_UNKNOWN_PRODUCER,
            ErrorCode.INVALID_TXN_STATE: Reaction.FAIL,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.FAIL,
            ErrorCode.UNSUPPORTED_VERSION: Reaction.FAIL,
        },
        Reaction.ABORT,
    ),
    AddOffsets: (
        {
            **_COORDINATOR,
            **_UNKNOWN_PRODUCER,
            ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.ABORT,
        },
        Reaction.FAIL,
    ),
    CommitOffsets: (
        {
            **_COORDINATOR,
            # The group's coordinator waits for its log no longer.
            ErrorCode.REQUEST_TIMED_OUT: Reaction.LOOK_UP,
            ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.ABORT,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.ABORT,
            ErrorCode.OFFSET_METADATA_TOO_LARGE: Reaction.ABORT,
            ErrorCode.INVALID_REQUEST: Reaction.ABORT,
            # The consumer is no member, or one of another generation (KIP-447).
            ErrorCode.ILLEGAL_GENERATION: Reaction.ABORT,
            ErrorCode.UNKNOWN_MEMBER_ID: Reaction.ABORT,
            ErrorCode.FENCED_INSTANCE_ID: Reaction.ABORT,
            # The broker cannot check a member; offsets of a group alone it takes.
            ErrorCode.UNSUPPORTED_VERSION: Reaction.ABORT,
        },
        Reaction.FAIL,
    ),
    End: ({**_COORDINATOR, **_UNKNOWN_PRODUCER}, Reaction.FAIL),
}
"""By request: the reactions to errors, and that to any other that Kafka does not call retriable."""

OF_BATCHES: Mapping[ErrorCode, Reaction] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.RENEW,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Reaction.RENEW,
    ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.RENEW,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.FAIL,
}
"""The reactions to a batch that is given up; ABORT to all others."""

FIRST_RETRY_MS: Final = 20
"""Pause while the coordinator still ends the last transaction, for the next one (KAFKA-5482)."""


def react(request: Request, codes: Iterable[ErrorCode]) -> Reaction:
    """Return the reaction to the errors of a response, of which there is at least one."""
    reactions, otherwise = REACTIONS[type(request)]
    return max(
        reactions.get(code, Reaction.RETRY if code.retriable else otherwise) for code in codes
    )
