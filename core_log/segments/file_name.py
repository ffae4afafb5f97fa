"""The names of a segment's files: its base offset in twenty digits, and what kind of file it is.

00000000000000001200.log  .index  .timeindex         a segment and its two indexes
00000000000000001200.txnindex                        its aborted transactions, if there are any
00000000000000001200.log.cleaned                     a copy that is being written
00000000000000001200.log.swap                        a copy about to take its originals' place
00000000000000001200.log.deleted                     a deleted file
"""

from __future__ import annotations

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX)
"""The files that every segment has."""
ALL_SUFFIXES = (*SUFFIXES, TRANSACTION_INDEX)
"""The files that a segment may have."""

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"


def file_name(base_offset: int, suffix: str) -> str:
    """Name a segment's file, of `suffix` with its dot."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int:
    """Read the base offset from a file's name. Raises ValueError if it is no segment's file."""
    digits, _, _ = name.partition(".")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{name} is not named as a segment's file is")
    return int(digits)
