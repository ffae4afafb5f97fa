"""Decide how many offsets go into a batch, and which task reads which of them."""

from collections.abc import Sequence
from heapq import heapify, heapreplace
from itertools import accumulate, pairwise

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import Offsets, find_behind


@frozen
class OffsetRange:
    """Offsets from `start` to `end` (exclusive); there may be holes in them."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; there may be fewer records."""
        return self.end - self.start


Task = tuple[OffsetRange, ...]
"""The ranges that a task reads, in this order."""

JOINED_RANGES = 100
"""Most ranges of a task: each costs a round trip, however little is in it."""


def plan_ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges to read from `start` to `end`; partitions without new offsets have none.

    Raises ValueError for an end before its start, which never means that there is nothing to read.
    """
    for partition, offset in find_behind(end, start).items():
        raise ValueError(
            f"{partition} is to be read from offset {start[partition]} to {offset}: the log was "
            "truncated or created again, or the query began at another place than planned"
        )

    return [
        OffsetRange(partition, start[partition], end[partition])
        for partition in sorted(end)
        if end[partition] > start[partition]
    ]


def plan_tasks(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    joined_offsets: int = 0,
) -> list[Task]:
    """Return what each task reads.

    Ranges are divided as in Spark's Kafka source (its KafkaOffsetRangeCalculator): into parts of at
    most `max_records`, and then in proportion to their sizes, so that there are about
    `min_partitions` tasks. Unless `min_partitions` is given, ranges that fit together below
    `joined_offsets` are read by one task: starting it takes longer than reading them.
    """
    if max_records is not None:
        ranges = [part for r in ranges for part in _divide(r, -(-r.size // max_records))]

    # Who asks for many tasks gets one a range.
    if min_partitions is not None:
        if len(ranges) < min_partitions:
            ranges = _divide_in_proportion(ranges, min_partitions)
        return [(r,) for r in ranges]

    # A joined task has no more than a task may have.
    return _join(ranges, min(joined_offsets, max_records or joined_offsets))


def _divide_in_proportion(ranges: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    total = sum(r.size for r in ranges)
    whole = {r.partition for r in ranges if _count_parts(r.size, total, least) == 1}

    # What stays whole does not count for the shares of the others.
    large = [r for r in ranges if _count_parts(r.size, total, least) > 1]
    large_total = sum(r.size for r in large)
    large_least = max(least - (len(ranges) - len(large)), 1)

    divided: list[OffsetRange] = []
    for r in ranges:
        if r.partition in whole:
            divided.append(r)
        else:
            divided += _divide(r, _count_parts(r.size, large_total, large_least))
    return divided


def _count_parts(size: int, total: int, least: int) -> int:
    # Halves are rounded up, as in Java.
    return max(int(size / total * least + 0.5), 1)


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return `parts` ranges of almost the same size; the last ones are the larger."""
    bounds = [whole.start]
    for parts_left in range(parts, 0, -1):
        bounds.append(bounds[-1] + (whole.end - bounds[-1]) // parts_left)
    return [
        OffsetRange(whole.partition, start, end) for start, end in pairwise(bounds) if end > start
    ]


def _join(ranges: Sequence[OffsetRange], most: int) -> list[Task]:
    """Return tasks of neighbouring ranges with at most `most` offsets; larger ranges stand alone.

    Large and small ranges do not mix, so that small ones between large ones are joined too.
    """
    tasks: list[Task] = [(r,) for r in ranges if r.size > most]
    joined: list[OffsetRange] = []
    offsets = 0
    for r in ranges:
        if r.size > most:
            continue
        if joined and (offsets + r.size > most or len(joined) == JOINED_RANGES):
            tasks.append(tuple(joined))
            joined, offsets = [], 0
        joined.append(r)
        offsets += r.size
    return [*tasks, tuple(joined)] if joined else tasks


def limit_batch(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """Return the end of a batch from `start` that has at most `most` of the offsets up to `end`.

    Each partition gets a share in proportion to what it has, and at least one offset, so that none
    starves beside a busy one. If `most` is less than the number of partitions, the shares are still
    in proportion, rounded so that they add up: some partitions get nothing, the shortest always.
    They wait until the others have less.
    """
    ranges = sorted(plan_ranges(start, end), key=lambda r: r.end - r.start)
    sizes = [r.end - r.start for r in ranges]
    total = sum(sizes)
    if total <= most:
        return dict(end)

    # Rounding the running sum, and not each share, makes the shares add up to `most`.
    sums = [most * size_so_far // total for size_so_far in accumulate(sizes)]
    shares = {
        r.partition: upper - lower
        for r, lower, upper in zip(ranges, [0, *sums], sums, strict=False)
    }

    # The largest shares give to those that would get nothing.
    if most >= len(shares):
        _give_each_one(shares)

    assert sum(shares.values()) == most

    # Partitions without a share here have nothing new: their start is their end.
    return {**end, **{partition: start[partition] + share for partition, share in shares.items()}}


def _give_each_one(shares: dict[TopicPartition, int]) -> None:
    """Take from the largest shares, one by one, for those that have nothing."""
    poor = [partition for partition, share in shares.items() if share == 0]
    # The largest share first, and of equal ones the first.
    rich = [(-share, number, p) for number, (p, share) in enumerate(shares.items()) if share > 1]
    heapify(rich)
    for partition in poor:
        share, number, giver = rich[0]
        heapreplace(rich, (share + 1, number, giver))
        shares[giver] -= 1
        shares[partition] = 1
