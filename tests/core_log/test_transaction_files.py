"""`.txnindex`: written as markers of aborted transactions come, and wherever its segment goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory, MemoryFile
from core_log.producers.producer_state import Producer
from core_log.segments.index_file import CorruptIndex
from core_log.segments.transaction_index import (
    ENTRIES_AT_ONCE,
    ENTRY,
    AbortedTransaction,
    IndexBytes,
    collect_aborted,
    encode_transaction_index,
    read_transaction_index,
    truncate_transaction_index,
)
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import CONTROL, TRANSACTIONAL
from tests.core_log.conftest import reads
from tests.core_log.transactional_batches import (
    ABORT,
    COMMIT,
    _transactional,
    marker,
    transactional,
)
from tests.stage.bytecodes import bytecodes_of

Open = Callable[..., Any]
ALL_REPLICATED = 2**62
NAME = "00000000000000000000.txnindex"
FIRST, SECOND = AbortedTransaction(7, 0, 10, 11), AbortedTransaction(8, 5, 15, 13)
SEGMENTED = {"segment_bytes": 400}


def indexes(directory: Directory) -> list[str]:
    return [name for name in directory.files() if ".txnindex" in name]


def put(directory: Directory, name: str, *transactions: AbortedTransaction) -> None:
    directory.write_atomic(name, encode_transaction_index(transactions))


def filled(directory: Directory, open_log: Open) -> Any:
    """Twenty records in several segments, of which the first and the last have an index."""
    writer = open_log(directory, **SEGMENTED)
    writer.append_many(20)
    put(directory, NAME, AbortedTransaction(7, 0, 0, 1))
    last = writer.log.segments.active.base_offset
    put(directory, f"{last:020d}.txnindex", AbortedTransaction(7, 0, 19, 20))
    return writer


@pytest.mark.parametrize(
    ("offset", "kept"), [(16, [FIRST, SECOND]), (15, [FIRST]), (11, [FIRST]), (10, []), (0, [])]
)
def test_truncate_drops_what_ended_at_an_offset_or_above(
    directory: Directory, offset: int, kept: list[AbortedTransaction]
) -> None:
    put(directory, NAME, FIRST, SECOND)
    truncate_transaction_index(directory, NAME, offset)
    assert read_transaction_index(directory, NAME) == kept


def test_truncate_makes_no_file(directory: Directory) -> None:
    truncate_transaction_index(directory, NAME, 5)
    assert indexes(directory) == []


def test_index_is_truncated_with_its_segment(directory: Directory, open_log: Open) -> None:
    writer = filled(directory, open_log)
    writer.log.truncate_to(19)
    assert indexes(directory) == [NAME]
    writer.log.truncate_to(0)
    assert [name for name in indexes(directory) if name.endswith(".txnindex")] == []


def test_index_is_marked_and_removed_with_its_segment(directory: Directory, open_log: Open) -> None:
    writer = filled(directory, open_log)
    writer.log.update_config(LogConfig(retention_ms=0, file_delete_delay_ms=10))
    writer.log.delete_old_segments(20, writer.now_ms + 10**9)
    assert len(indexes(directory)) == 2
    assert all(name.endswith(".txnindex.deleted") for name in indexes(directory))
    writer.log.tick(writer.now_ms + 2 * 10**9)
    assert indexes(directory) == []


def test_index_stays_beside_a_log_that_is_closed_and_opened(
    directory: Directory, open_log: Open
) -> None:
    writer = filled(directory, open_log)
    before = {name: directory.read(name) for name in indexes(directory)}
    writer.log.close()
    open_log(directory, recovery_point=20, **SEGMENTED)
    assert {name: directory.read(name) for name in indexes(directory)} == before


def test_recovery_drops_what_ended_where_the_log_does_not_reach(
    directory: Directory, open_log: Open
) -> None:
    segment = filled(directory, open_log).log.segments.active
    segment.log.truncate(segment.log.size - 1)
    again = open_log(directory, clean=False, recovery_point=19, **SEGMENTED)
    assert again.log.log_end_offset == 19
    assert indexes(directory) == [NAME]


def test_recovery_removes_the_indexes_of_segments_it_drops(
    directory: Directory, open_log: Open
) -> None:
    first = filled(directory, open_log).log.segments.first.log
    first.write(first.size - 1, b"!")
    open_log(directory, clean=False, **SEGMENTED)
    assert indexes(directory) == []


def test_recovery_believes_no_entry_of_what_was_not_synced(
    directory: Directory, open_log: Open
) -> None:
    """Zeros that a crash left in the place of an entry are one, of offset 0."""
    writer = open_log(directory)
    writer.log.append_follower(b"".join(INTERLEAVED), now_ms=5)
    put(directory, NAME, AbortedTransaction(0, 0, 0, 0), *ABORTED)
    open_log(directory, clean=False)
    assert aborted(directory) == ABORTED


def test_index_without_its_segment_is_removed(directory: Directory, open_log: Open) -> None:
    open_log(directory).append_many(2)
    put(directory, "00000000000000000777.txnindex", FIRST)
    open_log(directory, clean=False)
    assert indexes(directory) == []


def test_new_segment_takes_no_index_that_was_left_behind(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.append_many(2)
    put(directory, "00000000000000000002.txnindex", FIRST)
    writer.log.roll(writer.now_ms)
    assert indexes(directory) == []


OVERLAPPING = [
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
]


@pytest.mark.parametrize(
    ("offset", "end_offset", "producers", "is_complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
    ],
)
def test_aborted_transactions_are_those_with_anything_between_two_offsets(
    offset: int, end_offset: int, producers: list[int], is_complete: bool
) -> None:
    index = IndexBytes(encode_transaction_index(OVERLAPPING))
    collected, are_all = collect_aborted(index, NAME, offset, end_offset)
    assert ([transaction.producer_id for transaction in collected], are_all) == (
        producers,
        is_complete,
    )


@pytest.mark.parametrize("first", [0, 1, ENTRIES_AT_ONCE])
def test_aborted_transactions_that_are_read_in_pieces_are_all_there(first: int) -> None:
    """One was open all the time, so that the last stable offset tells nothing."""
    count = 2 * ENTRIES_AT_ONCE + 1
    many = [AbortedTransaction(n, 2 * n, 2 * n + 1, 0) for n in range(count)]
    index = IndexBytes(encode_transaction_index(many))
    assert collect_aborted(index, NAME, 2 * first, 2 * count) == (many[first:], False)


def test_an_index_that_goes_back_between_two_pieces_is_corrupt() -> None:
    many = [AbortedTransaction(n, 0, n, 0) for n in range(ENTRIES_AT_ONCE)]
    index = IndexBytes(encode_transaction_index([*many, many[-1]]))
    with pytest.raises(CorruptIndex, match="goes back"):
        collect_aborted(index, NAME, 0, 1000)


@pytest.mark.fault("strangers-13")
def test_a_fetch_reads_of_the_index_what_concerns_it(
    memory: MemoryDirectory, open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 10 * ENTRIES_AT_ONCE
    log = open_log(memory).log
    for number in range(count):
        pair = (transactional(2 * number, number), marker(2 * number + 1, number, ABORT))
        log.append_follower(b"".join(pair), now_ms=5)

    sizes = reads(monkeypatch)
    for number in (0, 1, count // 2, count - 1):
        sizes.clear()
        aborted = log.aborted_transactions(2 * number, 2 * number + 1)
        assert [transaction.producer_id for transaction in aborted] == [number]
        assert sum(sizes) < 1.1 * ENTRIES_AT_ONCE * ENTRY.size
    # At the end there is nothing to look at.
    sizes.clear()
    assert log.aborted_transactions(2 * count, 2 * count) == []
    assert sum(sizes) < ENTRY.size * 10


def test_transaction_that_ended_in_a_later_segment_is_found_there(
    directory: Directory, open_log: Open
) -> None:
    writer = filled(directory, open_log)
    aborted = writer.log.aborted_transactions(3, 20)
    assert aborted == [AbortedTransaction(7, 0, 19, 20)]


def test_log_without_transactions_has_none_that_were_aborted(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.append_many(3)
    assert writer.log.aborted_transactions(0, 3) == []


def test_damaged_index_is_no_answer(directory: Directory, open_log: Open) -> None:
    writer = filled(directory, open_log)
    put(directory, NAME, SECOND, FIRST)
    with pytest.raises(ApiError) as raised:
        writer.log.aborted_transactions(0, 20)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    writer.append(b"20")


# ---- transactions of other brokers' producers


INTERLEAVED = [
    transactional(0, 1, 5),
    transactional(5, 3, 3),
    transactional(8, 2, 6),
    transactional(14, 4, 10),
    transactional(24, 1, 5),
    marker(29, 1, ABORT),
    marker(30, 3, COMMIT),
    transactional(31, 2, 5),
    transactional(36, 4, 5),
    marker(41, 2, ABORT),
    marker(42, 4, COMMIT),
]
ABORTED = [AbortedTransaction(1, 0, 29, 5), AbortedTransaction(2, 8, 41, 14)]


def aborted(directory: Directory) -> list[AbortedTransaction]:
    return [
        transaction
        for name in indexes(directory)
        for transaction in read_transaction_index(directory, name)
    ]


@pytest.mark.parametrize("segment_bytes", [2**20, 300])
@pytest.mark.parametrize("at_once", [True, False])
def test_aborted_transactions_are_written_down_as_their_markers_come(
    directory: Directory, open_log: Open, at_once: bool, segment_bytes: int
) -> None:
    writer = open_log(directory, segment_bytes=segment_bytes)
    for fetched in [b"".join(INTERLEAVED)] if at_once else INTERLEAVED:
        writer.log.append_follower(fetched, now_ms=5)
    assert aborted(directory) == ABORTED
    assert writer.log.aborted_transactions(0, 43) == ABORTED
    assert writer.log.aborted_transactions(30, 43) == ABORTED[1:]
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) is None


def test_transaction_of_several_segments_is_written_where_its_marker_is(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, segment_bytes=300)
    for offset in range(0, 10, 2):
        writer.log.append_follower(transactional(offset, 1, 2), now_ms=5)
    writer.log.append_follower(marker(10, 1, ABORT), now_ms=5)
    last = writer.log.segments.active.base_offset
    assert last > 0
    assert indexes(directory) == [f"{last:020d}.txnindex"]
    assert writer.log.aborted_transactions(0, 2) == [AbortedTransaction(1, 0, 10, 11)]


@pytest.mark.parametrize("kept", [0, 1, 34, 50, 68])
@pytest.mark.parametrize("segment_bytes", [2**20, 300])
@pytest.mark.parametrize("snapshots_survive", [False, True])
def test_what_a_crash_took_of_the_index_is_written_again(
    directory: Directory,
    open_log: Open,
    snapshots_survive: bool,
    segment_bytes: int,
    kept: int,
) -> None:
    """A snapshot that the disk has may lie behind markers whose entries it has not."""
    writer = open_log(directory, segment_bytes=segment_bytes)
    writer.log.append_follower(b"".join(INTERLEAVED), now_ms=5)
    writer.log.history.snapshot(43)
    writer.log.history.write_snapshots()
    for name in indexes(directory):
        directory.open_segment(name).truncate(min(kept, directory.size(name) or 0))
    for name in directory.files():
        if name.endswith(".snapshot") and not snapshots_survive:
            directory.remove(name)
    again = open_log(directory, clean=False, segment_bytes=segment_bytes)
    assert aborted(directory) == ABORTED
    assert again.log.aborted_transactions(0, 43) == ABORTED


def test_markers_of_segments_that_are_on_disk_are_not_read_again(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.log.append_follower(b"".join(INTERLEAVED[:6]), now_ms=5)
    writer.log.roll(5)
    writer.log.history.write_snapshots()
    writer.log.append_follower(b"".join(INTERLEAVED[6:]), now_ms=5)
    directory.remove(NAME)
    open_log(directory, clean=False, recovery_point=31)
    assert aborted(directory) == ABORTED[1:]


def test_without_markers_recovery_goes_by_the_newest_snapshot(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    for offset in range(6):
        writer.log.append_follower(transactional(offset, 1), now_ms=5)
    writer.log.history.snapshot(2)
    writer.log.producers.producers[9] = Producer(3)
    writer.log.history.snapshot(6)
    writer.log.history.write_snapshots()
    again = open_log(directory, clean=False)
    assert 9 in again.log.producers.producers


def test_entries_a_recovery_wrote_outlive_a_power_loss(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory.child("flights-0"), segment_bytes=300)
    writer.log.append_follower(b"".join(INTERLEAVED), now_ms=5)
    for segment in writer.log.segments:
        segment.log.fsync()
    memory.child("flights-0").fsync_dir()
    memory.lose_power()
    open_log(memory.child("flights-0"), clean=False, segment_bytes=300)
    memory.lose_power()
    assert aborted(memory.child("flights-0")) == ABORTED


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param([ABORTED[0], ABORTED[1]._replace(last_offset=2**40)], id="behind the log"),
        pytest.param([ABORTED[0], ABORTED[1]._replace(last_offset=3)], id="goes back"),
        pytest.param([ABORTED[0], ABORTED[1]._replace(first_offset=-8)], id="begins nowhere"),
        pytest.param([ABORTED[0]._replace(first_offset=30), ABORTED[1]], id="ends before it began"),
        pytest.param([ABORTED[0]._replace(last_stable_offset=99), ABORTED[1]], id="too stable"),
    ],
)
def test_index_that_cannot_be_of_its_segment_is_made_anew(
    directory: Directory, open_log: Open, damaged: list[AbortedTransaction], clean: bool
) -> None:
    writer = open_log(directory)
    writer.log.append_follower(b"".join(INTERLEAVED), now_ms=5)
    writer.log.close()
    put(directory, NAME, *damaged)
    again = open_log(directory, recovery_point=43, clean=clean)
    assert aborted(directory) == ABORTED
    assert again.log.aborted_transactions(0, 43) == ABORTED


def test_entry_damaged_upwards_keeps_no_later_one_from_being_written(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.log.append_follower(b"".join(INTERLEAVED[:6]), now_ms=5)
    index = directory.open_segment(NAME)
    index.truncate(0)
    index.append([encode_transaction_index([ABORTED[0]._replace(last_offset=2**40)])])
    writer.log.append_follower(b"".join(INTERLEAVED[6:]), now_ms=5)
    assert ABORTED[1] in writer.log.aborted_transactions(8, 43)


def test_truncation_to_before_a_marker_opens_its_transaction_again(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.log.append_follower(b"".join(INTERLEAVED), now_ms=5)
    writer.log.truncate_to(41)
    assert aborted(directory) == ABORTED[:1]
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) == 8
    writer.log.append_follower(marker(41, 2, ABORT) + marker(42, 4, COMMIT), now_ms=5)
    assert aborted(directory) == ABORTED


def test_index_is_on_disk_when_the_log_is_flushed(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    directory = memory.child("flights-0")
    writer = open_log(directory)
    writer.log.append_follower(b"".join(INTERLEAVED), now_ms=5)
    flush(writer)
    memory.lose_power()
    assert aborted(memory.child("flights-0")) == ABORTED


def test_marker_without_a_transaction_aborts_nothing(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    writer.log.append_follower(transactional(0, 2) + marker(1, 1, ABORT), now_ms=5)
    assert aborted(directory) == []
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) == 0
    writer.log.append_follower(marker(2, 2, COMMIT) + marker(3, 1, ABORT), now_ms=5)
    assert aborted(directory) == []


@pytest.mark.parametrize("way", ["reads", "reads a snapshot", "reads the log"])
def test_coordinator_that_wrote_a_marker_last_is_known(
    directory: Directory, open_log: Open, way: str
) -> None:
    """By it a stock broker that gets these files fences a coordinator that was replaced."""
    writer = open_log(directory)
    writer.log.append_follower(
        transactional(0, 1)
        + marker(1, 1, COMMIT, coordinator_epoch=4)
        + transactional(2, 1)
        + marker(3, 1, ABORT, coordinator_epoch=6)
        + transactional(4, 1),
        now_ms=5,
    )
    if way == "reads a snapshot":
        writer.log.close()
        writer = open_log(directory, recovery_point=5)
    if way == "reads the log":
        writer = open_log(directory, clean=False)
    assert writer.log.producers.producers[1].coordinator_epoch == 6
    assert writer.log.producers.producers[1].transaction_start == 4


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0"])
def test_abort_that_does_not_name_its_coordinator_is_one(
    directory: Directory, open_log: Open, value: bytes | None
) -> None:
    rows: list[Any] = [(5, ABORT, value, ())]
    unnamed = _transactional(rows, 2, 1, -1, TRANSACTIONAL | CONTROL)
    writer = open_log(directory)
    writer.log.append_follower(transactional(0, 1, 2) + unnamed, now_ms=5)
    assert aborted(directory) == [AbortedTransaction(1, 0, 2, 3)]
    assert writer.log.producers.producers[1].coordinator_epoch == -1


def test_marker_that_cannot_be_read_ends_no_transaction_and_no_log(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.log.append_follower(transactional(0, 1) + marker(1, 1, b"\0"), now_ms=5)
    assert (writer.log.log_end_offset, indexes(directory)) == (2, [])


def test_follower_does_as_much_for_each_of_many_markers_as_for_each_of_few(open_log: Open) -> None:
    def bytecodes_a_marker(count: int) -> float:
        writer = open_log(MemoryDirectory(f"flights-{count}"))
        batches = b"".join(marker(offset, 1, COMMIT) for offset in range(count))
        return bytecodes_of(lambda: writer.log.append_follower(batches, now_ms=5)) / count

    # Each was looked for in the log, behind all that were written with it.
    assert bytecodes_a_marker(400) < 1.2 * bytecodes_a_marker(40)


def test_disk_that_fails_over_the_index_fails_the_log(open_log: Open) -> None:
    class Broken(MemoryDirectory):
        def open_segment(self, name: str) -> MemoryFile:
            if name.endswith(".txnindex"):
                raise OSError(5, "Input/output error")
            return super().open_segment(name)

    writer = open_log(Broken("flights-0"))
    writer.log.append_follower(transactional(0, 1) + marker(1, 1, ABORT), now_ms=5)
    assert writer.log.failure is not None
