"""The state that records make."""

import gc

from offsets.committed import CommittedOffsets
from offsets.records import CommittedOffset, OffsetKey

KEY = OffsetKey("g", "t", 0)


def test_the_last_record_of_a_partition_wins_even_with_a_smaller_offset() -> None:
    committed = CommittedOffsets()
    committed.replay(KEY, CommittedOffset(42))
    committed.replay(KEY, CommittedOffset(7, metadata="reset"))
    assert committed.of_group("g") == {"t": {0: CommittedOffset(7, metadata="reset")}}


def test_groups_topics_and_partitions_are_kept_apart() -> None:
    committed = CommittedOffsets()
    for number, key in enumerate([KEY, OffsetKey("g", "t", 1), OffsetKey("g", "u", 0)]):
        committed.replay(key, CommittedOffset(number))
    committed.replay(OffsetKey("h", "t", 0), CommittedOffset(9))
    assert committed.of_group("g") == {
        "t": {0: CommittedOffset(0), 1: CommittedOffset(1)},
        "u": {0: CommittedOffset(2)},
    }
    assert committed.of_group("h") == {"t": {0: CommittedOffset(9)}}
    assert committed.count() == 4


def test_group_whose_last_offset_is_removed_is_gone() -> None:
    committed = CommittedOffsets()
    committed.replay(KEY, CommittedOffset(1))
    committed.replay(KEY, None)
    assert list(committed.groups()) == []
    assert committed.of_group("g") == {}
    assert committed.count() == 0


def test_removing_one_partition_leaves_the_others() -> None:
    committed = CommittedOffsets()
    committed.replay(KEY, CommittedOffset(1))
    committed.replay(OffsetKey("g", "t", 1), CommittedOffset(2))
    committed.replay(KEY, None)
    assert committed.of_group("g") == {"t": {1: CommittedOffset(2)}}


def test_tombstone_of_what_never_was_changes_nothing() -> None:
    committed = CommittedOffsets()
    committed.replay(KEY, None)
    assert list(committed.groups()) == []


def test_one_partition_is_fetched_and_what_was_never_committed_is_none() -> None:
    committed = CommittedOffsets()
    committed.replay(KEY, CommittedOffset(42, 3, "note", 5, 6))
    assert committed.fetch("g", "t", 0) == CommittedOffset(42, 3, "note", 5, 6)
    assert committed.fetch("g", "t", 1) is None
    assert committed.fetch("g", "u", 0) is None
    assert committed.fetch("h", "t", 0) is None


def test_offsets_cost_the_garbage_collector_nothing() -> None:
    committed = CommittedOffsets()
    gc.collect()
    before = len(gc.get_objects())
    for partition in range(10_000):
        committed.replay(OffsetKey("g", "t", partition), CommittedOffset(partition))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
