"""`kbroker log verify` on damaged segments, and what a broker makes of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from core_log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, file_name
from protocol.records.batch_header import CRC_AT, CRC_COVERS_FROM
from protocol.records.builder import encode_batch
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
from tests.stage.stored_log import BATCH_BYTES, SEGMENTS, stored_log


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
    (crashed / "flights-0" / file_name(SECOND, LOG)).unlink()
    fault = next(item for item in list_faults(crashed) if "segment" in item["fault"])
    assert (fault["first_offset"], fault["last_offset"]) == (12, 23)
    assert (fault["fault"], fault["outcome"]) == ("a segment before it is missing", "off-line")
    assert start_broker(crashed).damage is not None


@pytest.mark.fault("broker-1")
def test_a_hole_without_a_trace_is_told_of_and_served(crashed: Path) -> None:
    for suffix in (LOG, INDEX, TIME_INDEX):
        (crashed / "flights-0" / file_name(SECOND, suffix)).unlink()
    fault = find_fault(crashed)
    assert (fault["first_offset"], fault["last_offset"]) == (12, 23)
    assert (fault["fault"], fault["outcome"]) == ("a segment before it is missing", "unnoticed")
    assert start_broker(crashed).damage is None


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
