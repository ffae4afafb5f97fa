"""What was on disk and cannot be read is not cut off in silence; what else is wrong is mended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from core_log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from core_log.config import LogConfig
from core_log.log import AppendLater, Log
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.recovery.loading import truncate_damage
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition
from tests.core_log.mending import after_flush

Open = Callable[..., Any]
SMALL = {"segment_bytes": 1500, "index_interval_bytes": 300}
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300)
COUNT = 30
T0 = 1_000_000
FLIGHTS_0, OTHERS_0 = TopicPartition("flights", 0), TopicPartition("others", 0)
KINDS = (".log", ".index", ".timeindex")


def name_of(base_offset: int, kind: str = ".log") -> str:
    return f"{base_offset:020d}{kind}"


def bases(directory: Directory) -> list[int]:
    return [int(name[:20]) for name in directory.files() if name.endswith(".log")]


def closed(directory: Directory, open_log: Open, **settings: Any) -> list[int]:
    """Write a log of 30 records in four segments, and close it. Returns their base offsets."""
    writer = open_log(directory, **{**SMALL, **settings})
    for number in range(COUNT):
        writer.append(b"%d" % number + b"." * 100, timestamp=T0 + number)
    writer.log.close()
    return bases(directory)


def logs_of(directory: Directory) -> dict[str, bytes | None]:
    return {name: directory.read(name) for name in directory.files() if name.endswith(".log")}


def flip(directory: Directory, name: str, at: int, bit: int = 4) -> None:
    file = directory.open_segment(name)
    file.write(at, bytes([file.read(at, 1)[0] ^ bit]))


def rename(directory: Directory, base_offset: int, other: int) -> None:
    """Give a segment's files another name."""
    for kind in KINDS:
        directory.rename(name_of(base_offset, kind), name_of(other, kind))


def off_line(caplog: pytest.LogCaptureFixture) -> str:
    """The one line that says so."""
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("flights-0 is offline: it has lost offsets ")
    return line.removeprefix("flights-0 is offline: it has lost ")


# ---- what is lost


def test_a_last_segment_that_does_not_end_whole_after_a_clean_stop_is_left(
    directory: Directory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    last = closed(directory, open_log)[-1]
    file = directory.open_segment(name_of(last))
    file.truncate(file.size - 1)
    before = logs_of(directory)
    log = open_log(directory, recovery_point=COUNT, **SMALL).log
    assert (log.damage.offset, log.damage.last_offset) == (COUNT - 1, COUNT - 1)
    assert off_line(caplog).startswith("offsets 29 to 29, 171 bytes: the file ends within a batch")
    assert logs_of(directory) == before


@pytest.mark.parametrize("recovery_point", [0, COUNT])
def test_it_is_left_whether_or_not_a_checkpoint_tells_the_end(
    memory: MemoryDirectory, open_log: Open, recovery_point: int
) -> None:
    last = closed(memory, open_log)[-1]
    memory.open_segment(name_of(last)).truncate(100)
    log = open_log(memory, recovery_point=recovery_point, **SMALL).log
    assert log.damage.offset == last
    assert open_log(memory, clean=False, recovery_point=log.recovery_point, **SMALL).log.damage


def test_batches_that_are_missing_from_the_end_are_missed(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    last = closed(memory, open_log)[-1]
    memory.open_segment(name_of(last)).truncate(0)
    log = open_log(memory, recovery_point=COUNT, **SMALL).log
    assert (log.damage.offset, log.damage.last_offset) == (last, COUNT - 1)
    assert "the log was longer" in off_line(caplog)


def test_more_behind_the_end_after_a_clean_stop_is_cut(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    last = closed(memory, open_log)[-1]
    memory.open_segment(name_of(last)).append([b"tail"])
    writer = open_log(memory, recovery_point=COUNT, **SMALL)
    assert writer.numbers() == list(range(COUNT))
    assert "recovery truncates 4 bytes from offset 30 on" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("missing", [1, 2])
def test_a_segment_that_is_missing_in_the_middle_is_missed(
    directory: Directory,
    open_log: Open,
    caplog: pytest.LogCaptureFixture,
    missing: int,
    clean: bool,
) -> None:
    _, *others = closed(directory, open_log)
    for base_offset in others[:missing]:
        directory.remove(name_of(base_offset))
    before = logs_of(directory)
    log = open_log(directory, recovery_point=COUNT, clean=clean, **SMALL).log
    assert (log.damage.offset, log.damage.last_offset) == (others[0], COUNT - 1)
    assert "a segment before it is missing" in off_line(caplog)
    assert logs_of(directory) == before


def test_a_gap_that_the_cleaner_made_is_no_damage(memory: MemoryDirectory, open_log: Open) -> None:
    first, second, *_ = closed(memory, open_log)
    memory.remove(name_of(second))
    writer = open_log(memory, recovery_point=COUNT, cleanup_policy=("compact",), **SMALL)
    assert writer.numbers() == [n for n in range(COUNT) if not first + 8 <= n < second + 8]


def test_a_gap_in_a_log_that_was_compacted_once_is_no_damage(
    memory: MemoryDirectory, open_log: Open
) -> None:
    _, second, third, _ = closed(memory, open_log)
    log = memory.read(name_of(third)) or b""
    size = read_header(log).size
    memory.write_atomic(name_of(third), log[:size] + log[2 * size :])  # a record within is gone
    memory.remove(name_of(second))
    writer = open_log(memory, recovery_point=COUNT, **SMALL)
    assert writer.numbers() == [*range(second), third, *range(third + 2, COUNT)]


def delete_segment(directory: Directory, base_offset: int) -> None:
    """Leave a hole as compaction does: no file of the segment is there."""
    for kind in KINDS:
        directory.remove(name_of(base_offset, kind))


@pytest.mark.fault("broker-1")
@pytest.mark.parametrize("clean", [True, False])
def test_a_hole_between_segments_is_served_whatever_the_policy_is_now(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    _, second, third, _ = closed(memory, open_log)
    delete_segment(memory, second)
    writer = open_log(memory, recovery_point=COUNT, clean=clean, **SMALL)
    assert writer.numbers() == [*range(second), *range(third, COUNT)]
    assert f"offsets {second} to {third - 1} are not there" in caplog.text


def test_records_that_an_index_names_are_missed_again_at_each_start(
    directory: Directory, open_log: Open
) -> None:
    """The end of a closed segment is gone, up to the end of a batch."""
    _, second, third, _ = closed(directory, open_log)
    content = directory.read(name_of(second)) or b""
    directory.open_segment(name_of(second)).truncate(read_header(content).size)
    for _ in range(3):
        log = open_log(directory, recovery_point=COUNT, clean=False, **SMALL).log
        assert (log.damage.offset, log.damage.last_offset) == (second + 1, COUNT - 1)
    assert truncate_damage(log).log_end_offset == second + 1 < third


@pytest.mark.fault("broker-1")
def test_a_hole_above_the_recovery_point_is_compactions_if_the_cleaner_was_there(
    memory: MemoryDirectory, open_log: Open
) -> None:
    _, second, third, _ = closed(memory.child("flights-0"), open_log)
    delete_segment(memory.child("flights-0"), second)
    memory.write_atomic(CLEANER_OFFSETS, encode_offsets({FLIGHTS_0: third}))
    manager = LogManager([memory], CONFIG, lambda: 0)
    manager.load()
    log = manager.logs[FLIGHTS_0]
    assert (log.log_end_offset, log.damage) == (COUNT, None)


@pytest.mark.fault("broker-1")
def test_a_log_that_was_compacted_syncs_a_segment_before_the_next_as_if_it_still_were(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, cleanup_policy=("compact",), **SMALL)
    writer.log.update_config(CONFIG)
    assert writer.log.config.hides_holes
    writer.log.update_config(CONFIG)
    assert writer.log.config.hides_holes


@pytest.mark.fault("broker-1")
def test_a_follower_that_is_killed_keeps_the_holes_of_its_leaders_log(
    memory: MemoryDirectory, open_log: Open
) -> None:
    leader, follower = memory.child("leader-0"), memory.child("follower-0")
    _, second, third, _ = closed(leader, open_log)
    delete_segment(leader, second)
    kept = open_log(leader, recovery_point=COUNT, **SMALL)
    copy = open_log(follower, **SMALL)
    offset = 0
    while offset < COUNT:
        fetched = kept.log.read(offset, 10_000, COUNT)
        offset = after_flush(copy.log, partial(copy.log.append_follower, fetched.read(), now_ms=T0))

    after = open_log(follower, recovery_point=0, clean=False, **SMALL)
    assert after.numbers() == [*range(second), *range(third, COUNT)]


def test_a_missing_first_segment_is_told_of(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = closed(memory, open_log)
    memory.remove(name_of(first))
    writer = open_log(memory, recovery_point=COUNT, **SMALL)
    assert writer.numbers() == list(range(second, COUNT))
    assert f"offsets 0 to {second - 1} are missing" in caplog.text


def test_all_segments_missing_is_no_new_log(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    for base_offset in closed(memory, open_log):
        memory.remove(name_of(base_offset))
    log = open_log(memory, recovery_point=COUNT, **SMALL).log
    assert (log.damage.offset, log.damage.last_offset) == (0, COUNT - 1)
    off_line(caplog)


def test_segments_that_overlap_are_left(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = closed(memory, open_log)
    joined = [memory.read(name_of(base)) or b"" for base in (first, second)]
    memory.write_atomic(name_of(first), b"".join(joined))
    before = logs_of(memory)
    log = open_log(memory, recovery_point=COUNT, **SMALL).log
    assert log.damage.offset == second
    assert "belongs into the next segment" in off_line(caplog)
    assert logs_of(memory) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("shift", [-3, -1, 1, 3])
@pytest.mark.parametrize("number", [1, 3])
def test_a_segment_whose_name_does_not_fit_its_batches_is_left(
    memory: MemoryDirectory, open_log: Open, number: int, shift: int, clean: bool
) -> None:
    base_offset = closed(memory, open_log)[number]
    rename(memory, base_offset, base_offset + shift)
    before = logs_of(memory)
    log = open_log(memory, recovery_point=COUNT, clean=clean, **SMALL).log
    assert base_offset + min(shift, 0) <= log.damage.offset <= base_offset
    assert logs_of(memory) == before


def test_below_the_recovery_point_a_flipped_bit_is_damage_and_above_it_a_torn_tail(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    last = closed(memory, open_log)[-1]
    size = read_header(memory.read(name_of(last)) or b"").size
    flip(memory, name_of(last), 3 * size - 1)
    damaged = open_log(memory, clean=False, recovery_point=last + 4, **SMALL).log
    assert (damaged.damage.offset, damaged.damage.last_offset) == (last + 2, last + 3)
    torn = open_log(memory, clean=False, recovery_point=last + 2, **SMALL)
    assert torn.numbers() == list(range(last + 2))
    assert "recovery truncates" in caplog.text


def test_a_damaged_log_serves_nobody_and_is_cut_on_demand(
    directory: Directory, open_log: Open
) -> None:
    second = closed(directory, open_log)[1]
    directory.remove(name_of(second))
    log: Log = open_log(directory, recovery_point=COUNT, **SMALL).log
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR: flights-0: it is damaged"):
        log.truncate_to(0)
    log.close()
    whole = truncate_damage(log)
    assert (whole.damage, whole.failure, whole.log_end_offset) == (None, None, second)
    assert bases(directory) == [0]


# ---- indexes


def test_an_index_of_another_segment_is_made_anew(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = [60, 220]
    writer = open_log(memory, **SMALL)
    for number in range(COUNT):
        writer.append(b"%d" % number + b"." * sizes[number // 15], timestamp=T0 + number)
    writer.log.close()
    names = [name for name in memory.files() if name.endswith((".index", ".timeindex"))]
    for target, other in zip(names[:2], names[-4:-2], strict=True):
        memory.write_atomic(target, memory.read(other) or b"")
    again = open_log(memory, recovery_point=COUNT, **SMALL)
    for number in range(COUNT):
        assert again.numbers(number)[0] == number
        assert again.log.offset_for_timestamp(T0 + number) == (T0 + number, number)
    lines = [r.getMessage() for r in caplog.records if "rebuilt" in r.getMessage()]
    assert len(lines) == 1, lines


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_entry_within_that_is_wrong_is_found_when_it_is_used(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    closed(memory, open_log, segment_bytes=10**6)
    size = memory.size(name_of(0, kind)) or 0
    for at in range(size):
        copy = copied(memory)
        flip(copy, name_of(0, kind), at)
        caplog.clear()
        again = open_log(copy, recovery_point=COUNT, segment_bytes=10**6)
        for number in reversed(range(COUNT)):
            assert after_flush(again.log, partial(again.numbers, number))[0] == number
            answer = after_flush(again.log, partial(again.log.offset_for_timestamp, T0 + number))
            assert answer == (T0 + number, number)
        assert caplog.text.count("rebuilt") <= 1


def copied(directory: MemoryDirectory) -> MemoryDirectory:
    copy = MemoryDirectory("logs")
    for name in directory.files():
        copy.write_atomic(name, directory.read(name) or b"")
    return copy


def test_a_bad_index_is_left_to_the_next_flush_and_who_reads_there_is_told_to_come_again(
    memory: MemoryDirectory, open_log: Open
) -> None:
    _, second, *_ = closed(memory, open_log)
    within = 5  # found by the second entry; the last ones are looked at when a log is opened
    flip(memory, name_of(0, ".index"), 15)
    bad = memory.read(name_of(0, ".index"))
    log: Log = open_log(memory, recovery_point=COUNT, **SMALL).log

    looks: list[Callable[[], object]] = [
        lambda: log.read(within, 1000, COUNT),
        lambda: log.bytes_between(within, COUNT),
        lambda: log.offset_for_timestamp(T0 + within),
    ]
    for look in looks:
        with pytest.raises(ApiError) as raised:
            look()
        assert raised.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    assert memory.read(name_of(0, ".index")) == bad
    assert log.read(second, 1000, COUNT) is not None, "other segments are read"
    assert log.is_flush_due(0)

    assert [after_flush(log, look) is not None for look in looks] == [True] * 3
    assert memory.read(name_of(0, ".index")) != bad
    assert not log.is_flush_due(0)


def test_rebuilt_indexes_are_on_disk_when_the_flush_has_ended(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    closed(memory, open_log)
    names = [name_of(0, kind) for kind in KINDS]
    flip(memory, name_of(0, ".index"), 15)
    for name in names:
        memory.open_existing(name).fsync()
    bad = [memory.read(name) for name in names]
    writer = open_log(memory, recovery_point=COUNT, **SMALL)
    flush(writer)
    after_flush(writer.log, partial(writer.log.read, 5, 1000, COUNT))
    rebuilt = [memory.read(name) for name in names]
    assert rebuilt != bad

    memory.lose_power()

    assert [memory.read(name) for name in names] == rebuilt


def test_what_a_leader_appends_waits_until_a_bad_index_of_its_segment_is_made_anew(
    memory: MemoryDirectory, open_log: Open
) -> None:
    closed(memory, open_log, segment_bytes=10**6)
    flip(memory, name_of(0, ".index"), 11)
    writer = open_log(memory, recovery_point=COUNT, segment_bytes=10**6)
    with pytest.raises(ApiError):
        writer.numbers()

    with pytest.raises(AppendLater):
        writer.append(b"late", may_sync=False)

    assert after_flush(writer.log, writer.numbers) == list(range(COUNT))
    writer.append(b"30", may_sync=False)
    assert writer.numbers(COUNT - 1) == [COUNT - 1, COUNT]


def test_truncation_does_not_rely_on_a_wrong_index(memory: MemoryDirectory, open_log: Open) -> None:
    closed(memory, open_log, segment_bytes=10**6)
    size = memory.size(name_of(0, ".index")) or 0
    for at in range(size):
        copy = copied(memory)
        flip(copy, name_of(0, ".index"), at)
        writer = open_log(copy, recovery_point=COUNT, segment_bytes=10**6)
        writer.log.truncate_to(12)
        writer.append_many(20)
        assert after_flush(writer.log, writer.numbers) == list(range(32))
        assert after_flush(writer.log, partial(writer.numbers, 25)) == list(range(25, 32))


# ---- checkpoints


def written(*directories: MemoryDirectory) -> None:
    """Directories with two partitions, one of which begins within a segment."""
    manager = LogManager(directories, CONFIG, lambda: T0)
    manager.load()
    for tp in (FLIGHTS_0, OTHERS_0):
        for number in range(COUNT):
            append(manager, tp, number)
    manager.logs[OTHERS_0].increment_log_start_offset(12)
    manager.checkpoint_high_watermarks({FLIGHTS_0: COUNT, OTHERS_0: COUNT})
    manager.close()


def append(manager: LogManager, tp: TopicPartition, number: int) -> None:
    batch = encode_batch([(T0 + number, None, b"%d" % number + b"." * 100, ())])
    log = manager.get_or_create(tp, manager.defaults)
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=T0 + number)


def started(directory: Directory) -> LogManager:
    manager = LogManager([directory], CONFIG, lambda: T0)
    manager.load()
    return manager


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"\xff\xfe", b"0\n5\nflights 0 1\n", b"0\n1\nx y z\n"]
)
@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS])
def test_a_checkpoint_that_cannot_be_read_counts_as_empty(
    memory: MemoryDirectory, caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    written(memory)
    memory.write_atomic(name, content)
    manager = started(memory)
    manager.read_high_watermarks()
    assert f"/logs/{name} is ignored: " in caplog.text
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == {
        FLIGHTS_0: COUNT,
        OTHERS_0: COUNT,
    }
    assert manager.logs[OTHERS_0].log_start_offset == (0 if name == LOG_START_OFFSETS else 12)
    back = "deleted records may be back" in caplog.text
    assert back == (name == LOG_START_OFFSETS)


@pytest.mark.parametrize("name", [LEADER_EPOCHS, name_of(COUNT, ".snapshot")])
@pytest.mark.parametrize("content", [b"", b"1\n0\n", b"garbage"])
def test_epochs_and_snapshots_that_cannot_be_read_are_made_anew(
    memory: MemoryDirectory, open_log: Open, name: str, content: bytes
) -> None:
    closed(memory, open_log)
    memory.write_atomic(name, content)
    writer = open_log(memory, clean=False, **SMALL)
    assert writer.numbers() == list(range(COUNT))
    assert writer.log.leader_epochs.entries == [(0, 0)]


def test_a_start_offset_behind_the_end_is_not_believed_after_a_clean_stop(
    memory: MemoryDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    written(memory)
    memory.write_atomic(LOG_START_OFFSETS, encode_offsets({FLIGHTS_0: 1 << 20}))
    manager = started(memory)
    assert manager.logs[FLIGHTS_0].log_start_offset == 0
    assert manager.logs[FLIGHTS_0].log_end_offset == COUNT
    assert "a start offset of 1048576 is not believed" in caplog.text


def test_a_damaged_log_leaves_the_others_served_and_is_found_again(
    memory: MemoryDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    written(memory)
    partition = memory.child(str(FLIGHTS_0))
    partition.remove(name_of(bases(partition)[1]))
    manager = started(memory)
    append(manager, OTHERS_0, COUNT)
    assert manager.failure_of(OTHERS_0) is None
    assert (manager.failure_of(FLIGHTS_0) or "").startswith("it is damaged: offsets 8 to 29, ")
    manager.checkpoint_recovery_points()
    manager.close()
    again = started(memory)
    assert again.logs[FLIGHTS_0].damage is not None
    assert again.logs[OTHERS_0].log_end_offset == COUNT + 1


def test_what_is_cut_at_its_damage_stays_cut_whatever_the_power_does(
    memory: MemoryDirectory,
) -> None:
    written(memory)
    partition = memory.child(str(FLIGHTS_0))
    partition.remove(name_of(bases(partition)[1]))
    manager = started(memory)
    manager.truncate_damage(FLIGHTS_0)
    assert manager.failure_of(FLIGHTS_0) is None
    memory.lose_power()
    assert decode_offsets(memory.read(RECOVERY_POINTS))[FLIGHTS_0] == 8
    again = started(memory)
    assert again.logs[FLIGHTS_0].damage is None


def test_a_log_that_could_not_be_opened_keeps_its_checkpoints(memory: MemoryDirectory) -> None:
    written(memory)
    memory.child(str(OTHERS_0)).write_atomic("x.log", b"")
    manager = started(memory)
    assert manager.failure_of(OTHERS_0) is not None
    manager.checkpoint_recovery_points()
    manager.close()
    memory.child(str(OTHERS_0)).remove("x.log")
    assert started(memory).logs[OTHERS_0].log_start_offset == 12
    assert decode_offsets(memory.read(RECOVERY_POINTS))[OTHERS_0] == COUNT
