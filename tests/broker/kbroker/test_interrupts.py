"""Commands of `kbroker` that write many things, interrupted in the middle of it, as processes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.processes import interrupt_after

pytestmark = pytest.mark.fault("scale-C3")


def make_topics(cluster: DevCluster, number: int) -> list[str]:
    """Create topics of one partition."""
    prefix = unique("many")
    names = [f"{prefix}-{index:03}" for index in range(number)]

    async def create() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            verdicts = await admin.create_topics([NewTopic(name, 1, 1) for name in names])
            assert set(verdicts.values()) == {None}

    asyncio.run(create())
    return names


def partitions_of(cluster: DevCluster, names: list[str]) -> dict[str, int]:
    """Return the number of partitions of those topics that exist."""

    async def describe() -> dict[str, int]:
        async with Admin(cluster.address("bootstrap")) as admin:
            topics = await admin.describe_topics()
        return {name: len(topics[name].partitions) for name in names if name in topics}

    return asyncio.run(describe())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_topics_deleted(dev_cluster: DevCluster, number: signal.Signals) -> None:
    names = make_topics(dev_cluster, 200)
    process = dev_cluster.begin("kbroker", "topics", "delete", *names)
    stdout, stderr = interrupt_after(process, f"Deleted topic {names[0]}.", number)
    assert process.returncode == 130, stderr

    done = [line.removeprefix("Deleted topic ").removesuffix(".") for line in stdout.splitlines()]
    errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
    not_done = [line.split(": ")[1] for line in errors]
    assert done + not_done == names
    assert list(partitions_of(dev_cluster, names)) == not_done


def test_topics_deleted_with_json(dev_cluster: DevCluster) -> None:
    names = make_topics(dev_cluster, 200)
    process = dev_cluster.begin("kbroker", "topics", "delete", *names, "-o", "json")
    stdout, stderr = interrupt_after(process, f"Deleted topic {names[0]}.")
    assert process.returncode == 130, stderr

    listing = json.loads(stdout)
    done = [item["topic"] for item in listing["items"]]
    assert done + [error["what"] for error in listing["errors"]] == names
    assert {error["error"] for error in listing["errors"]} == {"Interrupted"}


def test_topics_altered(dev_cluster: DevCluster) -> None:
    names = make_topics(dev_cluster, 60)
    pattern = f"{names[0].rsplit('-', 1)[0]}-.*"
    process = dev_cluster.begin(
        "kbroker", "topics", "alter", "--topic", pattern, "--partitions", "2"
    )
    stdout, stderr = interrupt_after(process, f"Altered topic {names[0]}.")
    assert process.returncode == 130, stderr

    done = [line.removeprefix("Altered topic ").removesuffix(".") for line in stdout.splitlines()]
    partitions = partitions_of(dev_cluster, names)
    assert [name for name in names if partitions[name] == 2] == done
    assert len(done) < len(names)


def test_acls_added(dev_cluster: DevCluster) -> None:
    prefix = unique("acl")
    topics = [f"{prefix}-{index:03}" for index in range(1000)]
    process = dev_cluster.begin(
        *("kbroker", "acls", "add", "--allow-principal", "User:alice", "--operation", "Read"),
        *(word for topic in topics for word in ("--topic", topic)),
        *("--zookeeper", dev_cluster.address("zookeeper"), "-o", "json"),
    )
    stdout, stderr = interrupt_after(process, f"added: TOPIC {topics[0]} ")
    assert process.returncode == 130, stderr

    listing = json.loads(stdout)
    done = [item["name"] for item in listing["items"]]
    assert len(done) in range(100, 1000, 100)
    assert len(listing["errors"]) == len(topics) - len(done)
    assert {error["error"] for error in listing["errors"]} == {"Interrupted"}
    assert done == topics[: len(done)]

    # ZooKeeper has those, and no others.
    listed = dev_cluster.run(
        *("kbroker", "acls", "list", "--zookeeper", dev_cluster.address("zookeeper")),
        *("-o", "json"),
    )
    names = {item["name"] for item in json.loads(listed.stdout)["items"]}
    assert names & set(topics) == set(done)


def test_a_reassignment_that_is_watched(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": 0, "replicas": [1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))

    async def fill(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            topic = NewTopic("moved", assignments={0: (0,)})
            assert await admin.create_topics([topic]) == {"moved": None}
        async with Producer({"bootstrap.servers": bootstrap}) as producer:
            for _ in range(20):
                await producer.send_and_wait("moved", bytes(500_000), partition=0)

    with DevCluster(tmp_path / "data", ("--brokers", "2")) as cluster:
        asyncio.run(fill(cluster.address("bootstrap")))
        process = cluster.begin(
            *("kbroker", "reassign", "execute", str(plan)),
            *("--throttle", "1000", "--watch", "0.1"),
        )
        stdout, stderr = interrupt_after(process, "0 of 1 partitions done")
        assert process.returncode == 130, stderr
        assert "Successfully started partition reassignments for moved-0" in stdout
        assert "Reassignment of partition moved-0 is still in progress." in stdout
        assert "error: reassignment: it goes on, and is not watched any more" in stderr
