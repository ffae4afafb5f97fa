"""A coordinator that is stopped, or killed, and was the only broker that its members had named."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from clients.admin.admin import Admin
from clients.admin.descriptions import NewTopic
from clients.cluster import Cluster
from clients.high_level.connector import ConsumerConnector
from tests.stage.cluster import DevCluster
from tests.stage.waiting import until

PARTITIONS = 4
BROKERS = ("--brokers", "3", "--set", "zookeeper.session.timeout.ms=3000")


def a_member(bootstrap: str) -> ConsumerConnector:
    return ConsumerConnector(
        {
            "membership": "coordinator",
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            # A commit that fails would find the next coordinator.
            "auto.commit.enable": False,
        }
    )


@pytest.mark.fault("groups-1", "groups-3")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_member_shares_its_partitions_with_one_that_comes_after_its_coordinator_was_lost(
    tmp_path: Path, how: signal.Signals
) -> None:
    with DevCluster(tmp_path, BROKERS) as cluster:
        asyncio.run(share(cluster, how))


async def share(cluster: DevCluster, how: signal.Signals) -> None:
    """Let a second member join when the first one's coordinator is lost."""
    bootstrap = cluster.address("bootstrap")
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, 3)])
    brokers = Cluster(bootstrap)
    coordinator = await brokers.coordinator("g")
    await brokers.close()
    only = f"{coordinator.host}:{coordinator.port}"
    others = ",".join(address for address in bootstrap.split(",") if address != only)

    first, second = a_member(only), a_member(others)
    pid = cluster.pid(f"broker-{coordinator.node_id}")
    try:
        await first.create_message_streams({"t": 1})
        assert len(first.assignment()) == PARTITIONS

        os.kill(pid, how)
        await second.create_message_streams({"t": 1})

        def is_shared() -> bool:
            ours, theirs = first.assignment(), second.assignment()
            return not ours & theirs and len(ours) == len(theirs) == PARTITIONS // 2

        await until(is_shared, "each has half of the partitions")
    finally:
        if how is signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        await first.shutdown()
        await second.shutdown()
