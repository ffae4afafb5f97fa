"""Leader epochs: who wrote from where, and where an epoch ended."""

from __future__ import annotations

import pytest

from core_log.checkpoint import LEADER_EPOCHS
from core_log.leader_epochs import LeaderEpochs
from core_log.memory_directory import MemoryDirectory

Entries = list[tuple[int, int]]


def epochs(directory: MemoryDirectory, entries: Entries) -> LeaderEpochs:
    known_epochs = LeaderEpochs(directory)
    for epoch, start in entries:
        known_epochs.assign(epoch, start)
    return known_epochs


def test_epochs_are_on_disk_when_saved(memory: MemoryDirectory) -> None:
    known_epochs = epochs(memory, [(2, 6), (3, 8)])
    assert memory.read(LEADER_EPOCHS) is None
    known_epochs.save()
    assert memory.read(LEADER_EPOCHS) == b"0\n2\n2 6\n3 8\n"
    assert LeaderEpochs.load(memory).entries == [(2, 6), (3, 8)]


@pytest.mark.parametrize("later", [(2, 9), (1, 9), (3, 5)])
def test_known_older_or_backward_epoch_changes_nothing(
    memory: MemoryDirectory, later: tuple[int, int]
) -> None:
    known_epochs = epochs(memory, [(2, 6)])
    known_epochs.assign(*later)
    assert known_epochs.entries == [(2, 6)]


def test_epoch_may_change_where_the_offset_does_not(memory: MemoryDirectory) -> None:
    assert epochs(memory, [(2, 9), (3, 9)]).entries == [(2, 9), (3, 9)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (5, (-1, -1)),
        (4, (4, 20)),
        (3, (2, 17)),
        (2, (2, 17)),
        (1, (0, 13)),
        (0, (0, 13)),
    ],
)
def test_epoch_ends_where_the_next_one_begins(
    memory: MemoryDirectory, asked: int, answer: tuple[int, int]
) -> None:
    assert epochs(memory, [(0, 10), (2, 13), (4, 17)]).end_offset_for(asked, 20) == answer


def test_epoch_before_all_known_ends_where_they_begin(memory: MemoryDirectory) -> None:
    assert epochs(memory, [(5, 11), (6, 12)]).end_offset_for(4, 20) == (4, 11)


def test_empty_list_knows_no_epoch(memory: MemoryDirectory) -> None:
    known_epochs = LeaderEpochs(memory)
    assert (known_epochs.latest_epoch, known_epochs.end_offset_for(0, 73)) == (-1, (-1, -1))


@pytest.mark.parametrize(
    ("end", "left"),
    [(8, [(2, 6)]), (9, [(2, 6), (3, 8)]), (12, [(2, 6), (3, 8), (4, 11)]), (0, [])],
)
def test_cut_at_the_end_forgets_later_epochs(
    memory: MemoryDirectory, end: int, left: Entries
) -> None:
    known_epochs = epochs(memory, [(2, 6), (3, 8), (4, 11)])
    known_epochs.save()
    known_epochs.truncate_from_end(end)
    known_epochs.save()
    assert known_epochs.entries == LeaderEpochs.load(memory).entries == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (1, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
    ],
)
def test_cut_at_the_start_keeps_the_epoch_that_goes_on(
    memory: MemoryDirectory, start: int, left: Entries
) -> None:
    known_epochs = epochs(memory, [(2, 6), (3, 8), (4, 11)])
    known_epochs.save()
    known_epochs.truncate_from_start(start)
    known_epochs.save()
    assert known_epochs.entries == LeaderEpochs.load(memory).entries == left


def test_unreadable_checkpoint_counts_as_empty(memory: MemoryDirectory) -> None:
    memory.write_atomic(LEADER_EPOCHS, b"0\n2\n1 1\n")
    assert LeaderEpochs.load(memory).entries == []
