"""Kafka's own tool for groups on a broker of ours: groups that only commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import attrs
import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import run_tool

RECORDS = 9
COMMITTED = 4


@attrs.frozen
class Committer:
    """A group that has committed for one partition, somewhere in its middle."""

    bootstrap: str
    group: str
    partition: TopicPartition

    def run(self, *args: str) -> str:
        """The groups' tool of Kafka."""
        return run_tool(
            "kafka.admin.ConsumerGroupCommand", "--bootstrap-server", self.bootstrap, *args
        )

    def committed(self) -> int:
        return asyncio.run(self._committed())

    async def commit(self, records: int, offset: int) -> None:
        """Make the topic with so many records, and the group by its commit."""
        async with Admin(self.bootstrap) as admin:
            await admin.create_topics([NewTopic(self.partition.topic, 1, 1)])
            async with Producer({"bootstrap.servers": self.bootstrap}, acks="all") as producer:
                for number in range(records):
                    await producer.send_and_wait(self.partition.topic, b"%d" % number)
            await admin.commit_group_offsets(
                self.group, {self.partition: OffsetAndMetadata(offset)}
            )

    async def _committed(self) -> int:
        async with Admin(self.bootstrap) as admin:
            found = await admin.group_offsets(self.group, [self.partition])
        return found[self.partition].offset


@pytest.fixture
def committer(dev_cluster: DevCluster) -> Committer:
    made = Committer(dev_cluster.address("bootstrap"), unique("g"), TopicPartition(unique("t"), 0))
    asyncio.run(made.commit(RECORDS, COMMITTED))
    return made


def test_kafkas_tool_lists_a_group_with_its_state(committer: Committer) -> None:
    listed = {tuple(line.split()) for line in committer.run("--list", "--state").splitlines()}
    assert (committer.group, "Empty") in listed
    assert committer.group not in committer.run("--list", "--state", "Stable")


def test_kafkas_tool_describes_how_far_a_group_is(committer: Committer) -> None:
    said = committer.run("--describe", "--group", committer.group)
    (row,) = [line.split() for line in said.splitlines() if line.startswith(committer.group)]
    numbers = [str(n) for n in (0, COMMITTED, RECORDS, RECORDS - COMMITTED)]
    assert row[1:6] == [committer.partition.topic, *numbers]


@pytest.mark.parametrize(
    ("how", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], RECORDS),
        (["--shift-by", "-3"], COMMITTED - 3),
        (["--to-offset", "99"], RECORDS),
        (["--to-datetime", "2020-01-01T00:00:00.000"], 0),
    ],
)
def test_kafkas_tool_resets_a_group(committer: Committer, how: list[str], offset: int) -> None:
    reset = ("--reset-offsets", "--group", committer.group, "--all-topics", *how)
    said = committer.run(*reset, "--dry-run", "--export")
    assert f"{committer.partition.topic},0,{offset}" in said.splitlines()
    assert committer.committed() == COMMITTED
    committer.run(*reset, "--execute")
    assert committer.committed() == offset


def test_kafkas_tool_resets_a_group_to_what_a_file_says(
    committer: Committer, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{committer.partition.topic},0,7\n")
    reset = ("--reset-offsets", "--group", committer.group, "--from-file", str(plan))
    committer.run(*reset, "--execute")
    assert committer.committed() == 7


def test_kafkas_tool_deletes_a_group(committer: Committer) -> None:
    said = committer.run("--delete", "--group", committer.group)
    assert f"('{committer.group}') was successful" in said
    assert committer.group not in committer.run("--list")
    again = committer.run("--delete", "--group", committer.group)
    assert f"Group '{committer.group}' could not be deleted due to:" in again
    assert "GroupIdNotFoundException" in again


def test_kafkas_tool_deletes_offsets_of_a_topic(committer: Committer) -> None:
    other = attrs.evolve(committer, partition=TopicPartition(unique("t"), 0))
    asyncio.run(other.commit(1, 1))
    unknown = unique("t")
    topics = ("--topic", committer.partition.topic, "--topic", f"{unknown}:0")
    said = committer.run("--delete-offsets", "--group", committer.group, *topics)
    rows = {row[0]: row[1:] for line in said.splitlines() if (row := line.split())}
    assert rows[committer.partition.topic][:2] == ["0", "Successful"]
    assert rows[unknown][:2] == ["0", "Error:"]
    assert other.committed() == 1
    with pytest.raises(KeyError):
        committer.committed()
