"""`kgroup record`, `history`, `health` and `describe --as-of` on a real cluster."""

import asyncio
import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from clients.admin import Admin, NewTopic
from clients.command_line.output import Failure
from clients.kgroup.record import Troubles
from clients.watching.history_file import HistoryFile
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.network import Link
from tests.stage.waiting import DEADLINE_S, block_until


def commit(cluster: DevCluster, group: str, topic: str, offsets: Sequence[int]) -> None:
    """Commit one offset after the other; the topic is made if it is not there."""

    async def run() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            if topic not in await admin.list_topics():
                assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
            for offset in offsets:
                await admin.commit_group_offsets(
                    group, {TopicPartition(topic, 0): OffsetAndMetadata(offset)}
                )

    asyncio.run(run())


def items(cluster: DevCluster, *args: str, code: int = 0) -> dict[str, Any]:
    done = cluster.run("kgroup", *args, "-o", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_history_shows_each_commit_that_the_topic_holds(dev_cluster: DevCluster) -> None:
    group, topic = f"g-{uuid4().hex[:8]}", f"t-{uuid4().hex[:8]}"
    commit(dev_cluster, group, topic, [5, 9, 2])
    history = items(dev_cluster, "history", group)
    assert [(i["offset"], i["moved"]) for i in history["items"]] == [(5, None), (9, 4), (2, -7)]
    assert history["verdict"] == "from __consumer_offsets: every commit that there was"

    table = dev_cluster.run("kgroup", "history", group, "--topic", f"{topic}:0").stdout
    assert table.splitlines()[0].split()[:3] == ["COMMITTED-AT", "GROUP", "TOPIC"]
    assert items(dev_cluster, "history", group, "--topic", "other")["items"] == []


@pytest.mark.fault("users-17")
def test_no_command_says_of_a_group_that_is_not_there_that_all_was_shown(
    dev_cluster: DevCluster,
) -> None:
    commit(dev_cluster, f"g-{uuid4().hex[:8]}", f"t-{uuid4().hex[:8]}", [5])
    for command in ("history", "events"):
        listing = items(dev_cluster, command, "nosuch", code=1)
        assert listing["items"] == []
        assert "every commit" not in str(listing["verdict"])
        (error,) = listing["errors"]
        assert error["message"] == "Consumer group 'nosuch' does not exist."


def test_recording_survives_a_kill_and_is_read_by_history(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    group, topic = f"g-{uuid4().hex[:8]}", f"t-{uuid4().hex[:8]}"
    data = str(tmp_path / "history.sqlite")
    commit(dev_cluster, group, topic, [1])
    recording = dev_cluster.begin("kgroup", "record", "--data", data, "--interval", "0.1")
    assert recording.stdout is not None
    assert recording.stdout.readline() == f"recording to {data}\n"

    # From its second look on it knows the ends of logs at the times of commits.
    with HistoryFile(Path(data)) as file:
        block_until(lambda: file.ends(TopicPartition(topic, 0)), "the first look")
    commit(dev_cluster, group, topic, [3, 4])

    def last_end() -> object:
        recorded = items(dev_cluster, "history", group, "--data", data)["items"]
        return recorded[-1]["end_offset"]

    # Commits since the recording began have the end of their log, which is empty.
    block_until(lambda: last_end() == 0, "a recorded commit")
    recording.send_signal(signal.SIGKILL)
    recording.communicate(timeout=DEADLINE_S)

    history = items(dev_cluster, "history", group, "--data", data)
    assert [item["offset"] for item in history["items"]] == [1, 3, 4]
    assert history["verdict"].startswith(f"from {data} and __consumer_offsets: every commit")


def test_recording_ends_cleanly_by_a_signal(dev_cluster: DevCluster, tmp_path: Path) -> None:
    recording = dev_cluster.begin("kgroup", "record", "--data", str(tmp_path / "h"))
    assert recording.stdout is not None
    assert recording.stdout.readline()
    recording.send_signal(signal.SIGINT)
    _, errors = recording.communicate(timeout=DEADLINE_S)
    assert (recording.returncode, errors) == (0, "")


def test_recording_begins_when_the_cluster_comes(
    dev_cluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    port = int(dev_cluster.address("bootstrap").rpartition(":")[2])
    with Link(port) as link:
        away = ("-b", f"127.0.0.1:{link.port}", "--timeout", "500", "--interval", "0.1")
        with link.cut():
            recording = dev_cluster.begin("kgroup", "record", *away)
            assert recording.stderr is not None
            assert recording.stderr.readline().endswith("; trying again\n")
        assert recording.stdout is not None
        assert recording.stdout.readline().startswith(f"recording to {tmp_path}/kgroup/")
        assert recording.stderr.readline() == "cluster: works again\n"
        recording.send_signal(signal.SIGINT)
        _, errors = recording.communicate(timeout=DEADLINE_S)
    assert (recording.returncode, errors) == (0, "")


def test_what_cannot_be_read_has_a_line_when_it_begins_and_when_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    troubles = Troubles()
    away = [Failure("broker 1", "ClientError", "no response")]
    hidden = Failure("t-0", "ClientError", "no leader")
    for failures in ([], away, away, [*away, hidden], [hidden], [hidden], []):
        troubles.look(failures)
    assert capsys.readouterr().err.splitlines() == [
        "error: broker 1: no response; trying again",
        "error: t-0: no leader; trying again",
        "broker 1: works again",
        "t-0: works again",
    ]


def test_health_tells_a_group_that_stands_still_from_one_that_reads(
    dev_cluster: DevCluster,
) -> None:
    suffix = uuid4().hex[:8]
    good, bad, new = f"good-{suffix}", f"bad-{suffix}", f"new-{suffix}"
    topic = f"t-{suffix}"
    commit(dev_cluster, new, topic, [0])
    produced = dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\nb\nc\n")
    assert produced.returncode == 0, produced.stderr
    commit(dev_cluster, good, topic, [1, 2, 3])
    commit(dev_cluster, bad, topic, [2, 1, 1])

    assert items(dev_cluster, "health", good)["items"][0]["status"] == "OK"
    unknown = items(dev_cluster, "health", good, new, code=3)
    assert [item["verdict"] for item in unknown["items"]] == ["OK", "UNKNOWN"]
    # Three commits at once, and then none: it has stopped by any measure.
    worst = items(dev_cluster, "health", good, new, bad, code=2)
    assert [item["status"] for item in worst["items"] if item["group"] == bad] == ["STOP"]
    assert worst["verdict"] == "3 groups: 1 ERR, 1 UNKNOWN, 1 OK"


def test_health_that_cannot_be_told_has_exit_code_3(dev_cluster: DevCluster) -> None:
    unknown = items(dev_cluster, "health", "no-such-group", code=3)
    assert [item["why"] for item in unknown["items"]] == ["it does not exist"]
    assert [error["message"] for error in unknown["errors"]] == [
        "Consumer group 'no-such-group' does not exist."
    ]
    nowhere = dev_cluster.run("kgroup", "health", "-b", "localhost:1", "--timeout", "500")
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert nowhere.stderr.startswith("error: ")
    assert dev_cluster.run("kgroup", "health", "--window", "soon").returncode == 3


def test_group_is_described_as_of_a_time_before_its_last_commit(dev_cluster: DevCluster) -> None:
    group, topic = f"g-{uuid4().hex[:8]}", f"t-{uuid4().hex[:8]}"
    commit(dev_cluster, group, topic, [5])
    commit(dev_cluster, group, topic, [9])
    first, second = items(dev_cluster, "history", group)["items"]

    def offsets(when: int) -> list[int]:
        described = items(dev_cluster, "describe", group, "--as-of", str(when))
        return [item["offset"] for item in described["items"]]

    assert offsets(first["at_ms"]) == [5]
    assert offsets(second["at_ms"]) == [9]
    assert offsets(first["at_ms"] - 1) == []
    before = dev_cluster.run("kgroup", "describe", group, "--as-of", str(first["at_ms"] - 1)).stdout
    assert re.search(r"^no commit counted at .*: the first that is known is of 20", before, re.M)
    table = dev_cluster.run("kgroup", "describe", group, "--as-of", "0s").stdout
    assert "every commit" in table.splitlines()[-1]


def test_group_in_zookeeper_has_the_commits_that_a_recording_saw(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    group, topic, data = f"g-{uuid4().hex[:8]}", f"t-{uuid4().hex[:8]}", str(tmp_path / "h")
    produced = dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\nb\nc\n")
    assert produced.returncode == 0, produced.stderr

    def consume(count: str) -> None:
        consumed = dev_cluster.run(
            *("kgroup", "consume", "--topic", topic, "--group", group, "--from-beginning"),
            *("--max-messages", count),
        )
        assert consumed.returncode == 0, consumed.stderr

    consume("1")
    recording = dev_cluster.begin("kgroup", "record", "--data", data, "--interval", "0.1")
    with HistoryFile(Path(data)) as file:
        block_until(lambda: file.commits(group), "the first look")
        consume("2")
        block_until(lambda: file.commits(group)[-1].offset == 3, "another commit")
    recording.send_signal(signal.SIGINT)
    recording.communicate(timeout=DEADLINE_S)

    history = items(dev_cluster, "history", group, "--data", data)
    offsets = [item["offset"] for item in history["items"]]
    assert (offsets[0], offsets[-1], history["items"][-1]["end_offset"]) == (1, 3, 3)
    assert "of commits in ZooKeeper those between two looks were not seen" in history["verdict"]
    (item,) = items(dev_cluster, "health", group)["items"]
    assert (item["topic"], item["lag"], item["verdict"]) == (topic, 0, "OK")
