"""How much of what there is goes into a batch, and which task reads what of it."""

from itertools import accumulate

import attrs

from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import Offsets, behind


@attrs.frozen
class OffsetRange:
    """Offsets from `start` up to but not including `end`; there may be holes in them."""

    partition: TopicPartition
    start: int
    end: int


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What is to be read from `start` to `end`; partitions without news have no range.

    Raises ValueError for an end before its start, which is never the same as nothing to read.
    """
    for partition, offset in behind(end, start).items():
        raise ValueError(
            f"{partition} is to be read from offset {start[partition]} to {offset}: the log was "
            "cut or made anew, or the query began at another place than it was planned for"
        )
    return [
        OffsetRange(partition, start[partition], end[partition])
        for partition in sorted(end)
        if end[partition] > start[partition]
    ]


def limited(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """Where a batch from `start` ends that has `most` offsets, or all there are up to `end`.

    Each partition gets a part in proportion to what it has, and one offset at least, so that none
    starves beside a busy one; with fewer offsets than partitions the longest come first.
    """
    found = sorted(ranges(start, end), key=lambda r: r.end - r.start)
    sizes = [r.end - r.start for r in found]
    total = sum(sizes)
    if total <= most:
        return dict(end)
    # Rounding the running sum, and not each part, makes the parts add up to `most`.
    upto = [most * sum_ // total for sum_ in accumulate(sizes)]
    shares = {r.partition: new - old for r, old, new in zip(found, [0, *upto], upto, strict=False)}
    if most >= len(shares):
        for partition in [p for p, share in shares.items() if share == 0]:
            shares[max(shares, key=lambda p: shares[p])] -= 1
            shares[partition] = 1
    return {**end, **{p: start[p] + share for p, share in shares.items()}}
