"""The facts that a job is made of: the state of a log, as values."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from compaction.config import CleanerConfig
from compaction.dirtiness import measure_dirtiness
from compaction.job import NO_DATA
from compaction.log_facts import create_job, read_facts
from core_log.producers.producer_state import Producer, ProducerState
from tests.compaction.house import COMPACT, T0, House

pytestmark = pytest.mark.virtual_time


def bounds(house: House, high_watermark: int) -> tuple[int, int]:
    """The first dirty and the first uncleanable offset."""
    result = measure_dirtiness(read_facts(house.log(), high_watermark, None), T0)
    return result.first_dirty_offset, result.first_uncleanable_offset


async def test_a_job_has_all_segments_up_to_the_first_uncleanable_one() -> None:
    house = House()
    house.write_rounds(4)
    log = house.log()
    job = create_job(log, measure_dirtiness(read_facts(log, 25, 10), T0), CleanerConfig(), T0 + 7)
    assert [(s.base_offset, s.end_offset) for s in job.segments] == [(0, 10), (10, 20)]
    assert [s.size for s in job.segments] == [s.size for s in log.segments][:2]
    assert all(s.time_index_bytes == 12 for s in job.segments)
    assert (job.first_dirty_offset, job.first_uncleanable_offset, job.now_ms) == (10, 20, T0 + 7)
    config = CleanerConfig()
    assert (job.dedupe_bytes, job.load_factor) == (config.dedupe_buffer_size, 0.9)


async def test_what_may_yet_be_aborted_is_not_cleaned() -> None:
    house = House()
    house.write_rounds(4)
    first, second = Producer(0, transaction_start=12), Producer(0, transaction_start=31)
    for open_transactions, end in (
        ({7: first, 8: second}, 10),
        ({8: second}, 30),
        ({}, 40),
    ):
        house.log().history.state = ProducerState(open_transactions)
        assert bounds(house, 40) == (0, end)


async def test_of_each_producer_the_last_offset_of_its_data_is_told() -> None:
    house = House()
    numbered: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0}
    house.write(("a", "1"), producer_id=7, **numbered)
    house.write(("b", "1"), producer_id=8, **numbered)
    house.write(("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    house.log().producers.producers[9] = Producer(3)
    house.log().roll(T0)
    job = create_job(
        house.log(), measure_dirtiness(read_facts(house.log(), 3, None), T0), CleanerConfig(), T0
    )
    assert job.producers == {7: 2, 8: 1, 9: NO_DATA}


async def test_when_a_segment_begins_is_read_where_a_record_must_not_wait_for_ever() -> None:
    house = House()
    house.write(("a", "1"), timestamp=T0 - 50)
    house.write(("a", "2"), timestamp=T0 + 50)
    house.log().roll(T0)
    assert read_facts(house.log(), 2, None).segments[0].first_timestamp == -1
    house.log().update_config(attrs.evolve(COMPACT, max_compaction_lag_ms=1000))
    assert read_facts(house.log(), 2, None).segments[0].first_timestamp == T0 - 50


async def test_what_has_waited_too_long_is_cleaned_however_little_it_is() -> None:
    config = attrs.evolve(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    house = House()
    house.write_rounds(3, config=config)
    await house.live(59)
    assert len(house.records()) == 30
    await house.live(20)
    assert len(house.records()) == 10
