"""Measure how fast a dirty log is cleaned, on our side without numpy and with it.

Every byte is dirty: the cleaner reads all twice and writes what stays. Keys are random, so a tenth
of 1,000,000 records with 100,000 keys stays, spread over all batches. Batches of commits go or stay
whole, since a group's commit supersedes its last one.
"""

import contextlib
import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Side
from benchmarks.cleaned_log import CleaningBroker, exclude_numpy, start_cleaning_broker
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Row, at_least
from benchmarks.written_log import WrittenLog, write_log
from offsets.records import CommittedOffset, OffsetKey, encode_key, encode_value
from protocol.records.batch import encode_batch
from protocol.records.builder import BatchBuilder
from protocol.records.compression import Codec

KEYS = 100_000
RECORDS = 1_000_000
VALUE_BYTES = 1000
BATCH_BYTES = 16 * 1024
COMMITS = 5_000_000
COMMIT_PARTITIONS = 20
SEGMENT_BYTES = 100 * 1024 * 1024
"""The segment size of the offsets topic."""
NOW_MS = 1_700_000_000_000
_SEED = 7

_numbers = itertools.count()


@attrs.frozen
class Load:
    """The batches of a log, and the bounds of the ratios without numpy and with it."""

    question: str
    batches: Callable[[], Iterator[bytes]]
    wanted: tuple[float, float]
    changed: str = ""
    """As in `Wanted`, of the bound with numpy."""


def values(codec: Codec) -> Iterator[bytes]:
    """Yield batches of 16 KB uncompressed, of 1 KB texts, which compress to a half."""
    rng = random.Random(_SEED)

    # A vocabulary of hex words, so that texts compress.
    words = [rng.randbytes(rng.randint(2, 8)).hex().encode() for _ in range(300)]
    text = b" ".join(rng.choices(words, k=100_000))

    builder = BatchBuilder(codec, BATCH_BYTES)
    for nth in range(RECORDS):
        at = int(rng.random() * (len(text) - VALUE_BYTES))
        key = b"key-%09d" % (rng.random() * KEYS)
        value = text[at : at + VALUE_BYTES]

        # The batch is full: the record begins the next one.
        if not builder.try_append(NOW_MS + nth, key, value):
            yield builder.build(leader_epoch=0)
            builder = BatchBuilder(codec, BATCH_BYTES)
            builder.try_append(NOW_MS + nth, key, value)
    yield builder.build(leader_epoch=0)


def commits() -> Iterator[bytes]:
    """Yield batches, each a group's commit of all its partitions; groups in random order."""
    groups = [_commit(nth) for nth in range(KEYS // COMMIT_PARTITIONS)]
    yield from random.Random(_SEED).choices(groups, k=COMMITS // COMMIT_PARTITIONS)


def _commit(group: int) -> bytes:
    keys = (OffsetKey(f"group-{group:07d}", "some-topic", nth) for nth in range(COMMIT_PARTITIONS))
    value = encode_value(CommittedOffset(group, 0, "", NOW_MS))
    return encode_batch([(NOW_MS, encode_key(key), value, ()) for key in keys], leader_epoch=0)


_VALUES = (
    Load("compaction, 1 KB values, batches of 16 KB", partial(values, Codec.NONE), (0.3, 1)),
    Load(
        "compaction, 1 KB values, batches of 16 KB, lz4",
        partial(values, Codec.LZ4),
        (0.3, 0.9),
        "from 1 on 2026-11-27: half of the time is decompression",
    ),
)
COMMITS_LOAD = Load("compaction of 5,000,000 commits, 20 a batch", commits, (0.15, 1))


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield two rows for each codec."""
    for load in _VALUES:
        yield from _rows(load, sides, directory, rounds)


def measure_commits(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield two rows for an offsets topic."""
    yield from _rows(COMMITS_LOAD, sides, directory, rounds)


def write_load(load: Load, directory: Path) -> WrittenLog:
    """Write the log of a load; its active segment repeats the first batch."""
    return write_log(directory, load.batches(), SEGMENT_BYTES, [next(load.batches())])


def _rows(load: Load, sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    log = write_load(load, directory / "dirty")

    # Ours twice, without numpy and with it; the peer's figures stand in both rows.
    contestants = [exclude_numpy(sides[0], directory / "no-numpy"), *sides]
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, log.directory)
        cleaning: list[Contestant] = []
        for side in contestants:
            place = directory / f"{directory.name}-cleaning-{next(_numbers)}"

            # A dirty log for the warm-up, and one for each round.
            cleaner = start_cleaning_broker(side, place, log, 1 + rounds.number)
            cleaning.append(partial(_clean, stack.enter_context(cleaner)))
        (rates,) = alternate(cleaning, rounds)
    pure, fast, *peer = rates
    yield Row(f"{load.question} (pure Python)", "MB/s", at_least(load.wanted[0]), [pure, *peer])
    wanted = at_least(load.wanted[1], changed=load.changed)
    yield Row(f"{load.question} (numpy)", "MB/s", wanted, [fast, *peer])


def _clean(cleaner: CleaningBroker, _: float) -> tuple[float]:
    """Clean the next log; return megabytes a second."""
    began = time.perf_counter()
    cleaner.await_clean(cleaner.begin())
    return (cleaner.log.sealed_bytes / 1e6 / (time.perf_counter() - began),)
