"""`kbroker log verify` on damaged indexes, snapshots and transaction indexes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core_log.directory import LogDirectory
from core_log.log_dir import LogDir
from core_log.segments.file_name import INDEX, TIME_INDEX, TRANSACTION_INDEX, file_name
from core_log.segments.transaction_index import ENTRY
from tests.broker.kbroker.log.verify.damage import (
    LAST,
    SECOND,
    find_fault,
    flip,
    list_faults,
    start_broker,
)
from tests.core_log.transactional_batches import ABORT, marker, transactional
from tests.stage.stored_log import CONFIG, FLIGHTS_0, T0


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


@pytest.mark.fault("strangers-56")
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("segment", [0, 3])
@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index.write_bytes(b""),
        lambda index: os.truncate(index, index.stat().st_size - ENTRY.size),
        lambda index: index.unlink(),
    ],
    ids=["empty", "cut between entries", "missing"],
)
def test_aborted_transactions_that_the_index_lacks_are_named(
    tmp_path: Path, damage: Callable[[Path], None], segment: int, is_clean: bool
) -> None:
    write_transactions(tmp_path, is_clean=is_clean)
    index = tmp_path / "flights-0" / file_name(segment, TRANSACTION_INDEX)
    whole = index.read_bytes()
    damage(index)
    item = find_fault(tmp_path)
    assert "of producer 1 from offset" in item["fault"]
    assert item["file"] == f"flights-0/{index.name}"
    start_broker(tmp_path)
    is_rebuilt = index.exists() and index.read_bytes() == whole
    assert item["outcome"] == ("rebuilt" if is_rebuilt else "unnoticed")
