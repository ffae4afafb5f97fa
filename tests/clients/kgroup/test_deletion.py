"""`kgroup delete` and `delete-offsets` on a running cluster, for groups of both kinds."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from clients.admin import Admin
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.command import main
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.broker import Site
from tests.stage.cluster import DevCluster
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage
from zk.znodes import ConsumerGroup, ConsumerOffset, PartitionOwner

TOPIC = "forgotten"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster(dev_cluster: DevCluster) -> DevCluster:
    """Start a cluster with a topic of two partitions."""
    created = dev_cluster.run("kbroker", "topics", "create", TOPIC, "--partitions", "2")
    assert created.returncode == 0, created.stderr
    return dev_cluster


@pytest.fixture
def group(cluster: DevCluster) -> str:
    """Return a group with offset 3 for partition 0 in ZooKeeper, and 5 for both in Kafka."""
    name = f"g-{uuid.uuid4().hex[:8]}"

    async def commit() -> None:
        async with cluster.zookeeper_session() as zk:
            await zk.create(ConsumerOffset.path(name, *P0), b"3", make_parents=True)
        async with Admin(cluster.address("bootstrap")) as admin:
            await admin.commit_group_offsets(name, dict.fromkeys((P0, P1), OffsetAndMetadata(5)))

    asyncio.run(commit())
    return name


def write(cluster: DevCluster, path: str, data: bytes = b"") -> None:
    async def run() -> None:
        async with cluster.zookeeper_session() as zk:
            await zk.create(path, data, make_parents=True)

    asyncio.run(run())


def is_there(cluster: DevCluster, path: str) -> bool:
    async def run() -> bool:
        async with cluster.zookeeper_session() as zk:
            return await zk.exists(path) is not None

    return asyncio.run(run())


def list_committed(cluster: DevCluster, group: str) -> list[tuple[str, int, int]]:
    """Return store, partition and offset of all committed offsets."""
    exported = cluster.run("kgroup", "export", group)
    items = json.loads(exported.stdout)["items"] if exported.stdout else []
    return sorted((i["store"], i["partition"], i["offset"]) for i in items)


def envelope(cluster: DevCluster, *args: str) -> tuple[int, Any, list[tuple[str, str]]]:
    """Return the exit code, the items, and (what, error) of each error."""
    result = cluster.run("kgroup", *args, "-o", "json")
    output = json.loads(result.stdout)
    return result.returncode, output["items"], [(e["what"], e["error"]) for e in output["errors"]]


ALL = [("kafka", 0, 5), ("kafka", 1, 5), ("zookeeper", 0, 3)]


# ---- groups


def test_group_is_deleted_in_both_stores(cluster: DevCluster, group: str) -> None:
    assert list_committed(cluster, group) == ALL
    result = cluster.run("kgroup", "delete", group)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows == [["GROUP", "STORE"], [group, "zookeeper"], [group, "kafka"]]
    assert group not in cluster.run("kgroup", "list").stdout
    gone = cluster.run("kgroup", "delete", group)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr == f"error: {group}: Consumer group '{group}' does not exist.\n"


def test_all_groups_are_deleted_but_those_with_members_whatever_their_names(tmp_path: Path) -> None:
    # No node can have these names, and the first of them would be nodes of another group.
    odd = ["..", "a\x00b", "b/offsets"]

    async def commit(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            for group in odd:
                await admin.commit_group_offsets(group, {P0: OffsetAndMetadata(5)})

    with DevCluster(tmp_path / "dev") as own:
        assert own.run("kbroker", "topics", "create", TOPIC).returncode == 0
        asyncio.run(commit(own.address("bootstrap")))
        for group in ("a", "b"):
            write(own, ConsumerOffset.path(group, *P0), b"1")
        write(own, f"{ConsumerGroup.ids_path('b')}/b_m")

        lines = own.run("kgroup", "export", "--format", "zk", "--store", "kafka")
        code, items, errors = envelope(own, "delete", "--all-groups")
        left = list_committed(own, "b")
    assert (code, errors) == (1, [("b in zookeeper", "NON_EMPTY_GROUP")])
    deleted = {(item["group"], item["store"]) for item in items}
    assert deleted == {("a", "zookeeper"), *((group, "kafka") for group in odd)}
    assert left == [("zookeeper", 0, 1)]

    # A line of ExportZkOffsets would be another group's.
    assert (lines.returncode, lines.stdout) == (1, "")
    assert [line.split(":")[1].strip() for line in lines.stderr.splitlines()] == [
        *("..", r"a\x00b", "b/offsets")
    ]


@pytest.mark.fault("strangers-145")
@pytest.mark.parametrize("words", [["delete"], ["delete-offsets", "--topic", TOPIC]], ids=" ".join)
def test_group_that_zookeeper_cannot_have_is_looked_for_at_its_coordinator(
    cluster: DevCluster, words: list[str]
) -> None:
    """The address of ZooKeeper may be that of the environment, which nobody leaves out."""
    name = f"a/{uuid.uuid4().hex}"

    async def commit() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            await admin.commit_group_offsets(name, {P0: OffsetAndMetadata(5)})

    asyncio.run(commit())
    both = cluster.run("kgroup", words[0], name, "other", *words[1:])
    assert both.returncode == 2
    command, *options = words
    assert cluster.run("kgroup", command, name, *options).returncode == 0
    assert list_committed(cluster, name) == []


def test_group_of_one_store_alone_is_deleted_there_and_others_go_on(
    cluster: DevCluster, group: str
) -> None:
    path = ConsumerOffset.path(f"{group}-zk", *P0)
    write(cluster, path, b"1")
    code, items, errors = envelope(cluster, "delete", f"{group}-zk", "nobody", "--group", group)
    assert code == 1
    assert [(i["group"], i["store"]) for i in items] == [
        (f"{group}-zk", "zookeeper"),
        (group, "zookeeper"),
        (group, "kafka"),
    ]
    assert errors == [("nobody", "GROUP_ID_NOT_FOUND")]


def test_group_with_a_member_in_zookeeper_keeps_its_offsets_in_both(
    cluster: DevCluster, group: str
) -> None:
    write(cluster, f"{ConsumerGroup.ids_path(group)}/{group}_m")
    code, items, errors = envelope(cluster, "delete", group)
    assert (code, items, errors) == (1, [], [(f"{group} in zookeeper", "NON_EMPTY_GROUP")])
    assert list_committed(cluster, group) == ALL


def test_coordinator_that_is_not_reached_is_named_and_nothing_is_deleted(
    cluster: DevCluster, group: str
) -> None:
    code, items, errors = envelope(cluster, "delete", group, "-b", NOWHERE, "--timeout", "5000")
    assert (code, items) == (1, [])
    assert [what for what, _ in errors] == [f"{group} in kafka"]
    assert list_committed(cluster, group) == ALL


def migrate(cluster: DevCluster, group: str, mode: OffsetMode, came_from: OffsetMode) -> str:
    """Have a group on its way to Kafka. Return the path of its migration."""
    kafka = OffsetStorage.KAFKA
    migration = GroupMigration(
        target=kafka, goal=kafka, mode=mode, came_from=came_from, epoch=2, started_at_ms=1
    )
    write(cluster, GroupMigration.path(group), migration.encode())
    return GroupMigration.path(group)


@pytest.mark.fault("strangers-107", needs_no_remedy="the order of the deletions")
def test_group_with_a_member_at_the_coordinator_keeps_its_migration_and_both_its_stores(
    cluster: DevCluster, group: str
) -> None:
    """Its members of old settings would begin anew, beside offsets in Kafka that stay."""
    path = migrate(cluster, group, OffsetMode.KAFKA, OffsetMode.DUAL_KAFKA)

    async def delete_beside_a_member() -> tuple[int, Any, list[tuple[str, str]]]:
        settings = {
            "group.id": group,
            "membership": "coordinator",
            "bootstrap.servers": cluster.address("bootstrap"),
        }
        async with ConsumerConnector(settings) as member:
            streams = await member.create_message_streams({TOPIC: 1})
            assert streams
            return await asyncio.to_thread(envelope, cluster, "delete", group)

    code, items, errors = asyncio.run(delete_beside_a_member())
    assert (code, items, errors) == (1, [], [(f"{group} in kafka", "NON_EMPTY_GROUP")])
    assert is_there(cluster, path)
    assert is_there(cluster, ConsumerOffset.path(group, *P0))


@pytest.mark.fault("strangers-108")
def test_group_whose_migration_is_in_progress_is_deleted_nowhere(
    cluster: DevCluster, group: str
) -> None:
    migrate(cluster, group, OffsetMode.DUAL_ZOOKEEPER, OffsetMode.ZOOKEEPER)
    before = list_committed(cluster, group)
    code, items, errors = envelope(cluster, "delete", group)
    assert (code, items, errors) == (1, [], [(group, "MigrationInProgress")])
    code, _, errors = envelope(cluster, "rename", group, f"{group}-new")
    assert (code, errors) == (1, [(group, "MigrationInProgress")])
    assert list_committed(cluster, group) == before


def test_migration_stays_with_the_offsets_in_kafka(cluster: DevCluster, group: str) -> None:
    path = migrate(cluster, group, OffsetMode.KAFKA, OffsetMode.DUAL_KAFKA)
    told = cluster.run("kgroup", "delete", group, "-b", "")
    assert told.returncode == 0
    assert f"note: {group}: its migration stays, as do its offsets in Kafka" in told.stderr
    assert is_there(cluster, path)
    assert cluster.run("kgroup", "delete", group).returncode == 0
    assert not is_there(cluster, path)


def test_kafkas_spelling_deletes_with_the_coordinator_alone(
    cluster: DevCluster, group: str
) -> None:
    result = run_without_environment(
        *("--bootstrap-server", cluster.address("bootstrap"), "--delete", "--group", group)
    )
    assert result.exit_code == 0, result.output
    assert list_committed(cluster, group) == ALL[2:]
    result = run_without_environment(
        *("--zookeeper", cluster.address("zookeeper"), "--delete", "--group", group)
    )
    assert result.exit_code == 0, result.output
    assert list_committed(cluster, group) == []


@pytest.mark.fault("strangers-16")
@pytest.mark.parametrize(
    "words",
    [
        *("delete {}", "list", "describe {}", "delete-offsets {} --topic t", "verify-rebalance {}"),
        *("migrate plan {} --to kafka", "export {} --store zookeeper"),
        *("consume --topic t --group {}", "consume --topic t --group {} --delete-consumer-offsets"),
    ],
)
async def test_addresses_of_two_clusters_are_refused(
    cluster: DevCluster, group: str, words: str, tmp_path: Path
) -> None:
    """The environment has ZooKeeper, the command line a broker of another cluster."""
    async with Site(tmp_path).running() as other:
        command = (*words.format(group).split(), "-b", other.bootstrap)
        result = await asyncio.to_thread(cluster.run, "kgroup", *command)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: two clusters: the brokers at {other.bootstrap} are of")
    assert await asyncio.to_thread(list_committed, cluster, group) == ALL


def run_without_environment(*args: str) -> Any:
    names = ("KGROUP_BOOTSTRAP_SERVER", "KGROUP_ZOOKEEPER")
    return CliRunner().invoke(main, args, env=dict.fromkeys(names))


# ---- offsets


def test_offsets_of_a_topic_are_deleted_in_both_stores_and_shown(
    cluster: DevCluster, group: str
) -> None:
    result = cluster.run("kgroup", "delete-offsets", group, "--topic", TOPIC)
    assert (result.returncode, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET", "STORE"],
        [group, TOPIC, "0", "5", "kafka"],
        [group, TOPIC, "0", "3", "zookeeper"],
        [group, TOPIC, "1", "5", "kafka"],
    ]
    assert list_committed(cluster, group) == []


def test_offsets_of_one_partition_are_deleted_by_kafkas_spelling(
    cluster: DevCluster, group: str
) -> None:
    words = ("--delete-offsets", "--group", group, "--topic", f"{TOPIC}:1")
    result = cluster.run("kgroup", *words)
    assert result.returncode == 0, result.stderr
    assert list_committed(cluster, group) == [ALL[0], ALL[2]]
    again, items, errors = envelope(cluster, *words)
    assert (again, items, errors) == (1, [], [(f"{TOPIC}:1", "NoOffsets")])


def test_named_partitions_without_an_offset_are_named_and_the_others_deleted(
    cluster: DevCluster, group: str
) -> None:
    words = ("delete-offsets", group, "--topic", f"{TOPIC}:1,7,9", "--topic", "nope")
    code, items, errors = envelope(cluster, *words)
    assert (code, [item["partition"] for item in items]) == (1, [1])
    assert errors == [(f"{TOPIC}:7,9", "NoOffsets"), ("nope", "NoOffsets")]


def test_named_partitions_without_an_offset_are_errors_of_describe(
    cluster: DevCluster, group: str
) -> None:
    words = ("describe", group, "--topic", f"{TOPIC}:1,9")
    code, items, errors = envelope(cluster, *words)
    assert (code, [item["partition"] for item in items]) == (1, [1])
    assert errors == [(f"{group}: {TOPIC}:9", "NoOffsets")]
    # Among all groups it chooses what is shown.
    _, _, errors = envelope(cluster, "describe", "--all-groups", "--topic", f"{TOPIC}:9")
    assert "NoOffsets" not in [error for _, error in errors]


def test_offset_of_a_partition_that_has_an_owner_stays_in_both(
    cluster: DevCluster, group: str
) -> None:
    write(cluster, PartitionOwner.path(group, *P0), b"g_m-0")
    code, items, errors = envelope(cluster, "delete-offsets", group, "--topic", TOPIC)
    assert (code, [(i["partition"], i["store"]) for i in items]) == (1, [(1, "kafka")])
    assert errors == [(str(P0), "GROUP_SUBSCRIBED_TO_TOPIC")]
    assert list_committed(cluster, group) == [ALL[0], ALL[2]]


def test_offset_that_is_no_number_is_deleted_too(cluster: DevCluster, group: str) -> None:
    write(cluster, ConsumerOffset.path(group, *P1), b"many")
    connect = ("--zookeeper", cluster.address("zookeeper"))
    result = run_without_environment(
        "delete-offsets", group, "--topic", f"{TOPIC}:1", *connect, "-o", "json"
    )
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["items"]
    assert (item["offset"], item["store"]) == (None, "zookeeper")
    assert list_committed(cluster, group) == ALL


# ---- usage


@pytest.mark.parametrize(
    "args",
    [
        ["delete"],
        ["delete-offsets", "g"],
        ["delete-offsets", "--topic", "t"],
        ["delete-offsets", "g", "--topic", "t:x"],
        ["delete-offsets", "g", "--group", "h", "--topic", "t"],
        ["delete", "", "--zookeeper", NOWHERE],
        ["delete", "g/owners", "--zookeeper", NOWHERE],
        ["delete-offsets", "..", "--topic", "t", "--zookeeper", NOWHERE],
        ["delete-offsets", "g", "--topic", "", "--zookeeper", NOWHERE],
    ],
)
def test_wrong_usage_ends_before_anything_is_asked(args: list[str]) -> None:
    assert run_without_environment(*args).exit_code == 2
