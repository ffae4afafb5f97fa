"""Write logs, in Kafka's format and with our own code, before a broker serves them.

A log is written once and copied into the directories of both sides. Nobody appends to it there, so
the copies share the files of batches, which are in the page cache for both. Each has its own
indexes, which a broker preallocates when it opens a log.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from benchmarks.brokers import Installation
from clients.admin import LATEST_TIME, Admin, NewTopic
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_dir import CLEAN_SHUTDOWN
from core_log.segments.file_name import LOG
from core_log.segments.segment import Segment
from core_log.segments.time_index import TimestampOffset
from protocol.records.batch import read_header
from protocol.topic_partition import TopicPartition

_OFFSET_BYTES = 8
_REQUEST_TIMEOUT_MS = 120_000
STOP_TIMEOUT_S = 120.0
"""A broker with thousands of partitions needs this long to stop."""


@attrs.frozen
class WrittenLog:
    """The files of a partition; the last segment begins at `active_offset`, at `sealed_bytes`."""

    directory: Path
    segment_bytes: int
    active_offset: int
    sealed_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all its batches."""
        return sum(file.stat().st_size for file in self.directory.glob(f"*{LOG}"))

    def copy_to(self, directory: Path) -> None:
        """Copy the log to a new directory, by hard links where nobody writes."""
        directory.mkdir()
        for file in self.directory.iterdir():
            copy = os.link if file.suffix == LOG else shutil.copyfile
            copy(file, directory / file.name)


def write_log(
    directory: Path, batches: Iterable[bytes], segment_bytes: int, last: Sequence[bytes] = ()
) -> WrittenLog:
    """Write a log of batches, each of which was encoded with base offset 0.

    The batches of `last` get an active segment of their own.
    """
    files = LogDirectory(directory)
    config = LogConfig()
    segment = _begin_segment(files, 0, config)
    sealed_bytes = next_offset = 0

    for group, is_last in ((batches, False), (last, True)):
        for nth, batch in enumerate(group):
            # The segment is full, or the batch is the first of the active segment.
            if segment.size + len(batch) > segment_bytes or (is_last and nth == 0):
                segment.seal()
                sealed_bytes += segment.size
                segment = _begin_segment(files, next_offset, config)

            # The base offset replaces the batch's first eight bytes.
            header = read_header(batch)
            last_offset = next_offset + header.last_offset_delta
            segment.append(
                [next_offset.to_bytes(_OFFSET_BYTES, "big"), batch[_OFFSET_BYTES:]],
                last_offset,
                TimestampOffset(header.max_timestamp, last_offset),
                config.index_interval_bytes,
            )
            next_offset = last_offset + 1

    segment.seal()
    return WrittenLog(directory, segment_bytes, segment.base_offset, sealed_bytes)


def _begin_segment(files: LogDirectory, base_offset: int, config: LogConfig) -> Segment:
    segment = Segment.create(files, base_offset, 0)
    segment.activate(config)
    return segment


def place_logs(place: Installation, topics: Sequence[NewTopic], log: WrittenLog) -> None:
    """Create topics on a stopped broker, and copy the log to each partition."""
    # The broker makes the topics, so that ZooKeeper and its checkpoints know them.
    broker = place.start()
    broker.administer(lambda admin: _create(admin, topics), _REQUEST_TIMEOUT_MS)
    broker.process.stop(timeout_s=STOP_TIMEOUT_S)
    if not (place.log_directory / CLEAN_SHUTDOWN).exists():
        raise RuntimeError(f"{broker.name} does not stop in time")

    # While it is stopped, the log takes the place of each empty one.
    for topic in topics:
        for partition in range(topic.num_partitions):
            directory = place.log_directory / f"{topic.name}-{partition}"
            shutil.rmtree(directory)
            log.copy_to(directory)


async def _create(admin: Admin, topics: Sequence[NewTopic]) -> None:
    """Create topics; return when the broker leads all their partitions."""
    for name, refusal in (await admin.create_topics(topics)).items():
        if refusal:
            raise RuntimeError(f"{name} is not created: {refusal}")

    partitions = [
        TopicPartition(topic.name, partition_id)
        for topic in topics
        for partition_id in range(topic.num_partitions)
    ]

    # ListOffsets succeeds only where the broker leads.
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME))
    if errors := {end.error for end in ends.values() if end.error}:
        raise RuntimeError(f"there are partitions without a leader: {errors}")
