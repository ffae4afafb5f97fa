"""Deleted files: marked as deleted at once, removed when readers have had their time."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from core_log.segments.file_name import DELETED
from core_log.segments.segment import Segment
from core_log.storage import Directory


@attrs.define(eq=False)
class DeletedFiles:
    """The marked files of one log, and the time when each is due, in ms."""

    directory: Directory
    _due: list[tuple[int, str]] = attrs.field(factory=list)

    def mark(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the segments' files. Their ranges stay readable until nobody holds them."""
        for segment in segments:
            self._due += [(due_ms, name) for name in segment.rename_files(DELETED)]

    def add(self, names: Iterable[str], due_ms: int) -> None:
        """Take over files that are marked already."""
        self._due += [(due_ms, name) for name in names]

    def take_due(self, monotonic_ms: int) -> list[str]:
        """Take the files that are due. The caller removes them, in any thread."""
        due = [name for due_ms, name in self._due if due_ms <= monotonic_ms]
        if due:
            self._due = [left for left in self._due if left[0] > monotonic_ms]
        return due
