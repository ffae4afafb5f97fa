"""Two logs written, cut, aged and closed by a broker whose disk may fail it, and what must be kept.

Nobody pulls the plug here: what was written is there at the next start, so all that was
acknowledged and not taken back must be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from core_log.config import LogConfig
from core_log.log_manager import LogDirectoryError, LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.errors import ApiError
from protocol.records.batch import decode_records, encode_batch, read_header
from protocol.topic_partition import TopicPartition
from tests.core_log.failing_directory import FailingDirectory, Fault, copied

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
PARTITIONS = (A0, B0)
NOW_MS = 1_000_000
CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=50,
    segment_index_bytes=60,
    file_delete_delay_ms=0,
    retention_ms=-1,
)


@attrs.define(eq=False)
class Life:
    """The logs in one directory: the values that were acknowledged, by offset."""

    kept: dict[TopicPartition, list[bytes]] = attrs.field(factory=lambda: {A0: [], B0: []})
    half_gone: list[bytes] = attrs.field(factory=list)  # of A0, when it could not be truncated
    may_start_at: int = 0
    refused: dict[TopicPartition, int] = attrs.field(factory=lambda: {A0: 0, B0: 0})
    rounds: int = 0
    failed: set[TopicPartition] = attrs.field(factory=set)  # in the end, in the last run

    def run(self, root: Directory, *, close: bool, heals: bool = False) -> None:
        """Run the broker once. With `heals` it looks for room on a full disk all the time."""
        manager = LogManager([root], CONFIG, lambda: NOW_MS)
        try:
            manager.load()
        except (LogDirectoryError, OSError):
            manager.close(clean=False)
            return
        for step in range(10):
            for tp in PARTITIONS:
                self._append(manager, tp)
            with contextlib.suppress(ApiError, OSError):
                self._do(manager, step)
            if heals:
                self._look_for_room(manager)
        self.failed = {tp for tp, log in manager.logs.items() if log.failure is not None}
        manager.close(clean=close)

    def _look_for_room(self, manager: LogManager) -> None:
        for log_dir in manager.full_dirs():
            with contextlib.suppress(OSError):
                log_dir.probe_room()
                log_dir.resume_writes()

    def _append(self, manager: LogManager, tp: TopicPartition) -> None:
        self.rounds += 1
        value = b"%d.%d" % (len(self.kept[tp]), self.rounds)
        batch = encode_batch([(NOW_MS, None, value, ())])
        try:
            log = manager.get_or_create(tp, CONFIG)
            appended = log.append(
                batch, read_header(batch), leader_epoch=0, now_ms=NOW_MS, max_timestamp=NOW_MS
            )
        except ApiError:
            self.refused[tp] += 1
            return
        assert appended.base_offset == len(self.kept[tp])
        self.kept[tp].append(value)

    def _do(self, manager: LogManager, step: int) -> None:
        log = manager.get(A0)
        if log is None:
            return
        if step in (2, 7) and log.failure is None:
            flush = log.begin_flush()
            try:
                flush.run()
                log.end_flush(flush)
            except OSError as error:
                log.fail_flush(error)
        elif step == 3:
            manager.checkpoint_recovery_points()
        elif step == 4 and log.failure is None:
            offset = log.log_end_offset - 2
            self.half_gone = self.kept[A0][offset:]
            del self.kept[A0][offset:]
            try:
                log.truncate_to(offset)
            finally:
                # One that was refused has changed nothing.
                if log.guard.is_full and log.log_end_offset > offset:
                    self.kept[A0] += self.half_gone
            self.half_gone = []
        elif step == 5 and log.failure is None:
            self.may_start_at = max(self.may_start_at, log.log_end_offset - 3)
            log.increment_log_start_offset(log.log_end_offset - 3)
        elif step == 6:
            manager.delete_old_segments({A0: log.log_end_offset, B0: 0}, NOW_MS)
            manager.tick(NOW_MS)

    def check(self, root: Directory) -> None:
        """Start on a disk that works: all is there, and can be written."""
        manager = LogManager([root], CONFIG, lambda: NOW_MS)
        manager.load()
        for tp in PARTITIONS:
            log = manager.get_or_create(tp, CONFIG)
            assert log.damage is None, log
            assert log.failure is None, log
            kept = self.kept[tp]
            if tp == A0:
                kept += self.half_gone[: log.log_end_offset - len(kept)]
            assert log.log_start_offset <= (self.may_start_at if tp == A0 else 0)
            assert log.log_end_offset == len(kept), (log, kept)
            for offset in range(log.log_start_offset, len(kept)):
                file_range = log.read(offset, 10_000, log.log_end_offset)
                assert file_range is not None
                assert decode_records(file_range.read(), offset)[0].value == kept[offset]
            self._append(manager, tp)
            assert log.log_end_offset == len(kept)
        manager.close()
        assert manager.offline_dirs == {}


@attrs.frozen
class Beginning:
    """A disk to begin with, and what is on it."""

    root: MemoryDirectory
    life: Life

    @classmethod
    def after(cls, *closes: bool) -> Beginning:
        """Run the broker some times on a disk that works, closed or killed in the end."""
        root, life = MemoryDirectory("logs"), Life()
        for close in closes:
            life.run(root, close=close)
        return cls(root, life)

    def failures(
        self, number: int, *, of_reads: bool, heals: bool = False
    ) -> Iterator[tuple[Fault, Life]]:
        """The next run, each of its operations failing once, then a start that nothing fails."""
        dry = Fault(number, of_reads=of_reads)
        self._next(dry, close=True, heals=heals)
        for at in range(dry.count):
            fault = Fault(number, at, of_reads)
            life, root = self._next(fault, close=at % 2 == 0, heals=heals)
            if fault.struck is None:  # it would have been one of the close
                fault = Fault(number, at, of_reads)
                life, root = self._next(fault, close=True, heals=heals)
            try:
                life.check(root)
            except Exception as error:
                raise AssertionError(f"operation {at} failed, {fault.struck}: {error!r}") from error
            yield fault, life

    def _next(self, fault: Fault, *, close: bool, heals: bool) -> tuple[Life, MemoryDirectory]:
        life = attrs.evolve(
            self.life,
            kept={tp: list(values) for tp, values in self.life.kept.items()},
            refused={A0: 0, B0: 0},
        )
        root = copied(self.root)
        life.run(FailingDirectory(root, fault), close=close, heals=heals)
        root.disk.locked.clear()
        return life, root
