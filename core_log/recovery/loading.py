"""How a log comes to be from what is in its directory: recovery, epochs, producers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from core_log.config import LogConfig
from core_log.flush import FlushState
from core_log.guard import Guard
from core_log.leader_epochs import LeaderEpochs
from core_log.log import Log
from core_log.producers.producer_history import ProducerHistory
from core_log.producers.producer_snapshots import ProducerSnapshots
from core_log.producers.transactions import delete_doubtful_indexes, sync_indexes
from core_log.recovery.damage import EVERYTHING, BadTail
from core_log.recovery.recovery import Recovered, open_log, remove_tail
from core_log.segments.segment_list import SegmentList
from core_log.segments.splitting import OffsetOverflow, split_segment
from core_log.storage import Directory
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
    """Open the log in `directory`, after recovery if it was not closed; an empty one is made.

    `recovery_point` and `log_start_offset` are the checkpointed ones, `monotonic_ms` is the clock
    for intervals. A log that was closed and
    has no snapshot of its producers is from before there were any. With `check_all` every batch
    is read. Where something is missing that was on disk, the log is left as it is (`damage`).
    Raises OSError, and ValueError for files that are no log's.
    """
    epochs = LeaderEpochs.load(directory)
    opened = _opened(
        directory,
        config,
        epochs,
        recovery_point=recovery_point,
        clean_shutdown=clean_shutdown,
        log_start_offset=log_start_offset,
        monotonic_ms=monotonic_ms(),
        check_all=check_all,
    )
    if opened.torn_tail is not None:
        logger.warning("%s: recovery cuts %s", topic_partition, opened.torn_tail)
    flushes = FlushState.start(_flushed_end(opened, recovery_point, clean_shutdown), monotonic_ms())
    segments = SegmentList(directory, opened.segments, opened.log_end_offset, flushes)
    snapshots = ProducerSnapshots.find(directory)
    guard = Guard(topic_partition)
    log = Log(
        directory,
        topic_partition,
        config,
        segments,
        epochs,
        opened.log_start_offset,
        guard,
        ProducerHistory(segments, guard, snapshots),
        monotonic_ms,
    )
    if opened.damage is not None:
        _leave_damaged(log, opened.damage)
        return log
    markers_from = min(opened.markers_from, delete_doubtful_indexes(segments, opened.unsynced_from))
    if snapshots.offsets or not clean_shutdown or markers_from < EVERYTHING:
        log.history.reload(markers_from=markers_from)
        log.history.snapshot(log.log_end_offset)
    if markers_from < EVERYTHING:
        sync_indexes(segments)
    log.update_config(config)
    return log


def truncate_damage(log: Log) -> Log:
    """Truncate a damaged log at its damage, and open what is left. Raises OSError."""
    damage = log.damage
    assert damage is not None
    log.lower_checkpoints(damage.offset)
    logger.warning("%s is cut at its damage, it loses %s", log.topic_partition, damage)
    remove_tail(log.directory, damage)
    return load_log(
        log.directory,
        log.topic_partition,
        log.config,
        recovery_point=damage.offset,
        clean_shutdown=True,
        monotonic_ms=log.monotonic_ms,
        log_start_offset=min(log.log_start_offset, damage.offset),
    )


def _flushed_end(opened: Recovered, recovery_point: int, clean_shutdown: bool) -> int:
    """Up to where the log is on disk. A damaged one keeps its recovery point, or the next recovery
    would take the damage for a torn tail."""
    if opened.damage is not None:
        return recovery_point or max(opened.damage.last_offset, opened.damage.offset) + 1
    if clean_shutdown:
        return min(recovery_point, opened.log_end_offset)
    return opened.log_end_offset


def _leave_damaged(log: Log, damage: BadTail) -> None:
    """Serve nobody: what was on disk cannot be read."""
    log.damage = damage
    log.guard.failure = f"it is damaged: {damage}"
    logger.error("%s is off-line, it has lost %s", log.topic_partition, damage)


def _opened(
    directory: Directory, config: LogConfig, epochs: LeaderEpochs, **found: Any
) -> Recovered:
    """The log's segments, once those that need it have been split."""
    while True:
        try:
            return open_log(directory, config, epochs, **found)
        except OffsetOverflow as overflow:
            split_segment(directory, overflow.base_offset)
