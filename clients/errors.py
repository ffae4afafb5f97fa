"""The errors that a user of a client can catch; KgroupError is the root.

BrokerError is a broker's response, with Kafka's code. ZooKeeperError is an error of ZooKeeper, or
its silence. ClientError is a failure on our side of the wire: no connection, no time left, no room,
corrupt bytes. Members of groups and stores of offsets have their own errors, which can be imported
from here too.

Two kinds of exceptions are not KgroupErrors: ValueError and TypeError for impossible arguments, and
all that the application's own serializers, partitioners and listeners raise.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from clients.keyed_message import KeyedMessage
from groups.consumer.member_failed import MemberFailed
from groups.zookeeper.membership_errors import (
    ConsumerIdInUse,
    ConsumerRebalanceFailed,
    MalformedMember,
    MembershipLost,
    StrategyConflict,
)
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ApiError, ErrorCode, KgroupError
from protocol.records.compression import CompressionUnavailable
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition

__all__ = [
    "AbortInDoubt",
    "AuthenticationFailed",
    "BrokerError",
    "BufferExhausted",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "CompressionUnavailable",
    "ConnectionFailed",
    "ConnectionRefused",
    "ConsumerIdInUse",
    "ConsumerRebalanceFailed",
    "ConsumerTimeout",
    "CorruptFetch",
    "DeadlineExceeded",
    "DeliveryTimedOut",
    "FailedToSendMessage",
    "InvalidTransactionState",
    "KgroupError",
    "LogTruncated",
    "MalformedMember",
    "MemberFailed",
    "MembershipConflict",
    "MembershipLost",
    "MessageSizeTooLarge",
    "MessageStreamsExist",
    "NoBrokersAvailable",
    "NoSuchAddress",
    "OffsetFetchFailed",
    "OffsetOutOfRange",
    "OtherLoop",
    "OtherProcess",
    "ProducerClosed",
    "ProducerFailed",
    "ProducerFenced",
    "QueueFull",
    "RecordTooLarge",
    "RecordsNotDelivered",
    "RequestTimedOut",
    "SettingError",
    "StrategyConflict",
    "StreamInUse",
    "TransactionAborted",
    "TransactionError",
    "TransactionFailed",
    "TransactionInDoubt",
    "UnsupportedApi",
    "ZooKeeperError",
    "from_zookeeper",
    "left_out",
]


# --- brokers and ZooKeeper


class BrokerError(KgroupError, ApiError):
    """An error in a broker's response: `code` is Kafka's, `detail` names what it is about.

    If it is that of a right that the client lacks, its text has the right to ask for, which depends
    on the request's `api_key`.
    """

    def __init__(self, code: ErrorCode, detail: str = "", api_key: int | None = None) -> None:
        super().__init__(code, detail)
        self.api_key = api_key

    def __str__(self) -> str:
        right = "" if self.api_key is None else _missing_right(self.api_key, self.code)
        text = super().__str__()
        # Kafka's own texts are sentences.
        return f"{text.removesuffix('.')}; ask for {right}" if right else text

    @property
    def retriable(self) -> bool:
        """True if Kafka calls the code retriable."""
        return self.code.retriable


def _missing_right(api_key: int, code: ErrorCode) -> str:
    # Commands that nobody refuses start without the table.
    from protocol.needs import missing_right

    return missing_right(api_key, code)


def left_out(what: object) -> BrokerError:
    """Return the failure of an item that a broker's response should have and lacks."""
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: left out of the broker's response")


class MembershipConflict(KgroupError):
    """The group has members of the other kind: in ZooKeeper, or at its coordinator."""


class ZooKeeperError(KgroupError):
    """ZooKeeper did not answer, refused, or holds unreadable data; the cause has the details."""

    @property
    def retriable(self) -> bool:
        """True if ZooKeeper was only unreachable."""
        # Clients that need no ZooKeeper start without these.
        from zk.api import ZkError
        from zk.failures import is_transient

        # Unreadable data and refusals do not pass by themselves.
        return isinstance(self.__cause__, ZkError) and is_transient(self.__cause__)


@contextmanager
def from_zookeeper() -> Iterator[None]:
    """Raise errors of a session, and of reading znodes, in the block as ZooKeeperError."""
    from zk.api import ZkError
    from zk.failures import describe
    from zk.znode_json import ZnodeError

    try:
        yield
    except ZkError as error:
        raise ZooKeeperError(f"ZooKeeper: {type(error).__name__}: {describe(error)}") from error
    except ZnodeError as error:
        raise ZooKeeperError(str(error)) from error  # its text names the znode


# --- our side of the wire


class ClientError(KgroupError):
    """Root of the errors on our side of the wire."""


class ConnectionFailed(ClientError):
    """The connection could not be opened, or was lost while a request was in flight."""

    retriable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        # A broker that nobody knows has a number, and no port.
        super().__init__(f"{host}:{port}: {reason}" if port else f"{host}: {reason}")
        self.host = host
        self.port = port
        self.reason = reason


class ConnectionRefused(ConnectionFailed):
    """Nobody listens at the broker's address: its process is gone, or has not started yet."""


class NoSuchAddress(ConnectionFailed):
    """The broker's registered address cannot exist: its name does not resolve, or its port is
    out of range."""


class AuthenticationFailed(ConnectionFailed):
    """The broker refuses to let this client in, or could not prove that it is the right one.

    Another attempt would end in the same way, until somebody changes a setting or a user.
    """

    retriable = False
    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class RequestTimedOut(ConnectionFailed):
    """No response came within the request timeout, so the connection was closed.

    The broker may or may not have performed the request.
    """


class NoBrokersAvailable(ClientError):
    """None of the known brokers could be reached; `is_refused`: nobody listens at any address."""

    retriable = True

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


class UnsupportedApi(ClientError):
    """The broker and this client have no version of the API in common."""


class DeadlineExceeded(ClientError):
    """Retriable errors lasted for the whole time of the call."""

    retriable = True


class AbortInDoubt(ClientError):
    """A partition's leader may or may not have written the marker that aborts a transaction.

    It is not sent again: a second marker could abort the next transaction of the producer.
    """

    def __init__(self, partition: TopicPartition, producer_id: int, reason: object) -> None:
        super().__init__(
            f"{partition}: it is not known whether the transaction of producer {producer_id} was "
            f"aborted: {reason}; describe the partition's producers before you try again"
        )
        self.partition = partition
        self.producer_id = producer_id


# --- consumers


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
    """Two tasks, or two threads, iterate the same stream; create a stream for each of them.

    Asking for the next message counts the last one as consumed. Each would count the message that
    the other still works on.
    """


class OtherLoop(ClientError, RuntimeError):
    """A client was used on another event loop than before.

    It serves the one on which it was first used; the clients of `kgroup.blocking` serve any thread.
    """


class OtherProcess(ClientError, RuntimeError):
    """A client was used in a forked child of its process, which is to make one of its own."""


class OffsetOutOfRange(ClientError):
    """The log has no message at the offset to consume from, and `auto.offset.reset` is none.

    `offset` is None if no offset has been committed.
    """

    def __init__(self, partition: TopicPartition, offset: int | None) -> None:
        where = "no offset is committed" if offset is None else f"offset {offset} is out of range"
        super().__init__(f"{partition}: {where}, and auto.offset.reset is none")
        self.partition = partition
        self.offset = offset


class LogTruncated(OffsetOutOfRange):
    """The log lost records that were read, and has others, and `auto.offset.reset` is none.

    `offset` is behind what was read; from `divergence_offset` on the log has other records, if any.
    An unclean election does so.
    """

    def __init__(self, partition: TopicPartition, offset: int, divergence_offset: int) -> None:
        super().__init__(partition, offset)
        self.args = (
            f"{partition}: what was read from offset {divergence_offset} to {offset} is lost, "
            "and auto.offset.reset is none",
        )
        self.divergence_offset = divergence_offset


# --- blocking clients and producers


class ClientClosed(ClientError):
    """A blocking client was called after it was closed, or was closed during the call."""


class ProducerClosed(ClientClosed):
    """A record was given to a closed producer, or was not sent before the producer closed."""


class RecordTooLarge(ClientError):
    """A record is larger than `max.request.size` or `buffer.memory`, so it can never be sent."""


class BufferExhausted(DeadlineExceeded):
    """`buffer.memory` stayed full for `max.block.ms`."""


class DeliveryTimedOut(DeadlineExceeded):
    """A record was not acknowledged within `delivery.timeout.ms` of being buffered."""


class RecordsNotDelivered(ClientError):
    """Records of a `send_many` were not delivered; the others of the call are stored.

    `results` has for each record, in order, its RecordMetadata or the error that it failed with.
    `first` is the index of the first that failed, `num_failed` their number.
    """

    def __init__(self, topic: str, results: Sequence[object]) -> None:
        failures = [
            (number, result)
            for number, result in enumerate(results)
            if isinstance(result, Exception)
        ]
        self.first, error = failures[0]
        self.num_failed = len(failures)
        self.results = tuple(results)
        super().__init__(
            f"{topic}: {self.num_failed} of {len(results)} records were not delivered; "
            f"the first is values[{self.first}]: {error}"
        )
        self.__cause__ = error


class QueueFull(ClientError):
    """The queue of an async producer stayed full for `queue.enqueue.timeout.ms`."""

    retriable = True


class FailedToSendMessage(ClientError):
    """`messages` were given to a producer and may not be stored; the cause has the reason.

    The other messages of the same call are stored.
    """

    def __init__(self, messages: Sequence[KeyedMessage], reason: object) -> None:
        super().__init__(f"{len(messages)} messages were not sent: {reason}")
        self.messages = tuple(messages)


# --- transactions


class TransactionError(KgroupError):
    """Root of the errors of a transactional producer; its class says what to do.

    `code` is the broker's reason, NONE if the reason is ours. `transaction_in_doubt` is True if the
    transaction may be committed, or not, and nobody can tell.
    """

    def __init__(
        self, text: str, code: ErrorCode = ErrorCode.NONE, *, transaction_in_doubt: bool = False
    ) -> None:
        super().__init__(text)
        self.code = code
        self.transaction_in_doubt = transaction_in_doubt


class InvalidTransactionState(TransactionError):
    """The call does not fit the state of the producer's transaction; the text says which does."""


class TransactionFailed(TransactionError):
    """The transaction cannot be committed: abort it, and run it again if that can help."""

    @property
    def can_be_run_again(self) -> bool:
        """True if the same transaction may succeed; False if its reason stays until it is changed.

        A record that is too large is too large each time, and a permission is given by somebody.
        """
        return self.code.retriable or self.code in _PASSING


_PASSING = frozenset(
    {
        # The reason is ours: a batch had no time, or a consumer has lost a partition.
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        # The consumer joins its group again.
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        # The abort gives the producer a new epoch, or an id.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        # Another partition has the reason.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors that Kafka does not call retriable, because the request cannot be sent again alone."""


class TransactionAborted(TransactionError):
    """The record, or the offsets, were not sent, because their transaction was aborted."""


class TransactionInDoubt(TransactionError):
    """A commit took longer than `max.block.ms`: call `commit_transaction` again, and nothing else.

    It goes on meanwhile, and the next call gives its result. If the producer is closed instead,
    the transaction may be committed or not.
    """

    retriable = True


class ProducerFenced(TransactionError):
    """Another producer has the transactional id now: stop, and close this one.

    The coordinator does the same to a producer whose transaction was open for longer than
    `transaction.timeout.ms`.
    """


class ProducerFailed(TransactionError):
    """The producer can do nothing more: close it, and make another when the reason is gone."""
