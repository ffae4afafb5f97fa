"""`kbroker log verify` on logs that our broker wrote, whole and damaged in all ways."""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from crc32c import crc32c

from broker.kbroker.command import main
from broker.kbroker.log.faults import Fault
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory, ReadOnlyFile
from broker.kbroker.log.verify import find_faults
from broker.kbroker.log.verify_log_dir import DirectoryCheck
from broker.kbroker.log.verify_partition import Marks, PartitionCheck
from core_log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, LEADER_EPOCHS, RECOVERY_POINTS
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.log_dir import LogDir
from core_log.meta_properties import META_PROPERTIES
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name
from core_log.segments.transaction_index import ENTRY
from protocol.records.batch_header import CRC_AT, CRC_COVERS_FROM
from protocol.records.builder import encode_batch
from tests.core_log.test_transaction_files import ABORT, marker, transactional
from tests.stage.stored_log import BATCH_BYTES, CONFIG, FLIGHTS_0, SEGMENTS, T0, stored_log

FIRST, SECOND, LAST = SEGMENTS


def verify(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["log", "verify", str(directory), *options])


def list_faults(directory: Path) -> list[dict[str, Any]]:
    """Verify a directory; return its faults without their null fields."""
    result = verify(directory, "-o", "json")
    listing = json.loads(result.stdout)
    assert listing["kind"] == "faults"
    assert result.exit_code == (1 if listing["items"] else 0)
    return [
        {key: value for key, value in item.items() if value is not None}
        for item in listing["items"]
    ]


def find_fault(directory: Path) -> dict[str, Any]:
    """Return the only fault of a directory."""
    (fault,) = list_faults(directory)
    return fault


def flip(path: Path, position: int) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def in_batch(number: int) -> int:
    """Return a position in the records of a segment's batch."""
    return number * BATCH_BYTES + 80


def start_broker(broker: Path) -> Log:
    """Load the only log of a directory as a starting broker does."""
    ((stored,), *_) = LogDir(LogDirectory(broker)).stored_logs()
    return stored.load(CONFIG, lambda: T0)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A broker's log directory after a clean shutdown; all of it is synced."""
    stored_log(tmp_path / "broker")
    return tmp_path / "broker"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A broker's log directory after a crash; offsets above 30 were not synced."""
    stored_log(tmp_path / "broker", is_clean=False)
    return tmp_path / "broker"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_whole_log_has_no_fault_and_says_what_was_looked_at(
    tmp_path: Path, is_clean: bool
) -> None:
    stored_log(tmp_path / "broker", is_clean=is_clean)
    result = verify(tmp_path / "broker")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 partition, 3 segments, 0.0 MB: no faults\n"


def test_a_fault_is_a_row_with_file_position_offsets_and_outcome(crashed: Path) -> None:
    flip(crashed / "flights-0" / file_name(LAST, LOG), in_batch(3))
    result = verify(crashed)
    assert result.exit_code == 1
    header, row = result.stdout.splitlines()
    assert header.split() == [
        *("TOPIC", "PARTITION", "FILE", "POSITION", "FIRST-OFFSET", "LAST-OFFSET"),
        *("OUTCOME", "FAULT"),
    ]
    assert row.startswith("flights 0         flights-0/00000000000000000024.log ")
    assert row.split()[3:7] == [str(3 * BATCH_BYTES), "33", "35", "cut"]
    assert "batch CRC is" in row
    assert result.stderr.endswith(": 1 fault\n")


@pytest.mark.parametrize(
    ("segment", "batch", "offsets", "outcome"),
    [
        (FIRST, 1, (3, 5), "unnoticed"),  # believed, and nobody reads it
        (LAST, 1, (27, 29), "off-line"),  # read, and it was synced
        (LAST, 2, (30, 32), "cut"),
    ],
)
def test_what_a_crashed_broker_makes_of_a_damaged_batch_depends_on_the_recovery_point(
    crashed: Path, segment: int, batch: int, offsets: tuple[int, int], outcome: str
) -> None:
    flip(crashed / "flights-0" / file_name(segment, LOG), in_batch(batch))
    fault = find_fault(crashed)
    assert (fault["first_offset"], fault["last_offset"]) == offsets
    assert (fault["position"], fault["outcome"]) == (batch * BATCH_BYTES, outcome)


def test_after_a_clean_stop_a_damaged_batch_is_found_that_no_start_would_notice(
    closed: Path,
) -> None:
    flip(closed / "flights-0" / file_name(LAST, LOG), in_batch(1))
    assert find_fault(closed)["outcome"] == "unnoticed"


def test_after_a_clean_stop_a_log_without_its_end_is_off_line(closed: Path) -> None:
    log = closed / "flights-0" / file_name(LAST, LOG)
    os.truncate(log, log.stat().st_size - 10)
    by_file = {item["file"]: item for item in list_faults(closed)}
    torn = by_file[f"flights-0/{log.name}"]
    assert (torn["first_offset"], torn["position"]) == (33, 3 * BATCH_BYTES)
    assert torn["fault"] == f"{BATCH_BYTES - 10} bytes are no batches: the file ends within a batch"
    assert {file: item["outcome"] for file, item in by_file.items()} == {
        f"flights-0/{log.name}": "off-line",
        f"flights-0/{file_name(36, '.snapshot')}": "removed",
        RECOVERY_POINTS: "off-line",
        HIGH_WATERMARKS: "ignored",
    }


def test_garbage_within_a_closed_segment_loses_all_up_to_the_next_one(crashed: Path) -> None:
    path = crashed / "flights-0" / file_name(SECOND, LOG)
    content = path.read_bytes()
    path.write_bytes(content[:BATCH_BYTES] + b"\xff" * (len(content) - BATCH_BYTES))
    fault = find_fault(crashed)
    assert (fault["first_offset"], fault["last_offset"]) == (15, 23)
    assert fault["position"] == BATCH_BYTES
    assert fault["outcome"] == "off-line"  # a start reads the end of each segment


def test_zeros_behind_the_last_batch_are_room_and_no_fault(crashed: Path) -> None:
    with (crashed / "flights-0" / file_name(LAST, LOG)).open("ab") as log:
        log.write(bytes(5000))
    assert list_faults(crashed) == []


def test_records_that_belie_their_batch_are_found_though_its_checksum_is_right(
    tmp_path: Path,
) -> None:
    batch = encode_batch([(0, None, b"a", ()), (0, None, b"b", ())])
    lying = batch[:23] + bytes(4) + batch[27:]  # last offset delta 0
    crc = crc32c(lying[CRC_COVERS_FROM:]).to_bytes(4, "big")
    lying = lying[:CRC_AT] + crc + lying[CRC_COVERS_FROM:]
    (tmp_path / file_name(0, LOG)).write_bytes(lying)
    fault = next(item for item in list_faults(tmp_path) if item["file"].endswith(LOG))
    assert fault["fault"] == "inside the batch: its last record has offset 1, not 0"
    assert fault["outcome"] == "unnoticed"


def test_a_base_offset_far_beyond_what_was_synced_puts_a_log_off_line(crashed: Path) -> None:
    flip(crashed / "flights-0" / file_name(LAST, LOG), 1 * BATCH_BYTES + 4)
    item = find_fault(crashed)
    assert (item["position"], item["outcome"]) == (BATCH_BYTES, "off-line")
    assert (item["first_offset"], item["last_offset"]) == (27, 29)
    damage = start_broker(crashed).damage
    assert damage is not None
    assert (damage.position, damage.offset, damage.last_offset) == (BATCH_BYTES, 27, 29)


def test_a_segment_that_is_missing_is_named_by_its_offsets(crashed: Path) -> None:
    for suffix in (LOG, INDEX, TIME_INDEX):
        (crashed / "flights-0" / file_name(SECOND, suffix)).unlink()
    fault = find_fault(crashed)
    assert (fault["first_offset"], fault["last_offset"]) == (12, 23)
    assert (fault["fault"], fault["outcome"]) == ("a segment before it is missing", "off-line")


def test_offsets_that_compaction_took_are_not_missing(crashed: Path) -> None:
    for suffix in (LOG, INDEX, TIME_INDEX):
        (crashed / "flights-0" / file_name(SECOND, suffix)).unlink()
    (crashed / CLEANER_OFFSETS).write_text("0\n1\nflights 0 24\n")
    assert list_faults(crashed) == []


def test_a_segment_that_reaches_into_the_next_one_is_named(crashed: Path) -> None:
    log = crashed / "flights-0" / file_name(FIRST, LOG)
    last = bytearray(log.read_bytes())
    last[3 * BATCH_BYTES + 7] += 2  # its base offset, which no checksum covers
    log.write_bytes(last)
    fault = find_fault(crashed)
    assert fault["fault"] == "offset 13 belongs to the next segment"


def overwrite_from(path: Path, position: int) -> None:
    """Overwrite the file from `position` on with bytes that are no batches."""
    content = path.read_bytes()
    path.write_bytes(content[:position] + b"\xff" * (len(content) - position))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("segment", "damage"),
    [
        *((base, lambda path: flip(path, in_batch(0))) for base in SEGMENTS),
        *((base, lambda path: flip(path, in_batch(3))) for base in SEGMENTS),
        *((base, lambda path: overwrite_from(path, BATCH_BYTES)) for base in SEGMENTS),
        *((base, lambda path: overwrite_from(path, 3 * BATCH_BYTES)) for base in SEGMENTS),
        *((base, lambda path: flip(path, BATCH_BYTES + 16)) for base in SEGMENTS),
        *((base, lambda path: os.truncate(path, 3 * BATCH_BYTES + 9)) for base in SEGMENTS),
    ],
)
def test_a_broker_that_starts_makes_of_a_fault_what_is_said(
    tmp_path: Path, segment: int, damage: Callable[[Path], None], is_clean: bool
) -> None:
    broker = tmp_path / "broker"
    path = stored_log(broker, is_clean=is_clean) / file_name(segment, LOG)
    damage(path)
    item = next(item for item in list_faults(broker) if item["file"].endswith(path.name))
    log = start_broker(broker)
    if item["outcome"] == "off-line":
        assert log.damage is not None
        assert log.damage.offset == item["first_offset"]
    else:
        assert log.damage is None
        end = {"cut": item["first_offset"], "unnoticed": 36}[item["outcome"]]
        assert log.log_end_offset == end


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize(
    ("damage", "outcome"),
    [
        (lambda path: path.unlink(), "rebuilt"),
        (lambda path: os.truncate(path, 13), "rebuilt"),
        (lambda path: flip(path, 11), "unnoticed"),
    ],
    ids=["missing", "torn", "lying"],
)
def test_an_index_that_is_missing_torn_or_not_its_logs_is_named(
    closed: Path, suffix: str, damage: Callable[[Path], None], outcome: str
) -> None:
    name = file_name(SECOND, suffix)
    damage(closed / "flights-0" / name)
    fault = find_fault(closed)
    assert (fault["file"], fault["outcome"]) == (f"flights-0/{name}", outcome)


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_a_closed_index_is_made_anew_when_it_is_said_so(
    tmp_path: Path, closed: Path, suffix: str
) -> None:
    """A starting broker checks the ends of an index, and their batches, whichever byte is wrong."""
    name = f"flights-0/{file_name(SECOND, suffix)}"
    predicted, actual = [], []
    for position in range((closed / name).stat().st_size):
        damaged = shutil.copytree(closed, tmp_path / str(position))
        flip(damaged / name, position)
        predicted.append(find_fault(damaged)["outcome"])
        before = (damaged / name).read_bytes()
        start_broker(damaged)
        actual.append("unnoticed" if (damaged / name).read_bytes() == before else "rebuilt")
    assert predicted == actual
    assert set(predicted) == {"rebuilt", "unnoticed"}


def test_an_index_of_a_segment_that_recovery_reads_is_made_anew(crashed: Path) -> None:
    name = file_name(LAST, INDEX)
    flip(crashed / "flights-0" / name, 7)
    assert find_fault(crashed)["outcome"] == "rebuilt"


def test_a_snapshot_with_a_wrong_checksum_goes(closed: Path) -> None:
    name = file_name(SECOND, ".snapshot")
    flip(closed / "flights-0" / name, 20)
    fault = find_fault(closed)
    assert (fault["file"], fault["outcome"]) == (f"flights-0/{name}", "removed")
    assert fault["fault"] == "the checksum is wrong"


def test_a_transaction_index_that_ends_within_an_entry_is_named(closed: Path) -> None:
    name = file_name(SECOND, TRANSACTION_INDEX)
    (closed / "flights-0" / name).write_bytes(bytes(20))
    assert find_fault(closed)["fault"] == "its size of 20 bytes is not a multiple of 34"


def write_transactions(broker: Path, *, is_clean: bool) -> None:
    """Write a log with one aborted transaction in its first segment, and two in that from 3 on."""
    stored = LogDir(LogDirectory(broker))
    log = stored.create(FLIGHTS_0, CONFIG, lambda: T0)
    log.append_follower(transactional(0, 1, 2) + marker(2, 1, ABORT), now_ms=T0)
    log.roll(T0)
    for offset in (3, 5):
        batches = transactional(offset, 1) + marker(offset + 1, 1, ABORT)
        log.append_follower(batches, now_ms=T0)
    if is_clean:
        log.close()
        stored.mark_clean()


def patch_last_entry(content: bytes, position: int, value: int) -> bytes:
    """Return a transaction index with another number in its last entry."""
    at = len(content) - ENTRY.size + position
    return content[:at] + value.to_bytes(8) + content[at + 8 :]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("segment", [0, 3])
@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda content: content[:-5], "bytes is not a multiple of 34"),
        (lambda content: content + b"torn", "bytes is not a multiple of 34"),
        (lambda content: b"\7" + content[1:], "an entry has the unknown version 1792"),
        (lambda content: patch_last_entry(content, 18, 0), "last offset 0 comes after"),
        (
            lambda content: patch_last_entry(content, 18, 99),
            "last offset 99 is behind the segment's end",
        ),
    ],
    ids=["cut", "torn", "version", "back", "behind"],
)
def test_a_broker_that_starts_makes_of_a_transaction_index_what_is_said(
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    fault: str,
    segment: int,
    is_clean: bool,
) -> None:
    write_transactions(tmp_path, is_clean=is_clean)
    assert list_faults(tmp_path) == []
    index = tmp_path / "flights-0" / file_name(segment, TRANSACTION_INDEX)
    whole = index.read_bytes()
    goes_back = segment == 0 and fault.startswith("last offset 0")
    index.write_bytes(damage(2 * whole if goes_back else whole))
    item = find_fault(tmp_path)
    assert fault in item["fault"]
    assert item["outcome"] == "rebuilt"
    start_broker(tmp_path)
    assert index.read_bytes() == whole


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
    assert not (closed / "flights-0" / file_name(SECOND, INDEX)).exists()


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
