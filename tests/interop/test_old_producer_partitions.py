"""Our producer with `producer.type` and the JVM's of old put equal keys on one partition."""

import subprocess
from uuid import uuid4

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer, ProducerData
from clients.simple_consumer import FetchRequest, SimpleConsumer
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import program

PARTITIONS = 7
KEYS = ["key", "test-key", "message1", "polygenelubricants", "\U0001f600", "é"]
KEYS += [f"key-{n}" for n in range(100)]
DEADLINE_S = 60.0


@pytest.mark.parametrize("version", ["0.8.2.2", "1.1.1"])
async def test_key_of_a_jvm_producer_and_of_ours_is_on_the_same_partition(
    dev_cluster: DevCluster, version: str
) -> None:
    bootstrap, topic = dev_cluster.address("bootstrap"), f"t-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    send_from_jvm(version, bootstrap, topic)
    settings = {"bootstrap.servers": bootstrap, "producer.type": "sync"}
    async with Producer({**settings, "serializer.class": "StringEncoder"}) as producer:
        await producer.send([ProducerData(topic, key, "ours") for key in KEYS])
    theirs: set[tuple[bytes | None, int]] = set()
    ours: set[tuple[bytes | None, int]] = set()
    for partition in range(PARTITIONS):
        async with await SimpleConsumer.for_leader(
            {"bootstrap.servers": bootstrap}, topic, partition
        ) as consumer:
            for record in await consumer.fetch(FetchRequest(topic, partition, 0)):
                whose = ours if record.value == b"ours" else theirs
                whose.add((record.key, partition))
    assert len(ours) == len(KEYS)
    assert ours == theirs


def send_from_jvm(version: str, bootstrap: str, topic: str) -> None:
    sent = subprocess.run(
        program(version, "OldProducer", bootstrap, topic, "none"),
        input="".join(f"{key} theirs\n" for key in KEYS),
        capture_output=True,
        encoding="utf-8",
        env={"JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8"},
        timeout=DEADLINE_S,
    )
    assert sent.returncode == 0, sent.stderr
