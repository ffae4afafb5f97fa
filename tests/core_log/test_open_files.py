"""How many files a broker's partitions keep open."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from core_log.producers.producer_snapshots import SNAPSHOT
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition

FILES = Path("/proc/self/fd")
PARTITIONS = 50
CONFIG = LogConfig(index_interval_bytes=0, segment_bytes=2000)


def count_open(below: Path) -> int:
    gc.collect()
    targets = []
    for entry in FILES.iterdir():
        try:
            targets.append(os.readlink(entry))
        except FileNotFoundError:  # of the listing itself
            continue
    # A snapshot of producers is open until the next flush has synced it.
    kept = [target for target in targets if target.startswith(f"{below}/t-")]
    return sum(not target.endswith(SNAPSHOT) for target in kept)


@pytest.mark.fault("outside-O6")
@pytest.mark.skipif(not FILES.is_dir(), reason="the system does not tell which files are open")
def test_a_partition_keeps_one_file_open_whether_it_is_written_to_or_not(tmp_path: Path) -> None:
    manager = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: 0)
    manager.load()
    data = encode_batch([(5, None, b"v" * 100, ())])
    for number in range(PARTITIONS):
        log = manager.get_or_create(TopicPartition("t", number), CONFIG)
        for _ in range(number % 20):
            log.append(data, read_header(data), leader_epoch=0, now_ms=5, max_timestamp=5)
            log.read(0, 100, log.log_end_offset)
            log.offset_for_timestamp(5)
    segments = sum(len(log.segments) for log in manager.logs.values())
    assert count_open(tmp_path) <= segments
    manager.close()
    del manager, log

    again = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: 0)
    again.load()
    assert count_open(tmp_path) <= segments
    again.close()
