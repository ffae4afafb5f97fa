"""Up to where the logs of a directory are clean: its cleaner-offset-checkpoint.

An entry must never say more than is true, or what came after a truncation would be taken for
clean (KAFKA-3330), and so would a new log of the same name (KAFKA-1819). So it is lowered when its
log is cut, goes with its log, and moves with it to another directory.
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
    """The first dirty offset by partition; written as it changes, by one thread at a time."""

    directory: Directory
    _one_writer: AbstractContextManager[Any] = attrs.field(factory=nullcontext)
    offsets: dict[TopicPartition, int] = attrs.field(factory=dict)
    _is_saved: bool = True

    def load(self, stored: Mapping[TopicPartition, int]) -> None:
        """Take what the file has."""
        self.offsets = dict(stored)

    def get(self, topic_partition: TopicPartition) -> int | None:
        """None: nothing of the log was ever cleaned."""
        return self.offsets.get(topic_partition)

    def note(self, topic_partition: TopicPartition, offset: int) -> None:
        """A log is clean up to `offset`; `save` is due."""
        self.offsets[topic_partition] = offset
        self._is_saved = False

    def save_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """A log is clean up to `offset`. Raises OSError."""
        self.note(topic_partition, offset)
        self._save()

    def lower(self, topic_partition: TopicPartition, offset: int) -> bool:
        """The log is cut at `offset`; whether it was clean further. Raises OSError."""
        is_lower = self.offsets.get(topic_partition, 0) > offset
        if is_lower:
            self.save_offset(topic_partition, offset)
        return is_lower

    def delete(self, topic_partition: TopicPartition) -> None:
        """The log is going; `save` is due."""
        if self.offsets.pop(topic_partition, None) is not None:
            self._is_saved = False

    def move(self, topic_partition: TopicPartition, to: CleanerOffsets) -> None:
        """The log lies in another directory from now on; `save` is due for both."""
        offset = self.offsets.get(topic_partition)
        self.delete(topic_partition)
        if offset is not None:
            to.offsets[topic_partition] = offset
            to._is_saved = False

    def keep_only(self, logs: Mapping[TopicPartition, object]) -> None:
        """Drop what has no log; `save` is due."""
        for topic_partition in self.offsets.keys() - logs.keys():
            self.delete(topic_partition)

    def save(self) -> None:
        """Write what is not written yet, in whatever thread. Raises OSError."""
        if not self._is_saved:
            self._save()

    def _save(self) -> None:
        with self._one_writer:
            self._is_saved = True
            self.directory.write_atomic(CLEANER_OFFSETS, encode_offsets(dict(self.offsets)))
