"""All that a user of a client can catch; KgroupError is the root.

BrokerError is what a broker answered, by Kafka's code; ZooKeeperError what ZooKeeper said, or that
it said nothing. ClientError is what happened before a broker answered, or instead of it: no
connection, no time left, no room, bytes that lie. Members of groups and stores of offsets have
errors of their own, which are named here too.

Two kinds of exceptions are no KgroupError: ValueError and TypeError for arguments that cannot be,
and whatever the application's own serializers, partitioners and listeners raise.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from clients.producer.messages import KeyedMessage
from groups.zookeeper.member import (
    ConsumerIdInUse,
    ConsumerRebalanceFailed,
    MalformedMember,
    MembershipLost,
    StrategyConflict,
)
from offsets.store import CommitFailed, OffsetFetchFailed
from protocol.errors import ApiError, ErrorCode, KgroupError
from protocol.records.compression import CompressionUnavailable
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from zk.api import ZkError
from zk.failures import is_transient
from zk.znodes import ZnodeError

__all__ = [
    "BrokerError",
    "BufferExhausted",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "CompressionUnavailable",
    "ConnectionFailed",
    "ConsumerIdInUse",
    "ConsumerRebalanceFailed",
    "ConsumerTimeout",
    "CorruptFetch",
    "DeadlineExceeded",
    "DeliveryTimedOut",
    "FailedToSendMessage",
    "KgroupError",
    "MalformedMember",
    "MembershipLost",
    "MessageSizeTooLarge",
    "MessageStreamsExist",
    "NoBrokersAvailable",
    "NoSuchAddress",
    "OffsetFetchFailed",
    "OffsetOutOfRange",
    "ProducerClosed",
    "QueueFull",
    "RecordTooLarge",
    "RequestTimedOut",
    "SettingError",
    "StrategyConflict",
    "StreamInUse",
    "UnsupportedApi",
    "ZooKeeperError",
    "from_zookeeper",
    "left_out",
]


class BrokerError(KgroupError, ApiError):
    """What a broker answered: `code` is Kafka's, `detail` says what it is about."""

    @property
    def retriable(self) -> bool:
        """As the code has it."""
        return self.code.retriable


def left_out(what: object) -> BrokerError:
    """What a broker's response says nothing of, though it was asked, has failed."""
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: left out of the broker's response")


class ZooKeeperError(KgroupError):
    """ZooKeeper did not answer, refused, or holds what cannot be read; the cause says which."""

    @property
    def retriable(self) -> bool:
        """Whether ZooKeeper was only out of reach."""
        return isinstance(self.__cause__, ZkError) and is_transient(self.__cause__)


@contextmanager
def from_zookeeper() -> Iterator[None]:
    """Turn what a session raises in the block, and what is read of a znode, into ZooKeeperError."""
    try:
        yield
    except ZkError as error:
        raise ZooKeeperError(f"ZooKeeper: {type(error).__name__}: {error}") from error
    except ZnodeError as error:
        raise ZooKeeperError(str(error)) from error  # it names the znode


class ClientError(KgroupError):
    """Root of what goes wrong on the client's side of the wire."""


class ConnectionFailed(ClientError):
    """The connection could not be made, or was lost while a request was in flight."""

    retriable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"{host}:{port}: {reason}")
        self.host = host
        self.port = port
        self.reason = reason


class NoSuchAddress(ConnectionFailed):
    """The address that a broker is registered with names nobody: a name that cannot be resolved,
    or a port that is none."""


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


class MessageStreamsExist(KgroupError):
    """A connector creates streams once."""


class ConsumerTimeout(KgroupError):
    """No message for consumer.timeout.ms. The stream can be iterated again."""


class StreamInUse(ClientError, RuntimeError):
    """Two tasks, or threads, iterate one stream. Asking for the next message counts the last one as
    consumed, so each would count what the other is still at: create a stream for each."""


class OffsetOutOfRange(ClientError):
    """There is nothing at the offset to consume from, and `auto.offset.reset` is none.

    `offset` is None where none has been committed.
    """

    def __init__(self, partition: TopicPartition, offset: int | None) -> None:
        where = "no offset is committed" if offset is None else f"offset {offset} is out of range"
        super().__init__(f"{partition}: {where}, and auto.offset.reset is none")
        self.partition = partition
        self.offset = offset


class ClientClosed(ClientError):
    """A blocking client was called after it was closed, or was closed during the call."""


class ProducerClosed(ClientClosed):
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
