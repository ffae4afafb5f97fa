"""How much of what there is goes into a batch, and which task reads what of it."""

from itertools import accumulate

import attrs

from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import Offsets


@attrs.frozen
class OffsetRange:
    """Offsets from `start` up to but not including `end`; there may be holes in them."""

    partition: TopicPartition
    start: int
    end: int


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What is to be read from `start` to `end`; partitions without news have no range."""
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
    waiting = {r.partition: r.end - r.start for r in ranges(start, end)}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    if most <= len(waiting):
        longest = sorted(waiting, key=lambda partition: (-waiting[partition], partition))
        shares = dict.fromkeys(longest[:most], 1)
    else:
        # One each, and the rest by rounding sums instead of parts: it then adds up to `most`.
        more, rest = most - len(waiting), total - len(waiting)
        sums = [more * sum_ // rest for sum_ in accumulate(size - 1 for size in waiting.values())]
        shares = {
            partition: 1 + upto - before
            for partition, before, upto in zip(waiting, [0, *sums], sums, strict=False)
        }
    return {**end, **{p: start[p] + shares.get(p, 0) for p in waiting}}
