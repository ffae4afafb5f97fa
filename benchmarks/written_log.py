"""Logs that lie on the disk before a broker serves them: in Kafka's format, by our own log.

One is written once, and laid into the directories of both sides. Nobody appends to it there, so
they share the batches, which then are in the page cache for both; indexes, which a broker lengthens
when it opens a log, each has for itself.
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
"""Thousands of partitions take a broker a while to close."""


@attrs.frozen
class WrittenLog:
    """A partition's files. The last segment begins at `active_offset`, behind `sealed_bytes`."""

    directory: Path
    segment_bytes: int
    active_offset: int
    sealed_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all its batches."""
        return sum(file.stat().st_size for file in self.directory.glob(f"*{LOG}"))

    def copy_to(self, directory: Path) -> None:
        """Have it in another directory too, which must not be there yet."""
        directory.mkdir()
        for file in self.directory.iterdir():
            lay = os.link if file.suffix == LOG else shutil.copyfile
            lay(file, directory / file.name)


def write_log(
    directory: Path, batches: Iterable[bytes], segment_bytes: int, last: Sequence[bytes] = ()
) -> WrittenLog:
    """Write a log of batches that were encoded from offset 0 on, each; the `last` of them are an
    active segment of their own."""
    files, config = LogDirectory(directory), LogConfig()
    segment = _begin(files, 0, config)
    sealed_bytes = next_offset = 0
    for group, ends in ((batches, False), (last, True)):
        for nth, batch in enumerate(group):
            if segment.size + len(batch) > segment_bytes or (ends and nth == 0):
                segment.seal()
                sealed_bytes += segment.size
                segment = _begin(files, next_offset, config)
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


def _begin(files: LogDirectory, base_offset: int, config: LogConfig) -> Segment:
    segment = Segment.create(files, base_offset, 0)
    segment.activate(config)
    return segment


def place_logs(place: Installation, topics: Sequence[NewTopic], log: WrittenLog) -> None:
    """Have a broker that is not running know these topics, and each partition have this log."""
    broker = place.start()
    broker.administer(lambda admin: _create(admin, topics), _REQUEST_TIMEOUT_MS)
    broker.process.stop(timeout_s=STOP_TIMEOUT_S)
    if not (place.log_directory / CLEAN_SHUTDOWN).exists():
        raise RuntimeError(f"{broker.name} does not stop in time")
    for topic in topics:
        for partition in range(topic.num_partitions):
            directory = place.log_directory / f"{topic.name}-{partition}"
            shutil.rmtree(directory)
            log.copy_to(directory)


async def _create(admin: Admin, topics: Sequence[NewTopic]) -> None:
    """Return when the broker leads all of their partitions."""
    for name, refusal in (await admin.create_topics(topics)).items():
        if refusal:
            raise RuntimeError(f"{name} is not made: {refusal}")
    partitions = [
        TopicPartition(each.name, n) for each in topics for n in range(each.num_partitions)
    ]
    listed = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME))
    if errors := {each.error for each in listed.values() if each.error}:
        raise RuntimeError(f"there are partitions without a leader: {errors}")
