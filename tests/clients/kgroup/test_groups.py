"""`kgroup list` and `describe` on a running cluster."""

import asyncio
import json
import signal
from typing import Any

import pytest

from clients.admin import Admin
from groups.zookeeper.registration import STATIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, block_until
from zk.session import KazooSession
from zk.znodes import ConsumerOffset, ConsumerRegistration, PartitionOwner

KAFKA_COLUMNS = [
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
]


@pytest.fixture(scope="module")
def cluster(dev_cluster: DevCluster) -> DevCluster:
    """Start a cluster with topic `rows` of two partitions and ten messages of one key."""
    dev_cluster.run("kbroker", "topics", "create", "rows", "--partitions", "2")
    lines = "".join(f"k:{number}\n" for number in range(10))
    sent = dev_cluster.run(
        "kgroup", "produce", "--topic", "rows", "--key-separator", ":", stdin=lines
    )
    assert sent.returncode == 0
    return dev_cluster


def commit(cluster: DevCluster, group: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Commit with the coordinator without being a member, as a Spark query does."""

    async def run() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            await admin.commit_group_offsets(
                group,
                {
                    TopicPartition("rows", partition): OffsetAndMetadata(offset, metadata)
                    for partition, offset in offsets.items()
                },
            )

    asyncio.run(run())


def write(cluster: DevCluster, znodes: dict[str, bytes]) -> None:
    """Create persistent znodes."""

    async def run() -> None:
        session = KazooSession(cluster.address("zookeeper"))
        await session.start()
        for path, data in znodes.items():
            await session.create(path, data, make_parents=True)
        await session.close()

    asyncio.run(run())


def described(cluster: DevCluster, *args: str) -> list[dict[str, Any]]:
    """Return the items of `kgroup describe … -o json`."""
    items = json.loads(cluster.run("kgroup", "describe", *args, "-o", "json").stdout)["items"]
    assert isinstance(items, list)
    return items


def end_offsets(cluster: DevCluster) -> list[int]:
    """Return the end offsets of both partitions; all ten messages are in one of them."""
    lines = cluster.run("kgroup", "offsets", "--topic", "rows", "-o", "csv").stdout.splitlines()[1:]
    return [int(line.split(",")[2]) for line in lines]


def test_a_group_that_only_commits_has_offsets_lag_and_no_members(cluster: DevCluster) -> None:
    commit(cluster, "committer", {0: 0, 1: 0}, "query 1")
    result = cluster.run("kgroup", "describe", "committer")
    assert (result.returncode, result.stderr) == (
        0,
        "Consumer group 'committer' has no active members.\n",
    )
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == KAFKA_COLUMNS
    assert [(row[0], row[1], row[2], row[3], *row[6:]) for row in rows] == [
        ("committer", "rows", "0", "0", "-", "-", "-"),
        ("committer", "rows", "1", "0", "-", "-", "-"),
    ]
    assert sum(int(row[5]) for row in rows) == 10


def test_the_wide_columns_name_the_store_and_the_committers_note(cluster: DevCluster) -> None:
    commit(cluster, "noted", {0: 0}, "query 7")
    (item,) = described(cluster, "noted")
    assert (item["coordination"], item["offsets"], item["metadata"]) == ("none", "kafka", "query 7")


def test_kafkas_own_spelling_gives_the_same_table(cluster: DevCluster) -> None:
    commit(cluster, "spelled", {0: 0})
    ours = cluster.run("kgroup", "describe", "spelled")
    kafkas = cluster.run(
        "kgroup",
        "--bootstrap-server",
        cluster.address("bootstrap"),
        "--describe",
        "--group",
        "spelled",
    )
    assert (kafkas.returncode, kafkas.stdout) == (0, ours.stdout)


def test_a_member_in_zookeeper_owns_its_partitions_until_it_leaves(cluster: DevCluster) -> None:
    member = cluster.begin("kgroup", "consume", "--topic", "rows", "--group", "owners")

    try:
        block_until(lambda: described(cluster, "owners", "--members"), "the member is registered")
        block_until(
            lambda: all(item["consumer_id"] for item in described(cluster, "owners")),
            "both partitions are owned",
        )
        items = described(cluster, "owners")
        assert [item["partition"] for item in items] == [0, 1]
        assert {item["coordination"] for item in items} == {"zookeeper"}
        assert [item["stream"] for item in items] == [0, 0]
        assert all(item["consumer_id"].startswith("owners_") for item in items)
        assert all(item["host"] for item in items)
        state = cluster.run("kgroup", "describe", "owners", "--state").stdout.splitlines()[1]
        assert state.split()[-2:] == ["Stable", "1"]
        members = cluster.run("kgroup", "describe", "owners", "--members", "--verbose").stdout
        assert members.splitlines()[1].split()[-2:] == ["2", "rows(0,1)"]
        (registered,) = described(cluster, "owners", "--members")
        assert (registered["streams"], registered["subscription"]) == (1, "static rows=1")
        (group,) = described(cluster, "owners", "--state")
        assert group["storage"] == "zookeeper"  # a member of ours says so
    finally:
        member.send_signal(signal.SIGINT)
        _, stderr = member.communicate(timeout=DEADLINE_S)

    assert (member.returncode, "Traceback" in stderr) == (0, False)
    assert {item["consumer_id"] for item in described(cluster, "owners")} == {None}


def test_a_group_with_offsets_in_both_stores_shows_them_side_by_side(cluster: DevCluster) -> None:
    commit(cluster, "dual", {0: 0})
    write(cluster, {ConsumerOffset.path("dual", "rows", 0): b"3"})
    (item,) = described(cluster, "dual", "--topic", "rows:0")
    assert (item["offsets"], item["zk_offset"], item["kafka_offset"]) == ("dual", 3, 0)
    assert (item["wins"], item["diverged"], item["current_offset"]) == ("zookeeper", True, 3)
    (row,) = cluster.run("kgroup", "describe", "dual", "--verbose").stdout.splitlines()[1:]
    assert "DIVERGED" in row.split()


def test_an_unreadable_znode_is_named_and_the_rest_is_shown(cluster: DevCluster) -> None:
    bad = ConsumerOffset.path("spoilt", "rows", 0)
    write(cluster, {bad: b"not a number", ConsumerOffset.path("spoilt", "rows", 1): b"0"})
    result = cluster.run("kgroup", "describe", "spoilt")
    assert result.returncode == 1
    assert f"error: {bad}: " in result.stderr
    assert [line.split()[2:4] for line in result.stdout.splitlines()[1:]] == [["1", "0"]]


def test_partition_numbers_beyond_32_bits_are_named_and_the_rest_is_shown(
    cluster: DevCluster,
) -> None:
    far = "/consumers/far/offsets/rows/2147483648"
    write(cluster, {far: b"1", ConsumerOffset.path("far", "rows", 1): b"0"})
    result = cluster.run("kgroup", "describe", "far")
    assert (result.returncode, f"error: {far}: is beyond 32 bits" in result.stderr) == (1, True)
    assert len(result.stdout.splitlines()) == 2


def test_a_registration_in_foreign_json_is_named_and_its_member_still_listed(
    cluster: DevCluster,
) -> None:
    path = "/consumers/foreign/ids/foreign_x"
    write(cluster, {path: b'{"subscription": {"rows": 4294967296000}, "pattern": 7}'})
    result = cluster.run("kgroup", "describe", "foreign", "--members")
    assert (result.returncode, "foreign_x" in result.stdout) == (1, True)
    assert f"error: {path}: " in result.stderr


def test_an_owner_without_a_member_is_a_rebalance_not_a_crash(cluster: DevCluster) -> None:
    path = PartitionOwner.path("ghost", "rows", 0)
    write(cluster, {path: b"ghost_h-1418710530123-1a2b3c4d-0", "/consumers/ghost/ids": b""})
    first, second = described(cluster, "ghost")
    assert (first["consumer_id"], first["host"]) == ("ghost_h-1418710530123-1a2b3c4d", "h")
    assert second["consumer_id"] is None


def test_an_offset_beyond_the_log_end_is_flagged_and_its_lag_no_less_than_zero_for_people(
    cluster: DevCluster,
) -> None:
    commit(cluster, "beyond", {0: 1000})
    (item,) = described(cluster, "beyond")
    assert (item["lag"], item["position"]) == (end_offsets(cluster)[0] - 1000, "beyond-log-end")
    shown = cluster.run("kgroup", "describe", "beyond", "--verbose")
    assert shown.stdout.splitlines()[1].split()[5] == "0"
    end = end_offsets(cluster)[0]
    assert (
        f"committed beyond the log's end: rows-0 at 1000, where the log is from 0 to {end}; "
        in (shown.stderr)
    )
    assert "no lag in 1 partition, 1 of them committed beyond the log's end" in shown.stderr
    risks = cluster.run("kgroup", "at-risk", "beyond")
    row = risks.stdout.splitlines()[1].split()
    assert (row[3], row[-1]) == ("beyond-log-end", "0")
    health = cluster.run("kgroup", "health", "beyond")
    assert (health.returncode, "1000 is beyond the log's end" in health.stdout) == (1, True)


def test_of_a_topic_that_is_not_there_no_view_says_that_all_is_well(cluster: DevCluster) -> None:
    write(cluster, {ConsumerOffset.path("bereft", "not-there", 0): b"5"})
    risks = cluster.run("kgroup", "at-risk", "bereft")
    assert risks.stdout == "\nnothing is lost within 4h 0m, as far as it can be told\n"
    health = cluster.run("kgroup", "health", "bereft")
    assert (health.returncode, "see if its topic is there" in health.stdout) == (3, True)


def test_a_group_nobody_knows_fails_and_the_others_are_shown(cluster: DevCluster) -> None:
    commit(cluster, "known", {0: 0})
    result = cluster.run("kgroup", "describe", "known", "unknown")
    assert result.returncode == 1
    assert "error: unknown: Consumer group 'unknown' does not exist." in result.stderr
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize("command", ["history GROUP", "events GROUP", "describe GROUP --as-of 1m"])
def test_what_was_of_a_group_fails_if_nobody_knows_it_and_not_if_it_has_done_nothing(
    cluster: DevCluster, command: str
) -> None:
    commit(cluster, "committed", {0: 0})
    unknown = cluster.run("kgroup", *command.replace("GROUP", "unknown").split())
    assert unknown.returncode == 1
    assert "error: unknown: Consumer group 'unknown' does not exist." in unknown.stderr
    # It has no rebalance, and before it was made no commit.
    known = cluster.run("kgroup", *command.replace("GROUP", "committed").split())
    assert (known.returncode, known.stderr) == (0, "")


def test_a_group_without_a_name_that_nobody_knows_is_seen_in_the_error(cluster: DevCluster) -> None:
    result = cluster.run("kgroup", "describe", "")
    assert "error: '': Consumer group '' does not exist." in result.stderr


@pytest.mark.parametrize("time", ["99:99", "latest", "earliest"])
def test_the_offsets_of_no_time_are_refused(cluster: DevCluster, time: str) -> None:
    result = cluster.run("kgroup", "describe", "known", "--as-of", time)
    assert (result.returncode, result.stdout) == (2, "")
    assert "latest, earliest" not in result.stderr


def test_groups_of_both_kinds_are_in_one_list(cluster: DevCluster) -> None:
    commit(cluster, "both-kafka", {0: 0})
    write(cluster, {"/consumers/both-zookeeper/ids": b""})
    listed = cluster.run("kgroup", "list", "--match", "^both-", "-o", "json")
    assert json.loads(listed.stdout)["items"] == [
        {"group": "both-kafka", "coordination": "none", "type": "classic", "state": "Empty"},
        {
            "group": "both-zookeeper",
            "coordination": "zookeeper",
            "type": "zookeeper",
            "state": "Empty",
        },
    ]
    plain = cluster.run("kgroup", "--list").stdout.splitlines()
    assert {"both-kafka", "both-zookeeper"} <= set(plain)


def test_a_list_by_state_leaves_the_others_out(cluster: DevCluster) -> None:
    commit(cluster, "by-state", {0: 0})
    stable = cluster.run("kgroup", "list", "--match", "by-state", "--state", "stable")
    empty = cluster.run("kgroup", "list", "--match", "by-state", "--state", "EMPTY")
    assert (stable.stdout, empty.stdout.split()) == ("", ["GROUP", "STATE", "by-state", "Empty"])


def test_without_the_brokers_what_zookeeper_holds_is_still_listed(cluster: DevCluster) -> None:
    write(cluster, {"/consumers/alone/ids": b""})
    result = cluster.run("kgroup", "list", "-b", "127.0.0.1:1", "--timeout", "5000")
    assert (result.returncode, "alone" in result.stdout) == (1, True)
    assert result.stderr.startswith("error: brokers: ")


@pytest.mark.parametrize("args", [(), ("g", "--all-groups"), ("g", "--topic", "t:x")])
def test_a_describe_that_makes_no_sense_is_wrong_usage(
    cluster: DevCluster, args: tuple[str, ...]
) -> None:
    assert cluster.run("kgroup", "describe", *args).returncode == 2


def test_kick_says_that_the_members_are_in_zookeeper(cluster: DevCluster) -> None:
    registration = ConsumerRegistration({"rows": 1}, STATIC, 0)
    path = ConsumerRegistration.path("kept-by-zookeeper", "kept-by-zookeeper_host-1")
    write(cluster, {path: registration.encode()})
    kicked = cluster.run("kgroup", "kick", "kept-by-zookeeper", "--all")
    assert kicked.returncode == 1
    assert "its members are in ZooKeeper" in kicked.stderr
    assert "has no members" in cluster.run("kgroup", "kick", "nobody", "--all").stderr
