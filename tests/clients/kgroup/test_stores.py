"""`kgroup export`, `import` and `verify-rebalance` on a running cluster."""

import asyncio
import json
import shlex
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from clients import blocking
from clients.admin import Admin
from clients.admin.offset_store import AdminStore
from offsets.store_errors import CommitFailed
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S, block_until
from zk.znodes import ConsumerOffset, ConsumerRegistration, PartitionOwner


@pytest.fixture(scope="module")
def topic(dev_cluster: DevCluster) -> str:
    """Create a topic of two partitions with ten messages in each."""
    created = dev_cluster.run("kbroker", "topics", "create", "stored", "--partitions", "2")
    assert created.returncode == 0, created.stderr
    with blocking.Producer({"bootstrap.servers": dev_cluster.address("bootstrap")}) as producer:
        for number in range(20):
            producer.send("stored", b"x", partition=number % 2)
    return "stored"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file of the journal in a folder of the test's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


@pytest.fixture
def group() -> str:
    """Return the name of a group for one test."""
    return f"g-{uuid.uuid4().hex[:8]}"


def write(cluster: DevCluster, znodes: Mapping[str, bytes]) -> None:
    async def run() -> None:
        async with cluster.zookeeper_session() as session:
            for path, data in znodes.items():
                await session.create(path, data, make_parents=True)

    asyncio.run(run())


def read(cluster: DevCluster, path: str) -> bytes | None:
    async def run() -> bytes | None:
        async with cluster.zookeeper_session() as session:
            return (await session.get(path))[0]

    return asyncio.run(run())


def commit(cluster: DevCluster, group: str, offsets: dict[TopicPartition, int]) -> None:
    async def run() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            committed = {p: OffsetAndMetadata(offset, "note") for p, offset in offsets.items()}
            await admin.commit_group_offsets(group, committed)

    asyncio.run(run())


def committed(cluster: DevCluster, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    async def run() -> dict[TopicPartition, OffsetAndMetadata]:
        async with Admin(cluster.address("bootstrap")) as admin:
            return await admin.group_offsets(group)

    return asyncio.run(run())


def test_an_export_of_both_stores_restores_both(
    dev_cluster: DevCluster, topic: str, group: str, tmp_path: Path
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {path: b"3"})
    commit(dev_cluster, group, {TopicPartition(topic, 1): 5})
    exported = dev_cluster.run("kgroup", "export", group)
    assert exported.returncode == 0

    items = json.loads(exported.stdout)["items"]
    assert [(i["store"], i["partition"], i["offset"]) for i in items] == [
        ("zookeeper", 0, 3),
        ("kafka", 1, 5),
    ]

    file = tmp_path / "offsets.json"
    file.write_text(exported.stdout.replace(group, f"{group}-b"))
    imported = dev_cluster.run("kgroup", "import", str(file), "-o", "json")
    assert (imported.returncode, len(json.loads(imported.stdout)["items"])) == (0, 2)
    assert read(dev_cluster, ConsumerOffset.path(f"{group}-b", topic, 0)) == b"3"

    restored = committed(dev_cluster, f"{group}-b")[TopicPartition(topic, 1)]
    assert (restored.offset, restored.metadata) == (5, "note")


def test_kafkas_spelling_exports_and_imports_lines_through_zookeeper_alone(
    dev_cluster: DevCluster, topic: str, group: str, tmp_path: Path
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {path: b"3"})
    file = tmp_path / "offsets.txt"
    connect = ("--zkconnect", dev_cluster.address("zookeeper"), "-b", "127.0.0.1:1")
    exported = dev_cluster.run(
        "kgroup", "export", *connect, "--group", group, "--output-file", str(file)
    )

    assert (exported.returncode, exported.stdout, file.read_text()) == (0, "", f"{path}:3\n")

    file.write_text(f"{path}:8\n")
    imported = dev_cluster.run("kgroup", "import", *connect, "--input-file", str(file))
    assert imported.returncode == 0
    assert imported.stdout.splitlines()[1].split() == [group, topic, "0", "8", "zookeeper"]
    assert read(dev_cluster, path) == b"8"


def test_an_offset_that_is_no_number_is_named_by_export_and_left_out(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    bad = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {bad: b"three", ConsumerOffset.path(group, topic, 1): b"4"})
    result = dev_cluster.run("kgroup", "export", group, "--format", "zk")
    assert (result.returncode, result.stdout) == (1, f"{bad[:-1]}1:4\n")
    assert result.stderr.startswith(f"error: {bad}: ")


def test_a_file_with_a_fault_changes_nothing(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {path: b"3"})
    result = dev_cluster.run("kgroup", "import", "-", stdin=f"{path}:4\n{path[:-1]}1:x\n")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: line 2: offset 'x' is not a number")
    assert read(dev_cluster, path) == b"3"


def test_a_group_with_members_is_imported_only_when_told(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(
        dev_cluster,
        {
            path: b"3",
            ConsumerRegistration.path(group, f"{group}_x"): ConsumerRegistration(
                {topic: 1}, "static", 0
            ).encode(),
        },
    )

    refused = dev_cluster.run("kgroup", "import", "-", stdin=f"{path}:4\n")
    assert (refused.returncode, read(dev_cluster, path)) == (1, b"3")
    assert f"error: {group}: Offsets can only be imported if" in refused.stderr

    forced = dev_cluster.run("kgroup", "import", "-", "--force", stdin=f"{path}:4\n")
    assert (forced.returncode, read(dev_cluster, path)) == (0, b"4")


def test_a_dry_run_shows_and_writes_nothing(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    result = dev_cluster.run(
        "kgroup", "import", "-", "--store", "kafka", "--dry-run", stdin=f"{path}:4\n"
    )
    assert (result.returncode, result.stdout.splitlines()[1].split()[-1]) == (0, "kafka")
    assert committed(dev_cluster, group) == {}


def test_a_partition_kept_in_both_stores_is_rewound_in_both_whichever_is_named(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    kept, alone = (ConsumerOffset.path(group, topic, p) for p in (0, 1))
    write(dev_cluster, {kept: b"5", alone: b"5"})
    commit(dev_cluster, group, {TopicPartition(topic, 0): 7})
    result = dev_cluster.run("kgroup", "import", "-", stdin=f"{kept}:2\n{alone}:2\n")
    assert (result.returncode, result.stderr.count("\n")) == (0, 1)
    assert "takes it back" in result.stderr
    assert sorted(line.split()[2:] for line in result.stdout.splitlines()[1:]) == [
        ["0", "2", "kafka"],
        ["0", "2", "zookeeper"],
        ["1", "2", "zookeeper"],
    ]
    assert [read(dev_cluster, path) for path in (kept, alone)] == [b"2", b"2"]

    in_kafka = committed(dev_cluster, group)
    assert {p: held.offset for p, held in in_kafka.items()} == {TopicPartition(topic, 0): 2}


def test_one_of_two_stores_is_written_alone_when_told(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {path: b"5"})
    commit(dev_cluster, group, {TopicPartition(topic, 0): 7})
    args = ("import", "-", "--store", "zookeeper")
    assert dev_cluster.run("kgroup", *args, stdin=f"{path}:2\n").returncode == 0
    assert read(dev_cluster, path) == b"2"
    assert committed(dev_cluster, group)[TopicPartition(topic, 0)].offset == 7


def test_nothing_is_imported_while_it_cannot_be_known_what_kafka_holds(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {path: b"5"})
    args = ("import", "-", "-b", "127.0.0.1:1", "--timeout", "5000", "-o", "json")
    result = dev_cluster.run("kgroup", *args, stdin=f"{path}:2\n")
    (error,) = json.loads(result.stdout)["errors"]
    assert (result.returncode, error["what"]) == (1, group)
    assert error["message"].endswith("--store zookeeper writes only ZooKeeper")
    assert read(dev_cluster, path) == b"5"


def test_the_faults_of_a_file_stand_in_the_envelope(dev_cluster: DevCluster) -> None:
    result = dev_cluster.run("kgroup", "import", "-", "-o", "json", stdin="one\ntwo\n")
    assert [error["what"] for error in json.loads(result.stdout)["errors"]] == ["line 1", "line 2"]
    assert result.returncode == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", ": not a file of kgroup export"),
        ("{", ": not JSON: "),
        ("\n", " contains no offsets"),
    ],
)
def test_file_that_is_no_export_is_named(
    dev_cluster: DevCluster, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    result = dev_cluster.run("kgroup", "import", str(file))
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {file}{message}")


@pytest.mark.parametrize("args", [("import", "-"), ("produce", "--topic", "t")])
def test_a_command_without_standard_input_says_so(
    dev_cluster: DevCluster, args: tuple[str, ...]
) -> None:
    closed = shlex.join(command_line("kgroup", *args)) + " <&-"
    result = subprocess.run(
        closed, shell=True, cwd=ROOT, env=dev_cluster.env, text=True, capture_output=True
    )
    assert (result.returncode, result.stderr) == (1, "error: standard input is closed\n")


def test_a_partition_kafka_refuses_is_named_and_the_others_are_imported(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    lines = f"/consumers/{group}/offsets/{topic}/0:4\n/consumers/{group}/offsets/nowhere/0:4\n"
    result = dev_cluster.run("kgroup", "import", "-", "--store", "kafka", stdin=lines)
    assert (result.returncode, "nowhere-0" in result.stderr) == (1, True)
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == [topic]


@pytest.mark.fault("tool-F12")
def test_an_offset_beyond_its_log_is_moved_to_the_end_and_said(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    lines = f"/consumers/{group}/offsets/{topic}/0:1000000\n"
    for more in ("--dry-run",), ():
        result = dev_cluster.run("kgroup", "import", "-", *more, "--store", "kafka", stdin=lines)
        assert (result.returncode, result.stdout.split()[-2:]) == (0, ["10", "kafka"])
        assert result.stderr.startswith(
            f"warning: {group}: New offset (1000000) is higher than latest offset for topic "
            f"partition {topic}-0. Value will be set to 10\n"
        )
    assert committed(dev_cluster, group)[TopicPartition(topic, 0)].offset == 10


@pytest.mark.fault("tool-F12", needs_no_remedy="an import is a journalled change as a whole")
def test_an_import_has_an_entry_in_the_journal_that_takes_it_back(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    commit(dev_cluster, group, {TopicPartition(topic, 0): 7})
    lines = "".join(f"/consumers/{group}/offsets/{topic}/{p}:2\n" for p in (0, 1))
    args = ("import", "-", "--store", "kafka", "--reason", "the incident")
    assert dev_cluster.run("kgroup", *args, stdin=lines).returncode == 0
    entries = json.loads(dev_cluster.run("kgroup", "journal", "-o", "json").stdout)["items"]
    (entry,) = [entry for entry in entries if entry["group"] == group]
    assert (entry["action"], entry["status"], entry["reason"]) == ("import", "done", "the incident")
    assert dev_cluster.run("kgroup", "undo", str(entry["id"])).returncode == 0
    held = committed(dev_cluster, group)
    assert {p: offset.offset for p, offset in held.items()} == {TopicPartition(topic, 0): 7}


def test_an_import_into_zookeeper_alone_is_taken_back_by_a_file(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    path = ConsumerOffset.path(group, topic, 0)
    write(dev_cluster, {path: b"3"})
    connect = ("--zkconnect", dev_cluster.address("zookeeper"), "-b", "127.0.0.1:1")
    imported = dev_cluster.run("kgroup", "import", "-", *connect, stdin=f"{path}:8\n")
    assert imported.returncode == 0, imported.stderr
    entry_id = imported.stderr.partition(" is entry ")[2].split()[0]
    undone = dev_cluster.run("kgroup", "undo", entry_id)
    assert (undone.returncode, read(dev_cluster, path)) == (0, b"3"), undone.stderr


@pytest.mark.fault("tool-F12")
def test_every_partition_that_is_refused_is_named(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    lines = "".join(f"/consumers/{group}/offsets/{topic}/{p}:2\n" for p in (0, 7, 8))
    result = dev_cluster.run("kgroup", "import", "-", "--store", "kafka", stdin=lines)
    assert result.returncode == 1
    named = [line.split(": ")[1] for line in result.stderr.splitlines() if "error" in line]
    assert named == [f"{topic}-7", f"{topic}-8"]
    assert committed(dev_cluster, group).keys() == {TopicPartition(topic, 0)}


@pytest.mark.fault("tool-F12")
async def test_a_store_names_every_partition_that_a_coordinator_refuses(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    settings = {
        "bootstrap.servers": dev_cluster.address("bootstrap"),
        "default.api.timeout.ms": "1000",
    }
    offsets = {TopicPartition(topic, p): OffsetAndMetadata(1) for p in (0, 7, 8)}
    async with Admin(settings) as admin:
        with pytest.raises(CommitFailed) as refused:
            await AdminStore(admin).commit(group, offsets)
        assert (await admin.group_offsets(group)).keys() == {TopicPartition(topic, 0)}
    assert refused.value.errors == dict.fromkeys(
        [TopicPartition(topic, 7), TopicPartition(topic, 8)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def verified(cluster: DevCluster, *group: str) -> tuple[int, str, str]:
    result = cluster.run("kgroup", "verify-rebalance", *group)
    return result.returncode, result.stdout, result.stderr


def test_a_group_is_rebalanced_when_its_member_owns_all_and_not_when_it_is_gone(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    member = dev_cluster.begin(
        "kgroup", "consume", "--whitelist", topic, "--group", group, "--streams", "2"
    )
    kafkas = ("--zookeeper.connect", dev_cluster.address("zookeeper"), "--group", group)

    try:
        successful = (0, "Rebalance operation successful !\n", "")
        block_until(  # without a member it is successful too, and says that there is none
            lambda: verified(dev_cluster, group) == successful, "the group has rebalanced"
        )
        assert verified(dev_cluster, *kafkas) == successful
    finally:
        member.send_signal(signal.SIGTERM)
        member.communicate(timeout=DEADLINE_S)

    nobody = dev_cluster.run("kgroup", "verify-rebalance", group)
    assert (nobody.returncode, "no active members" in nobody.stderr) == (0, True)


def test_partitions_that_are_not_owned_by_a_member_are_shown_with_exit_code_one(
    dev_cluster: DevCluster, topic: str, group: str
) -> None:
    write(
        dev_cluster,
        {
            ConsumerRegistration.path(group, f"{group}_x"): ConsumerRegistration(
                {topic: 1}, "static", 0
            ).encode(),
            PartitionOwner.path(group, topic, 1): f"{group}_X-0".encode(),
        },
    )

    result = dev_cluster.run("kgroup", "verify-rebalance", group)
    assert result.returncode == 1
    assert [line.split(maxsplit=4)[2:] for line in result.stdout.splitlines()[1:]] == [
        ["0", "-", "no owner"],
        ["1", f"{group}_X-0", "owner is not registered"],
    ]
    assert f"error: {group}: Rebalance operation failed ! 2 of 2 partitions" in result.stderr


def test_a_group_that_is_not_there_has_not_rebalanced(dev_cluster: DevCluster) -> None:
    result = dev_cluster.run("kgroup", "verify-rebalance", "nobody")
    # A group at a coordinator is not there either, and exists all the same.
    said = "error: nobody: group 'nobody' has had no members in ZooKeeper: kgroup describe shows"
    assert (result.returncode, result.stderr.startswith(said)) == (1, True)
