"""`kgroup simulate`: from nothing, and from a live group that it does not join."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clients.kgroup.command import main
from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until


def simulate(*args: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *args])


def items(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return found


def test_assignors_are_compared_from_nothing() -> None:
    result = simulate("--members", "3,+1,-m2", "--partitions", "t=10", "-o", "json")
    moved = {item["assignor"]: item["moved"] for item in items(result)}
    assert moved == {"range": 6, "roundrobin": 6, "sticky": 3, "cooperative-sticky": 3}


def test_the_table_has_a_row_for_each_assignor_and_each_member() -> None:
    result = simulate("--members", "2", "--partitions", "t=3", "--assignor", "range")
    assert result.stdout.splitlines() == [
        "ASSIGNOR           #MEMBERS #PARTITIONS MOVED KEPT MIN MAX LOAD ROUNDS",
        "range              2        3           0     0    1   2   1.33 1",
        "",
        "ASSIGNOR           MEMBER     #PARTITIONS KEPT GAINED LOST ASSIGNMENT",
        "range              m1         2           0    2      0    t(0,1)",
        "range              m2         1           0    1      0    t(2)",
    ]


@pytest.mark.parametrize("text", ["t,0,600\nt,1,60\n", '{"t:0": 600, "t:1": 60}'])
def test_weights_of_a_file_and_a_rate_tell_the_time_to_catch_up(tmp_path: Path, text: str) -> None:
    file = tmp_path / "weights"
    file.write_text(text)
    result = simulate(
        *("--members", "2", "--partitions", "t=2", "--assignor", "range", "-o", "json"),
        *("--weights", str(file), "--rate", "10"),
    )
    (item,) = items(result)
    assert (item["catch_up_ms"], item["load"]) == (60_000, 1.82)
    assert [share["weight"] for share in item["shares"]] == [600, 60]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "name a GROUP"),
        (["--members", "two", "--partitions", "t=1"], "'two' is not a number"),
        (["--members", "2,-m3", "--partitions", "t=1"], "-m3: is no member; members: m1, m2"),
        (["--members", "1,-m1", "--partitions", "t=1"], "leaves no member"),
        (["--members", "2", "--partitions", "t"], "is not topic=partitions"),
        (["g", "--assignor", "fair"], "not one of range"),
        (["--members", "2", "--partitions", "t=1", "--weights", "lag"], "needs a GROUP"),
    ],
)
def test_what_cannot_be_simulated_is_wrong_usage(args: list[str], reason: str) -> None:
    result = simulate(*args)
    assert result.exit_code == 2
    assert reason in result.stderr


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{" * 100_000, b"t,0"])
def test_weights_that_cannot_be_read_are_wrong_usage(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "weights"
    file.write_bytes(content)
    result = simulate("--members", "2", "--partitions", "t=2", "--weights", str(file))
    assert result.exit_code == 2
    assert f"{file}: not lines of topic,partition,weight" in result.stderr


def test_a_live_group_is_read_and_not_joined(dev_cluster: DevCluster) -> None:
    created = dev_cluster.run("kbroker", "topics", "create", "simulated", "--partitions", "4")
    assert created.returncode == 0, created.stderr
    dev_cluster.run("kgroup", "produce", "--topic", "simulated", stdin="a\n" * 100)

    member = dev_cluster.begin(
        *("kgroup", "consume", "--topic", "simulated", "--group", "simulating"),
        *("--membership", "coordinator"),
    )
    try:

        def state() -> dict[str, Any]:
            described = dev_cluster.run("kgroup", "describe", "simulating", "--state", "-o", "json")
            found = json.loads(described.stdout)["items"]
            return found[0] if found else {}

        block_until(lambda: state().get("state") == "Stable", "the member's group at rest")

        args = ("--members", "+1", "--assignor", "sticky", "--weights", "lag", "-o", "json")
        simulated = dev_cluster.run("kgroup", "simulate", "simulating", *args)
        assert simulated.returncode == 0, simulated.stderr
        (item,) = json.loads(simulated.stdout)["items"]
        assert (item["members"], item["kept"], item["moved"]) == (2, 2, 2)

        # A rebalance would have made it another generation with two members.
        assert state()["members"] == 1
    finally:
        member.terminate()
        member.communicate(timeout=60)

    # The group is empty now, and one that never was is named.
    empty = dev_cluster.run("kgroup", "simulate", "simulating", "--members", "+1")
    assert empty.returncode == 1
    assert "has no active members" in empty.stderr
    unknown = dev_cluster.run("kgroup", "simulate", "never-was", "--members", "+1")
    assert unknown.stderr == "error: Consumer group 'never-was' does not exist.\n"


@pytest.mark.fault("strangers-94")
def test_a_member_made_up_in_zookeeper_gets_what_a_real_one_gets(dev_cluster: DevCluster) -> None:
    """Range goes by ids, and these begin with the group's name, which here is behind `new`."""
    created = dev_cluster.run("kbroker", "topics", "create", "zoned", "--partitions", "7")
    assert created.returncode == 0, created.stderr

    def describe_members() -> list[dict[str, Any]]:
        described = dev_cluster.run("kgroup", "describe", "zulu", "--members", "-o", "json")
        items: list[dict[str, Any]] = json.loads(described.stdout)["items"]
        return items

    def shares(count: int) -> dict[str, str]:
        """Return who owns what, once so many members own all partitions."""
        found = describe_members()
        is_settled = sum(item["partitions"] for item in found) == 7 and len(found) == count
        return {item["consumer_id"]: item["assignment"] for item in found} if is_settled else {}

    members = []
    try:
        for count in (1, 2, 3):
            members.append(
                dev_cluster.begin(
                    *("kgroup", "consume", "--topic", "zoned", "--group", "zulu"),
                    *("--membership", "zookeeper"),
                )
            )
            block_until(partial(shares, count), f"{count} members that own all partitions")
            if count == 2:
                args = ("--members", "+1", "--assignor", "range", "-o", "json")
                simulated = dev_cluster.run("kgroup", "simulate", "zulu", *args)
                (forecast,) = json.loads(simulated.stdout)["items"]

        real = shares(3)
        told = {share["member"]: share["assignment"] for share in forecast["shares"]}
        (made_up,) = told.keys() - real.keys()
        (new,) = real.keys() - told.keys()
        told[new] = told.pop(made_up)
        assert told == real
    finally:
        for member in members:
            member.terminate()
        for member in members:
            member.communicate(timeout=60)
