"""The bounds of the offset map, and its contents."""

from __future__ import annotations

import pytest

from compaction.keys import Keys
from compaction.map_building import MapBuilder
from compaction.offset_map import create_offset_map
from compaction.source import read_pieces
from compaction.transactions import CleanedTransactions
from protocol.records.compression import Codec
from tests.compaction.partition import PLENTY, Partition, room_for


def built(partition: Partition, first_dirty: int, room: int = PLENTY) -> MapBuilder:
    """Build the map that a run has after all segments from `first_dirty` on."""
    mapped = MapBuilder(create_offset_map(room), CleanedTransactions([]), first_dirty, first_dirty)
    for segment in partition.job().segments:
        if segment.end_offset > first_dirty:
            for piece in read_pieces(partition.directory, segment, 1):
                mapped.add(piece)
    return mapped


def newest(mapped: MapBuilder, keys: range) -> list[int]:
    return list(mapped.newest.newest(Keys.of([b"%d" % key for key in keys])))


@pytest.mark.parametrize("first_dirty", [0, 10, 15, 20, 30])
def test_keys_from_the_first_dirty_offset_on_are_in_it_and_no_others(first_dirty: int) -> None:
    partition = Partition()
    for offset in range(30):
        partition.append((b"%d" % offset, b""))
        if offset % 10 == 9:
            partition.roll()
    mapped = built(partition, first_dirty)
    unknown, mapped_offsets = [-1] * first_dirty, list(range(first_dirty, 30))
    assert newest(mapped, range(30)) == unknown + mapped_offsets
    assert (len(mapped.newest), mapped.messages_read) == (len(mapped_offsets), len(mapped_offsets))
    assert not mapped.is_full


def test_offsets_far_from_each_other_are_kept_as_they_are() -> None:
    """As of a log in which there is one record left of millions."""
    partition = Partition()
    partition.append((b"0", b""))
    partition.next_offset = 7206178
    partition.append((b"1", b""))
    partition.roll()
    mapped = built(partition, 0)
    assert newest(mapped, range(2)) == [0, 7206178]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("is_old", [False, True])
def test_full_map_ends_before_the_first_record_that_finds_no_room(
    codec: Codec, is_old: bool
) -> None:
    partition = Partition()
    append = partition.append_messages if is_old else partition.append
    for first in (0, 2, 4):
        append((b"%d" % first, b""), (b"%d" % (first + 1), b""), codec=codec)
    append((b"3", b""), codec=codec)
    partition.roll()
    mapped = built(partition, 2, room_for(3))
    assert mapped.is_full
    assert (mapped.end_offset, mapped.messages_read) == (5, 3)
    assert newest(mapped, range(6)) == [-1, -1, 2, 3, 4, -1]
