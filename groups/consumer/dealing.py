"""Share out a member's partitions among its streams.

The partitions of a topic, or of all topics of a filter, are dealt in order, evenly. A partition
that stays with the member stays with its stream, so that nothing that is queued there is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace

from protocol.topic_partition import TopicPartition


def deal(
    partitions: Iterable[TopicPartition],
    num_streams: int,
    dealt: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the number of the stream, from 0, of each partition.

    `num_streams` is at least 1; `dealt` has the streams of the partitions that the member had.
    """
    wanted = sorted(partitions)
    streams = {partition: dealt[partition] for partition in wanted if partition in dealt}
    loads = Counter(streams.values())

    # New ones go to the stream that has the fewest, the first of several.
    order = [(loads[number], number) for number in range(num_streams)]
    heapify(order)
    for partition in wanted:
        if partition not in streams:
            load, stream = order[0]
            streams[partition] = stream
            heapreplace(order, (load + 1, stream))
    return streams
