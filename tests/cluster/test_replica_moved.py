"""A replica that goes to another disk of its broker: under load, through a kill, by a plan."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from clients.admin import Admin, ConfigResource, NewTopic, TopicPartitionReplica
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.cluster.load import Load
from tests.stage.cluster import DevCluster

MOVED = TopicPartition("moved", 0)
REPLICA = TopicPartitionReplica(MOVED, 0)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
PATIENCE_S = 40.0


@attrs.frozen
class Disks:
    """A cluster of one broker with two log directories."""

    cluster: DevCluster
    paths: tuple[str, str]

    @property
    def bootstrap(self) -> str:
        return self.cluster.address("bootstrap")

    def partition_directories(self) -> list[tuple[str, str]]:
        """Those of the moved partition: where, and what kind."""
        return [
            (path, each.suffix.rpartition("-")[2])
            for path in self.paths
            for each in Path(path).glob("moved-0*")
        ]

    def reassigns(self, action: str, plan: Path, *args: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run("kbroker", "reassign", action, str(plan), *args)


@contextlib.contextmanager
def disks(directory: Path) -> Iterator[Disks]:
    paths = (str(directory / "disk-a"), str(directory / "disk-b"))
    settings = (
        *("--set", f"log.dirs={','.join(paths)}"),
        *("--set", "zookeeper.session.timeout.ms=2000"),
        *("--set", "log.segment.bytes=500000"),
        *("--set", "log.segment.delete.delay.ms=0"),
    )
    with DevCluster(directory, settings) as cluster:
        yield Disks(cluster, paths)


async def place_of(admin: Admin) -> tuple[str, str | None]:
    """Where the replica is, and where it is moved to."""
    found = {
        described.is_future: path
        for path, directory in (await admin.describe_log_dirs(0)).items()
        if (described := directory.replicas.get(MOVED)) is not None
    }
    return found[False], found.get(True)


async def arrives(admin: Admin, path: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await place_of(admin) != (path, None):
            await asyncio.sleep(0.05)


async def limit(admin: Admin, rate: int | None) -> None:
    changes = {ConfigResource.broker(0): {RATE: None if rate is None else str(rate)}}
    assert not any((await admin.incremental_alter_configs(changes)).values())


def test_a_move_under_load_goes_on_after_kill_9_and_loses_nothing(tmp_path: Path) -> None:
    async def scenario(where: Disks, ends: contextlib.ExitStack) -> None:
        async with Admin(where.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(MOVED.topic, 1, 1)]) == {MOVED.topic: None}
            source, _ = await place_of(admin)
            (target,) = set(where.paths) - {source}
        async with Load(where.bootstrap, MOVED.topic) as load:
            await load.acknowledges(20_000, 20)
            async with Admin(where.bootstrap) as admin:
                await limit(admin, 1000)  # no load is so slow that it could be overtaken
                assert await admin.alter_replica_log_dirs({REPLICA: target}) == {REPLICA: None}
                await load.acknowledges(5000, 20)
                assert await place_of(admin) == (source, target)
                described = (await admin.describe_log_dirs(0))[target].replicas[MOVED]
                assert described.size_bytes > 0
                assert described.offset_lag > 0
            await asyncio.to_thread(where.cluster.kill, "broker-0")
            assert sorted(where.partition_directories()) == sorted(
                [(source, ""), (target, "future")]
            )
            await asyncio.to_thread(ends.enter_context, where.cluster.started_again())
            await load.acknowledges(5000, 20)
            async with Admin(where.bootstrap) as admin:
                assert await place_of(admin) == (source, target)
                await limit(admin, None)
                await arrives(admin, target)
            await load.acknowledges(5000, 20)
        await load.assert_kept()
        async with asyncio.timeout(PATIENCE_S):
            while where.partition_directories() != [(target, "")]:
                await asyncio.sleep(0.05)

    with disks(tmp_path) as where, contextlib.ExitStack() as ends:
        asyncio.run(scenario(where, ends))


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    with disks(tmp_path_factory.mktemp("disks")) as found:
        yield found


def test_a_plan_that_names_a_directory_is_executed_and_verified(
    where: Disks, tmp_path: Path
) -> None:
    async def filled() -> tuple[str, str]:
        async with Admin(where.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(MOVED.topic, 1, 1)]) == {MOVED.topic: None}
            async with Load(where.bootstrap, MOVED.topic) as load:
                await load.acknowledges(5000, 1)
            source, _ = await place_of(admin)
        (target,) = set(where.paths) - {source}
        return source, target

    def plan(path: str) -> Path:
        partition = {"topic": "moved", "partition": 0, "replicas": [0], "log_dirs": [path]}
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return file

    source, target = asyncio.run(filled())
    said = where.reassigns("verify", plan(target))
    assert said.returncode == 1
    sentence = f"Partition moved-0 on broker 0 is not being moved from log dir {source} to {target}"
    assert sentence in said.stdout
    refused = where.reassigns("execute", plan("/nowhere"))
    assert refused.returncode == 1
    assert "broker 0 has no log directory '/nowhere'" in refused.stderr

    begun = where.reassigns("execute", plan(target), "--replica-alter-log-dirs-throttle", "1000")
    assert begun.returncode == 0, begun.stderr
    assert "Successfully started log directory moves for: moved-0-0" in begun.stdout
    assert "The replica-alter-dir throttle limit was set to 1000 B/s" in begun.stderr
    said = where.reassigns("verify", plan(target))
    assert said.returncode == 0
    assert "Reassignment of replica moved-0-0 is still in progress." in said.stdout
    (item,) = json.loads(where.reassigns("verify", plan(target), "-o", "json").stdout)["items"]
    assert item["log_dirs"][0]["state"] == "in_progress"
    assert 0 <= item["copied_bytes"] < item["total_bytes"]
    where.reassigns("cancel", plan(target), "--preserve-throttles")
    assert sentence in where.reassigns("verify", plan(target), "--preserve-throttles").stdout

    begun = where.reassigns(
        *("execute", plan(target), "--additional", "--watch", "0.1"),
        *("--replica-alter-log-dirs-throttle", "100000000"),
    )
    assert begun.returncode == 0, begun.stderr
    assert "Reassignment of replica moved-0-0 completed successfully." in begun.stdout
    assert "Clearing throttles on broker 0" in begun.stderr
    assert where.reassigns("verify", plan(target)).returncode == 0


def test_what_is_refused_has_its_reason(where: Disks) -> None:
    async def scenario() -> None:
        strange = TopicPartitionReplica(TopicPartition("not-there", 0), 0)
        async with Admin(where.bootstrap) as admin:
            verdicts = await admin.alter_replica_log_dirs({strange: where.paths[0]})
            assert [e and e.code for e in verdicts.values()] == [ErrorCode.REPLICA_NOT_AVAILABLE]
            verdicts = await admin.alter_replica_log_dirs({strange: "/nowhere"})
            assert [e and e.code for e in verdicts.values()] == [ErrorCode.LOG_DIR_NOT_FOUND]

    asyncio.run(scenario())
