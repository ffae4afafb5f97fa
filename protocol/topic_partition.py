"""Where a record is, and where a consumer is in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import attrs


class TopicPartition(NamedTuple):
    """A partition of a topic. A tuple, because it is a key of every hot dictionary."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(
    partitions: Iterable[TopicPartition],
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """The partitions of each topic, in order, as requests list them."""
    for topic, same_topic in groupby(sorted(partitions), key=lambda partition: partition.topic):
        yield topic, list(same_topic)


@attrs.frozen
class OffsetAndMetadata:
    """A committed position: the next offset to consume, and a note the committer left."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
