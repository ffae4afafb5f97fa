"""Measure starts of a broker with logs, after a crash and after a clean shutdown.

A start after a crash has no mark of a clean shutdown and no checkpoints, so the broker reads every
batch of the active segments and checks its checksum. The clock runs from the start of the process
to the first good response (Metadata, with itself as the controller). A second row subtracts a start
after a clean shutdown with the same logs.
"""

import contextlib
import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.brokers import Installation, Side, install
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Row, Wanted, at_least, at_most
from benchmarks.written_log import STOP_TIMEOUT_S, WrittenLog, place_logs, write_log
from clients.admin import NewTopic
from core_log.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from core_log.log_dir import CLEAN_SHUTDOWN
from core_log.producers.producer_snapshots import SNAPSHOT
from protocol.records.builder import BatchBuilder

ACTIVE_SEGMENTS = 8
PARTITIONS = 2000
SEGMENTS = 4
SEGMENT_BATCHES = 4
BATCH_BYTES = 16 * 1024
VALUE_BYTES = 1000
NOW_MS = 1_700_000_000_000
_SEED = 7


class Batches(NamedTuple):
    """The batches of a log: their size, in words too, and their number."""

    name: str
    batch_bytes: int
    value_bytes: int
    number: int
    wanted: Wanted
    """Of the rate without a clean start."""


_SMALLEST = at_least(0.5, changed="from 1 on 2026-11-27: all of it is the cost of a batch")
ACTIVE = (
    Batches("16 KB", BATCH_BYTES, VALUE_BYTES, 8_000, at_least(1)),
    Batches("1 KB", 1, VALUE_BYTES - 50, 30_000, at_least(1)),
    Batches("170 B", 1, 85, 60_000, _SMALLEST),
)
"""A limit of 1 byte gives batches of one record; recovery costs so much a batch."""

_numbers = itertools.count()


def batches(
    number: int, batch_bytes: int = BATCH_BYTES, value_bytes: int = VALUE_BYTES
) -> Iterator[bytes]:
    """Yield batches of at least one record, up to `batch_bytes`, with growing timestamps."""
    value = random.Random(_SEED).randbytes(value_bytes)
    for nth in range(number):
        builder = BatchBuilder(max_bytes=batch_bytes)

        # The first record always fits, even above the limit.
        while builder.try_append(NOW_MS + nth, b"key-%09d" % nth, value):
            pass
        yield builder.build(leader_epoch=0)


def measure_crash(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield two rows for each batch size: with each side's own start, and without."""
    for size in ACTIVE:
        yield from _measure_crash(sides, directory, rounds, size)


def _measure_crash(
    sides: Sequence[Side], directory: Path, rounds: Rounds, size: Batches
) -> Iterator[Row]:
    written = batches(size.number, size.batch_bytes, size.value_bytes)
    log = write_log(directory / "active", written, 2**30)
    megabytes = ACTIVE_SEGMENTS * log.size / 1e6
    with _install_all(sides, directory, log, ACTIVE_SEGMENTS) as places:
        contestants = [_crash_starter(place, megabytes) for place in places]
        whole, alone = alternate(contestants, rounds)
    title = (
        f"recovery of {megabytes:,.0f} MB in {ACTIVE_SEGMENTS} active segments, {size.name} a batch"
    )
    yield Row(f"{title}, start to serving", "MB/s", at_least(1), whole)
    yield Row(f"{title}, less a clean start", "MB/s", size.wanted, alone)


def measure_clean(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield one row."""
    written = batches(SEGMENTS * SEGMENT_BATCHES)
    log = write_log(directory / "sealed", written, SEGMENT_BATCHES * BATCH_BYTES)
    with _install_all(sides, directory, log, PARTITIONS) as places:
        (seconds,) = alternate([_clean_starter(place) for place in places], rounds)
    title = f"clean start, {PARTITIONS:,} partitions with {SEGMENTS * PARTITIONS:,} segments"
    yield Row(title, "s", at_most(1), seconds)


@contextlib.contextmanager
def _install_all(
    sides: Sequence[Side], directory: Path, log: WrittenLog, partitions: int
) -> Iterator[list[Installation]]:
    """Install for each side a stopped broker that has the log `partitions` times."""
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, log.directory)
        places = []
        for side in sides:
            name = f"stored-{next(_numbers)}"
            place = install(side, directory / name, f"{directory.name}-{name}")
            stack.callback(shutil.rmtree, place.directory)
            place_logs(place, [NewTopic("stored", partitions, 1)], log)
            places.append(place)
        yield places


def _crash_starter(place: Installation, megabytes: float) -> Contestant:
    def start(_: float) -> tuple[float, float]:
        # A clean start, whose time the second figure leaves out; its stop leaves whole logs.
        clean_s = _start(place)

        # As after a crash: no mark, no checkpoints, no snapshots.
        for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            (place.log_directory / name).unlink(missing_ok=True)
        for snapshot in place.log_directory.glob(f"*/*{SNAPSHOT}"):
            snapshot.unlink()
        recovery_s = _start(place)

        # Noise may make the difference nothing.
        return megabytes / recovery_s, megabytes / max(recovery_s - clean_s, 0.01)

    return start


def _clean_starter(place: Installation) -> Callable[[float], tuple[float]]:
    return lambda _: (_start(place),)


def _start(place: Installation) -> float:
    """Start the broker and stop it again; return the seconds until it served."""
    broker = place.start()
    broker.process.stop(timeout_s=STOP_TIMEOUT_S)

    # Without the mark the next start would recover, and be measured as a clean one.
    if not (place.log_directory / CLEAN_SHUTDOWN).exists():
        raise RuntimeError(f"{broker.name} does not stop in time")
    return broker.start_s
