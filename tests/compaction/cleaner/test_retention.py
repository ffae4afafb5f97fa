"""What the cleaner deletes of logs that are compacted."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from protocol.topic_partition import TopicPartition
from tests.compaction.house import COMPACT, TP, House

pytestmark = pytest.mark.virtual_time


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


@pytest.mark.fault("strangers-99")
@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
async def test_a_log_whose_file_is_gone_does_not_keep_others_from_being_cleaned(
    policy: tuple[str, ...],
) -> None:
    """Of a log without records the file's own time counts, and there is no file."""
    house = House()
    config = attrs.evolve(COMPACT, cleanup_policy=policy)
    empty = house.log(TopicPartition("a-empty", 0), config)
    house.write_rounds(5)
    empty.directory.remove("00000000000000000000.log")

    await house.live(1)
    assert len(house.records()) == 10
    assert (empty.failure is not None, house.log().failure) == (True, None)
