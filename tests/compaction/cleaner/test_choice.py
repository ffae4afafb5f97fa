"""Which logs the cleaner takes, in which order, and what comes of them."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from compaction.clean import Event
from compaction.config import CleanerConfig
from compaction.job import CleaningJob
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from tests.compaction.house import COMPACT, OTHER, T0, TP, House, Listening

pytestmark = pytest.mark.virtual_time


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
