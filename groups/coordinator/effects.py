"""What a group wants done: values, performed by the coordinator's shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from groups.coordinator.events import Ended, RequestId
from offsets.records import OffsetKey, Record
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


@attrs.frozen
class Append:
    """Write records to the group's partition; once they are replicated replay them, then `then`."""

    records: Sequence[Record]
    then: Ended


@attrs.frozen
class Reply:
    """Answer a request, unless it was: one that took several appends hears of the first failure.

    `refused` are the partitions for which something else is true than `error`.
    """

    request_id: RequestId
    error: ErrorCode
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)


@attrs.frozen
class DropLater:
    """Come back to these with the next check, as StaleOffsets."""

    values: Mapping[OffsetKey, bytes]


Effect = Append | Reply | DropLater
