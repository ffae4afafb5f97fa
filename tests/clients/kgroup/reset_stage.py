"""A cluster with groups that are reset, and what becomes of their offsets."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from click.testing import CliRunner, Result

from clients.admin import Admin, NewTopic
from clients.kgroup.command import main
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import block_until
from tests.stage.zookeeper import zookeeper_session
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage
from zk.znodes import ConsumerOffset

RECORDS = 10


@attrs.frozen
class ResetStage:
    """A cluster with a topic of two partitions, the first with ten messages, a minute apart."""

    bootstrap: str
    zookeeper: str
    topic: str

    @property
    def env(self) -> dict[str, str]:
        """The environment in which commands find the cluster."""
        addresses = {
            "KGROUP_BOOTSTRAP_SERVER": self.bootstrap,
            "KGROUP_ZOOKEEPER": self.zookeeper,
        }
        return {**os.environ, **addresses}

    @property
    def t0(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def t1(self) -> TopicPartition:
        return TopicPartition(self.topic, 1)

    def group(self, offsets: Mapping[TopicPartition, int], name: str | None = None) -> str:
        """Make a group by its commits, with metadata."""
        group = name or unique("g")

        async def commit() -> None:
            async with Admin(self.bootstrap) as admin:
                committed = {p: OffsetAndMetadata(offset, "note") for p, offset in offsets.items()}
                await admin.commit_group_offsets(group, committed)

        asyncio.run(commit())
        return group

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what Kafka has."""

        async def fetch() -> dict[TopicPartition, OffsetAndMetadata]:
            async with Admin(self.bootstrap) as admin:
                return await admin.group_offsets(group)

        return asyncio.run(fetch())

    def offsets(self, group: str) -> dict[int, int]:
        """Return what Kafka has, by partition."""
        return {p.partition: held.offset for p, held in self.committed(group).items()}

    def write(self, znodes: Mapping[str, bytes]) -> None:
        """Create znodes."""

        async def create() -> None:
            async with zookeeper_session(self.zookeeper) as session:
                for path, data in znodes.items():
                    await session.create(path, data, make_parents=True)

        asyncio.run(create())

    def read(self, group: str) -> bytes | None:
        """Return what ZooKeeper has of partition 0; None without a node."""

        async def get() -> bytes | None:
            async with zookeeper_session(self.zookeeper) as session:
                path = ConsumerOffset.path(group, *self.t0)
                (found,) = await session.get_many([path])
                return None if found is None else found[0]

        return asyncio.run(get())

    def run(self, *args: str, stdin: str = "") -> Result:
        """Run a command of kgroup in this process: that is quicker, and there are many."""
        return CliRunner().invoke(main, args, input=stdin, env=self.env)

    def items(self, *args: str) -> list[dict[str, Any]]:
        """Run a command to its end; return the items of its JSON."""
        result = self.run(*args, "-o", "json")
        assert result.exit_code == 0, result.output
        items: list[dict[str, Any]] = json.loads(result.stdout)["items"]
        return items

    def errors(self, *args: str) -> list[dict[str, str]]:
        """Run a command that fails; return the errors of its JSON."""
        result = self.run(*args, "-o", "json")
        assert result.exit_code == 1, result.output
        errors: list[dict[str, str]] = json.loads(result.stdout)["errors"]
        return errors

    def migrate(
        self,
        group: str,
        offset: int,
        mode: OffsetMode = OffsetMode.ZOOKEEPER,
        came_from: OffsetMode = OffsetMode.DUAL_ZOOKEEPER,
    ) -> None:
        """Have a group migrated to ZooKeeper, and be there at this offset of partition 0."""
        migration = GroupMigration(
            target=OffsetStorage.ZOOKEEPER,
            goal=OffsetStorage.ZOOKEEPER,
            mode=mode,
            came_from=came_from,
            epoch=3,
            started_at_ms=1,
        )
        self.write(
            {
                GroupMigration.path(group): migration.encode(),
                ConsumerOffset.path(group, *self.t0): b"%d" % offset,
            }
        )

    def reset(self, group: str, *where: str) -> int:
        """Reset the topic and return the journal's id."""
        (item, *_) = self.items("reset", group, "--topic", self.topic, *where, "--execute")
        journal_id = item["journal_id"]
        assert isinstance(journal_id, int)
        return journal_id


def filled(
    bootstrap: str, zookeeper: str, topic: str | None = None, *, older: int = 0, newer: int = 0
) -> ResetStage:
    """Make the topic, and fill it; `older` messages come before those that all stages have.

    `newer` ones come behind them, and one in the other partition.
    """
    topic = topic or unique("resets")

    async def produce() -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, 2, 1)]) == {topic: None}
        async with Producer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(-older, RECORDS + newer):
                await producer.send_and_wait(
                    topic,
                    b"%d" % number,
                    partition=0,
                    timestamp_ms=1_370_000_000_000 + number * 60_000,
                )
            if newer:
                await producer.send_and_wait(topic, b"other", partition=1)

    asyncio.run(produce())
    return ResetStage(bootstrap, zookeeper, topic)


def filled_dev(cluster: DevCluster) -> ResetStage:
    """Make the topic on brokers of ours."""
    return filled(cluster.address("bootstrap"), cluster.address("zookeeper"))


@contextmanager
def running_member(stage: ResetStage, group: str) -> Iterator[subprocess.Popen[str]]:
    """A member at the coordinator, in the block."""
    member = subprocess.Popen(
        command_line(
            *("kgroup", "consume", "--topic", stage.topic, "--group", group),
            *("--membership", "coordinator", "--from-beginning"),
            *("--property", "auto.commit.interval.ms=100"),
        ),
        cwd=ROOT,
        env=stage.env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        block_until(
            lambda: stage.offsets(group).get(0) == RECORDS, "a member that has consumed all"
        )
        yield member
    finally:
        member.terminate()
        member.communicate()
