"""Segments that older brokers made too wide for their indexes are split when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core_log.config import INT_MAX
from core_log.memory_directory import MemoryDirectory
from core_log.segments.splitting import split_segment
from core_log.segments.transaction_index import (
    AbortedTransaction,
    encode_transaction_index,
    read_transaction_index,
)
from core_log.storage import Directory
from protocol.records.batch import decode_records, encode_batch
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages

Open = Callable[..., Any]
FIRST = "00000000000000000000"


def batch(offset: int, count: int = 1, magic: int = 2) -> bytes:
    rows: list[Any] = [(1000 + n, None, b"%d" % (offset + n), ()) for n in range(count)]
    if magic == 2:
        return encode_batch(rows, base_offset=offset)
    placed = [(offset + n, *row) for n, row in enumerate(rows)]
    return encode_messages(placed, magic, codec=Codec.GZIP)


def write(directory: Directory, base_offset: int, *batches: bytes) -> None:
    directory.open_segment(f"{base_offset:020d}.log").append(batches)


def offsets(writer: Any) -> Iterator[int]:
    log, offset = writer.log, writer.log.segments.first.base_offset
    while (file_range := log.read(offset, 10**6, log.log_end_offset)) is not None:
        for record in decode_records(file_range.read(), offset):
            yield record.offset
            offset = record.offset + 1


def bases(writer: Any) -> list[int]:
    return [segment.base_offset for segment in writer.log.segments]


FAR = INT_MAX + 5
FARTHER = FAR + INT_MAX + 9


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_segment_is_split_where_its_index_ends(
    directory: Directory, open_log: Open, magic: int, clean: bool
) -> None:
    placed = [0, 3, FAR, FAR + 1, FARTHER]
    write(directory, 0, *(batch(offset, magic=magic) for offset in placed))
    writer = open_log(directory, clean=clean, recovery_point=FARTHER + 1 if clean else 0)
    assert bases(writer) == [0, FAR, FARTHER]
    assert list(offsets(writer)) == placed
    assert writer.log.log_end_offset == FARTHER + 1
    assert not [name for name in directory.files() if name.endswith((".cleaned", ".swap"))]


def test_segment_in_the_middle_is_split_and_its_neighbours_are_not(
    directory: Directory, open_log: Open
) -> None:
    write(directory, 0, batch(0), batch(1))
    write(directory, 2, batch(2), batch(FAR + 2))
    write(directory, FARTHER, batch(FARTHER))
    writer = open_log(directory, recovery_point=FARTHER + 1)
    assert bases(writer) == [0, 2, FAR + 2, FARTHER]
    assert list(offsets(writer)) == [0, 1, 2, FAR + 2, FARTHER]


def test_segment_all_of_whose_batches_are_too_far_is_named_anew(
    directory: Directory, open_log: Open
) -> None:
    write(directory, 0, batch(FAR), batch(FAR + 1))
    writer = open_log(directory, clean=False)
    assert bases(writer) == [FAR]
    assert list(offsets(writer)) == [FAR, FAR + 1]


@pytest.mark.parametrize("magic", [1, 2])
def test_segment_of_one_batch_that_ends_too_far_is_named_by_the_batch(
    directory: Directory, open_log: Open, magic: int
) -> None:
    write(directory, 0, batch(INT_MAX - 2, count=5, magic=magic))
    writer = open_log(directory, clean=False)
    assert bases(writer) == [INT_MAX - 2]
    assert list(offsets(writer)) == [INT_MAX - 2 + n for n in range(5)]


def test_segment_that_can_be_indexed_is_left_alone(directory: Directory, open_log: Open) -> None:
    write(directory, 0, batch(0), batch(INT_MAX))
    writer = open_log(directory, clean=False)
    assert bases(writer) == [0]
    assert list(offsets(writer)) == [0, INT_MAX]


def test_offset_that_the_next_one_belies_is_damage_and_no_gap(
    directory: Directory, open_log: Open
) -> None:
    write(directory, 0, batch(0), batch(FAR), batch(2))
    writer = open_log(directory, clean=False)
    assert bases(writer) == [0]
    assert list(offsets(writer)) == [0]


def test_aborted_transactions_go_with_their_markers(directory: Directory, open_log: Open) -> None:
    write(directory, 0, batch(0), batch(3), batch(FAR))
    near, far = AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 1, FAR, FAR + 1)
    directory.write_atomic(f"{FIRST}.txnindex", encode_transaction_index([near, far]))
    open_log(directory, recovery_point=FAR + 1)
    assert read_transaction_index(directory, f"{FIRST}.txnindex") == [near]
    assert read_transaction_index(directory, f"{FAR:020d}.txnindex") == [far]


class Stop(Exception):
    """The broker is killed."""


class Killed(MemoryDirectory):
    """A directory whose broker is killed after `steps` renames and removals."""

    steps = 0

    def _step(self) -> None:
        if self.steps == 0:
            raise Stop
        self.steps -= 1

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._step()
        super().remove(name)


@pytest.mark.parametrize("base_offset", [0, 1])
def test_broker_killed_at_any_step_loses_and_doubles_nothing(
    open_log: Open, base_offset: int
) -> None:
    placed = [2, 3, FAR, FARTHER]
    killed = 0
    for steps in range(60):
        directory = Killed("flights-0")
        write(directory, base_offset, *map(batch, placed))
        directory.steps = steps
        try:
            open_log(directory, clean=False)
        except Stop:
            killed += 1
        directory.steps = 10**6
        again = open_log(directory, clean=False)
        assert list(offsets(again)) == placed
        assert bases(again)[1:] == [FAR, FARTHER]
    assert killed > 10


def test_parts_are_as_old_as_the_segment_was(directory: Directory) -> None:
    write(directory, 0, batch(0), batch(FAR))
    directory.set_modified_ms(f"{FIRST}.log", 12_345_000)
    split_segment(directory, 0)
    swaps = [name for name in directory.files() if name.endswith(".log.swap")]
    assert [directory.modified_ms(name) for name in swaps] == [12_345_000] * 2
