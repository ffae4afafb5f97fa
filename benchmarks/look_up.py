"""Measure look-ups in a large segment beside a small one: their cost must not grow with it.

A search starts from an index entry and goes over a few headers; for a timestamp it reads the batch
too. Offsets and timestamps are random, so that no look-up profits from the last one. The segments
are opened here, without a broker, because a request costs much more than a look-up.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.recovery import NOW_MS, batches
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Beside, Row, at_most
from benchmarks.written_log import write_log
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.recovery.loading import load_log
from protocol.topic_partition import TopicPartition

LARGE_BATCHES = 69_000
"""Batches of nearly 16 KB, together just under 1 GiB."""
SMALL_BATCHES = LARGE_BATCHES // 16
AT_ONCE = 1000
_SEED = 7

LookUp = Callable[[Log, random.Random], None]


def measure(directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for offsets and one for timestamps; the small segment has the second place."""
    logs = []
    for batch_count in (LARGE_BATCHES, SMALL_BATCHES):
        path = directory / f"segment-of-{batch_count}"
        written = write_log(path, batches(batch_count), 2**30)

        # A single segment, or it would not be a large one.
        assert written.active_offset == 0
        logs.append(_open_log(path))
    for what, look_up in (("offset", _by_offset), ("timestamp", _by_timestamp)):
        contestants: list[Contestant] = [partial(_time, log, look_up) for log in logs]
        (micros,) = alternate(contestants, rounds)
        large, small = (f"{log.size / 1e6:,.0f} MB" for log in logs)
        question = f"look-up by {what}, {large} · {small}"
        yield Row(question, "µs", at_most(1.25), micros, beside=Beside.OURSELVES)
    for log in logs:
        shutil.rmtree(log.directory.path)


def _open_log(path: Path) -> Log:
    return load_log(
        LogDirectory(path),
        TopicPartition("some-topic", 0),
        LogConfig(),
        recovery_point=0,
        # Nothing has to be recovered.
        clean_shutdown=True,
        monotonic_ms=lambda: NOW_MS,
    )


def _time(log: Log, look_up: LookUp, seconds: float) -> tuple[float]:
    """Return microseconds a look-up."""
    # The same seed: the same places, in proportion, in both logs.
    rng = random.Random(_SEED)
    begins = now = time.perf_counter()
    done = 0
    while now < begins + seconds:
        for _ in range(AT_ONCE):
            look_up(log, rng)
        done += AT_ONCE
        now = time.perf_counter()
    return ((now - begins) / done * 1e6,)


def _by_offset(log: Log, rng: random.Random) -> None:
    offset = int(rng.random() * log.log_end_offset)
    assert log.read(offset, 1, log.log_end_offset) is not None


def _by_timestamp(log: Log, rng: random.Random) -> None:
    latest = log.segments.active.largest_timestamp
    timestamp = NOW_MS + int(rng.random() * (latest - NOW_MS))
    result = log.offset_for_timestamp(timestamp)
    assert result is not None
    assert result[0] == timestamp
