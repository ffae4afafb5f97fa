"""A transaction by raw requests, in the order that a test wants; so it may come to hang."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import attrs

from clients.cluster import Cluster
from clients.errors import BrokerError
from core_log.appending.batch_stamp import stamp
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import TRANSACTION_KEY
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import encode_batch, read_header
from protocol.records.batch_header import TRANSACTIONAL
from protocol.topic_partition import TopicPartition

TIMEOUT_MS = 900_000


@attrs.define(eq=False)
class RawTransaction:
    """A producer with a transactional id. All its calls raise BrokerError."""

    cluster: Cluster
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    _sequences: dict[TopicPartition, int] = attrs.field(factory=dict)

    @classmethod
    async def begin(cls, cluster: Cluster, transactional_id: str) -> Self:
        """Become the producer of this id."""
        producer = cls(cluster, transactional_id)
        response = await producer._ask_coordinator(
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
            ),
            lambda response: response.error_code,
        )
        producer.producer_id, producer.epoch = response.producer_id, response.producer_epoch
        return producer

    async def renew(self) -> Self:
        """Take another epoch; return the producer of the last one, whose requests come late."""
        former = attrs.evolve(self, sequences=dict(self._sequences))
        response = await self._ask_coordinator(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
            ),
            lambda response: response.error_code,
        )
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        return former

    async def add(self, partition: TopicPartition) -> None:
        """Tell the coordinator that a partition belongs to the transaction."""
        topic = AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
        await self._ask_coordinator(
            AddPartitionsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[topic],
            ),
            lambda response: response.results[0].results[0].error_code,
        )

    async def add_group(self, group_id: str) -> None:
        """Tell the coordinator that offsets of a group belong to the transaction."""
        await self._ask_coordinator(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group_id,
            ),
            lambda response: response.error_code,
        )

    async def write(self, partition: TopicPartition, value: bytes, timestamp_ms: int) -> int:
        """Write a record, whether or not the coordinator knows the partition; its offset."""
        sequence = self._sequences.get(partition, 0)
        batch = encode_batch(
            [(timestamp_ms, None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        header = read_header(batch)
        attributes = header.attributes | TRANSACTIONAL
        records = b"".join(stamp(batch, header, 0, -1, attributes, header.max_timestamp))
        part = ProduceRequestPartition(index=partition.partition, records=records)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[ProduceRequestTopic(name=partition.topic, partition_data=[part])],
        )

        async def produce() -> int:
            leader = await self.cluster.leader(partition)
            response = await (await self.cluster.connection(leader)).call(request)
            result = response.responses[0].partition_responses[0]
            _raise_for(result.error_code, partition)
            return int(result.base_offset)

        offset = await self.cluster.retrying(produce, "produce")
        self._sequences[partition] = sequence + 1
        return offset

    async def commit_offset(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Commit an offset of a group, whether or not the coordinator knows the group."""
        part = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[part])],
        )

        async def commit() -> None:
            response = await self.cluster.call_coordinator(group_id, request)
            _raise_for(response.topics[0].partitions[0].error_code, group_id)

        await self.cluster.retrying(commit, group_id)

    async def end(self, *, commits: bool) -> None:
        """Commit or abort."""
        await self._ask_coordinator(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commits,
            ),
            lambda response: response.error_code,
        )

    async def _ask_coordinator(self, request: Any, code_of: Callable[[Any], int]) -> Any:
        """Return the response, once no error is in it that passes."""

        async def ask() -> Any:
            self.cluster.forget_coordinator(self.transactional_id, TRANSACTION_KEY)
            node = await self.cluster.find_coordinator(self.transactional_id, TRANSACTION_KEY)
            response = await (await self.cluster.connection(node)).call(request)
            _raise_for(code_of(response), self.transactional_id)
            return response

        return await self.cluster.retrying(ask, self.transactional_id)


def _raise_for(code: int, what: object) -> None:
    if code:
        raise BrokerError(ErrorCode.of(code), str(what))


async def run_with_cluster(bootstrap: str, work: Callable[[Cluster], Awaitable[Any]]) -> Any:
    """Do some work with a client of its own."""
    cluster = Cluster(bootstrap)
    try:
        return await work(cluster)
    finally:
        await cluster.close()
