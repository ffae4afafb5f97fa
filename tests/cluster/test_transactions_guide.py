"""What docs/transactions.md says of looking after transactions, where one hangs."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from typing import Any

import pytest

from clients.admin import LATEST_TIME, Admin, NewTopic
from clients.cluster import Cluster
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.raw_transaction import RawTransaction, run_with_cluster

GUIDE = (ROOT / "docs" / "transactions.md").read_text("utf-8")
COMMANDS = re.findall(r"^    kbroker (transactions .+)$", GUIDE, re.MULTILINE)

PAYMENTS = TopicPartition("payments", 0)
HOUR_MS = 3_600_000


async def leave_one_open(cluster: Cluster) -> None:
    """Commit a record, which with its marker takes two offsets; then write without being added."""
    an_hour_ago_ms = int(time.time() * 1000) - HOUR_MS
    producer = await RawTransaction.begin(cluster, "billing-1")
    await producer.add(PAYMENTS)
    assert await producer.write(PAYMENTS, b"committed", an_hour_ago_ms) == 0
    await producer.end(commits=True)

    # The coordinator has the last marker written when it takes the next producer.
    late = await RawTransaction.begin(cluster, "billing-1")
    assert await late.write(PAYMENTS, b"hanging", an_hour_ago_ms) == 2


async def stable_offset(bootstrap: str) -> int:
    """Where readers of committed data stop."""
    async with Admin(bootstrap) as admin:
        return (await admin.list_offsets({PAYMENTS: LATEST_TIME}, isolation=1))[PAYMENTS].offset


@pytest.fixture
def payments(dev_cluster: DevCluster) -> DevCluster:
    """The cluster, with a transaction that hangs at offset 2."""

    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic("payments", 1, 1)]) == {"payments": None}
        await run_with_cluster(bootstrap, leave_one_open)

    asyncio.run(prepare(dev_cluster.address("bootstrap")))
    return dev_cluster


def items(cluster: DevCluster, *args: str) -> list[dict[str, Any]]:
    ran = cluster.run("kbroker", "transactions", *args, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    content = json.loads(ran.stdout)
    assert content["errors"] == []
    return list(content["items"])


def test_commands_of_the_guide_find_and_abort_what_hangs(payments: DevCluster) -> None:
    bootstrap = payments.address("bootstrap")
    (found,) = items(payments, "find-hanging", "--topic", "payments")
    assert (found["partition"], found["start_offset"], found["producer_epoch"]) == (0, 2, 1)
    assert (found["transactional_id"], found["transaction_state"]) == ("billing-1", "Empty")
    assert found["duration_ms"] >= HOUR_MS
    assert asyncio.run(stable_offset(bootstrap)) == 2

    assert len(COMMANDS) == 7
    for command in COMMANDS:
        ran = payments.run("kbroker", *shlex.split(command))
        assert ran.returncode == 0, (command, ran.stderr)
        if " find-hanging" in command:
            is_found = "--topic" not in command
            assert ("payments" in ran.stdout) == is_found
        if " abort " in command:
            producer = found["producer_id"]
            assert ran.stdout == f"Aborted the transaction of producer {producer} on payments-0.\n"

    # Behind the marker.
    assert asyncio.run(stable_offset(bootstrap)) == 4
    (producer,) = items(payments, "describe-producers", "--topic", "payments", "--partition", "0")
    assert producer["current_transaction_start_offset"] is None
    (listed,) = [i for i in items(payments, "list") if i["transactional_id"] == "billing-1"]
    assert listed["transaction_state"] == "Empty"


def test_what_its_coordinator_will_end_is_refused_and_may_be_forced(
    dev_cluster: DevCluster,
) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    partition = TopicPartition("owed", 0)

    async def begin(cluster: Cluster) -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic("owed", 1, 1)]) == {"owed": None}
        producer = await RawTransaction.begin(cluster, "owed-1")
        await producer.add(partition)
        await producer.write(partition, b"v", 1_000)

    asyncio.run(run_with_cluster(bootstrap, begin))
    (described,) = items(dev_cluster, "describe", "owed-1")
    assert (described["transaction_state"], described["topic_partitions"]) == ("Ongoing", "owed-0")
    assert items(dev_cluster, "find-hanging", "--topic", "owed") == []

    abort = ("kbroker", "transactions", "abort", "--topic", "owed", "--partition", "0")
    refused = dev_cluster.run(*abort, "--start-offset", "0")
    assert refused.returncode == 1
    assert "the coordinator of transactional id owed-1 will end this" in refused.stderr
    assert dev_cluster.run(*abort, "--start-offset", "0", "--force").returncode == 0


def test_what_does_not_exist_is_named(dev_cluster: DevCluster) -> None:
    for line, message in (
        ("describe never-1", "error: never-1: TRANSACTIONAL_ID_NOT_FOUND"),
        ("find-hanging --topic never", "UNKNOWN_TOPIC_OR_PARTITION: never"),
        ("describe-producers --topic never --partition 0", "UNKNOWN_TOPIC_OR_PARTITION: never-0"),
        ("abort --topic never --partition 0 --start-offset 0", "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        ran = dev_cluster.run("kbroker", "transactions", *line.split())
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), line
        assert message in ran.stderr


def test_offsets_that_hang_in_a_transaction_keep_a_group_waiting_until_it_is_aborted(
    dev_cluster: DevCluster,
) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    partition = TopicPartition("unstable", 0)

    async def commit_unadded(cluster: Cluster) -> ErrorCode:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic("unstable", 1, 1)]) == {"unstable": None}
        producer = await RawTransaction.begin(cluster, "unstable-1")
        await producer.commit_offset("unstable-group", partition, 7)
        return await fetch_stable(cluster)

    async def fetch_stable(cluster: Cluster) -> ErrorCode:
        topic = OffsetFetchRequestTopic(name="unstable", partition_indexes=[0])
        request = OffsetFetchRequest(group_id="unstable-group", topics=[topic], require_stable=True)
        response = await cluster.call_coordinator("unstable-group", request)
        return ErrorCode.of(response.topics[0].partitions[0].error_code)

    waiting = asyncio.run(run_with_cluster(bootstrap, commit_unadded))
    assert waiting is ErrorCode.UNSTABLE_OFFSET_COMMIT
    search = ("find-hanging", "--topic", "__consumer_offsets", "--max-transaction-timeout", "0")
    (found,) = items(dev_cluster, *search)
    assert found["transactional_id"] == "unstable-1"
    ran = dev_cluster.run(
        *("kbroker", "transactions", "abort", "--topic", "__consumer_offsets"),
        *("--partition", str(found["partition"])),
        *("--start-offset", str(found["start_offset"])),
    )
    assert ran.returncode == 0, ran.stderr
    assert asyncio.run(run_with_cluster(bootstrap, fetch_stable)) is ErrorCode.NONE
    assert items(dev_cluster, *search) == []
