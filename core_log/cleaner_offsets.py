"""The end of the clean part of each log in a directory: its cleaner-offset-checkpoint.

An entry must never be too high, or the cleaner would take bytes for clean that came after a
truncation (KAFKA-3330), or those of a new log with the same name (KAFKA-1819). So it is lowered
when its log is truncated, is deleted with its log, and moves with it to another directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs

from core_log.checkpoint import CLEANER_OFFSETS, encode_offsets
from core_log.storage import Directory
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class CleanerOffsets:
    """The first dirty offset by partition. One thread at a time writes the file."""

    directory: Directory
    _one_writer: AbstractContextManager[Any] = attrs.field(factory=nullcontext)
    offsets: dict[TopicPartition, int] = attrs.field(factory=dict)
    _is_saved: bool = True

    def load(self, stored: Mapping[TopicPartition, int]) -> None:
        """Take over the entries that the file has."""
        self.offsets = dict(stored)

    def get(self, topic_partition: TopicPartition) -> int | None:
        """Return where a log is clean up to; None if it was never cleaned."""
        return self.offsets.get(topic_partition)

    def note(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note that a log is clean up to `offset`. Call `save` afterwards."""
        self.offsets[topic_partition] = offset
        self._is_saved = False

    def save_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """Write that a log is clean up to `offset`. Raises OSError."""
        self.note(topic_partition, offset)
        self._save()

    def lower(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Lower a log's entry to `offset`. Returns whether it was higher. Raises OSError."""
        before = self.offsets.get(topic_partition, 0)
        if before <= offset:
            return False

        try:
            self.save_offset(topic_partition, offset)
        except OSError:
            # The file has the higher entry still: the next call must see that.
            self.offsets[topic_partition] = before
            raise
        return True

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a log's entry. Call `save` afterwards."""
        if self.offsets.pop(topic_partition, None) is not None:
            self._is_saved = False

    def move(self, topic_partition: TopicPartition, target: CleanerOffsets) -> None:
        """Move a log's entry to another directory's. Call `save` for both afterwards."""
        offset = self.offsets.get(topic_partition)
        self.delete(topic_partition)
        if offset is not None:
            target.offsets[topic_partition] = offset
            target._is_saved = False

    def keep_only(self, logs: Mapping[TopicPartition, object]) -> None:
        """Delete the entries without a log. Call `save` afterwards."""
        for topic_partition in self.offsets.keys() - logs.keys():
            self.delete(topic_partition)

    def save(self) -> None:
        """Write the entries if they changed, in any thread. Raises OSError."""
        if not self._is_saved:
            self._save()

    def _save(self) -> None:
        with self._one_writer:
            # Before the write: what is noted during it must be written again.
            self._is_saved = True
            try:
                self.directory.write_atomic(CLEANER_OFFSETS, encode_offsets(dict(self.offsets)))
            except OSError:
                self._is_saved = False
                raise
