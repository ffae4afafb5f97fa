"""Logs that were cleaned, and what they are when a broker finds them again."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from compaction.clean import clean
from compaction.config import CleanerConfig
from compaction.dirtiness import measure_dirtiness
from compaction.job import GroupCleaned
from compaction.log_facts import create_job, read_facts
from core_log.config import INT_MAX
from core_log.memory_directory import MemoryDirectory
from core_log.segments.file_name import ALL_SUFFIXES, CLEANED, LOG, SUFFIXES, SWAP, file_name
from core_log.storage import Directory
from protocol.records.batch import encode_batch
from tests.compaction.house import COMPACT, T0, TP, House

pytestmark = pytest.mark.virtual_time

LARGE_SEGMENTS = attrs.evolve(COMPACT, segment_bytes=10_000)


def written(house: House) -> Directory:
    """Four segments, and beside them the copy that a cleaner made of all of them."""
    house.write_rounds(4, config=LARGE_SEGMENTS)
    log = house.log()
    chosen = measure_dirtiness(read_facts(log, log.log_end_offset, None), T0)
    events = list(clean(create_job(log, chosen, CleanerConfig(), T0), log.directory))
    assert [e for e in events if isinstance(e, GroupCleaned)] == [GroupCleaned(0, (0, 10, 20, 30))]
    return log.directory


def renamed(directory: Directory, bases: list[int], before: str, after: str) -> None:
    for base in bases:
        for kind in ALL_SUFFIXES:
            name = file_name(base, kind)
            if directory.size(name + before) is not None:
                directory.rename(name + before, name + after)


STEPS = [([0], CLEANED, SWAP), ([0, 10, 20, 30], "", ".deleted"), ([0], SWAP, "")]


@pytest.mark.parametrize(("steps", "left"), [(0, 40), (1, 10), (2, 10), (3, 10)])
async def test_a_broker_that_died_while_a_copy_took_its_place_has_all_or_the_copy(
    steps: int, left: int
) -> None:
    house = House()
    directory = written(house)
    wanted = house.newest()
    for step in STEPS[:steps]:
        renamed(directory, *step)
    house.logs.close(clean=False)
    again = House(*house.directories)
    assert (len(again.records()), again.newest()) == (left, wanted)
    assert again.log().log_end_offset == 40
    assert again.leftovers() == []
    await again.live(1)
    assert (len(again.records()), again.newest()) == (10, wanted)


async def test_files_of_a_copy_end_with_what_is_in_them_though_logs_are_given_room_first() -> None:
    house = House()
    house.write_rounds(4, config=attrs.evolve(LARGE_SEGMENTS, preallocate=True))
    await house.live(1)
    copy, active = house.log().segments
    names = [file_name(0, kind) for kind in SUFFIXES]
    sizes = [house.log().directory.size(name) for name in names]
    assert sizes == [copy.size, 8 * copy.offset_index.file.count, 12 * copy.time_index.file.count]
    assert copy.find(39) is not None
    assert active.base_offset == 40
    assert len(house.records()) == 10


async def test_batches_sent_again_are_known_from_a_cleaned_log_alone() -> None:
    house = House()
    for producer_id in (1, 2, 3):
        numbered: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
        for sequence in (0, 1):
            house.write((f"k{sequence}", f"{producer_id}"), base_sequence=sequence, **numbered)
    house.write(("k0", "newest"), ("k1", "newest"))
    house.log().roll(T0)
    await house.live(1)
    assert house.records() == [("k0", "newest"), ("k1", "newest")]
    directory = house.log().directory
    house.logs.close(clean=False)
    for name in directory.files():
        if name.endswith(".snapshot"):
            directory.remove(name)
    again = House(*house.directories)
    end_offset = again.log().log_end_offset
    for producer_id in (1, 2, 3):
        again.write(
            ("k1", f"{producer_id}"), producer_id=producer_id, producer_epoch=0, base_sequence=1
        )
    assert again.log().log_end_offset == end_offset
    again.write(("k1", "next"), producer_id=2, producer_epoch=0, base_sequence=2)
    assert again.newest() == {"k0": "newest", "k1": "next"}


async def test_a_segment_too_wide_for_its_index_is_split_when_loaded_and_then_cleaned() -> None:
    data = MemoryDirectory("data")
    batches = [
        encode_batch([(T0, b"k%d" % (n % 2), b"%d" % n, ())], base_offset=n * INT_MAX // 2)
        for n in range(6)
    ]
    data.child(str(TP)).open_segment(file_name(0, LOG)).append(batches)
    house = House(data)
    house.log(TP, COMPACT).roll(T0)
    assert len(house.log().segments) == 3
    await house.live(1)
    assert house.records() == [("k0", "4"), ("k1", "5")]
    assert house.checkpoint() == 5 * INT_MAX // 2 + 1
    house.logs.close()
    assert House(data).newest() == {"k0": "4", "k1": "5"}
