"""`kbroker transactions` on stock brokers, beside Kafka's own tool."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from clients.admin import LATEST_TIME, Admin
from clients.cluster import Cluster
from protocol.topic_partition import TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.kraft_kafka import kraft_broker, run_tool
from tests.stage.processes import ROOT, command_line
from tests.stage.raw_transaction import RawTransaction, run_with_cluster
from tests.stage.stock_kafka import stock_broker
from tests.stage.waiting import DEADLINE_S

HOUR_MS = 3_600_000
TRANSACTION_TOPIC = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
UNCHECKED = {**TRANSACTION_TOPIC, "transaction.partition.verification.enable": "false"}
TOOL = "org.apache.kafka.tools.TransactionsCommand"


@attrs.frozen
class Commands:
    """`kbroker transactions` on a cluster."""

    bootstrap: str

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = command_line("kbroker", "transactions", *args, "-b", self.bootstrap)
        return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE_S)

    def items(self, *args: str) -> list[dict[str, Any]]:
        ran = self.run(*args, "-o", "json")
        assert ran.returncode == 0, ran.stderr
        items: list[dict[str, Any]] = json.loads(ran.stdout)["items"]
        return items


def cells(table: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in table.splitlines() if line.strip()]


async def stable_offset(bootstrap: str, partition: TopicPartition) -> int:
    """Where readers of committed data stop."""
    async with Admin(bootstrap) as admin:
        return (await admin.list_offsets({partition: LATEST_TIME}, isolation=1))[partition].offset


async def write_unadded(cluster: Cluster, topic: str) -> RawTransaction:
    """Write a record of an hour ago that the coordinator does not know of, and one that it does."""
    an_hour_ago_ms = int(time.time() * 1000) - HOUR_MS
    hanging = await RawTransaction.begin(cluster, "hanging")
    await hanging.write(TopicPartition(topic, 0), b"v", an_hour_ago_ms)

    running = await RawTransaction.begin(cluster, "running")
    await running.add(TopicPartition(topic, 1))
    await running.write(TopicPartition(topic, 1), b"v", an_hour_ago_ms)
    return hanging


@pytest.mark.product
def test_hanging_transaction_of_a_new_kafka_is_found_and_aborted(tmp_path: Path) -> None:
    with kraft_broker(tmp_path, UNCHECKED) as bootstrap:
        commands = Commands(bootstrap)
        topic = asyncio.run(new_topic(bootstrap, 2))
        hanging = asyncio.run(run_with_cluster(bootstrap, lambda c: write_unadded(c, topic)))
        hung, running = TopicPartition(topic, 0), TopicPartition(topic, 1)
        assert asyncio.run(stable_offset(bootstrap, hung)) == 0

        # All tables are those of Kafka's tool.
        address = ("--bootstrap-server", bootstrap)
        for args in (
            ("list",),
            ("list", "--duration-filter", "0"),
            ("describe-producers", "--topic", topic, "--partition", "0"),
            ("find-hanging", "--topic", topic),
            ("find-hanging", "--broker-id", "1"),
        ):
            theirs = cells(run_tool(TOOL, *address, *args))
            ours = cells(commands.run(*args).stdout)
            assert ours[0] == theirs[0]
            assert sorted(ours[1:]) == sorted(theirs[1:]), args
        theirs = cells(run_tool(TOOL, *address, "describe", "--transactional-id", "running"))
        ours = cells(commands.run("describe", "running").stdout)
        # But for how long it is open by now.
        duration = theirs[0].index("TransactionDurationMs")
        theirs[1][duration] = ours[1][duration]
        assert ours == theirs

        (found,) = commands.items("find-hanging")
        assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 0)
        assert (found["transactional_id"], found["transaction_state"]) == ("hanging", "Empty")
        assert found["producer_id"] == hanging.producer_id

        # Nothing else is aborted.
        of_hung = ("abort", "--topic", topic, "--partition", "0")
        wrong = commands.run(*of_hung, "--start-offset", "5")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
        assert "no open transaction starts at offset 5: they start at 0" in wrong.stderr
        of_running = ("abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
        refused = commands.run(*of_running)
        assert refused.returncode == 1
        assert "the coordinator of transactional id running will end this" in refused.stderr

        assert commands.run(*of_hung, "--start-offset", "0").returncode == 0
        assert asyncio.run(stable_offset(bootstrap, hung)) == 2
        assert commands.items("find-hanging") == []
        assert commands.run(*of_running, "--force").returncode == 0
        assert asyncio.run(stable_offset(bootstrap, running)) == 2

        # Whoever has the id is fenced, and its coordinator ends what it has open.
        fenced = asyncio.run(fence(bootstrap, "running"))
        assert fenced > 0
        (item,) = commands.items("describe", "running")
        assert item["producer_epoch"] == fenced


async def fence(bootstrap: str, transactional_id: str) -> int:
    async with Admin(bootstrap) as admin:
        result = (await admin.fence_producers([transactional_id]))[transactional_id]
        assert not isinstance(result, Exception)
        return result.producer_epoch


@pytest.mark.product
def test_a_2_8_broker_shows_producers_and_aborts_by_epochs_and_is_too_old_for_the_rest(
    zk_chroot: str, tmp_path: Path
) -> None:
    with stock_broker(zk_chroot, tmp_path, TRANSACTION_TOPIC) as bootstrap:
        commands = Commands(bootstrap)
        topic = asyncio.run(new_topic(bootstrap, 2))
        asyncio.run(run_with_cluster(bootstrap, lambda c: write_unadded(c, topic)))
        of_hung = ("--topic", topic, "--partition", "0")

        (producer,) = commands.items("describe-producers", *of_hung)
        assert producer["current_transaction_start_offset"] == 0
        for args in (("list",), ("describe", "hanging"), ("find-hanging",)):
            ran = commands.run(*args)
            assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
            assert "that needs Kafka 3.0 or later" in ran.stderr

        named = [
            *("--producer-id", str(producer["producer_id"])),
            *("--producer-epoch", str(producer["producer_epoch"])),
            *("--coordinator-epoch", str(producer["latest_coordinator_epoch"])),
        ]
        ran = commands.run("abort", *of_hung, *named)
        assert ran.returncode == 0
        assert "not checked whether a coordinator will end the transaction" in ran.stderr

        hung = TopicPartition(topic, 0)
        assert asyncio.run(stable_offset(bootstrap, hung)) == 2
        (producer,) = commands.items("describe-producers", *of_hung)
        assert producer["current_transaction_start_offset"] is None
