"""Decode keys and values of records to text, for `kbroker dump` with a decoder.

A decoder takes a record and returns the texts of its key and its payload; None for a null one. It
raises UndecodableRecord. Members of a group and partitions of a transaction keep the order in which
they are stored; Kafka's tool prints them in the order of its hash tables.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.kbroker.log.records import LoggedRecord
from clients.command_line.printing import json_text, plain
from clients.named_object import named_object
from groups.transactions.records import (
    TransactionRecordError,
    decode_transaction_key,
    decode_transaction_value,
)
from groups.transactions.state import STATE_NAMES
from offsets.records import (
    CommittedOffset,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    RecordError,
    decode_key,
    decode_value,
)
from protocol.consumer_protocol import decode_assignment
from protocol.primitives import WireError
from protocol.text import replace_malformed
from protocol.topic_partition import TopicPartition

Texts = tuple[str | None, str | None]
PayloadDecoder = Callable[[LoggedRecord], Texts]

DELETED = "<DELETE>"
CONSUMER = "consumer"


class UndecodableRecord(ValueError):
    """The decoder does not understand the record."""


# --- any topic ------------------------------------------------------------------------------------


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", JAVA_REPLACEMENT)


JAVA_REPLACEMENT = "kbroker-java"
"""The name of a codecs error handler that replaces malformed UTF-8 as Java does."""
codecs.register_error(JAVA_REPLACEMENT, replace_malformed)


def _decode_number(data: bytes) -> str:
    return str(int.from_bytes(data, "big", signed=True))


KAFKA_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "StringDecoder": _decode_text,
    "IntegerDecoder": _decode_number,
    "LongDecoder": _decode_number,
    "DefaultDecoder": bytes,
}
"""Name of Kafka's class, without its package -> decoder."""


def choose_field_decoder(name: str | None) -> Callable[[bytes], Any]:
    """Return the decoder that `--key-decoder-class` or `--value-decoder-class` names.

    None is UTF-8. A name is one of Kafka's decoders, or `module:name`: a callable on bytes, or an
    object with `from_bytes`. Raises LookupError for any other.
    """
    # One of Kafka's classes, with its package or without.
    if name is None or ":" not in name:
        class_name = (name or "StringDecoder").rpartition(".")[2]
        if class_name not in KAFKA_DECODERS:
            raise LookupError(f"{name!r} is neither a decoder of Kafka nor module:Class")
        return KAFKA_DECODERS[class_name]

    # A callable or a class of the user's own.
    target = named_object(name)
    decoder = getattr(target, "from_bytes", target)
    if not callable(decoder):
        raise LookupError(f"{name!r} cannot be called and has no from_bytes")
    typed_decoder: Callable[[bytes], Any] = decoder
    return typed_decoder


def make_payload_decoder(
    decode_key: Callable[[bytes], Any], decode_value: Callable[[bytes], Any]
) -> PayloadDecoder:
    """Make a record decoder of one for keys and one for values."""
    return partial(_decode_fields, decode_key, decode_value)


def _decode_fields(
    decode_key: Callable[[bytes], Any], decode_value: Callable[[bytes], Any], record: LoggedRecord
) -> Texts:
    try:
        return (
            None if record.key is None else str(decode_key(record.key)),
            None if record.value is None else str(decode_value(record.value)),
        )
    except Exception as error:  # the user's own decoder may raise anything
        raise UndecodableRecord(f"the decoder fails: {error}") from error


# --- __consumer_offsets ---------------------------------------------------------------------------


def decode_offsets_payload(record: LoggedRecord) -> Texts:
    """Decode a record of `__consumer_offsets`."""
    try:
        key = decode_key(record.key)
        value = decode_value(key, record.value)
    except RecordError as error:
        raise UndecodableRecord(str(error)) from error

    # The key names an offset, or a group.
    if isinstance(key, OffsetKey):
        partition = TopicPartition(key.topic, key.partition)
        name = f"offset_commit::group={key.group},partition={partition}"
    else:
        name = f"group_metadata::group={key.group}"

    # Whoever commits chooses the names (fault security-12, was: name).
    name = plain(name)

    # A tombstone deletes it.
    if value is None:
        return name, DELETED
    if isinstance(value, CommittedOffset):
        return name, plain(_format_offset(value))
    return name, _format_group(value)


def _format_offset(committed: CommittedOffset) -> str:
    metadata = f",metadata={committed.metadata}" if committed.metadata else ""
    return f"offset={committed.offset}{metadata}"


def _format_group(group: GroupMetadata) -> str:
    members = ",".join(_format_member(member, group.protocol_type) for member in group.members)
    return json_text(
        {
            "protocolType": group.protocol_type,
            "protocol": group.protocol,
            "generationId": group.generation_id,
            "assignment": f"{{{members}}}",
        },
        compact=True,
    )


def _format_member(member: GroupMember, protocol_type: str) -> str:
    # Only consumers' assignments have a known format.
    if protocol_type != CONSUMER:
        return f"{member.member_id}={_hex(member.assignment)}"
    if not member.assignment:
        return f"{member.member_id}=[]"

    try:
        assignment = decode_assignment(member.assignment)
    except WireError as error:
        raise UndecodableRecord(f"assignment of {member.member_id}: {error}") from error

    text = f"{member.member_id}=[{', '.join(map(str, assignment.partitions))}]"
    return f"{text}:{_hex(assignment.user_data)}" if assignment.user_data else text


def _hex(data: bytes) -> str:
    return f"{int.from_bytes(data, 'big'):X}" if data else ""


# --- __transaction_state --------------------------------------------------------------------------


def decode_transaction_payload(record: LoggedRecord) -> Texts:
    """Decode a record of `__transaction_state`."""
    try:
        transactional_id = plain(decode_transaction_key(record.key or b""))
        name = f"transaction_metadata::transactionalId={transactional_id}"
        if record.value is None:
            return name, DELETED
        value = decode_transaction_value(record.value)
        state = STATE_NAMES[value.transaction_status]
    except (TransactionRecordError, IndexError) as error:
        raise UndecodableRecord(f"not a record of a transaction: {error}") from error

    partitions = ",".join(
        f"{topic.topic}-{partition_id}"
        for topic in value.transaction_partitions or ()
        for partition_id in topic.partition_ids
    )
    return name, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={state},"
        f"partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )
