"""Partitions of topics, and the committed positions in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from protocol.frozen import frozen


class TopicPartition(NamedTuple):
    """A partition of a topic. It is a tuple because the hot dictionaries have it as key."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(
    partitions: Iterable[TopicPartition],
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Group partitions by topic, sorted, as requests list them."""
    for topic, same_topic in groupby(sorted(partitions), key=lambda partition: partition.topic):
        yield topic, list(same_topic)


@frozen
class OffsetAndMetadata:
    """A committed position: the next offset to consume, and the metadata of the committer."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
