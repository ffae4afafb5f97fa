"""A log directory as a broker of ours leaves it, to be damaged and looked at."""

from pathlib import Path

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_dir import LogDir
from core_log.meta_properties import META_PROPERTIES, MetaProperties
from protocol.records.batch_header import read_header
from protocol.records.builder import encode_batch
from protocol.topic_partition import TopicPartition

FLIGHTS_0 = TopicPartition("flights", 0)
T0 = 1_500_000_000_000
BATCHES = 12
RECORDS = 3
SEGMENTS = (0, 12, 24)
"""Base offsets of the three segments that the batches fill, four in each."""

BATCH_BYTES = 391
"""Of each batch: all are alike."""

CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=1024)


def stored_log(directory: Path, *, is_clean: bool = True) -> Path:
    """A broker's directory with the log of flights-0, closed or left as by a crash; the log's.

    Left by a crash, the active segment's indexes have all their room, and everything is synced but
    what is above offset 30.
    """
    stored = LogDir(LogDirectory(directory))
    stored.directory.write_atomic(META_PROPERTIES, MetaProperties(4, "cluster").encode())
    log = stored.create(FLIGHTS_0, CONFIG, lambda: T0)
    for number in range(BATCHES):
        if number * RECORDS in SEGMENTS[1:]:
            log.roll(T0)
        if number * RECORDS == 30:
            flush = log.begin_flush()
            flush.run()
            log.end_flush(flush)
            stored.checkpoint_recovery_points()
        time = T0 + number
        batch = encode_batch(
            [(time, b"k", b"%d" % record * 100, ()) for record in range(RECORDS)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=number * RECORDS,
        )
        log.append(batch, read_header(batch), leader_epoch=2, now_ms=T0, max_timestamp=time)
    stored.checkpoint_high_watermarks({FLIGHTS_0: log.log_end_offset})
    if is_clean:
        log.close()
        stored.mark_clean()
    return directory / str(FLIGHTS_0)
