"""Aborted transactions in a segment's file."""

from __future__ import annotations

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.segments.index_file import CorruptIndex
from core_log.segments.transaction_index import (
    AbortedTransaction,
    encode_transaction_index,
    read_transaction_index,
)

NAME = "00000000000000000000.txnindex"
TWO = [AbortedTransaction(1, 0, 10, 11), AbortedTransaction(2**40, 5, 15, 13)]


def directory_with(data: bytes) -> MemoryDirectory:
    directory = MemoryDirectory()
    directory.open_segment(NAME).append([data])
    return directory


def test_entries_are_read_as_they_were_written() -> None:
    assert read_transaction_index(directory_with(encode_transaction_index(TWO)), NAME) == TWO


def test_entry_is_laid_out_as_kafkas() -> None:
    assert encode_transaction_index(TWO[:1]).hex() == (
        "000000000000000000010000000000000000000000000000000a000000000000000b"
    )


def test_segment_without_a_file_has_no_aborted_transactions() -> None:
    assert read_transaction_index(MemoryDirectory(), NAME) == []


def test_partial_entry_at_the_end_is_left_out() -> None:
    data = encode_transaction_index(TWO)[:-1]
    assert read_transaction_index(directory_with(data), NAME) == TWO[:1]


def test_entries_that_do_not_go_up_are_corrupt() -> None:
    with pytest.raises(CorruptIndex, match="goes back"):
        read_transaction_index(directory_with(encode_transaction_index([TWO[1], TWO[1]])), NAME)


def test_entry_of_another_version_is_corrupt() -> None:
    data = b"\0\1" + encode_transaction_index(TWO)[2:]
    with pytest.raises(CorruptIndex, match="version 1"):
        read_transaction_index(directory_with(data), NAME)
