"""`kbroker log describe` and `dirs` on given directories and on a running cluster."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.kbroker.command import main
from broker.kbroker.log.describe_segments import describe_segments
from broker.kbroker.log.directories import (
    BrokerLogDirectory,
    Location,
    NoLogDirectory,
    find_log_directories,
)
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from clients.command_line.output import Target
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, file_name
from tests.stage.cluster import DevCluster
from tests.stage.segment_files import SEGMENTS as SEGMENT_FILES
from tests.stage.stored_log import BATCH_BYTES, SEGMENTS, T0, stored_log

NOWHERE = Target("127.0.0.1:1", None, {}, 1000)


def describe(*args: str) -> Result:
    return CliRunner().invoke(main, ["log", "describe", *args])


def items(result: Result) -> list[dict[str, Any]]:
    listing = json.loads(result.stdout)
    assert listing["kind"] == "segments"
    listed: list[dict[str, Any]] = listing["items"]
    return listed


@pytest.mark.parametrize("is_clean", [True, False])
def test_each_segment_is_a_row_with_what_is_known_of_it(tmp_path: Path, is_clean: bool) -> None:
    stored_log(tmp_path / "broker", is_clean=is_clean)
    first, _, last = items(describe("--log-dirs", str(tmp_path / "broker"), "-o", "json"))
    assert first == {
        "broker": 4,
        "topic": "flights",
        "partition": 0,
        "base_offset": 0,
        "end_offset": 12,
        "bytes": 4 * BATCH_BYTES,
        "first_timestamp_ms": T0,
        "last_timestamp_ms": T0 + 3,
        "index_entries": 3,
        "time_index_entries": 3,
        "log_start_offset": 0,
        "recovery_point": 36 if is_clean else 30,
        "high_watermark": 36,
        "epochs": [{"epoch": 2, "start_offset": 0}],
        "log_dir": str(tmp_path / "broker"),
    }
    assert (last["base_offset"], last["end_offset"], last["bytes"]) == (24, 36, 4 * BATCH_BYTES)
    # The entries of a segment that is written to are gathered first.
    indexed = 3 if is_clean else 0
    assert (last["last_timestamp_ms"], last["index_entries"]) == (T0 + 11, indexed)


def test_the_table_shows_times_and_the_wide_one_epochs(tmp_path: Path) -> None:
    stored_log(tmp_path / "broker")
    table = describe("flights", "--log-dirs", str(tmp_path / "broker")).stdout.splitlines()
    assert table[0].split() == [
        *("BROKER", "TOPIC", "PARTITION", "BASE-OFFSET", "END-OFFSET", "BYTES", "FIRST-TIME"),
        *("LAST-TIME", "INDEX-ENTRIES", "LOG-DIR"),
    ]
    assert table[1].split()[6:8] == ["2017-07-14T02:40:00.000Z", "2017-07-14T02:40:00.003Z"]
    wide = describe("--log-dirs", str(tmp_path / "broker"), "-o", "wide").stdout
    assert " 2:0 " in wide


def test_a_segment_without_indexes_or_with_room_behind_its_batches_is_described(
    tmp_path: Path,
) -> None:
    partition = stored_log(tmp_path / "broker", is_clean=False)
    for suffix in (INDEX, TIME_INDEX):
        (partition / file_name(SEGMENTS[0], suffix)).unlink()
    with (partition / file_name(SEGMENTS[2], LOG)).open("ab") as log:
        log.write(bytes(5000))
    first, _, last = describe_segments(ReadOnlyDirectory(partition))
    assert (first.end_offset, first.index_entries, first.last_timestamp_ms) == (12, None, T0 + 3)
    assert (last.end_offset, last.size_bytes) == (36, 4 * BATCH_BYTES)


@pytest.mark.parametrize("position", [-1, 2**31 - 1, 5])
def test_an_index_that_lies_does_not_hide_the_segment(tmp_path: Path, position: int) -> None:
    stored_log(tmp_path / "broker")
    index = tmp_path / "broker" / "flights-0" / file_name(12, INDEX)
    index.write_bytes(index.read_bytes()[:-4] + position.to_bytes(4, signed=True))
    segments = list(describe_segments(ReadOnlyDirectory(index.parent)))
    assert [segment.end_offset for segment in segments] == [12, 24, 36]
    assert [segment.size_bytes for segment in segments] == [4 * BATCH_BYTES] * 3


def test_messages_of_the_old_formats_have_times_if_they_have_any() -> None:
    (v0,) = describe_segments(ReadOnlyDirectory(SEGMENT_FILES / "v0"))
    (v1,) = describe_segments(ReadOnlyDirectory(SEGMENT_FILES / "v1"))
    assert (v0.first_timestamp_ms, v0.last_timestamp_ms, v0.end_offset) == (None, None, 53)
    assert (v1.first_timestamp_ms, v1.last_timestamp_ms, v1.end_offset) == (T0, T0 + 9, 61)


def test_a_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    stored_log(tmp_path / "broker")
    result = describe("none", "--log-dirs", str(tmp_path / "broker"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        result.stderr == "error: none: UNKNOWN_TOPIC_OR_PARTITION: there is no log of this topic\n"
    )


def test_directories_are_those_named_or_those_of_a_dev_cluster(tmp_path: Path) -> None:
    for name in ("broker-0", "broker-1"):
        stored_log(tmp_path / name)
    (tmp_path / "broker-1.log").touch()
    both = [BrokerLogDirectory(str(tmp_path / name), 4) for name in ("broker-0", "broker-1")]
    assert asyncio.run(find_log_directories(Location(NOWHERE, data=tmp_path))) == (both, [])
    location = Location(NOWHERE, (tmp_path / "broker-1",))
    assert asyncio.run(find_log_directories(location)) == (both[1:], [])


def test_a_partitions_directory_is_told_from_a_log_directory(tmp_path: Path) -> None:
    stored_log(tmp_path / "broker")
    result = describe("--log-dirs", str(tmp_path / "broker" / "flights-0"))
    assert result.exit_code == 2
    assert "name the log directory above it" in result.stderr


def test_a_log_directory_without_logs_says_so(tmp_path: Path) -> None:
    result = describe("--log-dirs", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"no logs in {tmp_path}\n"


def test_a_directory_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    for location in (Location(NOWHERE, (tmp_path / "none",)), Location(NOWHERE, data=tmp_path)):
        with pytest.raises(NoLogDirectory):
            asyncio.run(find_log_directories(location))
    assert describe("--data", str(tmp_path), "--log-dirs", str(tmp_path)).exit_code == 2


def test_the_logs_of_a_running_cluster_are_described_verified_and_dumped(
    dev_cluster: DevCluster,
) -> None:
    topic = "described"
    assert dev_cluster.run("kbroker", "topics", "create", topic).returncode == 0
    dev_cluster.run("kgroup", "produce", "--topic", topic, "--acks", "all", stdin="a\nb\nc\n")
    result = dev_cluster.run("kbroker", "log", "describe", topic, "-o", "json")
    (segment,) = json.loads(result.stdout)["items"]
    assert (segment["broker"], segment["base_offset"], segment["end_offset"]) == (0, 0, 3)
    data = ("--data", str(dev_cluster.directory))
    result = dev_cluster.run("kbroker", "log", "describe", topic, *data, "-o", "json")
    (again,) = json.loads(result.stdout)["items"]
    for checkpointed in ("high_watermark", "recovery_point"):  # from time to time
        assert segment.pop(checkpointed) in (None, 0, 3)
        assert again.pop(checkpointed) in (None, 0, 3)
    assert again == segment

    log_dir = Path(segment["log_dir"])
    verified = dev_cluster.run("kbroker", "log", "verify", str(log_dir))
    assert (verified.returncode, verified.stdout) == (0, "")
    path = str(log_dir / f"{topic}-0" / file_name(0, LOG))
    dumped = dev_cluster.run("kbroker", "dump", path, "--print-data-log")
    assert (dumped.returncode, dumped.stderr) == (0, "")
    assert dumped.stdout.rstrip().endswith(" payload: c")


def test_log_dirs_prints_kafkas_json(dev_cluster: DevCluster) -> None:
    topic = "in-a-directory"
    assert dev_cluster.run("kbroker", "topics", "create", topic).returncode == 0
    result = dev_cluster.run(
        "kbroker", "log", "dirs", "--describe", "--broker-list", "0", "--topic-list", topic
    )
    *introduction, line = result.stdout.splitlines()
    assert introduction == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 0",
    ]
    partition = {"partition": f"{topic}-0", "size": 0, "offsetLag": 0, "isFuture": False}
    log_dir = str(dev_cluster.directory / "broker-0")
    log_dirs = [{"logDir": log_dir, "error": None, "partitions": [partition]}]
    brokers = [{"broker": 0, "logDirs": log_dirs}]
    assert json.loads(line) == {"version": 1, "brokers": brokers}
