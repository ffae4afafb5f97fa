"""A log that was written beforehand is one that a broker would have written."""

from pathlib import Path

from benchmarks.written_log import WrittenLog, write_log
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.recovery.loading import load_log
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition

T0 = 1_700_000_000_000


def make_batch(size: int, nth: int = 0) -> bytes:
    return encode_batch([(T0 + nth, b"key", bytes(1000), ())] * size, leader_epoch=0)


def open_log(directory: Path) -> Log:
    return load_log(
        LogDirectory(directory),
        TopicPartition("t", 0),
        LogConfig(),
        recovery_point=0,
        clean_shutdown=True,
        monotonic_ms=lambda: T0,
        check_all=True,
    )


def write_small_log(directory: Path) -> WrittenLog:
    return write_log(directory, [make_batch(3, nth) for nth in range(10)], 10_000, [make_batch(2)])


def test_batches_follow_each_other_in_segments_and_the_last_stand_alone(tmp_path: Path) -> None:
    log = write_small_log(tmp_path / "log")

    bases = [segment.base_offset for segment in open_log(tmp_path / "log").segments]
    assert bases == [0, 9, 18, 27, 30]
    assert log.active_offset == 30
    assert log.sealed_bytes == log.size - len(make_batch(2))


def test_a_record_is_found_by_its_time(tmp_path: Path) -> None:
    write_small_log(tmp_path / "log")

    assert open_log(tmp_path / "log").offset_for_timestamp(T0 + 7) == (T0 + 7, 21)


def test_a_log_laid_elsewhere_is_opened_beside_the_first(tmp_path: Path) -> None:
    write_small_log(tmp_path / "log").copy_to(tmp_path / "copy")

    ends = {open_log(tmp_path / name).log_end_offset for name in ("log", "copy")}
    assert ends == {32}
