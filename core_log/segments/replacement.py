"""A cleaned copy takes the place of the segments it was made from, even through a power loss.

    .log.cleaned ──1──▶ .log.swap ──3──▶ .log          (the indexes likewise)
    the originals ────────2────────▶ .deleted          (removed a while later)

The copy is on disk before step 1. The directory is synced after steps 1 and 2, so a crash leaves
one of these, and `recovery` knows the next step:

    .cleaned and originals              undone: the copies go
    .swap and originals, any of them    done: the originals go, the copy gets its name
    plain and .deleted                  done: the marked files go

Between 1 and 3 there is always one whole set of files under names that recovery keeps. A swap is
never renamed before every original is marked (KAFKA-2118). A swap that came back beside the
`.cleaned` files of the next pass would count as unfinished, so step 3 must be on disk before that
pass begins.

All of this is a thread's work. The event loop reads the originals meanwhile, so whatever it finds
by their names is held before.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from core_log.open_files import OPEN_FILES
from core_log.segments.file_name import (
    ALL_SUFFIXES,
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from core_log.segments.offset_index import OffsetIndex
from core_log.segments.segment import Segment
from core_log.segments.time_index import TimeIndex
from core_log.storage import Directory


@attrs.define(eq=False)
class Replacement:
    """Puts the `.cleaned` files of the first of `originals` in the place of all.

    Call `hold` first, then `run` when nobody is in a read that began before `hold`. Afterwards
    `copy` is the new segment, and `renamed` are the names of the originals' files.
    """

    originals: Sequence[Segment]
    monotonic_ms: int
    renamed: list[str] = attrs.field(factory=list)
    copy: Segment = attrs.field(init=False)

    def hold(self) -> None:
        """Keep the originals readable without their names, in any thread.

        Raises CorruptIndex for a copy that cannot be used, and OSError, with nothing changed.
        """
        first = self.originals[0]
        # A bad copy must be found before anything is renamed.
        _check_indexes(first.directory, first.base_offset)
        for original in self.originals:
            original.hold()

    def run(self) -> None:
        """Rename the files, in any thread.

        Raises CorruptIndex, and OSError, after which only recovery knows what is there.
        """
        first = self.originals[0]
        directory, base_offset = first.directory, first.base_offset

        # Steps 1 to 3 of the module's head.
        with OPEN_FILES.must_end():
            _rename(directory, base_offset, CLEANED, SWAP)
            directory.fsync_dir()
            for original in self.originals:
                self.renamed += original.rename_files(DELETED)
            directory.fsync_dir()
            # The log's next flush syncs this name, before another pass begins.
            _rename(directory, base_offset, SWAP, "")
            self.copy = Segment.load(directory, base_offset, self.monotonic_ms)


def _check_indexes(directory: Directory, base_offset: int) -> None:
    log_size = directory.size(file_name(base_offset, LOG + CLEANED)) or 0
    # Each raises for a bad file; `run` opens them for good.
    OffsetIndex.load(directory, file_name(base_offset, INDEX + CLEANED), base_offset, log_size)
    TimeIndex.load(directory, file_name(base_offset, TIME_INDEX + CLEANED), base_offset)


def _rename(directory: Directory, base_offset: int, before: str, after: str) -> None:
    for kind in ALL_SUFFIXES:
        name = file_name(base_offset, kind)
        # Only a copy with aborted transactions has that index.
        if kind != TRANSACTION_INDEX or directory.size(name + before) is not None:
            directory.rename(name + before, name + after)
