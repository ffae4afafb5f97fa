"""Transactions on a broker that is new: nobody has asked for a group, or for a transaction."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from clients.admin import LATEST_TIME, Admin, NewTopic
from clients.cluster import Cluster
from clients.errors import BrokerError
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from protocol.errors import ErrorCode
from protocol.special_values import READ_COMMITTED
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.broker import Site
from tests.stage.raw_transaction import RawTransaction, run_with_cluster
from tests.stage.waiting import until_equal

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


async def test_offsets_may_be_added_before_there_is_a_topic_for_them(tmp_path: Path) -> None:
    """A producer asks for the group's coordinator only when its partition is added."""
    async with (
        Site(tmp_path).running(1, **SETTINGS) as broker,
        Admin(broker.bootstrap) as admin,
    ):
        assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "x"}
        async with Producer(settings) as producer, producer.transaction():
            await producer.send("t", b"value")
            await producer.send_offsets_to_transaction(
                {TopicPartition("t", 0): OffsetAndMetadata(7)}, ConsumerGroupMetadata("g")
            )

        async def committed() -> dict[TopicPartition, int]:
            offsets = await admin.group_offsets("g")
            return {partition: offset.offset for partition, offset in offsets.items()}

        await until_equal(committed, {TopicPartition("t", 0): 7})


VERIFYING = "transaction_partition_verification_enable"


@pytest.mark.parametrize("verifies", [False, True])
async def test_a_late_batch_hangs_unless_it_is_verified(tmp_path: Path, verifies: bool) -> None:
    """One of the two partitions is led by the coordinator's broker, the other is not."""
    site = Site(tmp_path)
    settings = SETTINGS | {VERIFYING: str(verifies).lower()}
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    async with (
        site.running(1, **settings) as broker,
        site.running(2, **settings),
        Admin(broker.bootstrap) as admin,
    ):
        new_topic = NewTopic("t", assignments={0: (1,), 1: (2,)})
        assert await admin.create_topics([new_topic]) == {"t": None}

        async def write_late(cluster: Cluster) -> list[ErrorCode]:
            producer = await RawTransaction.begin(cluster, "x")
            for partition in partitions:
                await producer.add(partition)
                await producer.write(partition, b"aborted", 0)
            await producer.end(commits=False)
            for partition in partitions:
                await _has_ended(admin, partition)

            # As if they had been on their way when the transaction ended.
            errors = []
            for partition in partitions:
                try:
                    await producer.write(partition, b"late", 0)
                    errors.append(ErrorCode.NONE)
                except BrokerError as error:
                    errors.append(error.code)

            # The producer goes on, in its next transaction.
            if verifies:
                for partition in partitions:
                    await producer.add(partition)
                    await producer.write(partition, b"committed", 0)
                await producer.end(commits=True)
            return errors

        errors = await run_with_cluster(broker.bootstrap, write_late)
        assert errors == [ErrorCode.INVALID_TXN_STATE if verifies else ErrorCode.NONE] * 2
        if verifies:
            for partition in partitions:
                await until_equal(partial(_stable_offset, admin, partition), 4)
        else:
            for partition in partitions:
                assert await _stable_offset(admin, partition) == 2


async def _has_ended(admin: Admin, partition: TopicPartition) -> None:
    """Wait until a partition has a record and the marker of its transaction."""
    await until_equal(partial(_stable_offset, admin, partition), 2)


async def _stable_offset(admin: Admin, partition: TopicPartition) -> int:
    ends = await admin.list_offsets({partition: LATEST_TIME}, isolation=READ_COMMITTED)
    return ends[partition].offset


async def test_a_producer_does_not_notice_that_its_transactions_are_verified(
    tmp_path: Path,
) -> None:
    settings = SETTINGS | {VERIFYING: "true"}
    async with (
        Site(tmp_path).running(1, **settings) as broker,
        Admin(broker.bootstrap) as admin,
    ):
        assert await admin.create_topics([NewTopic("t", 2, 1)]) == {"t": None}
        producer_settings = {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "x",
            "compression.type": "gzip",
        }
        async with Producer(producer_settings) as producer:
            for is_committed in (True, False, True):
                await producer.begin_transaction()
                for number in range(10):
                    await producer.send("t", b"value", partition=number % 2)
                if is_committed:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

        # Its records and a marker, of each transaction that was not aborted before it was sent.
        for number in range(2):
            partition = TopicPartition("t", number)
            ends = await admin.list_offsets({partition: LATEST_TIME})
            await until_equal(partial(_stable_offset, admin, partition), ends[partition].offset)
            assert ends[partition].offset >= 12
