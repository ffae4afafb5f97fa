"""Decide how many offsets go into a batch, and which task reads which of them."""

from itertools import accumulate

import attrs

from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import Offsets, find_behind


@attrs.frozen
class OffsetRange:
    """Offsets from `start` to `end` (exclusive); there may be holes in them."""

    partition: TopicPartition
    start: int
    end: int


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
        for partition in [p for p, share in shares.items() if share == 0]:
            shares[max(shares, key=lambda p: shares[p])] -= 1
            shares[partition] = 1

    assert sum(shares.values()) == most

    # Partitions without a share here have nothing new: their start is their end.
    return {**end, **{partition: start[partition] + share for partition, share in shares.items()}}
