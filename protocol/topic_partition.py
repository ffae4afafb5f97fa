"""Where a record is, and where a consumer is in it."""

from __future__ import annotations

from typing import NamedTuple

import attrs


class TopicPartition(NamedTuple):
    """A partition of a topic. A tuple, because it is a key of every hot dictionary."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@attrs.frozen
class OffsetAndMetadata:
    """A committed position: the next offset to consume, and a note the committer left."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
