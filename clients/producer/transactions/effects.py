"""The effects of decisions about a producer's transactions. An arrow (->) names the next event."""

from clients.producer.transactions.requests import Request
from clients.producer.transactions.state import Failure
from protocol.frozen import frozen


@frozen
class Send:
    """Send a request to its coordinator -> Responded, NotSent."""

    request: Request


@frozen
class Pause:
    """Wait -> PauseOver."""

    ms: int


@frozen
class Gather:
    """Wait as long as further partitions are used in each turn of the loop -> PauseOver."""


@frozen
class LookUp:
    """Forget the coordinator of a request, so that it is looked for."""

    request: Request


@frozen
class UseNumbers:
    """Number batches by this id and epoch, from 0 on in each partition."""

    producer_id: int
    producer_epoch: int


@frozen
class SendBatches:
    """Look for batches to send: their partitions were added, or nothing is to linger."""


@frozen
class Initialized:
    """Tell the application that the producer has its id."""


@frozen
class OffsetsCommitted:
    """Tell the application that the oldest offsets it gave are in the transaction."""


@frozen
class Ended:
    """Tell the application that the transaction is committed, or aborted."""


@frozen
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
