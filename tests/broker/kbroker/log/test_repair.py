"""`kbroker log repair` truncates a damaged log, and says what is lost."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.kbroker.command import main
from core_log.checkpoint import RECOVERY_POINTS, decode_offsets
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition

COUNT = 30
FLIGHTS_0, OTHERS_0 = TopicPartition("flights", 0), TopicPartition("others", 0)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300)


def start_manager(path: Path) -> LogManager:
    manager = LogManager([LogDirectory(path)], CONFIG, lambda: time.time_ns() // 1_000_000)
    manager.load()
    return manager


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory of a broker after a clean shutdown."""
    manager = start_manager(tmp_path)
    for topic_partition in (FLIGHTS_0, OTHERS_0):
        for number in range(COUNT):
            batch = encode_batch([(number, None, b"%d" % number + b"." * 100, ())])
            manager.get_or_create(topic_partition, CONFIG).append(
                batch, read_header(batch), leader_epoch=0, now_ms=0, max_timestamp=number
            )
    manager.close()
    return tmp_path


def repair(path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["log", "repair", str(path), *options])


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def read_ends(path: Path) -> dict[TopicPartition, int]:
    manager = start_manager(path)
    ends = {
        topic_partition: log.log_end_offset
        for topic_partition, log in manager.logs.items()
        if log.damage is None
    }
    manager.close()
    return ends


def test_a_whole_log_is_left_as_it_is(data: Path) -> None:
    before = {file: file.read_bytes() for file in (data / "flights-0").glob("*.log")}
    result = repair(data / "flights-0", "--yes")
    assert (result.exit_code, result.output) == (
        0,
        "flights-0 is whole: offsets 0 to 30, the last one exclusive\n",
    )
    assert {file: file.read_bytes() for file in (data / "flights-0").glob("*.log")} == before


def test_what_is_lost_is_named_and_nothing_is_cut_unasked(data: Path) -> None:
    second = sorted((data / "flights-0").glob("*.log"))[1]
    flip(second, 200)
    before = {file: file.read_bytes() for file in (data / "flights-0").glob("*.log")}
    result = repair(data / "flights-0")
    assert result.exit_code == 1
    assert "flights-0 is damaged, it has lost offsets 9 to 29" in result.output
    assert {file: file.read_bytes() for file in (data / "flights-0").glob("*.log")} == before
    assert read_ends(data) == {OTHERS_0: COUNT}, "nor does it come back by itself"


def test_a_damaged_log_is_cut_and_served_again(data: Path) -> None:
    second = sorted((data / "flights-0").glob("*.log"))[1]
    flip(second, 200)
    result = repair(data / "flights-0", "--yes")
    assert result.exit_code == 0, result.output
    assert "It has offsets 0 to 9, the last one exclusive" in result.output
    recovery_points = decode_offsets((data / RECOVERY_POINTS).read_bytes())
    assert recovery_points == {FLIGHTS_0: 9, OTHERS_0: COUNT}
    assert read_ends(data) == {FLIGHTS_0: 9, OTHERS_0: COUNT}


def test_a_partition_that_was_off_line_comes_back(data: Path) -> None:
    sorted((data / "flights-0").glob("*.log"))[1].unlink()
    assert read_ends(data) == {OTHERS_0: COUNT}
    assert repair(data / "flights-0", "--yes").exit_code == 0
    assert read_ends(data) == {FLIGHTS_0: 8, OTHERS_0: COUNT}


def test_a_directory_that_a_broker_uses_is_refused(data: Path) -> None:
    with (data / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = repair(data / "flights-0", "--yes")
    assert result.exit_code == 1
    assert "is used by a broker: stop it first" in result.output


def test_what_is_no_partitions_directory_is_refused(data: Path) -> None:
    (data / "nodash").mkdir()
    assert repair(data / "nodash", "--yes").exit_code == 2
    assert repair(data / "flights-7", "--yes").exit_code == 2
