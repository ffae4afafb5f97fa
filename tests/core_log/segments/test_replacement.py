"""A cleaned copy takes its originals' place: at once for readers, and safe from power losses.

The log has segments of two batches each, offsets 0 1 | 2 3 | 4 5 | 6. The copy has 1 and 3 of the
first two, at other positions than they had.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import chain, combinations
from typing import Any

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.segments.batch_scan import scan
from core_log.segments.file_name import CLEANED, SUFFIXES, TRANSACTION_INDEX, file_name
from core_log.segments.index_file import CorruptIndex
from core_log.segments.transaction_index import AbortedTransaction, encode_transaction_index
from core_log.storage import Directory
from protocol.errors import ApiError
from tests.core_log.conftest import T0, Writer

Open = Callable[..., Writer]

ALL = [0, 1, 2, 3, 4, 5, 6]
CLEAN = [1, 3, 4, 5, 6]
HALF = [1, 2, 3, 4, 5, 6]
"""What is there when the copy, with 1 alone, was put in place and the second original was not yet
marked: what was not cleaned can be cleaned again."""
SETTINGS: dict[str, Any] = {"index_interval_bytes": 0, "segment_index_bytes": 120}


def written(directory: Directory, open_log: Open, *, kept: tuple[int, ...] = (1, 3)) -> Writer:
    """The log, all of it on disk, and beside it the copy."""
    writer = open_log(directory, **SETTINGS)
    for number in ALL:
        if number % 2 == 0:
            writer.log.roll(T0)
        writer.append_many(1, size=10 * number)
    flush = writer.log.begin_flush()
    flush.run()
    writer.log.end_flush(flush)
    put_copy(directory, open_log, kept)
    return writer


def put_copy(directory: Directory, open_log: Open, kept: tuple[int, ...]) -> None:
    """Make the files that a cleaner leaves of the first two segments."""
    other = MemoryDirectory("other").child("flights-0")
    copy = open_log(other, **SETTINGS)
    for base_offset in (0, 2):
        source = directory.open_segment(file_name(base_offset, ".log"))
        for batch in scan(source):
            if batch.base_offset in kept:
                copy.log.append_follower(source.read(batch.position, batch.size), now_ms=T0)
    copy.log.close()
    for suffix in SUFFIXES:
        file = directory.open_segment(file_name(0, suffix + CLEANED))
        file.append([other.read(file_name(0, suffix)) or b""])
        file.fsync()


def replace(writer: Writer, *replaced: int, truncations: int = 0) -> bool:
    return writer.log.replace_segments(replaced[0], replaced, truncations=truncations)


def bases(writer: Writer) -> list[int]:
    return [segment.base_offset for segment in writer.log.segments]


def test_the_copy_is_read_at_once_and_after_a_restart(directory: Directory, open_log: Open) -> None:
    writer = written(directory, open_log)
    assert replace(writer, 0, 2)
    assert (writer.numbers(), bases(writer)) == (CLEAN, [0, 4, 6])
    assert writer.numbers(2) == CLEAN[1:]
    writer.log.close()
    again = open_log(directory, recovery_point=7, **SETTINGS)
    assert (again.numbers(), bases(again)) == (CLEAN, [0, 4, 6])


class LookedAt(MemoryDirectory):
    """A directory that is read whenever a file has another name."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.look()


def test_the_originals_are_read_as_they_were_while_a_thread_takes_their_names(
    open_log: Open,
) -> None:
    directory = LookedAt("flights-0")
    writer = written(directory, open_log)
    log, aborted = writer.log, AbortedTransaction(7, 0, 1, 2)
    directory.open_segment(file_name(0, TRANSACTION_INDEX)).append(
        [encode_transaction_index([aborted])]
    )

    def reading() -> list[Any]:
        return [
            [writer.numbers(offset) for offset in ALL],
            log.aborted_transactions(0, 7),
            log.offsets_before(T0, 9, T0),
            [segment.largest_timestamp for segment in log.segments],
        ]

    before, during = reading(), list[list[Any]]()
    replacement = log.begin_replacement([0, 2], truncations=0)
    assert replacement is not None
    replacement.hold()
    directory.look = lambda: during.append(reading())  # type: ignore[method-assign]
    names = set(directory.files())
    replacement.run()

    assert during == [before] * (3 + 6 + 1 + 3)
    assert set(directory.files()) - names == {*replacement.renamed}
    log.end_replacement(replacement)
    assert (writer.numbers(), bases(writer)) == (CLEAN, [0, 4, 6])


def test_a_range_that_was_given_out_still_reads_the_original(
    directory: Directory, open_log: Open
) -> None:
    writer = written(directory, open_log)
    given_out = writer.log.read(1, 10_000, 7)
    assert given_out is not None
    before = given_out.read()
    assert replace(writer, 0, 2)
    writer.log.tick(T0 + writer.log.config.file_delete_delay_ms)
    assert given_out.read() == before


def test_who_walks_over_the_segments_walks_on_over_the_originals(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = written(memory, open_log)
    walk = iter(writer.log.segments)
    assert next(walk).base_offset == 0
    assert replace(writer, 0, 2)
    assert [segment.base_offset for segment in walk] == [2, 4, 6]


def test_a_reader_that_was_where_the_originals_parted_goes_on_behind_them(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = written(memory, open_log)
    writer.log.read(0, 10_000, 2)  # the next one begins where this ended
    assert replace(writer, 0, 2)
    assert writer.numbers(2) == [3, 4, 5, 6]


def test_the_originals_files_go_after_their_delay(memory: MemoryDirectory, open_log: Open) -> None:
    writer = written(memory, open_log)
    writer.now_ms += 500
    assert replace(writer, 0, 2)
    due_ms = writer.now_ms + writer.log.config.file_delete_delay_ms
    writer.log.tick(due_ms - 1)
    assert sum(name.endswith(".deleted") for name in memory.files()) == 6
    writer.log.tick(due_ms)
    assert not any(name.endswith(".deleted") for name in memory.files())


@pytest.mark.parametrize("replaced", [(0, 2, 3), (0, 4), (2, 4, 6), (1, 2), (6,)])
def test_what_is_not_a_run_of_inactive_segments_is_not_replaced(
    memory: MemoryDirectory, open_log: Open, replaced: tuple[int, ...]
) -> None:
    writer = written(memory, open_log)
    names = memory.files()
    assert not replace(writer, *replaced)
    assert (writer.numbers(), memory.files()) == (ALL, names)


def test_nothing_is_replaced_after_retention_took_an_original(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = written(memory, open_log)
    writer.log.increment_log_start_offset(2)
    assert writer.log.delete_old_segments(7, T0) == 1
    assert not replace(writer, 0, 2)
    assert writer.numbers() == [2, 3, 4, 5, 6]


def test_nothing_is_replaced_after_a_truncation_though_the_offsets_came_back(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = written(memory, open_log)
    seen = writer.log.truncations
    assert writer.log.truncate_to(1)
    for number in (1, 2, 3, 4):
        if number % 2 == 0:
            writer.log.roll(T0)
        writer.append(b"9")
    assert bases(writer) == [0, 2, 4]
    assert not replace(writer, 0, 2, truncations=seen)
    assert writer.numbers() == [0, 9, 9, 9, 9]


def test_a_truncation_to_where_the_log_ends_is_none(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = written(memory, open_log)
    assert not writer.log.truncate_to(7)
    assert replace(writer, 0, 2)


def test_a_copy_with_a_bad_index_changes_nothing(memory: MemoryDirectory, open_log: Open) -> None:
    writer = written(memory, open_log)
    memory.open_segment(file_name(0, ".index" + CLEANED)).truncate(3)
    names = memory.files()
    with pytest.raises(CorruptIndex):
        replace(writer, 0, 2)
    assert (writer.numbers(), memory.files()) == (ALL, names)
    assert writer.log.failure is None


def test_a_disk_that_fails_in_between_ends_the_writing_and_recovery_finishes(
    open_log: Open,
) -> None:
    directory = Recorded("logs")
    writer = written(directory, open_log)
    directory.fails_at = file_name(2, ".log")
    with pytest.raises(ApiError):
        replace(writer, 0, 2)
    assert writer.log.failure is not None
    assert not replace(writer, 0, 2)
    directory.fails_at = ""
    assert open_log(directory, clean=False, **SETTINGS).numbers() == CLEAN


class Recorded(MemoryDirectory):
    """Writes down what is done to the names in it, and fails to rename one of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.steps: list[tuple[str, ...]] = []
        self.fails_at = ""

    def rename(self, old: str, new: str) -> None:
        if old == self.fails_at:
            raise OSError(errno.EIO, "Input/output error")
        self.steps.append((old, new))
        super().rename(old, new)

    def fsync_dir(self) -> None:
        self.steps.append(("synced",))
        super().fsync_dir()


def steps_of_a_replacement(open_log: Open, kept: tuple[int, ...]) -> list[list[tuple[str, ...]]]:
    """The renames, those that one sync of the directory makes safe together."""
    directory = Recorded("logs")
    writer = written(directory, open_log, kept=kept)
    directory.steps.clear()
    assert replace(writer, 0, 2)
    groups: list[list[tuple[str, ...]]] = [[]]
    for step in directory.steps:
        if step == ("synced",):
            groups.append([])
        else:
            groups[-1].append(step)
    return groups


def crash_points(groups: list[list[tuple[str, ...]]]) -> Iterator[list[tuple[str, ...]]]:
    """Yield the renames that may have reached the disk: any of those of one sync."""
    for number, group in enumerate(groups):
        subsets = chain.from_iterable(combinations(group, count) for count in range(len(group) + 1))
        yield from ([*chain.from_iterable(groups[:number]), *subset] for subset in subsets)


@pytest.mark.parametrize("recovery_point", [0, 7])
@pytest.mark.parametrize(
    ("kept", "outcomes"), [((1, 3), (ALL, CLEAN)), ((1,), (ALL, [1, 4, 5, 6], HALF))]
)
def test_after_a_power_loss_at_any_step_the_log_is_whole(
    open_log: Open,
    kept: tuple[int, ...],
    outcomes: tuple[list[int], ...],
    recovery_point: int,
) -> None:
    groups = steps_of_a_replacement(open_log, kept)
    assert [len(group) for group in groups] == [3, 6, 3]
    contents = []
    for steps in crash_points(groups):
        directory = MemoryDirectory("logs")
        written(directory, open_log, kept=kept)
        for old, new in steps:
            directory.rename(old, new)
        directory.fsync_dir()
        directory.lose_power()
        again = open_log(directory, recovery_point=recovery_point, clean=False, **SETTINGS)
        assert again.log.log_end_offset == 7
        assert again.numbers() in outcomes, steps
        for offset in range(7):
            assert again.numbers(offset) == [n for n in again.numbers() if n >= offset], steps
        left = [name for name in directory.files() if name.count(".") > 1]
        assert not left, steps
        contents.append(again.numbers())
    assert (contents[0], contents[-1]) == (ALL, outcomes[1])


def test_an_unfinished_copy_of_a_later_group_does_not_undo_a_swap(
    memory: MemoryDirectory, open_log: Open
) -> None:
    written(memory, open_log)
    for suffix in SUFFIXES:
        memory.rename(file_name(0, suffix + CLEANED), file_name(0, suffix + ".swap"))
    memory.open_segment(file_name(4, ".log" + CLEANED)).append([b"half a batch"])
    assert open_log(memory, clean=False, **SETTINGS).numbers() == CLEAN
