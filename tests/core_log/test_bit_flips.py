"""Every bit of every file of a small log flipped, each file cut at every length, or missing.

Whatever it is: what was on disk is served as it was, or the log is off-line and untouched, or (a
batch that nobody had a reason to read yet) the reader is told, or finds the checksum wrong. What a
crash may tear can be cut, with a warning. One thing cannot be seen where no checked batch follows:
a wrong base offset, which a batch's checksum leaves out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import attrs
import pytest

from core_log.config import LogConfig
from core_log.log import Log
from core_log.memory_directory import MemoryDirectory
from core_log.recovery.loading import load_log, truncate_damage
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_records, encode_batch, read_header
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition
from tests.core_log.mending import after_flush

T0 = 1_600_000_000_000
COUNT = 7
SYNCED = 5
CONFIG = LogConfig(segment_bytes=250, index_interval_bytes=60, segment_index_bytes=48)
BASE_OFFSET = range(8)
FLIGHTS_0 = TopicPartition("flights", 0)

Files = dict[str, bytes]


def value(offset: int) -> bytes:
    return b"value %d" % offset


def append(log: Log, offset: int) -> None:
    batch = encode_batch(
        [(T0 + 10 * offset, None, value(offset), ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=offset,
    )
    epoch = offset // 3
    log.append(
        batch, read_header(batch), leader_epoch=epoch, now_ms=T0, max_timestamp=T0 + 10 * offset
    )


def opened(files: Files, recovery_point: int, *, clean: bool) -> Log:
    directory = MemoryDirectory("flights-0")
    for name, content in files.items():
        directory.write_atomic(name, content)
    return load_log(
        directory,
        FLIGHTS_0,
        CONFIG,
        recovery_point=recovery_point,
        clean_shutdown=clean,
        monotonic_ms=lambda: T0,
    )


def files_of(log: Log) -> Files:
    directory = log.directory
    return {name: directory.read(name) or b"" for name in directory.files()}


@attrs.frozen
class Disk:
    """The files of a log, of which what is below `recovery_point` was on disk when it stopped."""

    files: Files
    recovery_point: int
    clean: bool

    @classmethod
    def closed(cls) -> Disk:
        log = opened({}, 0, clean=True)
        for offset in range(COUNT):
            append(log, offset)
        log.close()
        return cls(files_of(log), COUNT, True)

    @classmethod
    def crashed(cls) -> Disk:
        log = opened({}, 0, clean=True)
        for offset in range(COUNT):
            append(log, offset)
            if offset == SYNCED - 1:
                flush = log.begin_flush()
                flush.run()
                log.end_flush(flush)
        return cls(files_of(log), SYNCED, False)

    def check(self, name: str, content: bytes | None, caplog: pytest.LogCaptureFixture) -> str:
        """Start with another content of one file, or without it; what became of it."""
        files = {**self.files, name: content or b""}
        if content is None:
            del files[name]
        caplog.clear()
        log = opened(files, self.recovery_point, clean=self.clean)
        levels = [record.levelno for record in caplog.records]
        if log.damage is not None:
            assert levels.count(logging.ERROR) == 1, caplog.text
            assert log.damage.offset < self.recovery_point
            assert log.recovery_point == self.recovery_point
            left = files_of(log)
            assert {n: c for n, c in left.items() if n in files and n.endswith(".log")} == {
                n: c for n, c in files.items() if n.endswith(".log")
            }
            again = opened(left, log.recovery_point, clean=False)
            assert again.damage is not None, "it is found again"
            whole = truncate_damage(again)
            assert whole.log_end_offset == again.damage.offset
            check_served(whole, whole.log_end_offset)
            return "damaged"
        end = log.log_end_offset
        assert end >= self.recovery_point
        is_told = any(level >= logging.WARNING for level in levels)
        assert log.log_start_offset == 0 or is_told, f"silently: {log}"
        assert end == COUNT or is_told or ends_whole(content or b""), f"silently: {log}"
        return check_served(log, min(end, COUNT))


def ends_whole(content: bytes) -> bool:
    """Return whether a file ends between two batches, as after a crash before the second."""
    at = 0
    while at < len(content):
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    return at == len(content)


def check_served(log: Log, count: int) -> str:
    """Read from every offset and by every time; then write."""
    for offset in range(log.log_start_offset, count):
        try:
            file_range = after_flush(log, partial(log.read, offset, 10_000, log.log_end_offset))
            assert file_range is not None
            records = decode_records(file_range.read(), offset)
        except CorruptRecord:
            return "reader told"
        except ApiError as error:
            return "reader told" if error.code is ErrorCode.CORRUPT_MESSAGE else str(error)
        assert records[0].offset == offset
        for record in records:
            assert record.value == value(record.offset)
            assert record.timestamp_ms == T0 + 10 * record.offset
    for offset in range(log.log_start_offset, count):
        for early in (0, 5):
            at = T0 + 10 * offset
            if early and offset == log.log_start_offset:
                continue
            found_at = after_flush(log, partial(log.offset_for_timestamp, at - early))
            assert found_at == (at, offset)
    append(log, log.log_end_offset)
    assert log.log_end_offset == count + 1
    return "served"


def cases(files: Files) -> Iterator[tuple[str, int]]:
    """Yield each file and each bit of it; of the active segment's indexes only the used part."""
    for name, content in files.items():
        for bit in range(8 * len(content)):
            yield name, bit


def flipped(content: bytes, bit: int) -> bytes:
    number = int.from_bytes(content, "big") ^ (1 << (8 * len(content) - 1 - bit))
    return number.to_bytes(len(content), "big")


def is_outside_of_checksum(disk: Disk, name: str, bit: int) -> bool:
    """Return whether the bit is in an offset, which no checksum covers."""
    if not name.endswith(".log"):
        return False
    at, content = 0, disk.files[name]
    while at + read_header(content[at:]).size <= bit // 8:
        at += read_header(content[at:]).size
    return bit // 8 - at in BASE_OFFSET


@pytest.mark.parametrize("disk", [Disk.closed(), Disk.crashed()], ids=["closed", "crashed"])
def test_one_flipped_bit_loses_nothing_silently(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: dict[str, int] = {}
    assert len([name for name in disk.files if name.endswith(".log")]) >= 3
    for name, bit in cases(disk.files):
        try:
            outcome = disk.check(name, flipped(disk.files[name], bit), caplog)
        except (AssertionError, ApiError, ValueError, OSError) as error:
            if is_outside_of_checksum(disk, name, bit):
                outcome = "unseen"
            else:
                raise AssertionError(f"{name}, bit {bit}: {error!r}\n{caplog.text}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes.keys() == {"served", "reader told", "damaged", "unseen"}
    assert outcomes["damaged"] > 300
    assert outcomes["served"] > 1000, "indexes, snapshots and epochs are made anew"
    assert outcomes["unseen"] < 300


@pytest.mark.parametrize("disk", [Disk.closed(), Disk.crashed()], ids=["closed", "crashed"])
def test_a_file_cut_at_any_length_loses_nothing_silently(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    for name, content in disk.files.items():
        for size in range(len(content)):
            try:
                disk.check(name, content[:size], caplog)
            except (AssertionError, ApiError, ValueError, OSError) as error:
                raise AssertionError(f"{name} of {size}: {error!r}\n{caplog.text}") from error


@pytest.mark.parametrize("disk", [Disk.closed(), Disk.crashed()], ids=["closed", "crashed"])
def test_a_missing_file_loses_nothing_silently(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    for name in disk.files:
        disk.check(name, None, caplog)
