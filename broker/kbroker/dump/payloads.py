"""Keys and values of records as text, for `kbroker dump --print-data-log` and its decoders.

A decoder takes a record and gives the text of its key and of its payload, None for one that has
none. What a decoder cannot read is an UndecodableRecord. The members of a group, and the partitions
of a transaction, are in the order in which they are stored; Kafka's tool has that of its hash
tables.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from broker.kbroker.log.records import LoggedRecord
from clients.named_object import named_object
from offsets.records import (
    CommittedOffset,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    RecordError,
    decode_key,
    decode_value,
)
from protocol.consumer_protocol import Assignment
from protocol.encoding import decode
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition
from protocol.wire import INT8, INT16, INT32, INT64, STRING, Array, message, nested, wire

Texts = tuple[str | None, str | None]
PayloadDecoder = Callable[[LoggedRecord], Texts]

DELETED = "<DELETE>"
CONSUMER = "consumer"

TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class UndecodableRecord(ValueError):
    """A record that is not what the decoder asked for takes it to be."""


# Any topic


def _text(data: bytes) -> str:
    return data.decode("utf-8", JAVAS)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for what is malformed, and one, too, for the bytes of a surrogate."""
    assert isinstance(error, UnicodeDecodeError)
    data, end = error.object, error.end
    if data[error.start] == 0xED:
        while end < min(error.start + 3, len(data)) and 0x80 <= data[end] < 0xC0:
            end += 1
    return "\ufffd", end


JAVAS = "kbroker-java"
"""How Java reads bytes that are not UTF-8, by its name as an error handler of codecs."""
codecs.register_error(JAVAS, _replaced)


def _number(data: bytes) -> str:
    return str(int.from_bytes(data, "big", signed=True))


KAFKAS_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "StringDecoder": _text,
    "IntegerDecoder": _number,
    "LongDecoder": _number,
    "DefaultDecoder": bytes,
}
"""By the class's name, whatever its package."""


def field_decoder(name: str | None) -> Callable[[bytes], Any]:
    """What `--key-decoder-class` and its sister name: UTF-8 without one, a decoder of Kafka's, or
    `module:name` of ours: a callable on bytes, or an object with `from_bytes`.

    Raises LookupError for any other.
    """
    if name is None or ":" not in name:
        known = (name or "StringDecoder").rpartition(".")[2]
        if known not in KAFKAS_DECODERS:
            raise LookupError(f"{name!r} is no decoder of Kafka's, nor module:Class")
        return KAFKAS_DECODERS[known]
    found = named_object(name)
    decoder = getattr(found, "from_bytes", found)
    if not callable(decoder):
        raise LookupError(f"{name!r} cannot be called and has no from_bytes")
    checked: Callable[[bytes], Any] = decoder
    return checked


def decoder_of(key: Callable[[bytes], Any], value: Callable[[bytes], Any]) -> PayloadDecoder:
    """A decoder from one of keys and one of values."""
    return partial(_decoded, key, value)


def _decoded(
    key: Callable[[bytes], Any], value: Callable[[bytes], Any], record: LoggedRecord
) -> Texts:
    try:
        return (
            None if record.key is None else str(key(record.key)),
            None if record.value is None else str(value(record.value)),
        )
    except Exception as error:  # a decoder that the user brought may raise whatever it likes
        raise UndecodableRecord(f"the decoder fails: {error}") from error


# __consumer_offsets


def offsets_payload(record: LoggedRecord) -> Texts:
    """A record of `__consumer_offsets`."""
    try:
        key = decode_key(record.key)
        value = decode_value(key, record.value)
    except RecordError as error:
        raise UndecodableRecord(str(error)) from error
    if isinstance(key, OffsetKey):
        partition = TopicPartition(key.topic, key.partition)
        name = f"offset_commit::group={key.group},partition={partition}"
    else:
        name = f"group_metadata::group={key.group}"
    if value is None:
        return name, DELETED
    return name, _offset(value) if isinstance(value, CommittedOffset) else _group(value)


def _offset(committed: CommittedOffset) -> str:
    note = f",metadata={committed.metadata}" if committed.metadata else ""
    return f"offset={committed.offset}{note}"


def _group(group: GroupMetadata) -> str:
    members = ",".join(_member(member, group.protocol_type) for member in group.members)
    return json.dumps(
        {
            "protocolType": group.protocol_type,
            "protocol": group.protocol,
            "generationId": group.generation_id,
            "assignment": f"{{{members}}}",
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _member(member: GroupMember, protocol_type: str) -> str:
    if protocol_type != CONSUMER:
        return f"{member.member_id}={_hex(member.assignment)}"
    if not member.assignment:
        return f"{member.member_id}=[]"
    try:
        assignment, end = decode(Assignment, 0, member.assignment)
    except WireError as error:
        raise UndecodableRecord(f"assignment of {member.member_id}: {error}") from error
    partitions = [
        f"{topic.topic}-{each}" for topic in assignment.topics for each in topic.partitions
    ]
    own = member.assignment[end + 4 :]  # behind its length
    return f"{member.member_id}=[{', '.join(partitions)}]" + (f":{_hex(own)}" if own else "")


def _hex(data: bytes) -> str:
    return f"{int.from_bytes(data, 'big'):X}" if data else ""


# __transaction_state


@nested
class TransactionPartitions:
    """Partitions of one topic that a transaction writes to."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message()
class TransactionKey:
    """The key of a record of `__transaction_state`."""

    version: int = wire(INT16)
    transactional_id: str = wire(STRING)


@message()
class TransactionValue:
    """Its value. Only an Empty transaction has no partitions."""

    version: int = wire(INT16)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    status: int = wire(INT8)
    partitions: Sequence[TransactionPartitions] | None = wire(
        Array(TransactionPartitions), nullable=0
    )
    last_update_ms: int = wire(INT64)
    start_ms: int = wire(INT64)


def transaction_payload(record: LoggedRecord) -> Texts:
    """A record of `__transaction_state`."""
    try:
        key, _ = decode(TransactionKey, 0, record.key or b"")
        name = f"transaction_metadata::transactionalId={key.transactional_id}"
        if record.value is None:
            return name, DELETED
        value, _ = decode(TransactionValue, 0, record.value)
        if key.version or value.version:
            raise UndecodableRecord(f"versions {key.version} and {value.version} are not known")
        state = TRANSACTION_STATES[value.status]
    except (WireError, IndexError) as error:
        raise UndecodableRecord(f"no record of a transaction: {error}") from error
    partitions = ",".join(
        f"{topic.topic}-{each}" for topic in value.partitions or () for each in topic.partitions
    )
    return name, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={state},"
        f"partitions=[{partitions}],txnLastUpdateTimestamp={value.last_update_ms},"
        f"txnTimeoutMs={value.timeout_ms}"
    )
