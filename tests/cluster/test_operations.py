"""An operator's commands on a real cluster of three brokers, one of which dies now and then."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.stage.cluster import DevCluster
from tests.stage.processes import frozen
from tests.stage.waiting import block_until

BROKERS = (
    *("--brokers", "3", "--set", "zookeeper.session.timeout.ms=9000"),
    *("--set", "auto.leader.rebalance.enable=false"),  # elections are the operator's
)


@attrs.frozen
class Operator:
    """Commands on one cluster, by what one would type."""

    cluster: DevCluster
    directory: Path

    def tries(self, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """`kbroker …`, whatever comes of it. `{z}` is ZooKeeper's address."""
        words = line.format(z=self.cluster.address("zookeeper")).split()
        return self.cluster.run("kbroker", *words, stdin=stdin)

    def does(self, line: str) -> str:
        """`kbroker …`, which must succeed; gives what it says."""
        done = self.tries(line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def items(self, line: str) -> list[dict[str, Any]]:
        """The items of a command's JSON, whatever its exit code."""
        items = json.loads(self.tries(f"{line} -o json").stdout)["items"]
        assert isinstance(items, list)
        return items

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """A topic's partitions; none where the broker asked has yet to hear of it."""
        partitions = [item["partitions"] for item in self.items(f"topics describe {topic}")]
        assert len(partitions) <= 1
        return list(*partitions)

    def replicas(self, topic: str) -> list[list[int]]:
        return [partition["replicas"] for partition in self.partitions(topic)]

    def topics(self, option: str) -> list[str]:
        """Those that are described with an option."""
        return [topic["topic"] for topic in self.items(f"topics describe {option}")]

    def sees(self, topic: str, replicas: list[list[int]]) -> None:
        """Return when a topic has these replicas: the brokers are told of it one by one."""
        block_until(lambda: self.replicas(topic) == replicas, f"replicas {replicas} of {topic}")

    def sees_leader(self, topic: str, *leaders: int) -> None:
        """Return when one of these leads its partition."""
        block_until(
            lambda: [p["leader"] for p in self.partitions(topic) if p["leader"] in leaders],
            f"a leader of {topic} out of {leaders}",
        )

    def fills(self, topic: str, messages: int) -> None:
        stdin = "".join(f"{n} {'x' * 1000}\n" for n in range(messages))
        done = self.cluster.run("kgroup", "produce", "--topic", topic, stdin=stdin)
        assert done.returncode == 0, done.stderr

    def plan(self, name: str, moves: dict[tuple[str, int], list[int]]) -> Path:
        """A file that says where partitions shall go."""
        partitions = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in moves.items()
        ]
        file = self.directory / f"{name}.json"
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return file

    def bystander(self) -> int:
        """A broker that is not the controller."""
        (cluster,) = self.items("cluster describe")
        return next(each for each in (2, 1, 0) if each != cluster["controller"])


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("operations")
    with DevCluster(directory / "dev", BROKERS) as cluster:
        yield Operator(cluster, directory)


def test_a_topic_of_three_replicas_is_made_grown_and_configured(operator: Operator) -> None:
    operator.does("topics create grown --partitions 2 --replication-factor 3")
    assert operator.does("topics create grown --partitions 2 --if-not-exists") == ""
    operator.does("topics alter grown --partitions 4")
    operator.does(
        "configs alter --topic grown --add retention.ms=5,cleanup.policy=[compact,delete]"
    )
    topic: dict[str, Any] = {}

    def is_grown() -> bool:
        for item in operator.items("topics describe grown"):
            topic.update(item)
        return bool(topic.get("partition_count") == 4)

    block_until(is_grown, "all partitions")
    assert topic["replication_factor"] == 3
    assert topic["configs"] == {"cleanup.policy": "compact,delete", "retention.ms": "5"}
    assert all(sorted(p["isr"]) == [0, 1, 2] for p in topic["partitions"])
    operator.does("topics --alter --topic grown --delete-config cleanup.policy")
    (config,) = operator.items("configs describe --topic grown")
    assert (config["config"], config["value"], config["source"]) == (
        "retention.ms",
        "5",
        "DYNAMIC_TOPIC_CONFIG",
    )


def test_zookeeper_is_written_as_the_old_tools_did_and_the_controller_follows(
    operator: Operator,
) -> None:
    zk = "--zookeeper {z}"
    operator.does(
        f"topics --create --topic aged --replica-assignment 0:1,1:2 --config retention.ms=5 {zk}"
    )
    block_until(lambda: len(operator.items("topics list --topic aged")), "the topic")
    block_until(
        lambda: (
            operator.does(f"topics --describe --topic aged {zk}")
            == operator.tries("topics describe aged").stdout
        ),
        "the same from ZooKeeper and from brokers",
    )
    operator.does(
        f"topics --alter --topic aged --partitions 3 --replica-assignment 0:1,1:2,2:0 {zk}"
    )
    operator.does(
        f"configs {zk} --alter --entity-type topics --entity-name aged --add-config segment.ms=9000"
    )
    block_until(lambda: len(operator.partitions("aged")) == 3, "the third partition")
    block_until(
        lambda: (
            [item["configs"] for item in operator.items("topics describe aged")]
            == [{"retention.ms": "5", "segment.ms": "9000"}]
        ),
        "the setting",
    )
    plan = operator.plan("aged", {("aged", 0): [2, 1]})
    operator.does(f"reassign --execute --reassignment-json-file {plan} {zk}")
    block_until(lambda: operator.replicas("aged")[:1] == [[2, 1]], "the move")
    verify = f"reassign --verify --reassignment-json-file {plan} {zk}"
    block_until(lambda: "is complete" in operator.tries(verify).stdout, "the end of the move")
    assert operator.does(f"topics --delete --topic aged {zk}") == (
        "Topic aged is marked for deletion.\n"
    )
    block_until(lambda: not operator.items("topics list --topic aged"), "the end of the topic")


def test_partitions_move_and_the_limit_of_speed_goes_when_they_have(operator: Operator) -> None:
    operator.does("topics create moved --replica-assignment 0:1,1:0")
    operator.fills("moved", 2000)
    plan = operator.plan("moved", {("moved", 0): [1, 2], ("moved", 1): [2, 1]})
    begun = operator.does(f"reassign execute {plan} --throttle 1000000")
    assert "Successfully started partition reassignments for moved-0,moved-1" in begun
    back = operator.directory / "back.json"
    back.write_text(begun.splitlines()[2])
    watched = operator.tries(f"reassign verify {plan} --watch 0.2")
    assert watched.returncode == 0, watched.stderr
    assert "Reassignment of partition moved-0 is complete." in watched.stdout
    assert "Clearing throttles on topic moved, broker 0, broker 1, broker 2" in watched.stderr
    operator.sees("moved", [[1, 2], [2, 1]])
    assert operator.items("configs describe --topic moved") == []
    block_until(
        lambda: not operator.items("configs describe --broker 0"), "brokers that heard of it"
    )
    operator.does(f"reassign execute {back} --watch 0.2")
    operator.sees("moved", [[0, 1], [1, 0]])


def test_a_move_that_does_not_end_is_seen_in_bytes_and_cancelled(operator: Operator) -> None:
    stuck = operator.bystander()
    one, other = sorted({0, 1, 2} - {stuck})
    operator.does(f"topics create halted --replica-assignment {one}:{other}")
    operator.fills("halted", 200)
    plan = operator.plan("halted", {("halted", 0): [other, stuck]})
    with frozen(operator.cluster.pid(f"broker-{stuck}")):  # it copies nothing, and nobody knows yet
        operator.does(f"reassign execute {plan}")
        (moving,) = operator.items("reassign list")
        assert (moving["state"], moving["adding"]) == ("in_progress", [stuck])
        assert moving["total_bytes"] > 200_000
        assert moving["copied_bytes"] == 0
        refused = operator.tries(f"reassign execute {plan}")
        assert refused.returncode == 1
        assert "Use --additional" in refused.stderr
        assert operator.does(f"reassign cancel {plan}") == (
            "Successfully cancelled partition reassignments for: halted-0\n"
        )
    assert operator.does("reassign list") == "No partition reassignments found.\n"
    operator.sees("halted", [[one, other]])
    verified = operator.tries(f"reassign verify {plan}")
    assert verified.returncode == 1
    assert f"replica set is {one},{other} rather than {other},{stuck}" in verified.stdout


def test_a_broker_that_is_asked_to_shut_down_leads_nothing_and_is_elected_when_it_is_back(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path / "dev", BROKERS) as cluster:
        hand_over(Operator(cluster, tmp_path))


def hand_over(operator: Operator) -> None:
    leaving = operator.bystander()
    others = [each for each in (0, 1, 2) if each != leaving]
    operator.does(f"topics create handed --replica-assignment {leaving}:{others[0]}:{others[1]}")
    operator.does(f"topics create alone --replica-assignment {leaving}")
    said = operator.does(f"shutdown {leaving}")
    assert "Its process still runs" in said
    operator.sees_leader("handed", *others)
    operator.sees_leader("alone", leaving)
    early = operator.tries("elect preferred --topic handed --partition 0")
    assert early.returncode == 1
    assert early.stderr.startswith("error: handed-0: PREFERRED_LEADER_NOT_AVAILABLE: ")
    operator.cluster.kill(f"broker-{leaving}", signal.SIGTERM)
    with operator.cluster.started_again(leaving):
        block_until(lambda: not operator.items("topics describe --under-replicated"), "all in sync")
        elected = operator.does("elect --election-type PREFERRED --topic handed --partition 0")
        assert elected == (
            "Successfully completed leader election (PREFERRED) for partitions handed-0\n"
        )
        operator.sees_leader("handed", leaving)
        again = operator.does("elect preferred --topic handed")
        assert again == "Valid replica already elected for partitions handed-0\n"


def test_a_broker_that_is_killed_is_missed_by_name(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev", BROKERS) as cluster:
        operator = Operator(cluster, tmp_path)
        gone = operator.bystander()
        others = [each for each in (0, 1, 2) if each != gone]
        config = "--config min.insync.replicas=2"
        operator.does(f"topics create missed --replica-assignment {gone}:{others[0]} {config}")
        operator.does(f"topics create lost --replica-assignment {gone}")
        operator.does(f"topics create whole --replica-assignment {others[0]}:{others[1]}")
        cluster.kill(f"broker-{gone}")
        missing = {
            "offline": ["lost-0"],
            "under_replicated": ["lost-0", "missed-0"],
            "under_min_isr": ["lost-0", "missed-0"],
        }
        described: dict[str, Any] = {}

        def is_missed() -> bool:
            (item,) = operator.items("cluster describe")
            described.update(item)
            return missing.items() <= item.items()

        block_until(is_missed, "the loss")
        assert gone not in [broker["broker"] for broker in described["brokers"]]
        assert described["controller_epoch"] >= 1
        block_until(lambda: "lost" in operator.topics("--unavailable"), "what is off-line")
        block_until(lambda: "missed" in operator.topics("--under-min-isr"), "what takes no writes")
        for option in ("--unavailable", "--under-min-isr"):
            assert "whole" not in operator.topics(option)
        with cluster.started_again(gone):
            block_until(
                lambda: not operator.items("topics describe --under-replicated"), "all in sync"
            )
