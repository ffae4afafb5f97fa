"""Times of offsets, lag alone, and what will be lost, on a running cluster."""

import asyncio
import json
import time
from uuid import uuid4

import pytest

from clients.admin import Admin, ConfigResource, NewTopic
from clients.errors import BrokerError
from clients.producer.producer import Producer
from kgroup.admin import lag
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster

HOUR = 3_600_000
WEEK = 7 * 24 * HOUR


@pytest.fixture(scope="module")
def group(dev_cluster: DevCluster) -> str:
    """A group that is one record of an hour ago behind on p0 of a topic of two, and not on p1."""
    name = f"times-{uuid4().hex[:8]}"
    hour_ago = time.time_ns() // 1_000_000 - HOUR

    async def prepare() -> None:
        async with Admin(dev_cluster.address("bootstrap")) as admin:
            new = NewTopic(name, 2, 1, {"retention.ms": str(3 * HOUR)})
            assert await admin.create_topics([new]) == {name: None}
            async with Producer(
                {"bootstrap.servers": dev_cluster.address("bootstrap")}
            ) as producer:
                for number in range(3):
                    await producer.send(name, b"v", partition=0, timestamp_ms=hour_ago + number)
            offsets = {TopicPartition(name, 0): 2, TopicPartition(name, 1): 0}
            await admin.commit_group_offsets(
                name, {p: OffsetAndMetadata(n) for p, n in offsets.items()}
            )

    asyncio.run(prepare())
    return name


def test_describe_has_the_times_of_commit_expiry_and_next_record(
    dev_cluster: DevCluster, group: str
) -> None:
    ran = dev_cluster.run("kgroup", "describe", group, "-o", "json")
    behind, level = json.loads(ran.stdout)["items"]
    assert abs(behind["committed_at_ms"] - time.time() * 1000) < HOUR / 2
    assert behind["age_ms"] >= 0
    assert WEEK - HOUR < behind["expires_in_ms"] <= WEEK
    assert HOUR - 5 <= behind["time_lag_ms"] < 1.5 * HOUR
    assert behind["time_lag_method"] == "exact"
    assert 1.4 * HOUR < behind["deleted_in_ms"] <= 2 * HOUR
    assert behind["above_log_start"] == 2
    assert (level["lag"], level["time_lag_ms"], level["deleted_in_ms"]) == (0, 0, None)


def test_a_wide_table_has_a_summary_beside_it_and_a_plain_one_is_as_kafkas(
    dev_cluster: DevCluster, group: str
) -> None:
    summary = f"{group}: Empty, 0 members, lag 1 in 2 partitions, most 1 in {group}-0"
    assert summary in dev_cluster.run("kgroup", "describe", group, "--verbose").stderr
    plain = dev_cluster.run("kgroup", "describe", group)
    assert plain.stderr == f"Consumer group '{group}' has no active members.\n"


def test_chosen_columns_of_partitions_with_lag_alone(dev_cluster: DevCluster, group: str) -> None:
    ran = dev_cluster.run(
        *("kgroup", "describe", group, "--only-with-lag", "--columns", "partition,lag,time-lag")
    )
    header, row = [line.split() for line in ran.stdout.splitlines()]
    assert header == ["PARTITION", "LAG", "TIME-LAG"]
    assert row[:3] == ["0", "1", "1h"]
    unknown = dev_cluster.run("kgroup", "describe", group, "--columns", "lagg")
    assert (unknown.returncode, "did you mean LAG?" in unknown.stderr) == (2, True)


def test_groups_with_lag_are_listed_with_it(dev_cluster: DevCluster, group: str) -> None:
    ran = dev_cluster.run("kgroup", "list", "--match", group, "--only-with-lag", "-o", "csv")
    assert ran.stdout.splitlines() == ["group,lag", f"{group},1"]
    nothing = dev_cluster.run("kgroup", "list", "--match", group, "--topic", "another")
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_records_that_retention_will_delete_unread_are_at_risk(
    dev_cluster: DevCluster, group: str
) -> None:
    ran = dev_cluster.run("kgroup", "at-risk", group, "--within", "3h", "-o", "json")
    told = json.loads(ran.stdout)
    (risk,) = told["items"]
    assert (ran.returncode, told["kind"]) == (0, "at-risk")
    assert (risk["partition"], risk["risk"], risk["lag"]) == (0, "records-deleted", 1)
    assert "raise retention.ms" in told["verdict"]
    safe = dev_cluster.run("kgroup", "at-risk", group, "--within", "1h")
    assert safe.stdout.strip() == "nothing is lost within 1h 0m"


@pytest.mark.fault("strangers-66")
@pytest.mark.fault("strangers-90")
@pytest.mark.parametrize(
    ("setting", "value", "effect"),
    [
        ("retention.bytes", "1000000", "retention.bytes may delete records before their time"),
        (
            "cleanup.policy",
            "compact,delete",
            "compaction deletes records without a key, or with a later value of it, at any time",
        ),
    ],
)
async def test_a_topic_whose_records_may_go_before_their_time_is_named(
    dev_cluster: DevCluster, group: str, setting: str, value: str, effect: str
) -> None:
    topic = ConfigResource.topic(group)
    async with Admin(dev_cluster.address("bootstrap")) as admin:
        await admin.incremental_alter_configs({topic: {setting: value}})
        try:
            risks = dev_cluster.run("kgroup", "at-risk", group, "--within", "1h")
            rows = dev_cluster.run("kgroup", "describe", group, "--verbose")
        finally:
            await admin.incremental_alter_configs({topic: {setting: None}})
    assert risks.stdout.strip() == "nothing is lost within 1h 0m, as far as it can be told"
    named = f"{effect}: {group}"
    assert named in risks.stderr
    assert named in rows.stderr


async def test_a_program_asks_for_the_lag_of_a_group(dev_cluster: DevCluster, group: str) -> None:
    async with Admin(dev_cluster.address("bootstrap")) as admin:
        lags = await lag(admin, group)
        assert {str(partition): of.lag for partition, of in lags.items()} == {
            f"{group}-0": 1,
            f"{group}-1": 0,
        }
        with pytest.raises(BrokerError, match="nobody-knows-it"):
            await lag(admin, "nobody-knows-it")
