"""What the cleaner logs and writes of its work."""

from __future__ import annotations

import asyncio
from collections import Counter

import attrs
import pytest

from compaction.job import CleanerStatistics
from compaction.report import list_warnings
from compaction.status import STATUS_FILE, Pass
from compaction.worker_pool import InLoop
from core_log.memory_directory import MemoryDirectory
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition
from tests.compaction.cleaner.reports import status
from tests.compaction.house import COMPACT, T0, TP, House, Listening

pytestmark = pytest.mark.virtual_time


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
