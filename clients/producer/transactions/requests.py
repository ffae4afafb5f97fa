"""The requests of a transactional producer as values, and their form on the wire. Pure."""

from collections.abc import Mapping
from typing import Any

import attrs

from clients.group_metadata import ConsumerGroupMetadata
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import GROUP_KEY, TRANSACTION_KEY
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition, by_topic

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Codes = Mapping[TopicPartition | None, ErrorCode]
"""The errors in a response; None stands for the whole request."""


@frozen
class Identity:
    """The producer, as its requests name it."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class Initialize:
    """Ask for the producer's id and epoch; the former epoch is fenced, and its transaction aborted.

    With `renews` the producer names the epoch that it has, which nobody may have followed.
    """

    timeout_ms: int
    renews: bool = False


@frozen
class AddPartitions:
    """Add partitions to the transaction, before their first batch."""

    partitions: frozenset[TopicPartition]


@frozen
class AddOffsets:
    """Add the offsets of a group to the transaction."""

    group_id: str


@attrs.frozen(eq=False)
class CommitOffsets:
    """Commit offsets with the transaction, at the group's coordinator."""

    group: ConsumerGroupMetadata
    offsets: Offsets


@frozen
class End:
    """Commit the transaction, or abort it."""

    commit: bool


Request = Initialize | AddPartitions | AddOffsets | CommitOffsets | End

API_NAMES: Mapping[type[Request], str] = {
    Initialize: "InitProducerId",
    AddPartitions: "AddPartitionsToTxn",
    AddOffsets: "AddOffsetsToTxn",
    CommitOffsets: "TxnOffsetCommit",
    End: "EndTxn",
}
"""Kafka's names, for errors."""

API_KEYS: Mapping[type[Request], ApiKey] = {
    Initialize: ApiKey.INIT_PRODUCER_ID,
    AddPartitions: ApiKey.ADD_PARTITIONS_TO_TXN,
    AddOffsets: ApiKey.ADD_OFFSETS_TO_TXN,
    CommitOffsets: ApiKey.TXN_OFFSET_COMMIT,
    End: ApiKey.END_TXN,
}

FIRST_VERSION_OF_RENEWALS = 3
"""Of InitProducerId: since then it takes the epoch that the producer has."""
FIRST_VERSION_OF_MEMBERS = 3
"""Of TxnOffsetCommit: since then it takes a member and its generation."""


def coordinator_key(request: Request, transactional_id: str) -> tuple[int, str]:
    """Return whose coordinator gets a request: type and key, as FindCoordinator has them."""
    if isinstance(request, CommitOffsets):
        return GROUP_KEY, request.group.group_id
    return TRANSACTION_KEY, transactional_id


def encode(request: Request, identity: Identity) -> Any:
    """Return the request of the wire."""
    ids: Mapping[str, Any] = attrs.asdict(identity)
    if isinstance(request, Initialize):
        if not request.renews:
            ids = {"transactional_id": identity.transactional_id}
        return InitProducerIdRequest(transaction_timeout_ms=request.timeout_ms, **ids)

    if isinstance(request, AddPartitions):
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=[p.partition for p in partitions])
            for name, partitions in by_topic(request.partitions)
        ]
        return AddPartitionsToTxnRequest(topics=topics, **ids)

    if isinstance(request, AddOffsets):
        return AddOffsetsToTxnRequest(group_id=request.group_id, **ids)

    if isinstance(request, CommitOffsets):
        return _txn_offset_commit(request, ids)

    return EndTxnRequest(committed=request.commit, **ids)


def _txn_offset_commit(request: CommitOffsets, ids: Mapping[str, Any]) -> TxnOffsetCommitRequest:
    group = request.group
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=request.offsets[partition].offset,
                    committed_leader_epoch=request.offsets[partition].leader_epoch,
                    committed_metadata=request.offsets[partition].metadata,
                )
                for partition in partitions
            ],
        )
        for name, partitions in by_topic(request.offsets)
    ]
    return TxnOffsetCommitRequest(
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics,
        **ids,
    )


def read_codes(request: Request, response: Any) -> Codes:
    """Return the errors in a response, without NONE. What it leaves out has failed."""
    codes: dict[TopicPartition | None, ErrorCode]
    if isinstance(request, AddPartitions):
        codes = dict.fromkeys(request.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
        codes |= {
            TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.error_code)
            for topic in response.results
            for result in topic.results
        }
    elif isinstance(request, CommitOffsets):
        codes = dict.fromkeys(request.offsets, ErrorCode.UNKNOWN_SERVER_ERROR)
        codes |= {
            TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.error_code)
            for topic in response.topics
            for result in topic.partitions
        }
    else:
        codes = {None: ErrorCode.of(response.error_code)}
    return {what: code for what, code in codes.items() if code is not ErrorCode.NONE}
