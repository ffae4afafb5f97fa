"""Groups as the records of `__consumer_offsets` show them, from batches made here."""

from collections.abc import Sequence

import pytest

from clients.groups.recorded_groups import (
    RecordedGroups,
    RecordedOffset,
    VisibleRecord,
    time_of_commit,
)
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    Key,
    OffsetKey,
    Value,
    encode_key,
    encode_value,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
WRITTEN_MS, ENDED_MS = 5_000, 6_000
KEY = OffsetKey("g", "t", 0)


def committed(offset: int, at_ms: int = 1_000) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", at_ms)


def batch(
    base_offset: int, records: Sequence[tuple[Key, Value | None]], producer_id: int | None = None
) -> bytes:
    rows = [(WRITTEN_MS, encode_key(key), encode_value(value), ()) for key, value in records]
    if producer_id is None:
        return encode_batch(rows, base_offset=base_offset)
    return encode_batch(rows, base_offset=base_offset, producer_id=producer_id, flags=TRANSACTIONAL)


def marker(base_offset: int, kind: int, producer_id: int = 7) -> bytes:
    return encode_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=ENDED_MS,
        base_offset=base_offset,
    )


def read(*batches: bytes, groups: RecordedGroups | None = None) -> RecordedGroups:
    records = groups or RecordedGroups()
    records.feed(0, b"".join(batches))
    return records


def offset_of(records: RecordedGroups) -> int | None:
    recorded = records.of("g").offsets.get(T0)
    return None if recorded is None else recorded.offset


@pytest.mark.fault("tool-F2")
def test_the_last_commit_counts_with_its_place_and_the_time_of_its_broker() -> None:
    records = read(batch(0, [(KEY, committed(5)), (KEY, committed(6, 2_000))]))
    assert records.of("g").offsets == {T0: RecordedOffset(6, 3, "note", WRITTEN_MS, None, 1, 2_000)}
    assert records.positions == {0: 2}


def test_a_commit_in_a_record_without_a_time_has_the_committers() -> None:
    record = VisibleRecord(0, -1, KEY, committed(5))
    assert time_of_commit(record, committed(5, 2_000)) == 2_000
    # A client may say any number.
    assert time_of_commit(record, committed(5, -(2**60))) == -1


def test_the_newest_time_is_that_of_all_records_also_of_markers() -> None:
    records = read(batch(0, [(KEY, committed(5))]), batch(1, [(KEY, committed(6))], 7))
    assert records.newest_ms == WRITTEN_MS
    read(marker(2, ABORT), groups=records)
    assert records.newest_ms == ENDED_MS


def test_an_expiry_of_the_committers_own_is_kept() -> None:
    value = CommittedOffset(5, -1, "", 1_000, 9_000)
    assert read(batch(0, [(KEY, value)])).of("g").offsets[T0].expires_at_ms == 9_000


def test_tombstones_delete_an_offset_and_then_the_group() -> None:
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation_id=4,
        protocol=None,
        leader=None,
        state_timestamp_ms=8_000,
        members=(),
    )
    records = read(batch(0, [(KEY, committed(5)), (GroupKey("g"), metadata), (KEY, None)]))
    assert records.of("g").offsets == {}
    assert records.of("g").metadata == metadata
    assert records.of("g").metadata_written_ms == 5_000
    read(batch(3, [(GroupKey("g"), None)]), groups=records)
    assert records.groups == {}


def test_other_groups_and_kinds_of_records_are_left_out() -> None:
    rows = [
        (1, b"\x00\x03\x00\x01g\x00", b"", ()),  # the key of a newer coordinator's record
        (1, b"\x00", b"x", ()),
        (1, None, b"x", ()),
        (1, encode_key(OffsetKey("other", "t", 0)), encode_value(committed(1)), ()),
        (1, encode_key(KEY), b"\x00\x63", ()),  # a value of version 99
    ]
    records = RecordedGroups(frozenset({"g"}))
    read(encode_batch(rows), groups=records)
    assert records.groups == {}
    assert records.positions == {0: 5}


def test_a_commit_of_an_open_transaction_is_not_shown_until_its_marker() -> None:
    records = read(batch(0, [(KEY, committed(5))]), batch(1, [(KEY, committed(6))], 7))
    assert offset_of(records) == 5
    read(marker(2, COMMIT), groups=records)
    assert offset_of(records) == 6


def test_a_commit_of_an_aborted_transaction_is_never_shown() -> None:
    records = read(batch(0, [(KEY, committed(6))], 7), marker(1, ABORT), marker(2, COMMIT))
    assert offset_of(records) is None
    assert records.positions == {0: 3}


def test_a_transaction_that_ends_late_leaves_a_later_commit() -> None:
    records = read(
        batch(0, [(KEY, committed(6))], 7), batch(1, [(KEY, committed(9))]), marker(2, COMMIT)
    )
    assert offset_of(records) == 9


@pytest.mark.fault("strangers-78")
def test_a_transaction_that_ends_late_does_not_bring_a_deleted_group_back() -> None:
    records = read(batch(0, [(KEY, committed(6))], 7), batch(1, [(KEY, None)]), marker(2, COMMIT))
    assert records.groups == {}
    # A later one begins anew.
    read(batch(3, [(KEY, committed(8))], 7), marker(4, COMMIT), groups=records)
    assert offset_of(records) == 8


def test_what_was_deleted_in_a_log_that_is_made_again_hides_nothing() -> None:
    records = read(batch(0, [(KEY, committed(6))], 7), batch(9, [(KEY, None)]))
    records._open[1, 8] = []
    records.forget(0)
    records.positions.clear()
    read(batch(0, [(KEY, committed(8))]), groups=records)
    assert offset_of(records) == 8


def test_records_before_the_position_are_not_read_again() -> None:
    both = batch(0, [(KEY, committed(5)), (KEY, None)])
    seen: list[VisibleRecord] = []
    records = RecordedGroups(sink=lambda _, record: seen.append(record))
    records.positions[0] = 1
    read(both, groups=records)
    assert [record.log_offset for record in seen] == [1]


def test_an_incomplete_batch_at_the_end_is_left_for_the_next_reading() -> None:
    first, second = batch(0, [(KEY, committed(5))]), batch(1, [(KEY, committed(6))])
    records = read(first, second[:-1])
    assert (offset_of(records), records.positions) == (5, {0: 1})
    read(second, groups=records)
    assert offset_of(records) == 6


def test_log_is_complete_from_its_start_until_compaction_leaves_a_gap() -> None:
    whole = read(batch(0, [(KEY, committed(5))]), batch(1, [(KEY, committed(6))]))
    assert whole.complete_since_ms == {0: 0}

    gap = read(batch(0, [(KEY, committed(5))]), batch(3, [(KEY, committed(6))]))
    written_ms = gap.complete_since_ms[0]
    assert written_ms > 0
    read(batch(4, [(KEY, committed(7))]), groups=gap)
    assert gap.complete_since_ms == {0: written_ms}
