"""A topic without a retention of its own has that of the broker which leads each partition."""

import json
import time
from collections.abc import Iterator

import pytest

from clients.admin import Admin, ConfigResource
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster

HOUR = 3_600_000
ON_0, ON_1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("leaders"), ("--brokers", "2")) as cluster:
        yield cluster


@pytest.mark.fault("strangers-70")
async def test_deletion_is_told_of_the_leader(cluster: DevCluster) -> None:
    bootstrap = cluster.address("bootstrap")
    hour_ago = time.time_ns() // 1_000_000 - HOUR
    cluster.run("kbroker", "topics", "create", "t", "--replica-assignment", "0,1")
    async with Admin(bootstrap) as admin:
        async with Producer({"bootstrap.servers": bootstrap}) as producer:
            for partition in (ON_0, ON_1):
                await producer.send("t", b"v", partition=partition.partition, timestamp_ms=hour_ago)
        start = {ON_0: OffsetAndMetadata(0), ON_1: OffsetAndMetadata(0)}
        await admin.commit_group_offsets("g", start)
        small_disk = {ConfigResource.broker(1): {"log.retention.ms": str(2 * HOUR)}}
        await admin.incremental_alter_configs(small_disk)

    ran = cluster.run("kgroup", "at-risk", "g", "--within", "3h", "-o", "json")
    (risk,) = json.loads(ran.stdout)["items"]
    assert (risk["partition"], risk["risk"]) == (1, "records-deleted")
    assert risk["in_ms"] <= HOUR
