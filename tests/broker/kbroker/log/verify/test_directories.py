"""`kbroker log verify` on whole log directories."""

import errno
import itertools
from pathlib import Path

import pytest

from broker.kbroker.log.faults import Fault
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory, ReadOnlyFile
from broker.kbroker.log.verify import find_faults
from broker.kbroker.log.verify_log_dir import DirectoryCheck
from broker.kbroker.log.verify_partition import Marks, PartitionCheck
from core_log.checkpoint import HIGH_WATERMARKS, LEADER_EPOCHS, RECOVERY_POINTS
from core_log.meta_properties import META_PROPERTIES
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, file_name
from tests.broker.kbroker.log.verify.damage import (
    FIRST,
    LAST,
    SECOND,
    find_fault,
    flip,
    in_batch,
    list_faults,
    start_broker,
    verify,
)
from tests.stage.stored_log import FLIGHTS_0


def test_a_partition_that_lost_its_logs_is_named(closed: Path) -> None:
    for log in (closed / "flights-0").glob(f"*{LOG}"):
        log.unlink()
    for directory in (closed, closed / "flights-0"):
        by_file = {Path(item["file"]).name: item["outcome"] for item in list_faults(directory)}
        assert by_file[RECOVERY_POINTS] == "off-line"
        assert (
            by_file[file_name(SECOND, INDEX)] == by_file[file_name(LAST, TIME_INDEX)] == "removed"
        )
    assert start_broker(closed).damage is not None
    assert (closed / "flights-0" / file_name(SECOND, INDEX)).exists(), "it shows what was there"


def test_a_partition_without_anything_in_it_is_none_that_lost_something(tmp_path: Path) -> None:
    (tmp_path / "flights-0").mkdir()
    for directory in (tmp_path, tmp_path / "flights-0"):
        assert verify(directory).stderr == "1 partition, no segments, 0.0 MB: no faults\n"


class FailingDirectory(ReadOnlyDirectory):
    """A directory with one file, and a sub-directory, that cannot be read."""

    def open(self, name: str) -> ReadOnlyFile:
        if name == file_name(SECOND, LOG):
            raise OSError(errno.EIO, "Input/output error")
        return super().open(name)

    open_segment = open

    def child(self, name: str) -> ReadOnlyDirectory:
        if name == "lost-0":
            raise PermissionError(errno.EACCES, "Permission denied")
        return FailingDirectory(f"{self.path}/{name}")


def test_what_cannot_be_read_is_a_fault_and_the_rest_is_looked_at(closed: Path) -> None:
    (closed / "lost-0").mkdir()
    flip(closed / "flights-0" / file_name(LAST, LOG), in_batch(1))
    check = DirectoryCheck(FailingDirectory(closed))
    items = [finding.to_item() for finding in check.run() if isinstance(finding, Fault)]
    assert [
        (item["topic"], item["file"], item["outcome"], item["fault"][:14]) for item in items
    ] == [
        ("lost", "lost-0", "off-line", "cannot be read"),
        ("flights", f"flights-0/{file_name(SECOND, LOG)}", "off-line", "cannot be read"),
        ("flights", f"flights-0/{file_name(LAST, LOG)}", "unnoticed", "batch CRC is 0"),
    ]


@pytest.mark.parametrize(
    ("text", "fault", "outcome"),
    [
        ("0\n1\n", "1 entries announced, 0 found", "ignored"),
        ("0\n2\n2 0\n1 9\n", "1 from 9 comes after 2 from 0", "unnoticed"),
        ("0\n2\n2 0\n3 99\n", "epoch 3 begins at 99, behind the log's end", "cut"),
    ],
)
def test_leader_epochs_that_cannot_be_are_named(
    closed: Path, text: str, fault: str, outcome: str
) -> None:
    (closed / "flights-0" / LEADER_EPOCHS).write_text(text)
    item = find_fault(closed)
    assert (item["fault"], item["outcome"]) == (fault, outcome)


@pytest.mark.parametrize(
    ("name", "text", "fault", "outcome"),
    [
        (HIGH_WATERMARKS, "1\n0\n", "unknown version 1", "ignored"),
        (
            HIGH_WATERMARKS,
            "0\n1\nflights 0 40\n",
            "has offset 40, but the log ends at 36",
            "ignored",
        ),
        (
            RECOVERY_POINTS,
            "0\n1\nflights 0 40\n",
            "has offset 40, but the log ends at 36",
            "off-line",
        ),
        (META_PROPERTIES, "version=1\n", "version 1 is not known", "refused"),
    ],
)
def test_what_a_log_directory_says_of_itself_is_checked(
    closed: Path, name: str, text: str, fault: str, outcome: str
) -> None:
    (closed / name).write_text(text)
    item = find_fault(closed)
    assert (item["file"], item["outcome"]) == (name, outcome)
    assert item["fault"].endswith(fault)


def test_a_directory_that_is_no_partitions_keeps_a_broker_from_starting(closed: Path) -> None:
    (closed / "lost+found").mkdir()
    fault = find_fault(closed)
    assert (fault["file"], fault["outcome"]) == ("lost+found", "refused")


def test_one_partition_is_verified_with_the_checkpoints_around_it(crashed: Path) -> None:
    flip(crashed / "flights-0" / file_name(LAST, LOG), in_batch(1))
    fault = find_fault(crashed / "flights-0")
    assert (fault["topic"], fault["partition"], fault["outcome"]) == ("flights", 0, "off-line")
    assert fault["file"] == file_name(LAST, LOG)


class LosingDirectory(ReadOnlyDirectory):
    """A directory whose first segment is deleted just after its files are listed."""

    def files(self) -> list[str]:
        files = super().files()
        for suffix in (LOG, INDEX, TIME_INDEX):
            Path(self.path, file_name(FIRST, suffix)).unlink(missing_ok=True)
        return files


def test_a_segment_that_retention_takes_meanwhile_is_no_fault(crashed: Path) -> None:
    directory = LosingDirectory(crashed / "flights-0")
    check = PartitionCheck(directory, "", FLIGHTS_0, Marks(recovery_point=30))
    assert [finding for finding in check.run() if isinstance(finding, Fault)] == []


def test_long_work_says_on_stderr_how_far_it_is(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = itertools.count(step=2.0)
    check = DirectoryCheck(ReadOnlyDirectory(closed))
    assert list(find_faults(check, lambda: next(times))) == []
    assert capsys.readouterr().err == "verified 0.0 MB of 0.0 MB\n" * (12 // 3)


def test_nothing_is_written(crashed: Path) -> None:
    flip(crashed / "flights-0" / file_name(LAST, LOG), in_batch(1))
    (crashed / "flights-0" / file_name(SECOND, INDEX)).unlink()

    def state() -> dict[Path, tuple[int, int]]:
        stats = {path: path.stat() for path in crashed.rglob("*")}
        return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in stats.items()}

    before = state()
    verify(crashed)
    assert state() == before


def test_a_directory_that_is_not_there_or_not_a_brokers_is_wrong_usage(tmp_path: Path) -> None:
    assert verify(tmp_path / "none").exit_code == 2
    (tmp_path / "notes.txt").write_text("of somebody else")
    assert verify(tmp_path).exit_code == 2
    assert "is not a log directory" in verify(tmp_path).stderr
