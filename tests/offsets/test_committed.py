"""The state of committed offsets, as built from records."""

import gc

import pytest

from offsets.committed import CommittedOffsets
from offsets.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordError,
    ValueVersions,
    encode_key,
    encode_value,
)
from protocol.topic_partition import TopicPartition

KEY = OffsetKey("g", "t", 0)
OLD_KEY = b"\x00\x00" + encode_key(KEY)[2:]


def replay(
    committed: CommittedOffsets, key: OffsetKey, value: CommittedOffset | None, version: int = 3
) -> None:
    assert committed.replay([(encode_key(key), encode_value(value, ValueVersions(version)))]) == []


def test_the_last_record_of_a_partition_wins_even_with_a_smaller_offset() -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, CommittedOffset(42))
    replay(committed, KEY, CommittedOffset(7, metadata="reset"))
    assert committed.of_group("g") == {"t": {0: CommittedOffset(7, metadata="reset")}}


def test_groups_topics_and_partitions_are_kept_apart() -> None:
    committed = CommittedOffsets()
    for number, key in enumerate([KEY, OffsetKey("g", "t", 1), OffsetKey("g", "u", 0)]):
        replay(committed, key, CommittedOffset(number))
    replay(committed, OffsetKey("h", "t", 0), CommittedOffset(9))
    assert committed.of_group("g") == {
        "t": {0: CommittedOffset(0), 1: CommittedOffset(1)},
        "u": {0: CommittedOffset(2)},
    }
    assert committed.of_group("h") == {"t": {0: CommittedOffset(9)}}
    assert committed.count() == 4


def test_group_whose_last_offset_is_removed_is_gone() -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, CommittedOffset(1))
    replay(committed, KEY, None)
    assert list(committed.groups()) == []
    assert committed.of_group("g") == {}
    assert committed.count() == 0


def test_removing_one_partition_leaves_the_others() -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, CommittedOffset(1))
    replay(committed, OffsetKey("g", "t", 1), CommittedOffset(2))
    replay(committed, KEY, None)
    assert committed.of_group("g") == {"t": {1: CommittedOffset(2)}}


def test_tombstone_of_what_never_was_changes_nothing() -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, None)
    assert list(committed.groups()) == []


def test_one_partition_is_fetched_and_what_was_never_committed_is_none() -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, CommittedOffset(42, -1, "note", 5, 6))
    assert committed.fetch("g", "t", 0) == CommittedOffset(42, -1, "note", 5, 6)
    assert committed.fetch("g", "t", 1) is None
    assert committed.fetch("g", "u", 0) is None
    assert committed.fetch("h", "t", 0) is None


def test_offsets_cost_the_garbage_collector_nothing() -> None:
    committed = CommittedOffsets()
    gc.collect()
    before = len(gc.get_objects())
    for partition in range(10_000):
        replay(committed, OffsetKey("g", "t", partition), CommittedOffset(partition))
    gc.collect()
    assert len(gc.get_objects()) - before < 100


@pytest.mark.parametrize("version", [1, 2, 3])
def test_values_of_all_versions_are_read_when_they_are_asked_for(version: int) -> None:
    committed = CommittedOffsets()
    for metadata in ("", "note"):
        value = CommittedOffset(42, -1, metadata, 5)
        for _ in range(2):  # the second time the place is known
            replay(committed, KEY, value, version)
        assert committed.fetch(*KEY) == value


def test_keys_of_both_versions_are_of_one_offset() -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, CommittedOffset(1))
    committed.replay([(OLD_KEY, encode_value(CommittedOffset(2)))])
    committed.replay([(OLD_KEY, encode_value(CommittedOffset(3)))])
    assert committed.fetch(*KEY) == CommittedOffset(3)
    assert committed.count() == 1
    replay(committed, KEY, None)
    assert committed.count() == 0
    replay(committed, KEY, CommittedOffset(4))
    assert committed.fetch(*KEY) == CommittedOffset(4)


@pytest.mark.parametrize("at", [0, 1, 14, 15])
def test_malformed_value_is_found_when_it_is_replayed_and_not_when_it_is_fetched(at: int) -> None:
    committed = CommittedOffsets()
    replay(committed, KEY, CommittedOffset(1))
    bad = bytearray(encode_value(CommittedOffset(2)) or b"")
    bad[at] ^= 0x40
    with pytest.raises(RecordError):
        committed.replay([(encode_key(KEY), bytes(bad))])
    with pytest.raises(RecordError):
        committed.replay([(encode_key(KEY), bytes(bad)[:-1])])


def test_records_of_no_offset_are_given_back() -> None:
    of_a_group = encode_key(GroupKey("g")), None
    assert CommittedOffsets().replay([of_a_group]) == [of_a_group]


def test_keys_of_partitions_are_found_in_all_groups() -> None:
    committed = CommittedOffsets()
    for group in ("g", "h"):
        for partition in (-1, 0, 1):
            replay(committed, OffsetKey(group, "t", partition), CommittedOffset(1))
        replay(committed, OffsetKey(group, "u", 0), CommittedOffset(1))
    (found,) = committed.slices_of({TopicPartition("t", 0), TopicPartition("t", 7)}, 100)
    assert sorted(found) == [OffsetKey("g", "t", 0), OffsetKey("h", "t", 0)]


def test_keys_of_partitions_come_in_slices_whatever_groups_come_and_go_between_them() -> None:
    committed = CommittedOffsets()
    groups = [f"g{n}" for n in range(20)]
    for group in groups:
        for partition in range(10):
            replay(committed, OffsetKey(group, "t", partition), CommittedOffset(1))
    of_topic = [TopicPartition("t", partition) for partition in range(10)]
    found: list[OffsetKey] = []
    for keys in committed.slices_of(of_topic, 7):
        assert len(keys) <= 7
        found += keys
        for key in keys:
            replay(committed, key, None)
        replay(committed, OffsetKey(f"new {len(found)}", "t", 0), CommittedOffset(1))
    assert sorted(found) == sorted(OffsetKey(g, "t", n) for g in groups for n in range(10))


def test_keys_of_a_group_come_each_once_though_it_changes_meanwhile() -> None:
    committed = CommittedOffsets()
    keys = [OffsetKey("g", topic, n) for topic in "tuv" for n in range(5)]
    for key in keys:
        replay(committed, key, CommittedOffset(1))

    found: list[OffsetKey] = []
    for key in committed.keys_of("g"):
        found.append(key)
        replay(committed, key, None)
        replay(committed, OffsetKey("g", "new", len(found)), CommittedOffset(1))
    assert found == keys


def test_groups_without_an_offset_in_question_are_looked_at_a_slice_at_a_time_too() -> None:
    committed = CommittedOffsets()
    for n in range(100):
        replay(committed, OffsetKey(f"g{n}", "u", 0), CommittedOffset(1))
    slices = [*committed.slices_of([TopicPartition("t", 0)], 10)]
    assert len(slices) >= 10
    assert not any(slices)


def test_records_of_later_kinds_are_counted_and_skipped() -> None:
    committed = CommittedOffsets()
    later = (b"\x00\x03" + b"anything", b"\x00\x00")
    assert committed.replay([later, (later[0], None)]) == []
    assert committed.skipped == 2
    assert committed.count() == 0
