"""Where a log goes on behind a batch that cannot be read."""

from struct import pack

import pytest
from crc32c import crc32c

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch import encode_batch
from protocol.records.legacy import encode_messages
from spark_connector.damage import Damage, find_damage

END = 1_000
"""The high watermark of all responses."""


def batch(base_offset: int, count: int = 10) -> bytes:
    return encode_batch([(0, None, b"v" * 20, ())] * count, base_offset=base_offset)


def changed(batch: bytes, at: int, new: bytes) -> bytes:
    return batch[:at] + new + batch[at + len(new) :]


def signed(batch: bytes) -> bytes:
    """Return a changed batch with its right CRC."""
    return changed(batch, 17, pack(">I", crc32c(batch[21:])))


def damage(records: bytes, start: int = 100, error: ErrorCode = ErrorCode.NONE) -> Damage | None:
    response = FetchResponsePartition(
        partition_index=0, error_code=error, high_watermark=END, records=records
    )
    return find_damage(response, start)


def goes_on_at(records: bytes, start: int = 100) -> int | None:
    found = damage(records, start)
    assert found is not None
    assert found.offset == start
    return found.next_offset


def test_a_response_that_can_be_read_has_no_damage() -> None:
    assert damage(batch(100)) is None
    assert damage(b"") is None
    assert damage(b"", error=ErrorCode.NOT_LEADER_OR_FOLLOWER) is None


def test_what_is_behind_the_first_batch_is_the_next_responses_matter() -> None:
    assert damage(batch(100) + changed(batch(110), 70, b"?")) is None


def test_damaged_records_end_where_the_next_batch_begins() -> None:
    bad = changed(batch(100), 70, b"?")
    assert goes_on_at(bad + batch(110)) == 110
    # Compaction has left a hole.
    assert goes_on_at(bad + batch(120)) == 120


def test_the_last_batch_of_a_log_ends_where_two_numbers_of_its_header_agree() -> None:
    bad = changed(batch(100), 70, b"?")
    assert goes_on_at(bad) == 110
    assert goes_on_at(bad + batch(110)[:30]) == 110
    assert goes_on_at(bad, start=105) == 110


def test_two_damaged_batches_in_a_row_are_passed_one_after_the_other() -> None:
    bad = changed(batch(100), 70, b"?")
    worse = changed(batch(110), 70, b"?")
    assert goes_on_at(bad + worse + batch(120)) == 110
    assert goes_on_at(worse + batch(120), start=110) == 120


def test_a_header_that_lies_about_its_last_offset_is_not_believed() -> None:
    for wrong in (3, 60, -200):
        bad = changed(batch(100), 23, pack(">i", wrong))
        assert goes_on_at(bad + batch(110)) == 110
        assert goes_on_at(bad) is None


def test_a_batch_that_seems_to_end_before_the_offset_is_not_passed_over_in_silence() -> None:
    bad = changed(batch(100), 23, pack(">i", 3))
    assert goes_on_at(bad + batch(110), start=105) == 110


def test_records_that_make_no_sense_under_a_right_checksum_end_with_their_batch() -> None:
    assert goes_on_at(signed(changed(batch(100), 57, pack(">i", 11)))) == 110


@pytest.mark.parametrize("size", [0, 5, 10_000, -1])
def test_nothing_is_known_behind_a_batch_of_a_wrong_size(size: int) -> None:
    assert goes_on_at(changed(batch(100), 8, pack(">i", size)) + batch(110)) is None


def test_nothing_is_known_behind_zeros_or_a_format_of_the_future() -> None:
    assert goes_on_at(bytes(200)) is None
    assert goes_on_at(changed(batch(100), 16, b"\x07") + batch(110)) is None


def test_an_offset_beyond_the_high_watermark_is_not_believed() -> None:
    bad = changed(batch(100), 70, b"?")
    assert goes_on_at(bad + changed(batch(110), 0, pack(">q", END + 1))) is None


def test_a_damaged_message_of_an_old_format_ends_at_its_offset() -> None:
    old = encode_messages([(n, 0, b"k", b"v" * 20, ()) for n in (100, 101)], magic=1)
    assert goes_on_at(changed(old, 30, b"?")) == 101


def test_what_the_broker_cannot_read_has_no_end() -> None:
    found = damage(b"", error=ErrorCode.CORRUPT_MESSAGE)
    assert found is not None
    assert (found.offset, found.next_offset) == (100, None)
