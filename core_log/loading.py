"""How a log comes to be from what is in its directory: recovery, epochs, producers."""

from __future__ import annotations

import logging

from core_log.config import LogConfig
from core_log.deleted_files import DeletedFiles
from core_log.flush import FlushState
from core_log.leader_epochs import LeaderEpochs
from core_log.log import Log
from core_log.producer_snapshots import ProducerSnapshots
from core_log.recovery import open_log
from core_log.segment_list import SegmentList
from core_log.storage import Directory
from protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


def load_log(
    directory: Directory,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: int,
    clean_shutdown: bool,
    now_ms: int,
    log_start_offset: int = 0,
) -> Log:
    """Open the log in `directory`, after recovery if it was not closed; an empty one is made.

    `recovery_point` and `log_start_offset` are the checkpointed ones. A log that was closed and
    has no snapshot of its producers is from before there were any. Raises OSError, and
    ValueError for files that are no log's.
    """
    epochs = LeaderEpochs.load(directory)
    opened = open_log(
        directory,
        config,
        epochs,
        recovery_point=recovery_point,
        clean_shutdown=clean_shutdown,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
    )
    if opened.cut is not None:
        _log.warning("%s: recovery cuts %s", topic_partition, opened.cut)
    flushed = (
        min(recovery_point, opened.log_end_offset) if clean_shutdown else opened.log_end_offset
    )
    snapshots = ProducerSnapshots.find(directory)
    log = Log(
        directory,
        topic_partition,
        config,
        SegmentList(opened.segments, opened.log_end_offset),
        epochs,
        snapshots,
        max(log_start_offset, opened.segments[0].base_offset),
        FlushState.start(flushed, now_ms),
        DeletedFiles(directory),
        now_ms,
    )
    if snapshots.offsets or not clean_shutdown:
        log.reload_producers()
        snapshots.take(log.log_end_offset, log.producers.producers)
    return log
