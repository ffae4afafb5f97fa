"""What a partition of `__consumer_offsets` holds, from batches made here."""

from clients.watching.offsets_tally import PartitionTally
from offsets.records import GroupKey, Key, OffsetKey, encode_key
from protocol.records.batch import encode_batch
from protocol.records.control_record import COMMIT, encode_marker

A, B, C = (OffsetKey(group, "t", 0) for group in "abc")


def batch(base_offset: int, at_ms: int, *keys: Key, deleted: bool = False) -> bytes:
    """One record of each key; values are not looked into."""
    value = None if deleted else b"value"
    rows = [(at_ms, encode_key(key), value, ()) for key in keys]
    return encode_batch(rows, base_offset=base_offset)


def tally(*batches: bytes, commits_since_ms: int = 0, young_since_ms: int = 0) -> PartitionTally:
    result = PartitionTally(commits_since_ms, young_since_ms)
    result.feed(0, b"".join(batches))
    return result


def test_a_log_with_one_record_of_each_key_can_be_clean() -> None:
    batches = batch(0, 10, A, B), batch(7, 20, C)
    counted = tally(*batches)
    assert (counted.records, counted.keys, counted.repeated_since_ms) == (3, 3, None)
    assert counted.clean_bytes == counted.size_bytes == len(b"".join(batches))


def test_what_comes_from_the_first_repeated_key_on_is_not_cleaned() -> None:
    clean = batch(0, 10, A, B)
    counted = tally(clean, batch(2, 20, C, A), batch(4, 30, A))
    assert (counted.records, counted.keys) == (5, 3)
    assert (counted.repeated_since_ms, counted.clean_bytes) == (20, len(clean))
    assert counted.last_written_ms == 30


def test_a_deleted_offset_is_no_key_and_its_tombstone_a_record() -> None:
    counted = tally(batch(0, 10, A, B), batch(2, 20, A, deleted=True))
    assert (counted.records, counted.keys, counted.repeated_since_ms) == (3, 1, 20)
    assert counted.keys_by_group() == {"b": 1}


def test_markers_of_transactions_are_no_records() -> None:
    marker = encode_marker(
        COMMIT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=20,
        base_offset=1,
    )
    counted = tally(batch(0, 10, A), marker)
    assert (counted.records, counted.positions) == (1, {0: 2})
    assert counted.repeated_since_ms is None


def test_commits_of_the_sample_count_for_their_group_and_rebalances_do_not() -> None:
    counted = tally(
        batch(0, 10, A, B),
        batch(2, 20, A, A, GroupKey("a")),
        batch(5, 21, B, deleted=True),
        commits_since_ms=10,
    )
    assert counted.commits_by_group() == {"a": 2}
    assert counted.keys_by_group() == {"a": 1}


def test_what_is_younger_than_the_compaction_lag_is_young() -> None:
    young = batch(1, 20, A)
    assert tally(batch(0, 10, A), young, young_since_ms=15).young_bytes == len(young)


def test_a_second_reading_goes_on_behind_the_position() -> None:
    whole = batch(0, 10, A, B)
    counted = tally(whole)
    counted.feed(0, whole + batch(2, 20, C))
    assert (counted.records, counted.keys, counted.repeated_since_ms) == (3, 3, None)
