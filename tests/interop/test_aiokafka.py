"""Stock aiokafka with our broker."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import aiokafka  # type: ignore[import-untyped]
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

from tests.interop.traffic import CODECS, TRAFFIC, Said, heard, new_topic, say
from tests.stage.cluster import DevCluster


@pytest.fixture
def bootstrap(dev_cluster: DevCluster) -> str:
    return dev_cluster.address("bootstrap")


@contextlib.asynccontextmanager
async def consumer(
    bootstrap: str, topic: str, **settings: Any
) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    """One that reads partition 0 of a topic by assignment."""
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, **settings
    ) as made:
        made.assign([aiokafka.TopicPartition(topic, 0)])
        yield made


async def read(messages: aiokafka.AIOKafkaConsumer, count: int) -> list[Said]:
    found = [await messages.getone() for _ in range(count)]
    return [Said(m.key, m.value, tuple(m.headers), m.timestamp) for m in found]


@contextlib.asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@pytest.mark.parametrize("codec", CODECS)
async def test_what_it_produces_it_consumes_and_so_do_we(bootstrap: str, codec: str) -> None:
    topic = await new_topic(bootstrap)
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=5,
        compression_type=None if codec == "none" else codec,
    ) as producer:
        sent = [
            await producer.send(
                topic,
                said.value,
                said.key,
                partition=0,
                timestamp_ms=said.timestamp_ms,
                headers=list(said.headers),
            )
            for said in TRAFFIC
        ]
        assert [(await future).offset for future in sent] == list(range(len(TRAFFIC)))
    assert await heard(bootstrap, topic) == list(TRAFFIC)
    async with consumer(bootstrap, topic, auto_offset_reset="earliest") as messages:
        assert await read(messages, len(TRAFFIC)) == list(TRAFFIC)


@pytest.mark.parametrize("codec", CODECS)
async def test_it_consumes_what_we_produce(bootstrap: str, codec: str) -> None:
    topic = await new_topic(bootstrap)
    await say(bootstrap, topic, codec)
    async with consumer(bootstrap, topic, auto_offset_reset="earliest") as messages:
        assert await read(messages, len(TRAFFIC)) == list(TRAFFIC)


async def test_it_begins_at_an_offset_at_a_time_and_at_both_ends(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    await say(bootstrap, topic)
    partition = aiokafka.TopicPartition(topic, 0)
    async with consumer(bootstrap, topic) as messages:
        messages.seek(partition, 40)
        assert await read(messages, 3) == list(TRAFFIC[40:43])
        between = TRAFFIC[70].timestamp_ms - 1
        found = (await messages.offsets_for_times({partition: between}))[partition]
        assert (found.offset, found.timestamp) == (70, TRAFFIC[70].timestamp_ms)
        messages.seek(partition, found.offset)
        assert await read(messages, 1) == [TRAFFIC[70]]
        assert await messages.beginning_offsets([partition]) == {partition: 0}
        assert await messages.end_offsets([partition]) == {partition: len(TRAFFIC)}
        await messages.seek_to_end(partition)
        assert await messages.position(partition) == len(TRAFFIC)


async def test_it_commits_and_fetches_offsets(bootstrap: str) -> None:
    topic, group = await new_topic(bootstrap), f"g-{uuid4().hex[:8]}"
    await say(bootstrap, topic)
    partition = aiokafka.TopicPartition(topic, 0)
    async with consumer(bootstrap, topic, group_id=group) as messages:
        assert await messages.committed(partition) is None
        await messages.commit({partition: (33, "note")})
        assert await messages.committed(partition) == 33
    async with consumer(bootstrap, topic, group_id=group) as messages:
        assert await read(messages, 2) == list(TRAFFIC[33:35])
        await messages.commit()
        assert await messages.committed(partition) == 35
    async with admin_of(bootstrap) as admin:
        committed = (await admin.list_consumer_group_offsets(group))[partition]
        assert committed.offset == 35
        assert group in {name for name, _ in await admin.list_consumer_groups()}
        (described,) = await admin.describe_consumer_groups([group])
        (_, group_id, state, *_, members) = described.groups[0][:6]
        assert (group_id, state, list(members)) == (group, "Empty", [])


async def test_its_admin_creates_describes_and_deletes_topics(bootstrap: str) -> None:
    name = f"t-{uuid4().hex[:8]}"
    async with admin_of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 3, 1, topic_configs={"retention.ms": "1234567"})])
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 3
        assert name in await admin.list_topics()
        (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        values = {entry[0]: entry[1] for entry in configs.resources[0][4]}
        assert values["retention.ms"] == "1234567"
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
