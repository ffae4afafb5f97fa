"""Transactions on a broker that is new: nobody has asked for a group, or for a transaction."""

from __future__ import annotations

from pathlib import Path

from clients.admin import Admin, NewTopic
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.broker import Site
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
