"""A live group's offsets move from store to store, with real processes, killed as they go."""

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import pytest

from clients.admin import LATEST_TIME, Admin, NewTopic
from offsets.migration import Command
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.cluster.consumer_group import POLL_S, MemberProcesses
from tests.cluster.load import Load
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S
from zk.migration_znodes import GroupMigration, MigrationPaths, OffsetMode
from zk.session import KazooSession
from zk.znodes import ConsumerOffset, ConsumerRegistration, PartitionOwner, TopicAssignment

PARTITIONS = 6
SETTLING_S = 15.0
PATIENCE_S = 60.0
SESSION = {"zookeeper.session.timeout.ms": "3000", "auto.commit.interval.ms": "200"}
SETTINGS = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
}
OTHER = {"zookeeper": "kafka", "kafka": "zookeeper"}
PROOF = ("--seconds", "2")
VERBS = {"start": (), "verify": PROOF, "finalize": (), "rollback": PROOF}


@attrs.define(eq=False)
class Migration:
    """Commands on one group, and what became of it."""

    cluster: DevCluster
    admin: Admin
    zk: KazooSession
    group: str
    topic: str

    async def run(self, verb: str, *args: str) -> subprocess.CompletedProcess[str]:
        """`kgroup migrate VERB GROUP …`, to its end."""
        command = ("kgroup", "migrate", verb, self.group, *VERBS.get(verb, ()), *args)
        return await asyncio.to_thread(self.cluster.run, *command)

    async def succeeds(self, verb: str, *args: str) -> None:
        done = await self.run(verb, *args)
        assert done.returncode == 0, f"{verb}: {done.stdout}{done.stderr}"

    async def is_killed(self, verb: str, path: str, *args: str) -> None:
        """Begin a command, and end it with `kill -9` as soon as the node at `path` is written."""
        before = await self._written(path)
        command = ("kgroup", "migrate", verb, self.group, *VERBS[verb], *args)
        process = self.cluster.begin(*command)
        async with asyncio.timeout(PATIENCE_S):
            has_ended = False
            while await self._written(path) == before:
                assert not has_ended, process.communicate()
                has_ended = process.poll() is not None  # before the node is looked at again
                await asyncio.sleep(0)
        process.kill()
        process.communicate()

    async def _written(self, path: str) -> int:
        stat = await self.zk.exists(path)
        return stat.mzxid if stat else 0

    async def fill(self) -> None:
        """Have messages for a stranger to commit offsets of, for a minute."""
        async with Load(self.cluster.address("bootstrap"), self.topic, group="loader") as load:
            await load.acknowledges(PARTITIONS * 500, 0)

    async def mode(self) -> OffsetMode:
        content, _ = await self.zk.get(GroupMigration.path(self.group))
        return GroupMigration.decode(content).mode

    async def committed(self, store: str) -> dict[TopicPartition, int]:
        if store == "kafka":
            found = await self.admin.group_offsets(self.group)
        else:
            partitions = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
            found = await ZooKeeperStore(self.zk).fetch(self.group, partitions)
        return {partition: committed.offset for partition, committed in found.items()}

    async def has_committed_once(self, store: str, partitions: int = 1) -> None:
        """Return when a store holds something of so many partitions."""
        async with asyncio.timeout(PATIENCE_S):
            while len(await self.committed(store)) < partitions:
                await asyncio.sleep(POLL_S)

    async def all_is_committed(self, *stores: str) -> None:
        """Return when these stores hold the ends of the logs."""
        times = {TopicPartition(self.topic, p): LATEST_TIME for p in range(PARTITIONS)}
        ends = {p: end.offset for p, end in (await self.admin.list_offsets(times)).items()}
        async with asyncio.timeout(PATIENCE_S):
            for store in stores:
                while await self.committed(store) != ends:
                    await asyncio.sleep(POLL_S)


@asynccontextmanager
async def migrating(cluster: DevCluster, name: str) -> AsyncIterator[Migration]:
    """Topic and group `name`."""
    async with Admin(cluster.address("bootstrap")) as admin, cluster.zookeeper_session() as zk:
        created = (await admin.create_topics([NewTopic(name, PARTITIONS, 1)]))[name]
        assert created is None or created.code == ErrorCode.TOPIC_ALREADY_EXISTS  # asked twice
        yield Migration(cluster, admin, zk, name, name)


def load_of(cluster: DevCluster, topic: str) -> Load:
    return Load(cluster.address("bootstrap"), topic, pause_s=0.005, group="loader")


async def joins(group: MemberProcesses, zk: KazooSession, *names: str) -> None:
    for name in names:
        group.start(name)
    for name in names:
        await group.registered(zk, name, PATIENCE_S)
    await group.settled(zk, SETTLING_S)


@pytest.mark.parametrize("target", ["kafka", "zookeeper"])
async def test_a_live_group_moves_and_moves_back_whoever_is_killed_and_nothing_is_missing(
    dev_cluster: DevCluster, tmp_path: Path, target: str
) -> None:
    source, name = OTHER[target], f"moving-to-{target}"
    settings = SESSION | SETTINGS[source]
    group = MemberProcesses(dev_cluster, name, name, PARTITIONS, settings, tmp_path)
    async with migrating(dev_cluster, name) as migration:
        order = GroupMigration.path(name)
        at_work = MigrationPaths.command_path(name)
        with group:
            async with load_of(dev_cluster, name) as load:
                await joins(group, migration.zk, "a", "b", "c")
                await migration.has_committed_once(source, PARTITIONS)
                await migration.succeeds("plan", "--to", target)
                await migration.is_killed("start", at_work, "--to", target)
                await migration.is_killed("start", order, "--to", target)
                await migration.succeeds("start", "--to", target)
                await migration.is_killed("verify", order)
                group.kill("b")
                await joins(group, migration.zk, "d")  # with the settings of old
                await migration.succeeds("verify")
            await group.consumes(load.records, PATIENCE_S)
            await migration.all_is_committed(source, target)

            async with load_of(dev_cluster, name) as load:
                await migration.is_killed("finalize", order)
                assert await migration.mode() == f"dual-{target}"
                group.leave("a")
                await joins(group, migration.zk, "e")
                await migration.succeeds("finalize")
                assert await migration.mode() == target

                left_behind = await migration.committed(source)
                await load.acknowledges(100, 0)
            await group.consumes(load.records, PATIENCE_S)
            await migration.all_is_committed(target)
            assert await migration.committed(source) == left_behind

            async with load_of(dev_cluster, name) as more:
                await migration.is_killed("rollback", order)
                assert await migration.mode() == f"dual-{target}"
                await migration.is_killed("rollback", order)
                await migration.succeeds("rollback")
                assert await migration.mode() == source
                await more.acknowledges(100, 0)
            await group.consumes(more.records, PATIENCE_S)
            await migration.all_is_committed(source)


@attrs.define(eq=False)
class Stranger:
    """What a member on the JVM looks like from outside: it registers, owns one partition, commits
    to the stores its settings name, and knows of no migration."""

    migration: Migration
    name: str
    both: bool = False
    zk: KazooSession = attrs.field(init=False)
    offset: int = 0
    _committing: asyncio.Task[None] = attrs.field(init=False)

    @property
    def consumer_id(self) -> str:
        return f"{self.migration.group}_{self.name}"

    async def __aenter__(self) -> "Stranger":
        group, partition = self.migration.group, TopicPartition(self.migration.topic, 0)
        self.zk = KazooSession(self.migration.cluster.address("zookeeper"))
        await self.zk.start()
        registration = ConsumerRegistration({partition.topic: 1}, "static", 0).encode()
        thread = f"{self.consumer_id}-0".encode()
        for path, content in (
            (ConsumerRegistration.path(group, self.consumer_id), registration),
            (PartitionOwner.path(group, *partition), thread),
        ):
            await self.zk.create(path, content, ephemeral=True, make_parents=True)
        self._committing = asyncio.create_task(self._commit(partition))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._committing.cancel()
        await asyncio.wait([self._committing])
        await self.zk.close()

    async def _commit(self, partition: TopicPartition) -> None:
        store = ZooKeeperStore(self.zk)
        while True:
            offsets = {partition: OffsetAndMetadata(self.offset)}
            if self.both:
                await self.migration.admin.commit_group_offsets(self.migration.group, offsets)
            await store.commit(self.migration.group, offsets)
            self.offset += 1
            await asyncio.sleep(0.2)


async def test_a_member_that_is_not_ours_is_named_until_it_is_seen_to_write_both(
    dev_cluster: DevCluster,
) -> None:
    async with migrating(dev_cluster, "strange") as migration:
        await migration.fill()
        async with Stranger(migration, "jvm"):
            await migration.has_committed_once("zookeeper")
            planned = await migration.run("plan", "--wait", "0")
            assert planned.returncode == 0
            assert "not ours: strange_jvm: after start, set offsets.storage=kafka" in planned.stderr
            started = await migration.run("start", "--wait", "2")
            assert started.returncode == 1
            assert "error: strange_jvm: not obeying: set offsets.storage=kafka" in started.stderr
            verified = await migration.run("verify", "--wait", "3", "-o", "json")
            assert verified.returncode == 1
            answer = json.loads(verified.stdout)
            assert {error["what"] for error in answer["errors"]} == {"strange-0", "strange_jvm"}
            (row,) = (item for item in answer["items"] if item["partition"] == 0)
            assert (row["state"], row["consumer_id"]) == ("DIVERGED", "strange_jvm")
            wanted = "offsets.storage=kafka dual.commit.enabled=true"
            assert (row["obeys"], row["wants"]) == ("not ours", wanted)
            assert (await migration.run("finalize")).returncode == 1
        async with Stranger(migration, "jvm-restarted", both=True):
            await migration.succeeds("verify")
            (row, *_) = json.loads((await migration.run("status", "-o", "json")).stdout)["items"]
            assert (row["step"], row["obeys"], row["wants"]) == ("verified", "proven", None)
            await migration.succeeds("finalize")
        assert await migration.mode() is OffsetMode.KAFKA


async def test_two_commands_on_one_group_do_not_work_at_once(dev_cluster: DevCluster) -> None:
    async with migrating(dev_cluster, "twice") as migration, Stranger(migration, "jvm"):
        await migration.fill()
        await migration.has_committed_once("zookeeper")
        first = dev_cluster.begin("kgroup", "migrate", "start", "twice", "--wait", "60")
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await migration.zk.exists(MigrationPaths.command_path("twice")) is None:
                    await asyncio.sleep(POLL_S)
            other_way = await migration.run("start", "--to", "zookeeper")
            assert other_way.returncode == 1
            assert "error: migration: one to Kafka is started" in other_way.stderr
            second = await migration.run("rollback")
            assert second.returncode == 1
            assert "kgroup migrate start, process" in second.stderr
            assert second.stderr.rstrip().endswith("is at work")
        finally:
            first.send_signal(signal.SIGINT)
            first.communicate(timeout=DEADLINE_S)
        await migration.succeeds("rollback")
        assert await migration.mode() is OffsetMode.ZOOKEEPER


async def test_a_group_without_members_needs_no_waiting(dev_cluster: DevCluster) -> None:
    async with migrating(dev_cluster, "asleep") as migration:
        partition = TopicPartition("asleep", 3)
        await ZooKeeperStore(migration.zk).commit("asleep", {partition: OffsetAndMetadata(0)})
        for verb in ("plan", "start", "verify", "finalize"):
            await migration.succeeds(verb)
        assert await migration.committed("kafka") == {partition: 0}
        await migration.succeeds("rollback")
        assert await migration.committed("zookeeper") == {partition: 0}


async def test_an_offset_that_is_no_number_is_named_until_it_is_put_right(
    dev_cluster: DevCluster,
) -> None:
    async with migrating(dev_cluster, "garbled") as migration:
        partition = TopicPartition("garbled", 3)
        path = ConsumerOffset.path("garbled", *partition)
        await migration.zk.create(path, b"0", make_parents=True)
        await migration.succeeds("start")
        await migration.zk.set(path, b"abc")
        verified = await migration.run("verify", "--wait", "0", "-o", "json")
        assert verified.returncode == 1
        answer = json.loads(verified.stdout)
        named, differing = answer["errors"]
        assert (named["what"], named["error"]) == (path, "ZnodeError")
        assert named["message"] == "b'abc' is not a decimal number"
        assert differing["message"] == "different: nothing in ZooKeeper, 0 in Kafka"
        (row,) = answer["items"]
        assert (row["zk_offset"], row["kafka_offset"], row["state"]) == (None, 0, "DIVERGED")
        assert row["next"] == "kgroup migrate verify garbled"
        await migration.zk.set(path, b"0")
        await migration.succeeds("verify")
        await migration.succeeds("finalize")


async def test_a_topic_that_is_deleted_on_the_way_is_left_behind_and_the_others_go_on(
    dev_cluster: DevCluster,
) -> None:
    async with migrating(dev_cluster, "stays") as migration:
        stays, goes = TopicPartition("stays", 0), TopicPartition("goes", 0)
        await migration.admin.create_topics([NewTopic("goes", 1, 1)])
        offsets = {stays: OffsetAndMetadata(0), goes: OffsetAndMetadata(0)}
        await ZooKeeperStore(migration.zk).commit("stays", offsets)
        await migration.succeeds("start")
        await migration.admin.delete_topics(["goes"])
        async with asyncio.timeout(PATIENCE_S):
            while await migration.zk.exists(TopicAssignment.path("goes")):
                await asyncio.sleep(POLL_S)
        verified = await migration.run("verify")
        assert verified.returncode == 0
        assert "left behind, no such partition: goes-0" in verified.stderr
        await migration.succeeds("finalize")
        assert (await migration.committed("kafka"))[stays] == 0


async def test_nonsense_in_the_znode_of_a_migration_is_named_with_the_way_out(
    dev_cluster: DevCluster,
) -> None:
    async with migrating(dev_cluster, "unreadable") as migration:
        path = GroupMigration.path("unreadable")
        await migration.zk.create(path, b'{"version":1}', make_parents=True)
        for verb in ("status", "rollback"):
            done = await migration.run(verb)
            assert done.returncode == 1
            assert done.stderr.startswith(f"error: {path}: no 'target': members that run go on")
            assert "correct the node, or delete it" in done.stderr
        assert (await migration.zk.get(path))[0] == b'{"version":1}'


@pytest.mark.parametrize(
    ("group", "args", "said"),
    [
        ("nobody", ("plan",), "error: nobody: it has neither members nor offsets"),
        ("nobody", ("finalize",), "error: nobody: not possible now, the migration is: none"),
        ("no/body", ("status",), "Error: 'no/body' cannot be the name of a group"),
        ("nobody", ("verify", "--commits", "0"), "Error: Invalid value for '--commits'"),
    ],
)
def test_a_users_mistake_is_one_line_and_leaves_nothing_behind(
    dev_cluster: DevCluster, group: str, args: tuple[str, ...], said: str
) -> None:
    done = dev_cluster.run("kgroup", "migrate", args[0], group, *args[1:])
    assert done.returncode == (2 if said.startswith("Error") else 1)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not asyncio.run(has_node(dev_cluster, GroupMigration.path("nobody")))


async def has_node(cluster: DevCluster, path: str) -> bool:
    async with cluster.zookeeper_session() as zk:
        return await zk.exists(path) is not None


GUIDE = ROOT / "docs" / "migration.md"


def shell_lines(guide: str) -> list[list[str]]:
    """The words of each line of its blocks of shell."""
    blocks = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    return [line.split() for block in blocks for line in block.splitlines()]


@contextmanager
def running(cluster: DevCluster, program: str, *args: str) -> Iterator[None]:
    """A command that goes on until the end of the block, whatever it prints."""
    process = subprocess.Popen(
        command_line(program, *args), cwd=ROOT, env=cluster.env, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_the_guide_can_be_followed_as_it_is_written(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev") as cluster:  # its own: other guides use the same names
        await follow(cluster)


async def follow(cluster: DevCluster) -> None:
    (export, member, *commands) = shell_lines(GUIDE.read_text())
    assert export[0] == "export"
    assert {pair.partition("=")[0] for pair in export[1:]} <= cluster.env.keys()
    assert member[:2] == ["kgroup", "consume"]
    assert {words[2] for words in commands if words[1] == "migrate"} == set(Command)
    async with migrating(cluster, "flights") as migration:
        migration = attrs.evolve(migration, group="analytics")
        with running(cluster, *member), running(cluster, *member):
            async with load_of(cluster, "flights"):
                await migration.has_committed_once("zookeeper", PARTITIONS)
                for program, *words in commands:
                    done = await asyncio.to_thread(cluster.run, program, *words)
                    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        assert await migration.mode() is OffsetMode.KAFKA  # where the last of them began
