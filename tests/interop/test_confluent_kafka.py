"""Stock confluent-kafka, which is librdkafka, with our broker."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from tests.interop.traffic import CODECS, TRAFFIC, Said, heard, new_topic, say
from tests.stage.cluster import DevCluster

TIMEOUT_S = 30.0


@pytest.fixture
def bootstrap(dev_cluster: DevCluster) -> str:
    return dev_cluster.address("bootstrap")


@contextlib.contextmanager
def consumer(bootstrap: str, group: str = "unused") -> Iterator[confluent_kafka.Consumer]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    made = confluent_kafka.Consumer(settings)
    try:
        yield made
    finally:
        made.close()


def read(messages: confluent_kafka.Consumer, count: int) -> list[Said]:
    found: list[Any] = []
    while len(found) < count:
        polled = messages.consume(count - len(found), TIMEOUT_S)
        assert polled, f"{len(found)} of {count} messages within {TIMEOUT_S} s"
        assert [m.error() for m in polled if m.error()] == []
        found += polled
    return [Said(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]) for m in found]


@pytest.mark.parametrize("codec", CODECS)
def test_what_it_produces_it_consumes_and_so_do_we(bootstrap: str, codec: str) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": False,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": codec,
        }
    )
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for said in TRAFFIC:
        producer.produce(
            topic,
            said.value,
            said.key,
            0,
            on_delivery=delivered,
            timestamp=said.timestamp_ms,
            headers=list(said.headers),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert offsets == list(range(len(TRAFFIC)))
    assert asyncio.run(heard(bootstrap, topic)) == list(TRAFFIC)
    with consumer(bootstrap) as messages:
        messages.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        assert read(messages, len(TRAFFIC)) == list(TRAFFIC)


@pytest.mark.parametrize("codec", CODECS)
def test_it_consumes_what_we_produce(bootstrap: str, codec: str) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    asyncio.run(say(bootstrap, topic, codec))
    with consumer(bootstrap) as messages:
        messages.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        assert read(messages, len(TRAFFIC)) == list(TRAFFIC)


def test_a_topic_nobody_made_is_made_when_it_is_first_written(bootstrap: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"first", on_delivery=lambda error, _: errors.append(error))
    errors: list[Any] = []
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]
    assert [said.value for said in asyncio.run(heard(bootstrap, topic))] == [b"first"]


def test_it_begins_at_an_offset_at_a_time_and_at_both_ends(bootstrap: str) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    asyncio.run(say(bootstrap, topic))
    with consumer(bootstrap) as messages:
        messages.assign([TopicPartition(topic, 0, 40)])
        assert read(messages, 3) == list(TRAFFIC[40:43])
        between = TRAFFIC[70].timestamp_ms - 1
        (found,) = messages.offsets_for_times([TopicPartition(topic, 0, between)], TIMEOUT_S)
        assert found.offset == 70
        messages.assign([found])
        assert read(messages, 1) == [TRAFFIC[70]]
        assert messages.get_watermark_offsets(TopicPartition(topic, 0)) == (0, len(TRAFFIC))
        messages.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
        ends = time.monotonic() + TIMEOUT_S
        while (message := messages.poll(0.5)) is None:  # it looks for the end in its own time
            assert time.monotonic() < ends
            asyncio.run(say(bootstrap, topic))
        assert message.error() is None
        assert (message.offset() or 0) >= len(TRAFFIC)


def test_it_commits_and_fetches_offsets(bootstrap: str) -> None:
    topic, group = asyncio.run(new_topic(bootstrap)), f"g-{uuid4().hex[:8]}"
    asyncio.run(say(bootstrap, topic))
    with consumer(bootstrap, group) as messages:
        (before,) = messages.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert before.offset == confluent_kafka.OFFSET_INVALID
        wanted = TopicPartition(topic, 0, 33, "note")
        (committed,) = messages.commit(offsets=[wanted], asynchronous=False)
        assert committed.error is None
    with consumer(bootstrap, group) as messages:
        (after,) = messages.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert (after.offset, after.metadata) == (33, "note")
        messages.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_STORED)])
        assert read(messages, 2) == list(TRAFFIC[33:35])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert listed.errors == []
    assert group in {each.group_id for each in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (described.state.name, described.members) == ("EMPTY", [])
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (of_group,) = asked[group].result(TIMEOUT_S).topic_partitions
    assert (of_group.topic, of_group.partition, of_group.offset) == (topic, 0, 33)


def test_its_admin_deletes_groups(bootstrap: str) -> None:
    topic, group = asyncio.run(new_topic(bootstrap)), f"g-{uuid4().hex[:8]}"
    with consumer(bootstrap, group) as messages:
        messages.commit(offsets=[TopicPartition(topic, 0, 33)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deleted = admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S)
    assert deleted[group].result() is None
    with consumer(bootstrap, group) as messages:
        (after,) = messages.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert after.offset == confluent_kafka.OFFSET_INVALID
    again = admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_ID_NOT_FOUND"):
        again[group].result()


def test_its_admin_creates_describes_and_deletes_topics(bootstrap: str) -> None:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, 3, 1, config={"retention.ms": "1234567"})
    admin.create_topics([new])[name].result(TIMEOUT_S)
    metadata = admin.list_topics(name, TIMEOUT_S).topics[name]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert {p.leader for p in metadata.partitions.values()} == {0}
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["retention.ms"].value == "1234567"
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].is_default
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_group_of_the_consumer_protocol_reads_nothing_here_and_is_told_nothing(
    bootstrap: str,
) -> None:
    """KIP-848 is not served. librdkafka says so to nobody, as docs/consumer-groups.md warns."""
    topic = asyncio.run(new_topic(bootstrap))
    asyncio.run(say(bootstrap, topic))
    errors: list[confluent_kafka.KafkaError] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"g-{uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        "error_cb": errors.append,
    }
    modern = confluent_kafka.Consumer({**settings, "group.protocol": "consumer"})
    classic = confluent_kafka.Consumer({**settings, "group.protocol": "classic"})
    try:
        modern.subscribe([topic])
        # Those of its early access were told, by a message that has a fatal error.
        told = modern.poll(5.0)
        assert told is None or told.error().code() == confluent_kafka.KafkaError._FATAL

        # With the other protocol the same group reads, in less time than the first one has had.
        classic.subscribe([topic])
        assert classic.poll(TIMEOUT_S) is not None
        assert modern.poll(0.0) is None
        assert errors == []
    finally:
        modern.close()
        classic.close()
