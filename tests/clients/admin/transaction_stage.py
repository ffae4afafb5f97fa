"""Scripted brokers that know transactions: their coordinators, and producers of partitions."""

from collections.abc import Mapping
from typing import Any

from clients.admin import ProducerState
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    DescribeTransactionsResponseTopic,
)
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseState,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import ScriptedBroker, all_versions

NEWEST = {
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 1,
}


def speak(broker: ScriptedBroker, newest: Mapping[ApiKey, int] = NEWEST) -> None:
    """Let a broker have these APIs, of all that are about transactions."""

    def versions(request: Any) -> ApiVersionsResponse:
        others = [key for key in all_versions().api_keys if key.api_key not in NEWEST]
        added = [
            ApiVersionsResponseKey(api_key=key, min_version=0, max_version=version)
            for key, version in newest.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=[*others, *added])

    broker.answers[ApiKey.API_VERSIONS] = versions


def coordinate(
    broker: ScriptedBroker, transactions: Mapping[str, DescribeTransactionsResponseState]
) -> None:
    """Let a broker coordinate these transactional ids."""

    def list_them(request: ListTransactionsRequest) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            transaction_states=[
                ListTransactionsResponseState(
                    transactional_id=name,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.transaction_state,
                )
                for name, transaction in transactions.items()
                if not request.producer_id_filters
                or transaction.producer_id in request.producer_id_filters
            ]
        )

    def describe(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[
                transactions[name]
                if name in transactions
                else DescribeTransactionsResponseState(
                    error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=name
                )
                for name in request.transactional_ids
            ]
        )

    broker.answers[ApiKey.LIST_TRANSACTIONS] = list_them
    broker.answers[ApiKey.DESCRIBE_TRANSACTIONS] = describe


def transaction(
    name: str,
    producer_id: int,
    *partitions: TopicPartition,
    state: str = "Ongoing",
    start_ms: int = 1_000,
    error: ErrorCode = ErrorCode.NONE,
) -> DescribeTransactionsResponseState:
    """Return a transaction as its coordinator describes it."""
    return DescribeTransactionsResponseState(
        error_code=error,
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=start_ms,
        producer_id=producer_id,
        producer_epoch=3,
        topics=[
            DescribeTransactionsResponseTopic(topic=topic, partitions=[partition])
            for topic, partition in partitions
        ],
    )


def know_producers(
    broker: ScriptedBroker,
    producers: Mapping[TopicPartition, list[ProducerState] | ErrorCode],
) -> None:
    """Let a broker lead partitions with these producers, or with an error."""

    def describe(request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                DescribeProducersResponseTopic(
                    name=topic.name,
                    partitions=[
                        _producers(index, producers.get(TopicPartition(topic.name, index), []))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers[ApiKey.DESCRIBE_PRODUCERS] = describe


def _producers(
    index: int, producers: list[ProducerState] | ErrorCode
) -> DescribeProducersResponsePartition:
    if isinstance(producers, ErrorCode):
        return DescribeProducersResponsePartition(partition_index=index, error_code=producers)
    return DescribeProducersResponsePartition(
        partition_index=index,
        active_producers=[
            DescribeProducersResponseProducer(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=_or_minus_one(producer.coordinator_epoch),
                current_txn_start_offset=_or_minus_one(producer.transaction_start_offset),
            )
            for producer in producers
        ],
    )


def _or_minus_one(number: int | None) -> int:
    return -1 if number is None else number


def take_markers(broker: ScriptedBroker, code: ErrorCode = ErrorCode.NONE) -> None:
    """Let a broker write all markers, or none of them."""

    def write(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    broker.answers[ApiKey.WRITE_TXN_MARKERS] = write
