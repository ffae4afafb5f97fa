"""Open a log from the files in its directory: recovery, leader epochs, producers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from core_log.config import LogConfig
from core_log.damage import EVERYTHING, BadTail
from core_log.flush import FlushState
from core_log.guard import Guard
from core_log.leader_epochs import LeaderEpochs
from core_log.log import Log
from core_log.producers.producer_history import ProducerHistory
from core_log.producers.producer_snapshots import ProducerSnapshots
from core_log.producers.transactions import delete_doubtful_indexes, sync_indexes
from core_log.recovery.recovery import Recovered, open_log, remove_tail
from core_log.segments.segment_list import SegmentList
from core_log.segments.splitting import OffsetOverflow, split_segment
from core_log.storage import Directory
from core_log.topic_identity_file import read_identity
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


def load_log(
    directory: Directory,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: int,
    clean_shutdown: bool,
    monotonic_ms: Callable[[], int],
    log_start_offset: int = 0,
    check_all: bool = False,
) -> Log:
    """Open the log in `directory`, after recovery if it was not closed. An empty one is created.

    `recovery_point` and `log_start_offset` are the checkpointed ones, `monotonic_ms` is the clock
    for intervals. A closed log without a snapshot of its producers is from before there were any.
    With `check_all` every batch is read. If bytes are missing that were on disk, the log is left as
    it is (`damage`). Raises OSError, and ValueError for files that are no log's.
    """
    # Recover the segments.
    epochs = LeaderEpochs.load(directory)
    recovered = _recover(
        directory,
        config,
        epochs,
        recovery_point=recovery_point,
        clean_shutdown=clean_shutdown,
        log_start_offset=log_start_offset,
        monotonic_ms=monotonic_ms(),
        check_all=check_all,
    )
    if recovered.torn_tail is not None:
        logger.warning("%s: recovery truncates %s", topic_partition, recovered.torn_tail)

    # Put the log together.
    flushed_end = _flushed_end(recovered, recovery_point, clean_shutdown)
    flushes = FlushState.start(flushed_end, monotonic_ms())
    segments = SegmentList(directory, recovered.segments, recovered.log_end_offset, flushes)
    snapshots = ProducerSnapshots.find(directory)
    guard = Guard(topic_partition)
    log = Log(
        directory,
        topic_partition,
        config,
        segments,
        epochs,
        recovered.log_start_offset,
        guard,
        ProducerHistory(segments, guard, snapshots),
        monotonic_ms,
        identity=read_identity(directory),
    )
    # A damaged log is off-line: nobody asks for its producers.
    if recovered.damage is not None:
        _leave_damaged(log, recovered.damage)
        return log

    # Find the producers, and note transactions again whose index entries a crash may have torn.
    markers_from = delete_doubtful_indexes(segments, recovered.unsynced_from)
    markers_from = min(markers_from, recovered.markers_from)
    if snapshots.offsets or not clean_shutdown or markers_from < EVERYTHING:
        log.history.reload(markers_from=markers_from)
        log.history.snapshot(log.log_end_offset)
        log.history.write_snapshots()
    if markers_from < EVERYTHING:
        sync_indexes(segments)

    # A topic in an older format has no leader epochs, even if the file has some.
    log.update_config(config)
    return log


def truncate_damage(log: Log) -> Log:
    """Truncate a damaged log at its damage, and open what is left. Raises OSError."""
    damage = log.damage
    assert damage is not None
    # What is removed must not count as flushed, or it would be damage again.
    log.lower_checkpoints(damage.offset)
    logger.warning("%s is truncated at its damage: it loses %s", log.topic_partition, damage)
    remove_tail(log.directory, damage)
    # The rest was found good: it loads as after a clean stop.
    return load_log(
        log.directory,
        log.topic_partition,
        log.config,
        recovery_point=damage.offset,
        clean_shutdown=True,
        monotonic_ms=log.monotonic_ms,
        log_start_offset=min(log.log_start_offset, damage.offset),
    )


def _flushed_end(recovered: Recovered, recovery_point: int, clean_shutdown: bool) -> int:
    """Return the end of the log's flushed part.

    A damaged log keeps its recovery point. Otherwise the next recovery would take the damage for a
    torn tail.
    """
    if recovered.damage is not None:
        # Without a checkpoint the last offset that was known to be there stands for it.
        return recovery_point or max(recovered.damage.last_offset, recovered.damage.offset) + 1
    if clean_shutdown:
        return min(recovery_point, recovered.log_end_offset)
    return recovered.log_end_offset


def _leave_damaged(log: Log, damage: BadTail) -> None:
    """Take the log offline: bytes that were on disk cannot be read."""
    log.damage = damage
    log.guard.failure = f"it is damaged: {damage}"
    logger.error("%s is offline: it has lost %s", log.topic_partition, damage)


def _recover(
    directory: Directory, config: LogConfig, epochs: LeaderEpochs, **checkpoints: Any
) -> Recovered:
    """Open the segments, and split those that need it first."""
    # Each split leaves parts that fit, so this comes to an end.
    while True:
        try:
            return open_log(directory, config, epochs, **checkpoints)
        except OffsetOverflow as overflow:
            split_segment(directory, overflow.base_offset)
