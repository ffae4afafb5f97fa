"""Which transactions of a segment were aborted: its `.txnindex` file (KIP-98).

    entry = int16 version 0 | int64 producer id | int64 first offset | int64 last offset
          | int64 last stable offset                                      (big-endian)

An entry is written with the transaction's marker, whose offset is its last one, and into the
segment that holds the marker; so entries go up by last offset, and the data they speak of may lie
in segments before. A segment without aborted transactions has no file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from core_log.segments.index_file import CorruptIndex
from core_log.storage import Directory

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """A producer's transaction from its first data to its marker, both inclusive.

    The last stable offset is what it was when this transaction had ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_transaction_index(directory: Directory, name: str) -> list[AbortedTransaction]:
    """The entries of a file, none if there is no such file; a partial one at its end is left out.

    Raises CorruptIndex for entries of another version and for such as do not go up.
    """
    data = directory.read(name) or b""
    found: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
        entry = AbortedTransaction(*fields)
        if version != VERSION:
            raise CorruptIndex(f"{name} has an entry of version {version}")
        if found and entry.last_offset <= found[-1].last_offset:
            raise CorruptIndex(f"{name} goes back from {found[-1]} to {entry}")
        found.append(entry)
    return found


def encode_transaction_index(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of a file with these entries, which go up by last offset."""
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def collect_aborted(
    transactions: Iterable[AbortedTransaction], offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Those of one index with anything from `offset` to `end_offset`, and whether they are all:
    once the last stable offset has reached the end, no later one can have begun below it."""
    found = []
    for each in transactions:
        if each.last_offset >= offset and each.first_offset < end_offset:
            found.append(each)
        if each.last_stable_offset >= end_offset:
            return found, True
    return found, False


def truncate_transaction_index(directory: Directory, name: str, offset: int) -> None:
    """Drop the transactions that ended at `offset` or above, and what is no entry."""
    data = directory.read(name)
    if data is None:
        return
    kept = 0
    for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        version, _, _, last_offset, _ = ENTRY.unpack_from(data, at)
        if version != VERSION or last_offset >= offset:
            break
        kept = at + ENTRY.size
    if kept:
        directory.open_segment(name).truncate(kept)
    else:
        directory.remove(name)
