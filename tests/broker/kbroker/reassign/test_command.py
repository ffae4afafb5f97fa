"""`kbroker reassign` on a running cluster: the output for people."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until


@pytest.mark.parametrize("output", ["table", "wide"])
def test_people_get_the_way_back_and_kafkas_sentences_in_both_tables(
    dev_cluster: DevCluster, tmp_path: Path, output: str
) -> None:
    def run(*args: str) -> str:
        result = dev_cluster.run("kbroker", *args)
        assert result.returncode == 0, result.stderr
        return result.stdout

    topic = f"moved-{output}"
    run("topics", "create", topic)
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [0]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))

    def reassign(*args: str) -> str:
        return run("reassign", *args, "-o", output)

    generated = reassign("generate", str(topics), "--broker-list", "0")
    assert "Proposed partition reassignment configuration\n" in generated

    executed = reassign("execute", str(plan))
    assert executed.startswith("Current partition replica assignment\n")
    assert "Save this to use as the --reassignment-json-file option during rollback" in executed
    assert f"Successfully started partition reassignments for {topic}-0\n" in executed

    assert reassign("verify", str(plan)).splitlines() == [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is complete.",
    ]
    assert reassign("list") == "No partition reassignments found.\n"
    assert reassign("cancel", str(plan)) == (
        "None of the specified partition reassignments are active.\n"
    )


@pytest.mark.fault("strangers-52")
@pytest.mark.fault("strangers-62")
def test_a_throttle_is_set_on_brokers_that_live_and_the_others_are_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [0, 2]}]}')
    args = ("--brokers", "3", "--set", "zookeeper.session.timeout.ms=2000")
    with DevCluster(tmp_path / "dev", args) as cluster:

        def run(*words: str) -> str:
            done = cluster.run("kbroker", *words)
            assert done.returncode == 0, done.stderr
            return done.stdout + done.stderr

        run("topics", "create", "t", "--replica-assignment", "0:1")
        cluster.kill("broker-1")
        # A broker may hear of a new topic late.
        describe = partial(cluster.run, "kbroker", "topics", "describe", "t")
        block_until(lambda: "Isr: 0\n" in describe().stdout, "broker 1 out of the ISR")
        said = run("reassign", "execute", str(plan), "--throttle", "1000000")
        assert "Warning: broker 1 is down, and has no throttle if it comes back" in said
        assert "Successfully started partition reassignments for t-0" in said
        block_until(lambda: "is complete" in run("reassign", "verify", str(plan)), "t-0 moved")
        cluster.kill("broker-2")
        block_until(
            lambda: (
                "broker 2 stay, if it has any: it is down" in run("reassign", "verify", str(plan))
            ),
            "broker 2 named",
        )
        described = run("configs", "describe", "--entity-type", "brokers", "--entity-name", "0")
        assert "throttled" not in described
