"""The records of `__transaction_state`: transactional id -> its last transaction.

Every key and value begins with its version as an int16; a null value is a tombstone. Values of
version 0 are written; version 1, its flexible encoding, is read too (KIP-915). Keys of a later
version are skipped.

Source: Kafka's TransactionLogKey and TransactionLogValue schemas.
"""

from __future__ import annotations

from collections.abc import Sequence

from groups.transactions.state import EMPTY, Transaction, TransactionState
from protocol.encoding import decode, encode
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition, by_topic
from protocol.wire import INT8, INT16, INT32, INT64, STRING, Array, message, nested, wire

KEY_VERSION = 0
VALUE_VERSION = 0
LAST_VALUE_VERSION = 1

_VERSION_BYTES = 2


class TransactionRecordError(ValueError):
    """A key or value is malformed, or has an unknown version."""


class UnknownTransactionKey(TransactionRecordError):
    """A key has a version that is not known here; its record is skipped."""


@message(versions="0")
class TransactionKey:
    """A transactional id."""

    transactional_id: str = wire(STRING)


@nested
class TransactionTopic:
    """A topic in a transaction."""

    topic: str = wire(STRING)
    partition_ids: Sequence[int] = wire(Array(INT32))


@message(versions="0-1", flexible="1+")
class TransactionValue:
    """A transaction; its partitions are null exactly in the state EMPTY."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    transaction_partitions: Sequence[TransactionTopic] | None = wire(
        Array(TransactionTopic), nullable=0
    )
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)


def encode_transaction_key(transactional_id: str) -> bytes:
    """Encode a key."""
    return _version(KEY_VERSION) + encode(
        TransactionKey(transactional_id=transactional_id), KEY_VERSION
    )


def encode_transaction(transaction: Transaction | None) -> bytes | None:
    """Encode a value; None for a tombstone."""
    if transaction is None:
        return None

    partitions: list[TransactionTopic] | None = None
    if transaction.state is not EMPTY:
        partitions = [
            TransactionTopic(topic=topic, partition_ids=[number for _, number in same_topic])
            for topic, same_topic in by_topic(transaction.partitions)
        ]

    value = TransactionValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    return _version(VALUE_VERSION) + encode(value, VALUE_VERSION)


def decode_transaction_key(key: bytes) -> str:
    """Decode a key. Raises TransactionRecordError; UnknownTransactionKey for a later version."""
    version = _read_version("key", key)
    if version > KEY_VERSION:
        raise UnknownTransactionKey(f"key of version {version}; known is {KEY_VERSION}")
    try:
        decoded: TransactionKey = decode(TransactionKey, version, key, _VERSION_BYTES)[0]
    except WireError as error:
        raise TransactionRecordError(f"malformed key of {len(key)} bytes: {error}") from error
    return decoded.transactional_id


def decode_transaction(value: bytes | None) -> Transaction | None:
    """Decode a value; None for a tombstone. Raises TransactionRecordError."""
    if value is None:
        return None
    decoded = decode_transaction_value(value)
    try:
        state = TransactionState(decoded.transaction_status)
    except ValueError as error:
        raise TransactionRecordError(f"malformed value of {len(value)} bytes: {error}") from error

    return Transaction(
        decoded.producer_id,
        decoded.producer_epoch,
        decoded.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in decoded.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        decoded.transaction_last_update_timestamp_ms,
        decoded.transaction_start_timestamp_ms,
    )


def decode_transaction_value(value: bytes) -> TransactionValue:
    """Decode a value as it is stored, partitions in their order. Raises TransactionRecordError."""
    version = _read_version("value", value)
    if not 0 <= version <= LAST_VALUE_VERSION:
        raise TransactionRecordError(
            f"value of unknown version {version}; known are 0 to {LAST_VALUE_VERSION}"
        )
    try:
        decoded: TransactionValue = decode(TransactionValue, version, value, _VERSION_BYTES)[0]
    except WireError as error:
        raise TransactionRecordError(f"malformed value of {len(value)} bytes: {error}") from error
    return decoded


def _version(version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big", signed=True)


def _read_version(what: str, data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise TransactionRecordError(f"malformed {what} of {len(data)} bytes")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
