"""`kgroup perf`: Kafka's lines, from a real broker, also after Ctrl-C."""

import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from clients.kgroup.command import main
from clients.kgroup.perf.consume import HEADER
from clients.kgroup.perf.figures import Figures
from tests.stage.cluster import DevCluster
from tests.stage.processes import first_line
from tests.stage.waiting import DEADLINE_S

SUMMARY = (
    r"(\d+) {0} sent, [\d.]+ {0}/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n"
)
TOPIC = "measured"


@pytest.fixture(scope="module")
def cluster(dev_cluster: DevCluster) -> DevCluster:
    """The shared cluster, with a topic."""
    dev_cluster.run("kbroker", "topics", "create", TOPIC, "--partitions", "3")
    return dev_cluster


def test_the_lines_are_those_of_kafkas_producer_performance() -> None:
    figures = Figures("records", 1000.0)
    for latency_ms in range(1, 101):
        figures.add(1024 * 1024, float(latency_ms))
    assert figures.progress(6000.0) == (
        "100 records sent, 20.0 records/sec (20.00 MB/sec), 50.5 ms avg latency, "
        "100.0 ms max latency."
    )

    # The next line is about the time since the last; the summary about all.
    assert figures.progress(7000.0).startswith("0 records sent, 0.0 records/sec (0.00 MB/sec), 0.0")
    assert figures.summary(11000.0) == (
        "100 records sent, 10.000000 records/sec (10.00 MB/sec), 50.50 ms avg latency, "
        "100.00 ms max latency, 51 ms 50th, 96 ms 95th, 100 ms 99th, 100 ms 99.9th."
    )


def test_a_run_without_a_record_has_figures_too() -> None:
    assert Figures("commits", 0.0).summary(0.0).startswith("0 commits sent, 0.000000 commits/sec")


@pytest.mark.parametrize("command", [("produce",), ("perf", "produce", "--num-records", "1")])
def test_commands_that_send_refuse_a_setting_of_transactions(
    cluster: DevCluster, command: tuple[str, ...]
) -> None:
    option = "--producer-props" if "perf" in command else "--producer-property"
    more = ("--record-size", "1") if "perf" in command else ()
    settings = (option, "transactional.id=x")
    refused = cluster.run("kgroup", *command, "--topic", TOPIC, *more, *settings, stdin="line\n")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: transactional.id: is for programs")


def test_what_is_produced_is_consumed(cluster: DevCluster) -> None:
    produced = cluster.run(
        *("kgroup", "perf", "produce", "--topic", TOPIC, "--num-records", "500"),
        *("--record-size", "100", "--throughput", "-1"),
        *("--producer-props", "acks=all", "linger.ms=1"),
    )
    assert produced.returncode == 0, produced.stderr
    match = re.search(SUMMARY.format("records"), produced.stdout)
    assert match is not None, produced.stdout
    assert match[1] == "500"

    consumed = cluster.run("kgroup", "perf", "consume", "--topic", TOPIC, "--messages", "500")
    assert consumed.returncode == 0, consumed.stderr
    header, row = consumed.stdout.splitlines()
    assert header == HEADER
    cells = row.split(", ")
    assert len(cells) == len(header.split(", "))
    assert (cells[2], cells[4]) == (f"{500 * 100 / 1024 / 1024:.4f}", "500")

    # The group was made for the run.
    assert "perf-consumer" not in cluster.run("kgroup", "list").stdout


def test_values_come_from_a_file(cluster: DevCluster, tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_text("one\ntwo\n")
    cluster.run("kbroker", "topics", "create", "from-file", "--partitions", "1")
    produced = cluster.run(
        *("kgroup", "perf", "produce", "--topic", "from-file", "--num-records", "50"),
        *("--payload-file", str(file)),
    )
    assert produced.returncode == 0, produced.stderr
    values = cluster.run(
        *("kgroup", "consume", "--topic", "from-file", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "50"),
    )
    assert set(values.stdout.split()) == {"one", "two"}


def test_too_few_messages_are_said_and_counted(cluster: DevCluster) -> None:
    cluster.run("kbroker", "topics", "create", "too-few", "--partitions", "1")
    cluster.run("kgroup", "produce", "--topic", "too-few", stdin="a\nb\n")
    consumed = cluster.run(
        *("kgroup", "perf", "consume", "--topic", "too-few", "--messages", "3"),
        *("--timeout-ms", "1000", "--hide-header"),
    )
    assert consumed.returncode == 0, consumed.stderr
    assert consumed.stdout.split(", ")[4] == "2"
    assert "read 2 of 3 messages" in consumed.stderr


def test_commits_are_counted_and_their_groups_deleted(cluster: DevCluster) -> None:
    committed = cluster.run(
        *("kgroup", "perf", "commit", "--topic", TOPIC, "--groups", "3", "--num-commits", "20"),
    )
    assert committed.returncode == 0, committed.stderr
    match = re.fullmatch(SUMMARY.format("commits"), committed.stdout)
    assert match is not None, committed.stdout
    assert match[1] == "20"
    assert "perf-commit" not in cluster.run("kgroup", "list").stdout


def test_an_unknown_topic_is_named(cluster: DevCluster) -> None:
    committed = cluster.run("kgroup", "perf", "commit", "--topic", "nowhere", "--num-commits", "1")
    assert committed.returncode == 1
    assert committed.stderr == "error: UNKNOWN_TOPIC_OR_PARTITION: nowhere\n"


def test_an_interrupted_run_prints_its_progress_and_what_it_has_done(cluster: DevCluster) -> None:
    run = cluster.begin(
        *("kgroup", "perf", "produce", "--topic", TOPIC, "--num-records", "1000000"),
        *("--record-size", "10", "--throughput", "100"),
    )
    progress = first_line(run)
    assert re.match(r"\d+ records sent, .* ms max latency\.\n", progress), progress

    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=DEADLINE_S)
    assert (run.returncode, stderr) == (130, "")
    match = re.search(SUMMARY.format("records"), stdout)
    assert match is not None, stdout
    assert int(match[1]) >= int(progress.split()[0])


@pytest.mark.parametrize("name", ["produce", "consume", "commit"])
def test_every_kind_shows_an_example(name: str) -> None:
    result = CliRunner().invoke(main, ["perf", name, "--help"])
    assert result.exit_code == 0
    assert f"  kgroup perf {name} --topic" in result.output


@pytest.mark.parametrize(
    "args",
    [
        "produce --topic t --num-records 1",
        "produce --topic t --num-records 1 --record-size 1 --producer-props acks",
        "produce --topic t --num-records 0 --record-size 1",
        "commit --topic t --num-commits 1 --groups 10001",
    ],
)
def test_impossible_runs_are_wrong_usage(args: str) -> None:
    assert CliRunner().invoke(main, ["perf", *args.split()]).exit_code == 2
