"""Find hanging transactions: open on a partition, and no coordinator will ever end them (KIP-664).

A hanging transaction keeps readers of committed data, and the cleaner, from going on. It arises
where a batch arrives behind its transaction's marker, or without AddPartitionsToTxn. Its batches
are older than any transaction may become, and no transactional id has a transaction of this
producer in which the partition is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from clients.admin.descriptions import ProducerState, TransactionDescription
from clients.errors import BrokerError, KgroupError
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from clients.admin.admin import Admin

MAX_TIMEOUT_MS = 15 * 60_000
"""The default of the brokers' `transaction.max.timeout.ms`."""

Producers = Mapping[TopicPartition, tuple[ProducerState, ...] | KgroupError]


@frozen
class LastTransaction:
    """The last transaction of a transactional id, or why its coordinator does not describe it."""

    transactional_id: str
    description: TransactionDescription | KgroupError

    def will_end(self, partition: TopicPartition) -> bool:
        """Return whether the coordinator will write a marker to a partition."""
        # Partitions leave a transaction when their marker is written.
        description = self.description
        return isinstance(description, TransactionDescription) and (
            partition in description.partitions
        )


@frozen
class OpenTransaction:
    """A transaction that a producer has open on a partition.

    `last` is the last transaction of the transactional id that has the producer, if one has it.
    """

    partition: TopicPartition
    producer: ProducerState
    last: LastTransaction | None = None


@frozen
class HangingTransactions:
    """The hanging transactions by partition and offset, and the partitions that were not judged."""

    transactions: tuple[OpenTransaction, ...]
    failures: Mapping[TopicPartition, KgroupError]


async def find_hanging_transactions(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    *,
    now_ms: int,
    max_timeout_ms: int = MAX_TIMEOUT_MS,
    broker: int | None = None,
) -> HangingTransactions:
    """Find the hanging transactions of partitions (brokers from 3.0 on).

    `now_ms` is the wall clock. `max_timeout_ms` is the longest that transactions may last
    (`transaction.max.timeout.ms`): what was written to later is not looked at. `broker` asks one
    replica in place of the leaders. The client must be allowed to describe all transactional ids.
    Raises KgroupError while a coordinator is missing or cannot be asked: nobody knows what hangs.
    """
    producers = await admin.producers_of_each_partition(partitions, broker=broker)
    failures = {
        partition: result
        for partition, result in producers.items()
        if isinstance(result, KgroupError)
    }
    candidates = open_too_long(producers, now_ms - max_timeout_ms)
    if not candidates:
        return HangingTransactions((), failures)

    last_of = await find_last_transactions(
        admin, {candidate.producer.producer_id for candidate in candidates}
    )
    unended: list[OpenTransaction] = []
    for candidate in candidates:
        last = last_of.get(candidate.producer.producer_id)
        if last is not None and isinstance(last.description, KgroupError):
            failures[candidate.partition] = last.description
        elif last is None or not last.will_end(candidate.partition):
            unended.append(attrs.evolve(candidate, last=last))

    # A coordinator may have ended some of them since the leaders were asked.
    again = await admin.producers_of_each_partition(
        {candidate.partition for candidate in unended}, broker=broker
    )
    hanging: list[OpenTransaction] = []
    for candidate in unended:
        result = again[candidate.partition]
        if isinstance(result, KgroupError):
            failures[candidate.partition] = result
        elif is_open(candidate, result):
            hanging.append(candidate)
    return HangingTransactions(tuple(hanging), failures)


async def find_last_transactions(
    admin: Admin, producer_ids: Iterable[int]
) -> dict[int, LastTransaction]:
    """Return the last transaction of each producer that a transactional id has now.

    Raises BrokerError COORDINATOR_NOT_AVAILABLE if some ids are not coordinated by any broker now.
    """
    await _require_all_coordinators(admin)
    listings = await admin.list_transactions(producer_ids=sorted(producer_ids))
    described = await admin.describe_each_transaction(
        listing.transactional_id for listing in listings
    )

    last_of: dict[int, LastTransaction] = {}
    for listing in listings:
        description = described[listing.transactional_id]
        # An id that has expired, or has another producer by now, ends nothing of this one.
        if not _is_of_another(listing.producer_id, description):
            last_of[listing.producer_id] = LastTransaction(listing.transactional_id, description)
    return last_of


async def _require_all_coordinators(admin: Admin) -> None:
    """Raise BrokerError if a partition of `__transaction_state` has no leader to list its ids."""
    try:
        topics = await admin.describe_topics([TRANSACTIONS_TOPIC])
    except BrokerError as error:
        # Before the first transactional producer there is no topic, and no id.
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        raise

    for partition_id, partition in topics[TRANSACTIONS_TOPIC].partitions.items():
        if partition.leader < 0:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{TRANSACTIONS_TOPIC}-{partition_id} has no leader, so nobody knows which "
                "transactions its coordinator will end",
            )


def _is_of_another(producer_id: int, description: TransactionDescription | KgroupError) -> bool:
    if isinstance(description, TransactionDescription):
        return description.producer_id != producer_id
    return getattr(description, "code", None) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def open_too_long(producers: Producers, before_ms: int) -> list[OpenTransaction]:
    """Return the open transactions whose last batch is older than `before_ms`, sorted."""
    candidates = [
        OpenTransaction(partition, producer)
        for partition, result in producers.items()
        if not isinstance(result, KgroupError)
        for producer in result
        if producer.transaction_start_offset is not None and producer.last_timestamp_ms < before_ms
    ]
    return sorted(candidates, key=lambda c: (c.partition, c.producer.transaction_start_offset or 0))


def is_open(candidate: OpenTransaction, producers: Iterable[ProducerState]) -> bool:
    """Return whether a transaction is still open where the partition has these producers."""
    wanted = (candidate.producer.producer_id, candidate.producer.transaction_start_offset)
    return any(
        (producer.producer_id, producer.transaction_start_offset) == wanted
        for producer in producers
    )
