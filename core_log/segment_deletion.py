"""Segments that retention took out of a log: the rest of the work is on their files.

The log goes on without them from the moment of the decision. Any thread may mark the files as
deleted, the oldest first. Each is gone for good before the next one goes: a power loss that brought
back one without another would leave a hole in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from core_log.leader_epochs import LeaderEpochs
from core_log.open_files import OPEN_FILES
from core_log.producers.producer_snapshots import snapshot_name
from core_log.segments.file_name import DELETED
from core_log.segments.segment import Segment
from core_log.storage import DISK_FULL, Directory


@attrs.define(eq=False)
class Retention:
    """The oldest segments of a log, and the producers' snapshots below its new start.

    `name_changes` counts how often names had changed in the directory when this began. `renamed`
    are the new names of the files that `run` has marked.
    """

    directory: Directory
    segments: deque[Segment]
    snapshot_offsets: Sequence[int]
    epochs: LeaderEpochs
    name_changes: int
    renamed: list[str] = attrs.field(factory=list)

    def run(self) -> None:
        """Mark the files. Raises OSError.

        A lack of room keeps none of them: the epochs are written with the next flush as well.
        """
        with OPEN_FILES.must_end():
            while self.segments:
                # The name of the segment before must be gone for good first.
                self.directory.fsync_dir()
                self.renamed += self.segments[0].rename_files(DELETED)
                # There may be more segments than descriptors: what nobody reads is closed.
                self.segments.popleft()
            # No start reads the log from below its new start.
            for offset in self.snapshot_offsets:
                self.directory.remove(snapshot_name(offset))
            try:
                self.epochs.save()
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
