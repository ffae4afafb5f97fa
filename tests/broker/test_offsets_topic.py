"""The offsets topic of a whole broker: how it is made, what expires in it, who alters it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.server import Broker
from clients.admin import Admin, NewTopic
from clients.admin.descriptions import ConfigResource
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.broker import Site, connected
from tests.stage.waiting import until

LAST_WITH_RETENTION = 4
SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
    "offsets_retention_check_interval_ms": "50",
}
TOPIC = ConfigResource.topic(OFFSETS_TOPIC)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def make_offsets_topic(admin: Admin) -> None:
    partition = TopicPartition("t", 0)
    await admin.create_topics([NewTopic("t", 1, 1)])
    await admin.commit_group_offsets("g", {partition: OffsetAndMetadata(1)})


async def own_settings(admin: Admin) -> dict[str, str | None]:
    described = (await admin.describe_configs([TOPIC]))[TOPIC]
    wanted = ("cleanup.policy", "segment.bytes", "compression.type")
    return {each.name: each.value for each in described if each.name in wanted}


KAFKAS = {
    "cleanup.policy": "compact",
    "segment.bytes": "104857600",
    "compression.type": "producer",
}


async def test_topic_that_comes_by_itself_is_compacted(site: Site) -> None:
    async with site.running(**SETTINGS) as broker, Admin(broker.bootstrap) as admin:
        await make_offsets_topic(admin)
        assert await own_settings(admin) == KAFKAS


async def test_topic_that_is_created_by_hand_is_compacted_too(site: Site) -> None:
    async with site.running(**SETTINGS) as broker, Admin(broker.bootstrap) as admin:
        assert await admin.create_topics([NewTopic(OFFSETS_TOPIC, 1, 1)]) == {OFFSETS_TOPIC: None}
        assert await own_settings(admin) == KAFKAS


async def commit(broker: Broker, partition: int, retention_ms: int) -> None:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=42, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[committed])],
    )
    async with connected(broker) as connection:
        answer = await connection.call(request, version=LAST_WITH_RETENTION)
    (topic,) = answer.topics
    assert not topic.partitions[0].error_code


async def test_what_expires_is_gone_for_the_next_broker_too(site: Site) -> None:
    async with site.running(**SETTINGS) as broker, Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2, 1)])
        await admin.commit_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
        await commit(broker, 0, retention_ms=3_600_000)
        await commit(broker, 1, retention_ms=0)

        async def has_expired() -> bool:
            return set(await admin.group_offsets("g")) == {TopicPartition("t", 0)}

        await until(has_expired, "the commit that was to be kept no time is gone")
    async with site.running(**SETTINGS) as broker, Admin(broker.bootstrap) as admin:
        found = await admin.group_offsets("g")
        assert {tp: at.offset for tp, at in found.items()} == {TopicPartition("t", 0): 42}


async def test_topic_that_stops_being_compacted_is_told_of_at_once_and_when_it_is_loaded(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if "cleanup.policy=delete" in r.message]

    async def is_told() -> bool:
        return bool(told())

    async with site.running(**SETTINGS) as broker, Admin(broker.bootstrap) as admin:
        await make_offsets_topic(admin)
        assert not told()
        await admin.incremental_alter_configs({TOPIC: {"cleanup.policy": "delete"}})
        await until(is_told, "the change is told of")
    assert len(told()) == 1
    caplog.clear()
    async with site.running(**SETTINGS) as broker, Admin(broker.bootstrap) as admin:
        await admin.group_offsets("g")
        assert len(told()) == 1
