"""Appends of a follower, which keeps every byte of its leader."""

from __future__ import annotations

import pytest

from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.records.batch import encode_batch
from protocol.records.corrupt_record import CorruptRecord
from tests.core_log.log.reading_back import T0, Open, bases, contents


def replicated(*starts: int, size: int = 10, epoch: int = 0) -> bytes:
    return b"".join(
        encode_batch([(T0 + start, None, b"%d" % start, ())], base_offset=start, leader_epoch=epoch)
        for start in starts
    )


def test_follower_keeps_every_byte(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    data = replicated(0, 1, epoch=2) + replicated(2, 5, epoch=42)
    assert writer.log.append_follower(data, now_ms=T0) == 6
    assert contents(directory, "00000000000000000000.log") == data
    assert writer.log.leader_epochs.entries == [(2, 0), (42, 2)]
    assert writer.numbers() == [0, 1, 2, 5]


def test_follower_leaves_a_partial_batch_out(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    assert writer.log.append_follower(replicated(0, 1)[:-1], now_ms=T0) == 1
    assert writer.log.append_follower(replicated(1)[:30], now_ms=T0) == 1
    assert writer.log.append_follower(b"", now_ms=T0) == 1


def test_follower_rolls_as_batches_come(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=500)
    writer.log.append_follower(replicated(*range(40)), now_ms=T0)
    assert len(bases(writer)) > 4
    assert all(segment.size <= 500 for segment in writer.log.segments)
    assert writer.numbers() == list(range(40))


def test_follower_rolls_where_offsets_jump_too_far(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    far = 2**31 + 200
    writer.log.append_follower(replicated(0) + replicated(far), now_ms=T0)
    assert bases(writer) == [0, far]
    assert writer.numbers() == [0, far]


def test_empty_segment_left_by_a_jump_is_used_again_after_truncation(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    far = 2**31 + 200
    writer.log.append_follower(replicated(far), now_ms=T0)
    assert bases(writer) == [0, far]
    writer.log.truncate_to(0)
    assert bases(writer) == [0]
    assert writer.log.append_follower(replicated(100), now_ms=T0) == 101
    assert bases(writer) == [0]


def test_follower_refuses_offsets_that_go_back(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    with pytest.raises(UnexpectedAppendOffset) as raised:
        writer.log.append_follower(replicated(0, 1, 3, 2, 4), now_ms=T0)
    assert (raised.value.first_offset, raised.value.last_offset) == (2, 2)
    assert writer.log.log_end_offset == 4
    with pytest.raises(UnexpectedAppendOffset):
        writer.log.append_follower(replicated(3), now_ms=T0)


def test_replicated_batch_larger_than_a_segment_gets_one_of_its_own(
    directory: Directory, open_log: Open
) -> None:
    """The leader wrote it when segment.bytes was larger."""
    writer = open_log(directory, segment_bytes=3 * 61)
    large = encode_batch([(T0, None, b"1" + b" " * 500, ())], base_offset=1)
    assert writer.log.append_follower(replicated(0) + large + replicated(2, 3), now_ms=T0) == 4
    assert bases(writer) == [0, 1, 2]
    assert writer.numbers() == [0, 1, 2, 3]
    writer.log.close()
    assert open_log(directory, recovery_point=4, segment_bytes=100).numbers() == [0, 1, 2, 3]


def test_follower_refuses_a_corrupt_batch(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    data = bytearray(replicated(0, 1, 2))
    data[-3] ^= 1
    with pytest.raises(CorruptRecord):
        writer.log.append_follower(data, now_ms=T0)
    assert writer.log.log_end_offset == 2


def test_first_offset_of_an_empty_replica_may_be_any(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, log_start_offset=7)
    writer.log.append_follower(replicated(9), now_ms=T0)
    assert (writer.log.log_start_offset, writer.log.log_end_offset) == (7, 10)
    assert writer.numbers() == [9]
