"""The cleaner: which logs it takes, what comes of them, and what becomes of its faults."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter

import attrs
import pytest

from compaction.clean import Event
from compaction.config import CleanerConfig
from compaction.job import CleanerStatistics, CleaningJob
from compaction.quarantine import FIRST_PAUSE_MS
from compaction.report import list_warnings
from compaction.status import STATUS_FILE, CleanerStatus, Pass, decode_status
from compaction.worker_pool import CleaningFailed, InLoop
from core_log.config import LogConfig
from core_log.log import Log
from core_log.memory_directory import Disk, MemoryDirectory
from core_log.segments.file_name import file_name
from protocol.records.batch import encode_batch
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from protocol.topic_partition import TopicPartition
from tests.compaction.house import COMPACT, OTHER, T0, TP, House, Listening, when_swapped

pytestmark = pytest.mark.virtual_time


def status(house: House) -> CleanerStatus:
    """Read the status that people can see."""
    text = house.directories[0].read(STATUS_FILE)
    return decode_status(text).get(str(TP), CleanerStatus())


# ---- what it does


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
async def test_of_each_key_the_newest_value_stays_and_the_log_shrinks(codec: int) -> None:
    house = House()
    house.write_rounds(20, config=attrs.evolve(COMPACT, segment_bytes=10_000), codec=codec)
    house.write(("large", "x" * 5000), codec=codec)
    house.log().roll(T0)
    before, size = house.newest(), house.log().size
    await house.live(1)
    assert house.newest() == before
    assert len(house.records()) == 11
    assert house.log().size < size
    assert house.checkpoint() == house.log().segments.active.base_offset
    assert house.leftovers() == []


async def test_records_that_come_while_it_cleans_are_kept() -> None:
    house = House()
    house.write_rounds(20)

    def keep_writing(job: CleaningJob, event: Event) -> None:
        house.write(("k0", f"during {house.log().log_end_offset}"))

    assert isinstance(house.workers, Listening)
    house.workers.before = keep_writing
    await house.live(20)
    last = house.log().log_end_offset - 1
    assert house.newest()["k0"] == f"during {last}"
    assert set(house.newest()) == {f"k{k}" for k in range(10)}


async def test_a_log_that_is_clean_enough_is_left_alone() -> None:
    house = House()
    house.write_rounds(2)
    config = attrs.evolve(COMPACT, min_cleanable_dirty_ratio=0.9)
    await house.live(1)
    house.log().update_config(config)
    house.write_rounds(1)
    await house.live(60)
    assert isinstance(house.workers, Listening)
    assert len(house.workers.jobs) == 1


async def test_the_dirtiest_log_comes_first_and_no_more_at_once_than_there_are_threads() -> None:
    house = House()
    for tp, rounds in ((TP, 3), (OTHER, 3)):
        house.write_rounds(rounds, tp=tp)
    await house.live(1)
    house.write_rounds(2, tp=TP)
    house.write_rounds(20, tp=OTHER)
    workers = house.workers
    assert isinstance(workers, Listening)
    workers.jobs.clear()
    await house.cleaner.look()
    await asyncio.sleep(0.1)
    assert [job.topic_partition for job in workers.jobs] == [OTHER]
    await house.live(1)
    assert [job.topic_partition for job in workers.jobs] == [OTHER, TP]


async def test_two_threads_clean_two_logs_at_once_each_with_its_share() -> None:
    config = CleanerConfig(threads=2, io_buffer_size=4000, dedupe_buffer_size=4 * 2**20)
    house = House(config=config)
    house.write_rounds(3, tp=TP)
    house.write_rounds(3, tp=OTHER)
    await house.cleaner.look()
    await asyncio.sleep(0.1)
    assert isinstance(house.workers, Listening)
    assert [(job.dedupe_bytes, job.io_bytes) for job in house.workers.jobs] == [(2**21, 1000)] * 2


async def test_another_limit_of_bytes_is_told_to_those_at_work() -> None:
    house = House(config=CleanerConfig(threads=2, io_max_bytes_per_second=1000.0))
    house.cleaner.start()
    house.cleaner.update_config(CleanerConfig(threads=4, io_max_bytes_per_second=1200.0))
    await house.cleaner.close()
    assert isinstance(house.workers, Listening)
    assert house.workers.speeds == [500.0, 300.0]


async def test_it_sleeps_for_the_backoff_when_there_is_nothing_and_lets_the_workers_go() -> None:
    house = House(config=CleanerConfig(backoff_ms=10_000))
    house.write_rounds(3)
    await house.live(1)
    workers = house.workers
    assert isinstance(workers, Listening)
    assert (len(workers.jobs), workers.rests > 0) == (1, True)
    house.cleaner.start()
    await asyncio.sleep(1)
    house.write_rounds(3)
    await asyncio.sleep(8.9)
    assert len(workers.jobs) == 1
    await asyncio.sleep(0.2)
    assert len(workers.jobs) == 2
    await house.cleaner.close()


async def test_what_the_high_watermark_has_not_passed_is_not_cleaned() -> None:
    house = House()
    house.write_rounds(6)
    house.watermarks[TP] = 25  # in the third segment
    await house.live(1)
    assert house.checkpoint() == 20
    assert len(house.records()) == 10 + 40


async def test_a_log_whose_high_watermark_is_not_known_is_not_cleaned() -> None:
    house = House()
    house.write_rounds(6)
    house.cleaner.high_watermark = lambda tp: None
    await house.live(60)
    assert len(house.records()) == 60


async def test_nothing_is_cleaned_before_its_lag_and_then_only_what_is_older() -> None:
    config = attrs.evolve(COMPACT, min_compaction_lag_ms=60_000)
    house = House()
    house.write_rounds(5, config=config)
    house.cleaner.start()
    await asyncio.sleep(30)
    house.write_rounds(5, config=config)
    await asyncio.sleep(29)
    assert len(house.records()) == 100
    await asyncio.sleep(17)
    assert len(house.records()) == 10 + 50
    assert house.checkpoint() == 50
    await house.cleaner.close()


async def test_with_other_settings_it_cleans_what_it_could_not_before() -> None:
    house = House(config=CleanerConfig(backoff_ms=600_000))
    house.log(TP, attrs.evolve(COMPACT, min_cleanable_dirty_ratio=1.0))
    house.write_rounds(4)
    house.cleaner.start()
    await asyncio.sleep(5)
    assert len(house.records()) == 40
    house.log().update_config(COMPACT)
    house.cleaner.update_config(CleanerConfig(backoff_ms=600_000, threads=2))
    await asyncio.sleep(1)
    assert len(house.records()) == 10
    await house.cleaner.close()


async def test_a_map_that_is_too_small_cleans_in_several_passes() -> None:
    house = House(config=CleanerConfig(dedupe_buffer_size=2000))
    house.write_rounds(5, keys=100, config=attrs.evolve(COMPACT, segment_bytes=100_000))
    before = house.newest()
    await house.live(30)
    assert isinstance(house.workers, Listening)
    assert len(house.workers.jobs) > 2
    assert house.newest() == before
    assert house.checkpoint() == 500


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
async def test_logs_that_begin_in_old_formats_are_cleaned(magic: int, codec: Codec) -> None:
    house = House()
    log = house.log()
    for number in range(0, 40, 2):
        rows = [(number + n, T0 if magic else -1, b"k%d" % (n), b"%d" % number, ()) for n in (0, 1)]
        log.append_follower(encode_messages(rows, magic, codec=codec), now_ms=T0)
        if number % 10 == 8:
            log.roll(T0)
    house.write_rounds(2, keys=3)
    before = house.newest()
    await house.live(1)
    assert house.newest() == before
    assert len(house.records()) == 3


# ---- retention


async def test_compact_and_delete_compacts_and_then_deletes_by_time() -> None:
    config = attrs.evolve(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=60_000)
    house = House()
    house.write_rounds(5, config=config)
    house.cleaner.start()
    await asyncio.sleep(1)
    assert len(house.records()) == 10
    await asyncio.sleep(90)
    assert house.records() == []
    assert (len(house.log().segments), house.log().log_start_offset) == (1, 50)
    await house.cleaner.close()


@pytest.mark.parametrize(
    ("policy", "left"),
    [(("delete",), 30), (("compact",), 30), (("compact", "delete"), 0)],
)
async def test_only_what_is_compacted_and_deleted_gets_its_retention_here(
    policy: tuple[str, ...], left: int
) -> None:
    config = attrs.evolve(
        COMPACT, cleanup_policy=policy, retention_ms=1, min_cleanable_dirty_ratio=1.0
    )
    house = House()
    house.write_rounds(3, config=config)
    await house.live(60)
    assert len(house.records()) == left


async def test_a_compacted_log_loses_the_segments_below_its_start() -> None:
    house = House()
    house.log(TP, attrs.evolve(COMPACT, min_cleanable_dirty_ratio=1.0))
    house.write_rounds(4)
    house.log().increment_log_start_offset(25)
    await house.live(1)
    assert house.log().segments.first.base_offset == 20


# ---- what may happen to a log meanwhile


async def check_aborted(house: House, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Check that a job is aborted and leaves nothing behind."""
    with caplog.at_level("INFO"):
        await house.live(1)
    assert f"aborted: {why}" in caplog.text
    assert "cannot be cleaned" not in caplog.text
    assert status(house).quarantine is None


async def test_a_truncation_while_it_cleans_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)

    def cut() -> None:
        house.log().truncate_to(5)
        house.log().update_config(attrs.evolve(COMPACT, min_cleanable_dirty_ratio=1.0))
        house.write_rounds(4, keys=5)

    house.workers.before = when_swapped(cut)
    await check_aborted(house, caplog, "it was truncated")
    assert len(house.records()) == 5 + 20
    assert (house.checkpoint(), house.leftovers()) == (None, [])


async def test_retention_while_it_cleans_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.write_rounds(8)
    assert isinstance(house.workers, Listening)

    def retain() -> None:
        house.log().increment_log_start_offset(20)
        assert house.log().delete_old_segments(80, house.now_ms()) == 2

    house.workers.before = when_swapped(retain)
    await check_aborted(house, caplog, "its segments have changed")
    await house.live(1)
    assert len(house.records()) == 10
    assert house.leftovers() == []


async def test_a_partition_that_is_deleted_while_it_cleans_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)
    house.workers.before = when_swapped(lambda: house.logs.delete(TP))
    await check_aborted(house, caplog, "it is no longer here")


async def test_a_new_partition_of_the_name_is_not_taken_for_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)

    def again() -> None:
        house.logs.delete(TP)
        house.write(("new", "1"), ("new", "2"))

    house.workers.before = when_swapped(again)
    await check_aborted(house, caplog, "it is no longer here")
    assert house.records() == [("new", "1"), ("new", "2")]
    house.logs.tick(house.now_ms())
    assert house.checkpoint() in (None, 0)


async def test_a_log_that_is_not_to_be_compacted_any_more_is_let_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)
    house.workers.before = when_swapped(lambda: house.log().update_config(LogConfig()))
    await check_aborted(house, caplog, "its cleanup.policy is not compact")
    assert len(house.records()) == 40


async def test_a_log_that_is_moved_to_another_directory_is_cleaned_afterwards() -> None:
    disk = Disk()
    here, there = MemoryDirectory("here", disk), MemoryDirectory("there", disk)
    house = House(here, there)
    house.write_rounds(4)
    target = there.path if house.logs.futures.current_dir(TP).path == here.path else here.path
    house.logs.set_target_directory(TP, target)
    future = house.logs.futures.create(TP, COMPACT, lambda: T0)
    assert future is not None
    await house.live(60)
    assert len(house.records()) == 40
    for segment in house.log().segments:
        future.append_follower(segment.log.read(0, segment.size), now_ms=T0)
    house.logs.futures.replace_current(TP)
    future.roll(T0)
    await house.live(60)
    assert len(house.records()) == 10


async def test_what_is_clean_moves_with_the_log() -> None:
    disk = Disk()
    here, there = MemoryDirectory("here", disk), MemoryDirectory("there", disk)
    house = House(here, there)
    house.write_rounds(4)
    await house.live(1)
    target = there.path if house.logs.futures.current_dir(TP).path == here.path else here.path
    house.logs.set_target_directory(TP, target)
    future = house.logs.futures.create(TP, COMPACT, lambda: T0)
    assert future is not None
    for segment in house.log().segments:
        future.append_follower(segment.log.read(0, segment.size), now_ms=T0)
    future.truncate_fully_and_start_at(40)
    house.logs.futures.replace_current(TP)
    house.logs.tick(T0)
    moved = house.logs.dir_of(TP)
    assert moved is not None
    assert (moved.path, moved.cleaned.get(TP), house.checkpoint()) == (target, 40, 40)


async def test_a_truncation_between_two_cleanings_makes_dirty_what_came_since() -> None:
    house = House()
    house.write_rounds(4)
    await house.live(1)
    assert house.checkpoint() == 40
    house.write_rounds(1)
    house.log().truncate_to(35)
    house.write_rounds(3)
    before = house.newest()
    await house.live(1)
    assert house.newest() == before
    assert len(house.records()) == 10


# ---- faults


def spoil(log: Log, base_offset: int) -> None:
    """Change a byte of a segment's first record."""
    file = log.directory.open_segment(file_name(base_offset, ".log"))
    file.write(70, bytes([file.read(70, 1)[0] ^ 1]))


async def test_a_damaged_log_is_quarantined_and_the_others_are_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    house.write_rounds(4, tp=OTHER)
    spoil(house.log(), 10)
    with caplog.at_level("WARNING"):
        await house.live(1)
    assert (len(house.records(OTHER)), house.log().size) == (10, house.log().size)
    entry = status(house).quarantine
    assert entry is not None
    assert "CRC" in entry.reason
    assert file_name(10, ".log") in entry.reason
    assert (entry.since_ms, entry.next_try_ms) == (T0, T0 + FIRST_PAUSE_MS)
    assert "positions-0 cannot be cleaned, the next try is in 5 s" in caplog.text
    assert house.leftovers() == []
    assert house.log().failure is None


async def test_it_is_tried_again_after_ever_longer_pauses_and_at_last_succeeds() -> None:
    house = House(config=CleanerConfig(backoff_ms=1000))
    house.write_rounds(4)
    spoil(house.log(), 10)
    workers = house.workers
    assert isinstance(workers, Listening)
    house.cleaner.start()
    await asyncio.sleep(40)
    assert len(workers.jobs) == 4  # at 0, 5, 15 and 35 s
    spoil(house.log(), 10)
    await asyncio.sleep(52)
    assert len(house.records()) == 10
    assert status(house).quarantine is None
    await house.cleaner.close()


@pytest.mark.parametrize(
    ("error", "suspects"),
    [
        (CleaningFailed("worker 7 has died: killed by signal 9"), False),
        (CleaningFailed("OSError: no space", errno.ENOSPC), False),
        (CleaningFailed("OSError: bad sector", errno.EIO), True),
        (OSError(errno.EIO, "bad sector"), True),
        (KeyError("a bug"), False),
    ],
)
async def test_whatever_goes_wrong_the_cleaner_lives_on(error: Exception, suspects: bool) -> None:
    house = House()
    house.write_rounds(4)
    house.write_rounds(4, tp=OTHER)
    assert isinstance(house.workers, Listening)
    failures: list[bool] = []

    def fail(job: CleaningJob, event: Event) -> None:
        if job.topic_partition == TP and not failures:
            failures.append(True)
            raise error

    house.workers.before = fail
    house.cleaner.start()
    await asyncio.sleep(1)
    assert house.log().guard.suspects_disk is suspects
    assert (len(house.records()), len(house.records(OTHER))) == (40, 10)
    await asyncio.sleep(30)
    assert len(house.records()) == 10
    await house.cleaner.close()


async def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    house = House()
    for number in range(4):
        house.write((f"only {number}", "1"))
        house.write_rounds(1)
    house.disk.free_bytes = 10
    await house.live(1)
    assert len(house.records()) == 44
    assert house.leftovers() == []
    assert house.log().failure is None
    house.disk.free_bytes = None
    await asyncio.sleep(10)
    await house.live(1)
    assert len(house.records()) == 14


async def test_close_gives_up_what_is_under_way() -> None:
    house = House()
    house.write_rounds(4)
    house.cleaner.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await house.cleaner.close()
    assert len(house.records()) == 40
    assert house.leftovers() == []


# ---- what is told


async def test_a_pass_is_told_to_people(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.write_rounds(4)
    size = house.log().size
    with caplog.at_level("INFO"):
        await house.live(1)
    last = status(house).last
    assert last is not None
    assert (last.first_dirty_offset, last.end_offset) == (0, 40)
    assert (last.segments_before, last.statistics.messages_written) == (4, 10)
    assert last.statistics.map_bytes_read == last.statistics.bytes_read == size
    assert "positions-0: cleaning 4 segments, dirty from 0 to 40 (100% is dirty" in caplog.text
    assert "75.0% less messages" in caplog.text


async def test_records_without_a_key_that_went_are_told_once_a_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(1)
    batch = encode_batch([(T0, None, b"%d" % n, ()) for n in range(3)], base_offset=10)
    house.log().append_follower(batch, now_ms=T0)
    house.write_rounds(1)
    with caplog.at_level("WARNING"):
        await house.live(1)
    assert [record.message for record in caplog.records] == [
        "positions-0: 3 messages had no key, and are gone"
    ]


def test_what_went_wrong_with_records_is_told_in_a_line_each() -> None:
    statistics = CleanerStatistics(
        invalid_messages=2, outgrown_batches=7, unopened_batches=3, first_unopened=17
    )
    done = Pass(T0, T0, 0, 40, 4, 1, statistics)
    keyless, outgrown, unopened = list_warnings(done, attrs.evolve(COMPACT, max_message_bytes=1000))
    assert keyless.startswith("2 messages had no key")
    assert outgrown.startswith("7 batches have become larger than max.message.bytes, 1000")
    assert unopened.startswith("3 batches cannot be opened, the first at offset 17: they stay")
    assert list_warnings(attrs.evolve(done, statistics=CleanerStatistics()), COMPACT) == []


class CountingDirectory(MemoryDirectory):
    """Counts how often a file is written."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.written: Counter[str] = Counter()

    def write_atomic(self, name: str, data: bytes) -> None:
        self.written[name] += 1
        super().write_atomic(name, data)


async def test_what_is_under_way_is_told_every_ten_seconds() -> None:
    workers = Listening(inner=InLoop(pause_s=lambda: 4.0))
    directory = CountingDirectory("data")
    house = House(directory, workers=workers)
    house.write_rounds(4)
    house.cleaner.start()
    await asyncio.sleep(11)
    running = status(house).running
    assert running is not None
    assert (running.phase, running.since_ms) == ("index", T0)
    assert 0 < running.percent <= 100
    await asyncio.sleep(49)
    assert status(house).running is None
    assert status(house).last is not None
    assert directory.written[STATUS_FILE] <= 7
    await house.cleaner.close()


async def test_status_is_written_when_the_cleaner_is_closed() -> None:
    directory = CountingDirectory("data")
    house = House(directory)
    house.write_rounds(4)
    await house.live(1)
    assert status(house).last is not None
    assert directory.written[STATUS_FILE] == 2  # what there is to clean, and what was done


@pytest.mark.parametrize("idle", [0, 300])
async def test_logs_that_are_clean_are_measured_once_a_backoff_however_many_are_cleaned(
    idle: int,
) -> None:
    house = House()
    dirty = [TopicPartition(TP.topic, number) for number in range(10)]
    clean = [TopicPartition(TP.topic, 10 + number) for number in range(idle)]
    for tp in dirty:
        house.write_rounds(4, tp=tp)
    for tp in clean:
        house.log(tp)
    lookups: Counter[TopicPartition] = Counter()

    def high_watermark(tp: TopicPartition) -> int | None:
        lookups[tp] += 1
        return house.high_watermark(tp)

    house.cleaner.high_watermark = high_watermark
    await house.live(10)
    assert isinstance(house.workers, Listening)
    assert sorted(job.topic_partition for job in house.workers.jobs) == dirty
    assert [lookups[tp] for tp in clean] == [2] * idle  # for retention, and to be measured
    assert max(lookups[tp] for tp in dirty) <= 6


async def test_the_last_pass_is_known_after_a_restart() -> None:
    house = House()
    house.write_rounds(4)
    await house.live(1)
    before = status(house)
    house.logs.close()
    again = House(*house.directories)
    again.cleaner.status.load()
    assert again.cleaner.status.get(TP) == before
    assert again.checkpoint() == 40


async def test_a_status_of_another_kind_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.directories[0].write_atomic(STATUS_FILE, b'{"version": 9}')
    house.write_rounds(4)
    await house.live(1)
    assert "is ignored" in caplog.text
    assert status(house).last is not None


async def test_a_checkpoint_that_cannot_be_is_set_back_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    log_dir = house.logs.dir_of(TP)
    assert log_dir is not None
    log_dir.cleaned.save_offset(TP, 1000)
    await house.live(1)
    assert "1000 is above the log's end" in caplog.text
    assert (len(house.records()), house.checkpoint()) == (10, 40)
