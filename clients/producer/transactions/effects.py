"""The effects of decisions about a producer's transactions. An arrow (->) names the next event."""

import attrs

from clients.producer.transactions.requests import Request
from clients.producer.transactions.state import Failure


@attrs.frozen
class Send:
    """Send a request to its coordinator -> Responded, NotSent."""

    request: Request


@attrs.frozen
class Pause:
    """Wait -> PauseOver."""

    ms: int


@attrs.frozen
class Gather:
    """Wait as long as further partitions are used in each turn of the loop -> PauseOver."""


@attrs.frozen
class LookUp:
    """Forget the coordinator of a request, so that it is looked for."""

    request: Request


@attrs.frozen
class UseNumbers:
    """Number batches by this id and epoch, from 0 on in each partition."""

    producer_id: int
    producer_epoch: int


@attrs.frozen
class SendBatches:
    """Look for batches to send: their partitions were added, or nothing is to linger."""


@attrs.frozen
class Initialized:
    """Tell the application that the producer has its id."""


@attrs.frozen
class OffsetsCommitted:
    """Tell the application that the oldest offsets it gave are in the transaction."""


@attrs.frozen
class Ended:
    """Tell the application that the transaction is committed, or aborted."""


@attrs.frozen
class Fail:
    """Drop queued batches, and end the application's waits, with a failure."""

    failure: Failure


Effect = (
    Send
    | Pause
    | Gather
    | LookUp
    | UseNumbers
    | SendBatches
    | Initialized
    | OffsetsCommitted
    | Ended
    | Fail
)
