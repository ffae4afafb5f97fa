"""Snapshots of producers: their bytes, and which of the files is believed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.producers.producer_snapshots import CorruptSnapshot, ProducerSnapshots, decode, encode
from core_log.producers.producer_state import ProducedBatch, Producer

ONE = Producer(3, deque([ProducedBatch(9, 41, 2, 1_400_000_000_000)], 5), 1_400_000_000_000)
ONE_BYTES = bytes.fromhex(
    "0001 575f12e3 00000001"
    "0000000000001388 0003 00000009 0000000000000029 00000002"
    "00000145f680b000 ffffffff ffffffffffffffff"
)
"""Written by ProducerStateManager of Kafka 2.8.2 for producer 5000, epoch 3, numbers 7 to 9."""


def name(offset: int) -> str:
    return f"{offset:020d}.snapshot"


def with_snapshots(memory: MemoryDirectory, *offsets: int) -> ProducerSnapshots:
    """Create a directory with a snapshot at each offset. The producer's epoch is that offset."""
    for offset in offsets:
        memory.write_atomic(name(offset), encode({1: Producer(offset)}))
    return ProducerSnapshots.find(memory)


def files(memory: MemoryDirectory) -> list[int]:
    return [int(file.partition(".")[0]) for file in memory.files()]


def test_bytes_are_those_of_kafka() -> None:
    assert encode({5000: ONE}) == ONE_BYTES
    assert decode(ONE_BYTES) == {5000: ONE}


def test_all_of_a_producer_but_older_batches_comes_back() -> None:
    batches = deque([ProducedBatch(1, 1, 0, 5), ProducedBatch(4, 9, 2, 6)], 5)
    whole = {8: Producer(1, batches, 6, coordinator_epoch=4, transaction_start=7)}
    last = {8: Producer(1, deque([batches[-1]], 5), 6, coordinator_epoch=4, transaction_start=7)}
    assert decode(encode(whole)) == last


def test_a_producer_known_by_a_marker_alone_has_no_batch() -> None:
    assert decode(encode({8: Producer(1, last_timestamp=6)})) == {8: Producer(1, last_timestamp=6)}


def test_no_producers_are_a_snapshot_too() -> None:
    assert decode(encode({})) == {}


def cut(snapshot: bytes) -> bytes:
    return snapshot[:-3]


def flipped(snapshot: bytes) -> bytes:
    return snapshot[:20] + bytes([snapshot[20] ^ 1]) + snapshot[21:]


def emptied(_: bytes) -> bytes:
    return b""


def of_a_later_version(snapshot: bytes) -> bytes:
    return b"\0\2" + snapshot[2:]


DAMAGES = [cut, flipped, emptied, of_a_later_version]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_not_read(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptSnapshot):
        decode(damage(encode({5000: ONE})))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_removed_and_an_older_one_serves(
    memory: MemoryDirectory, damage: Callable[[bytes], bytes]
) -> None:
    snapshots = with_snapshots(memory, 2, 4)
    memory.write_atomic(name(4), damage(memory.read(name(4)) or b""))
    assert snapshots.newest(0, 10) == {1: Producer(2)}
    assert (snapshots.covered, files(memory)) == (2, [2])


def test_without_any_good_one_all_of_the_log_is_to_be_read(memory: MemoryDirectory) -> None:
    snapshots = with_snapshots(memory, 4)
    memory.write_atomic(name(4), b"")
    assert snapshots.newest(1, 10) == {}
    assert (snapshots.covered, files(memory)) == (1, [])


def test_snapshots_out_of_the_logs_range_are_removed(memory: MemoryDirectory) -> None:
    snapshots = with_snapshots(memory, 1, 2, 3, 4, 5)
    assert snapshots.newest(2, 3) == {1: Producer(3)}
    assert files(memory) == [2, 3]


def test_snapshots_of_a_log_that_was_cut_stay_away_after_a_power_loss(
    memory: MemoryDirectory,
) -> None:
    snapshots = with_snapshots(memory, 2, 4)
    memory.fsync_dir()
    snapshots.newest(0, 3)
    memory.lose_power()
    assert files(memory) == [2]


def test_a_snapshot_of_what_is_covered_is_not_written_again(memory: MemoryDirectory) -> None:
    snapshots = ProducerSnapshots.find(memory)
    assert snapshots.take(4, {5000: ONE})
    assert not snapshots.take(4, {})
    snapshots.write()
    assert decode(memory.read(name(4)) or b"") == {5000: ONE}


def test_old_snapshots_go_when_the_log_is_not_read_from_there_again(
    memory: MemoryDirectory,
) -> None:
    snapshots = with_snapshots(memory, 2, 4, 6)
    assert snapshots.take_before(4) == [2]
    assert snapshots.offsets == [4, 6]


def test_a_log_that_starts_anew_has_none(memory: MemoryDirectory) -> None:
    snapshots = with_snapshots(memory, 2, 4)
    snapshots.clear(9)
    assert not snapshots.take(9, {5000: ONE})
    assert files(memory) == []


def test_of_many_that_wait_for_a_flush_the_last_two_are_written(memory: MemoryDirectory) -> None:
    """Each has a copy in memory, and after the flush no older one is of use."""
    snapshots = ProducerSnapshots.find(memory)
    for offset in range(1, 10):
        snapshots.take(offset, {5000: ONE})
    assert snapshots.offsets == [8, 9]
    snapshots.write()
    assert files(memory) == [8, 9]


def test_what_is_given_up_while_a_flush_writes_it_is_to_be_removed(memory: MemoryDirectory) -> None:
    snapshots = ProducerSnapshots.find(memory)
    snapshots.take(4, {5000: ONE})
    flushed = tuple(snapshots.unflushed)
    snapshots.clear(2)
    flushed[0].write()
    assert snapshots.note_flushed(flushed) == [4]
