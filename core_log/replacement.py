"""A cleaned copy takes the place of the segments it was made from, whatever the power does.

    .log.cleaned ──1──▶ .log.swap ──3──▶ .log          (the indexes likewise)
    the originals ────────2────────▶ .deleted          (removed a while later)

The copy is on disk before step 1. The directory is synced after steps 1 and 2, so a crash leaves
one of these, and `recovery` knows what comes next:

    .cleaned and originals              undone: the copies go
    .swap and originals, any of them    done: the originals go, the copy gets its name
    plain and .deleted                  done: the marked files go

Between 1 and 3 there is always one whole set of files under names that recovery keeps; a swap is
never renamed before every original is marked (KAFKA-2118). A swap that came back beside the
`.cleaned` files of the next pass would be taken for one that was never finished: step 3 must be on
disk before that pass begins (`Log.make_names_safe`).
"""

from __future__ import annotations

from collections.abc import Sequence

from core_log.deleted_files import DeletedFiles
from core_log.file_name import (
    ALL_SUFFIXES,
    CLEANED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from core_log.offset_index import OffsetIndex
from core_log.segment import Segment
from core_log.storage import Directory
from core_log.time_index import TimeIndex


def swap_in(
    originals: Sequence[Segment], deleted_files: DeletedFiles, removal_ms: int, now_ms: int
) -> Segment:
    """Put the `.cleaned` files of the first of `originals` in the place of all; the new segment.

    The originals' files are removed at `removal_ms`. Raises CorruptIndex, with nothing changed,
    and OSError, after which only recovery knows what is there.
    """
    directory, base_offset = originals[0].directory, originals[0].base_offset
    _check_indexes(directory, base_offset)
    _rename(directory, base_offset, CLEANED, SWAP)
    directory.fsync_dir()
    deleted_files.mark(originals, removal_ms)
    directory.fsync_dir()
    _rename(directory, base_offset, SWAP, "")
    return Segment.load(directory, base_offset, now_ms)


def _check_indexes(directory: Directory, base_offset: int) -> None:
    log_size = directory.size(file_name(base_offset, LOG + CLEANED)) or 0
    OffsetIndex.load(directory, file_name(base_offset, INDEX + CLEANED), base_offset, log_size)
    TimeIndex.load(directory, file_name(base_offset, TIME_INDEX + CLEANED), base_offset)


def _rename(directory: Directory, base_offset: int, before: str, after: str) -> None:
    for kind in ALL_SUFFIXES:
        name = file_name(base_offset, kind)
        if kind != TRANSACTION_INDEX or directory.size(name + before) is not None:
            directory.rename(name + before, name + after)
