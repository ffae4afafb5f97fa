"""Stock kafka-python with our broker."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import kafka  # type: ignore[import-untyped]
import kafka.admin  # type: ignore[import-untyped]
import pytest
from kafka.codec import has_lz4, has_snappy, has_zstd  # type: ignore[import-untyped]

from tests.interop.traffic import TRAFFIC, Said, heard, new_topic, say
from tests.stage.cluster import DevCluster

OPTIONAL = {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}
CODECS = ["none", "gzip", *(codec for codec, has in OPTIONAL.items() if has())]
"""Those it finds a library for."""
TIMEOUT_S = 30


@pytest.fixture
def bootstrap(dev_cluster: DevCluster) -> str:
    return dev_cluster.address("bootstrap")


@contextlib.contextmanager
def consumer(bootstrap: str, topic: str, **settings: Any) -> Iterator[kafka.KafkaConsumer]:
    """One that reads partition 0 of a topic by assignment."""
    made = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        consumer_timeout_ms=TIMEOUT_S * 1000,
        enable_auto_commit=False,
        **settings,
    )
    with contextlib.closing(made):
        made.assign([kafka.TopicPartition(topic, 0)])
        yield made


def read(messages: kafka.KafkaConsumer, count: int) -> list[Said]:
    return [
        Said(m.key, m.value, tuple(m.headers), m.timestamp)
        for _, m in zip(range(count), messages, strict=False)  # and no message more
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_it_produces_it_consumes_and_so_do_we(bootstrap: str, codec: str) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=False,
        acks="all",
        linger_ms=5,
        compression_type=None if codec == "none" else codec,
    )
    with contextlib.closing(producer):
        sent = [
            producer.send(
                topic,
                said.value,
                said.key,
                list(said.headers),
                partition=0,
                timestamp_ms=said.timestamp_ms,
            )
            for said in TRAFFIC
        ]
        assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(len(TRAFFIC)))
    assert asyncio.run(heard(bootstrap, topic)) == list(TRAFFIC)
    with consumer(bootstrap, topic, auto_offset_reset="earliest") as messages:
        assert read(messages, len(TRAFFIC)) == list(TRAFFIC)


@pytest.mark.parametrize("codec", CODECS)
def test_it_consumes_what_we_produce(bootstrap: str, codec: str) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    asyncio.run(say(bootstrap, topic, codec))
    with consumer(bootstrap, topic, auto_offset_reset="earliest") as messages:
        assert read(messages, len(TRAFFIC)) == list(TRAFFIC)


def test_it_begins_at_an_offset_at_a_time_and_at_both_ends(bootstrap: str) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    asyncio.run(say(bootstrap, topic))
    partition = kafka.TopicPartition(topic, 0)
    with consumer(bootstrap, topic) as messages:
        messages.seek(partition, 40)
        assert read(messages, 3) == list(TRAFFIC[40:43])
        between = TRAFFIC[70].timestamp_ms - 1
        found = messages.offsets_for_times({partition: between})[partition]
        assert (found.offset, found.timestamp) == (70, TRAFFIC[70].timestamp_ms)
        messages.seek(partition, found.offset)
        assert read(messages, 1) == [TRAFFIC[70]]
        assert messages.beginning_offsets([partition]) == {partition: 0}
        assert messages.end_offsets([partition]) == {partition: len(TRAFFIC)}
        messages.seek_to_end(partition)
        assert messages.position(partition) == len(TRAFFIC)


def test_it_commits_and_fetches_offsets(bootstrap: str) -> None:
    topic, group = asyncio.run(new_topic(bootstrap)), f"g-{uuid4().hex[:8]}"
    asyncio.run(say(bootstrap, topic))
    partition = kafka.TopicPartition(topic, 0)
    with consumer(bootstrap, topic, group_id=group) as messages:
        assert messages.committed(partition) is None
        messages.commit({partition: kafka.OffsetAndMetadata(33, "note", -1)})
        assert messages.committed(partition) == 33
    with consumer(bootstrap, topic, group_id=group) as messages:
        assert read(messages, 2) == list(TRAFFIC[33:35])
        messages.commit()
        committed = messages.committed(partition, metadata=True)
        assert (committed.offset, committed.metadata) == (35, "")


def test_its_admin_creates_describes_and_deletes_topics(bootstrap: str) -> None:
    name = f"t-{uuid4().hex[:8]}"
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    with contextlib.closing(admin):
        admin.create_topics({name: {"num_partitions": 3, "replication_factor": 1}})
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 3
        assert name in admin.list_topics()
        admin.delete_topics([name])
        assert name not in admin.list_topics()


def test_its_admin_lists_and_describes_groups(bootstrap: str) -> None:
    topic, group = asyncio.run(new_topic(bootstrap)), f"g-{uuid4().hex[:8]}"
    partition = kafka.TopicPartition(topic, 0)
    with consumer(bootstrap, topic, group_id=group) as messages:
        messages.commit({partition: kafka.OffsetAndMetadata(5, "", -1)})
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    with contextlib.closing(admin):
        assert group in {listed["group_id"] for listed in admin.list_groups()}
        described = admin.describe_groups([group])[group]
        assert (described["group_state"], described["members"]) == ("Empty", [])
        assert admin.list_group_offsets([group])[group][partition].offset == 5


def test_its_admin_describes_configs(bootstrap: str) -> None:
    name = f"t-{uuid4().hex[:8]}"
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    with contextlib.closing(admin):
        settings = {"retention.ms": "1234567"}
        admin.create_topics(
            {name: {"num_partitions": 1, "replication_factor": 1, "configs": settings}}
        )
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, name)
        configs = admin.describe_configs([resource], config_filter="all")["topic"][name]
        assert configs["retention.ms"]["value"] == "1234567"
        assert configs["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        assert configs["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"
