"""Ask one broker about transactions: their coordinator, or the leader of partitions (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from clients.admin.descriptions import (
    FencedProducer,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from clients.admin.verdicts import make_verdict, raise_for
from clients.cluster_view import BrokerEndpoint
from clients.errors import (
    AbortInDoubt,
    ConnectionFailed,
    KgroupError,
    UnsupportedApi,
    left_out,
)
from clients.transport.connection import Connection
from groups.transactions.state import STATE_NAMES
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponseProducer,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponseState,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.topic_partition import TopicPartition, by_topic

DURATION_SINCE = 1
"""The first version of ListTransactions that takes a duration (KIP-994)."""

RELEASES = {
    (ApiKey.LIST_TRANSACTIONS, 0): "3.0",
    (ApiKey.LIST_TRANSACTIONS, DURATION_SINCE): "3.8",
    (ApiKey.DESCRIBE_TRANSACTIONS, 0): "3.0",
    (ApiKey.DESCRIBE_PRODUCERS, 0): "2.8",
    (ApiKey.WRITE_TXN_MARKERS, 0): "0.11",
    (ApiKey.INIT_PRODUCER_ID, 0): "0.11",
}
"""An API and a version of it -> the first Kafka that has it."""


def check_release(connection: Connection, api_key: ApiKey, work: str, version: int = 0) -> None:
    """Raise UnsupportedApi if a broker does not have this version of an API."""
    _, newest = connection.versions.get(api_key, (0, -1))
    if connection.versions and newest < version:
        raise UnsupportedApi(
            f"{connection.host}:{connection.port} is too old to {work}: "
            f"that needs Kafka {RELEASES[api_key, version]} or later"
        )


# --- coordinators


@frozen
class TransactionFilter:
    """The transactional ids to list: those that pass all conditions; an empty one passes all.

    `min_duration_ms`: whose last transaction began longer ago. Raises ValueError for a state that
    Kafka does not have.
    """

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    min_duration_ms: int = -1

    def __attrs_post_init__(self) -> None:
        unknown = set(self.states) - set(STATE_NAMES)
        if unknown:
            known = ", ".join(STATE_NAMES)
            raise ValueError(f"{', '.join(sorted(unknown))}: not a state of transactions: {known}")

    async def list_transactions(
        self, connection: Connection, broker: BrokerEndpoint
    ) -> list[TransactionListing]:
        """Return the transactional ids that a broker coordinates."""
        check_release(connection, ApiKey.LIST_TRANSACTIONS, "list transactions")
        if self.min_duration_ms >= 0:
            work = "choose transactions by their duration"
            check_release(connection, ApiKey.LIST_TRANSACTIONS, work, DURATION_SINCE)

        response = await connection.call(
            ListTransactionsRequest(
                state_filters=self.states,
                producer_id_filters=self.producer_ids,
                duration_filter=self.min_duration_ms,
            )
        )
        raise_for(
            ApiKey.LIST_TRANSACTIONS,
            response.error_code,
            f"transactions of broker {broker.node_id}",
        )
        return [
            TransactionListing(
                listed.transactional_id, listed.producer_id, listed.transaction_state, broker
            )
            for listed in response.transaction_states
        ]


async def describe(
    connection: Connection, broker: BrokerEndpoint, transactional_ids: Sequence[str]
) -> dict[str, TransactionDescription | KgroupError]:
    """Return the last transaction of each id, or its error."""
    check_release(connection, ApiKey.DESCRIBE_TRANSACTIONS, "describe transactions")
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    response = await connection.call(request)
    return {
        state.transactional_id: make_verdict(
            ApiKey.DESCRIBE_TRANSACTIONS,
            state.error_code,
            f"transactional id {state.transactional_id}",
        )
        or _description(state, broker)
        for state in response.transaction_states
    }


def _description(
    state: DescribeTransactionsResponseState, broker: BrokerEndpoint
) -> TransactionDescription:
    return TransactionDescription(
        broker,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in state.topics
            for partition in topic.partitions
        ),
    )


async def fence(
    connection: Connection,
    broker: BrokerEndpoint,
    transactional_ids: Sequence[str],
    *,
    timeout_ms: int,
) -> dict[str, FencedProducer | KgroupError]:
    """Fence the producers of each id; `timeout_ms` becomes that of its next transaction."""
    check_release(connection, ApiKey.INIT_PRODUCER_ID, "fence producers")

    async def fence_one(transactional_id: str) -> FencedProducer | KgroupError:
        # Without the producer id and epoch of a producer this begins a new one.
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        try:
            response = await connection.call(request)
            raise_for(
                ApiKey.INIT_PRODUCER_ID, response.error_code, f"transactional id {transactional_id}"
            )
        except KgroupError as error:
            return error
        return FencedProducer(response.producer_id, response.producer_epoch)

    fenced = await asyncio.gather(*map(fence_one, transactional_ids))
    return dict(zip(transactional_ids, fenced, strict=True))


# --- leaders


async def describe_producers(
    connection: Connection, broker: BrokerEndpoint, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[ProducerState, ...] | KgroupError]:
    """Return the producers of each partition, or its error."""
    check_release(connection, ApiKey.DESCRIBE_PRODUCERS, "describe producers")
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequestTopic(
                name=topic, partition_indexes=[partition.partition for partition in same_topic]
            )
            for topic, same_topic in by_topic(partitions)
        ]
    )
    response = await connection.call(request)
    return {
        (partition := TopicPartition(topic.name, result.partition_index)): make_verdict(
            ApiKey.DESCRIBE_PRODUCERS, result.error_code, result.error_message or str(partition)
        )
        or tuple(map(_producer_state, result.active_producers))
        for topic in response.topics
        for result in topic.partitions
    }


def _producer_state(producer: DescribeProducersResponseProducer) -> ProducerState:
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        None if producer.coordinator_epoch < 0 else producer.coordinator_epoch,
        None if producer.current_txn_start_offset < 0 else producer.current_txn_start_offset,
    )


@frozen
class AbortMarker:
    """An abort marker for the transaction that a producer has open on one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None

    async def write(
        self, connection: Connection, broker: BrokerEndpoint, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KgroupError | None]:
        """Let the leader write the marker. Returns None, or the error, for the partition."""
        check_release(connection, ApiKey.WRITE_TXN_MARKERS, "abort a transaction")
        try:
            response = await connection.call(self._request())
        except ConnectionFailed as failure:
            # If it was written, a second one might end the producer's next transaction.
            return {self.partition: AbortInDoubt(self.partition, self.producer_id, failure)}
        return {self.partition: self._read(response)}

    def _request(self) -> WriteTxnMarkersRequest:
        topic, partition_id = self.partition
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition_id])],
            # Without a marker no coordinator's epoch is known; none is before 0.
            coordinator_epoch=self.coordinator_epoch or 0,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def _read(self, response: Any) -> KgroupError | None:
        codes = [
            result.error_code
            for marker in response.markers
            if marker.producer_id == self.producer_id
            for topic in marker.topics
            for result in topic.partitions
            if TopicPartition(topic.name, result.partition_index) == self.partition
        ]
        if not codes:
            return left_out(self.partition)
        code = ErrorCode.of(codes[0])
        if code in APPENDED:
            return AbortInDoubt(self.partition, self.producer_id, code.name)
        return make_verdict(ApiKey.WRITE_TXN_MARKERS, code, self._detail(code))

    def _detail(self, code: ErrorCode) -> str:
        detail = f"{self.partition}, producer {self.producer_id} epoch {self.producer_epoch}"
        advice = ABORT_ADVICE.get(code)
        return f"{detail}: {advice}" if advice else detail


APPENDED = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The leader has the marker; too few followers had it in time."""
ABORT_ADVICE = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the partition knows a later epoch of the producer; "
    "describe its producers again",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the partition has a marker of a later coordinator; "
    "describe its producers again, and give the coordinator epoch that it shows",
}
"""What to do about an error of WriteTxnMarkers."""
