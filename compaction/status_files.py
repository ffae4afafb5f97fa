"""Keeps each log directory's `cleaner-status.json`, and knows what is in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs

from compaction.quarantine import Quarantine, quarantined
from compaction.status import (
    STATUS_FILE,
    PartitionStatus,
    Pass,
    Running,
    StatusError,
    decode_status,
    encode_status,
)
from core_log.log import Log
from core_log.log_dir import LogDir
from core_log.log_manager import LogManager
from protocol.topic_partition import TopicPartition

WRITE_INTERVAL_MS = 10_000
"""How often progress is written while nothing else happens."""

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class StatusFiles:
    """The status by partition; of those that have their log here it is written down."""

    logs: LogManager
    now_ms: Callable[[], int]
    partitions: dict[TopicPartition, PartitionStatus] = attrs.field(factory=dict)
    _progress_ms: int = 0
    _unwritten: list[Log] = attrs.field(factory=list)

    def load(self) -> None:
        """Take over what was done by a broker that was here before. Why it could not do other
        things is not taken over: somebody may have seen to it."""
        for log_dir in self.logs.dirs:
            try:
                stored = decode_status(log_dir.directory.read(STATUS_FILE))
            except (StatusError, OSError) as error:
                _log.warning("%s/%s is ignored: %s", log_dir.path, STATUS_FILE, error)
                continue
            for tp in log_dir.logs:
                if str(tp) in stored and stored[str(tp)].last is not None:
                    self.partitions[tp] = PartitionStatus(stored[str(tp)].last)

    def get(self, topic_partition: TopicPartition) -> PartitionStatus:
        """What there is to say of a log."""
        return self.partitions.get(topic_partition, PartitionStatus())

    def watch(self, log: Log) -> None:
        """A log is the cleaner's to look after, though there is nothing to say of it yet."""
        if log.topic_partition not in self.partitions:
            self.partitions[log.topic_partition] = PartitionStatus()
            self._unwritten.append(log)

    def write_new(self) -> None:
        """Write down which logs are watched."""
        new, self._unwritten = self._unwritten, []
        for log_dir in dict.fromkeys(self.logs.dir_of(log.topic_partition) for log in new):
            if log_dir is not None:
                self._write_dir(log_dir)

    def progressed(self, log: Log, running: Running) -> None:
        """A cleaning is under way, and so far; written down when it is time."""
        self._set(log, running=running)
        if self.now_ms() - self._progress_ms >= WRITE_INTERVAL_MS:
            self._progress_ms = self.now_ms()
            self._write(log)

    def finished(self, log: Log, done: Pass) -> None:
        """A cleaning came to its end: what spoke against the log does so no more."""
        self._set(log, last=done, running=None, quarantine=None)
        self._write(log)

    def given_up(self, log: Log) -> None:
        """A cleaning is under way no more."""
        self._set(log, running=None)
        self._write(log)

    def failed(self, log: Log, reason: str) -> Quarantine:
        """A log cannot be cleaned; its quarantine."""
        found = quarantined(self.get(log.topic_partition).quarantine, reason, self.now_ms())
        self._set(log, running=None, quarantine=found)
        self._write(log)
        return found

    def _set(self, log: Log, **changes: Any) -> None:
        tp = log.topic_partition
        self.partitions[tp] = attrs.evolve(self.get(tp), **changes)

    def _write(self, log: Log) -> None:
        """Write the file of a log's directory; what cannot be written is written with the next."""
        log_dir = self.logs.dir_of(log.topic_partition)
        for gone in self.partitions.keys() - self.logs.logs.keys():
            del self.partitions[gone]
        if log_dir is not None:
            self._write_dir(log_dir)

    def _write_dir(self, log_dir: LogDir) -> None:
        mine = {str(tp): found for tp, found in self.partitions.items() if tp in log_dir.logs}
        try:
            log_dir.directory.write_atomic(STATUS_FILE, encode_status(mine, self.now_ms()))
        except OSError as error:
            _log.warning("%s/%s cannot be written: %s", log_dir.path, STATUS_FILE, error)
