"""`kbroker reassign` on a running cluster: the output for people."""

import json
from pathlib import Path

import pytest

from tests.stage.cluster import DevCluster


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
