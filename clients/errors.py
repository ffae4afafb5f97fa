"""What can go wrong on the client's side of the wire.

An error a broker answered is `protocol.errors.ApiError` with Kafka's code. Everything here happened
before a broker answered, or instead of it: no connection, no time left, no room, bytes that lie.
"""

from collections.abc import Sequence

from clients.producer.messages import KeyedMessage
from protocol.topic_partition import TopicPartition


class ClientError(Exception):
    """Root of all errors raised by the client libraries themselves."""

    retriable: bool = False
    """Whether the same call may succeed later without a change by the caller."""


class ConnectionFailed(ClientError):
    """The connection could not be made, or was lost while a request was in flight."""

    retriable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"{host}:{port}: {reason}")
        self.host = host
        self.port = port
        self.reason = reason


class RequestTimedOut(ConnectionFailed):
    """No response within the request time-out; the connection was closed because of it.

    Whether the broker performed the request is unknown.
    """


class NoBrokersAvailable(ClientError):
    """None of the known brokers could be reached."""

    retriable = True


class UnsupportedApi(ClientError):
    """The broker speaks no version of this API that we speak."""


class DeadlineExceeded(ClientError):
    """Retriable errors lasted until the time for the whole call was up."""

    retriable = True


class CorruptFetch(ClientError):
    """A broker sent a record batch that cannot be decoded."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"{partition} at offset {offset}: {reason}")
        self.partition = partition
        self.offset = offset
        self.reason = reason


class MessageSizeTooLarge(ClientError):
    """A message is larger than a consumer may fetch at once (`fetch.max.bytes`)."""

    def __init__(self, partition: TopicPartition, offset: int, fetch_bytes: int) -> None:
        super().__init__(
            f"{partition} at offset {offset}: the message does not fit in {fetch_bytes} bytes; "
            "raise fetch.max.bytes, or skip it with a commit"
        )
        self.partition = partition
        self.offset = offset
        self.fetch_bytes = fetch_bytes


class OffsetOutOfRange(ClientError):
    """There is nothing at the offset to consume from, and `auto.offset.reset` is none.

    `offset` is None where none has been committed.
    """

    def __init__(self, partition: TopicPartition, offset: int | None) -> None:
        where = "no offset is committed" if offset is None else f"offset {offset} is out of range"
        super().__init__(f"{partition}: {where}, and auto.offset.reset is none")
        self.partition = partition
        self.offset = offset


class ProducerClosed(ClientError):
    """A record was sent to a producer that is closed, or was still unsent when it was closed."""


class RecordTooLarge(ClientError):
    """A record can never be sent: larger than `max.request.size` or than `buffer.memory`."""


class BufferExhausted(DeadlineExceeded):
    """`buffer.memory` stayed full for `max.block.ms`."""


class DeliveryTimedOut(DeadlineExceeded):
    """A record was not acknowledged within `delivery.timeout.ms` of being buffered."""


class QueueFull(ClientError):
    """The queue of an async producer stayed full for `queue.enqueue.timeout.ms`."""

    retriable = True


class FailedToSendMessage(ClientError):
    """`messages` were given to a producer and are not known to be stored; the cause says why.

    What is not among them, of the same call, is stored.
    """

    def __init__(self, messages: Sequence[KeyedMessage], reason: object) -> None:
        super().__init__(f"{len(messages)} messages were not sent: {reason}")
        self.messages = tuple(messages)
