"""What requests to a group get, as the handlers render it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


@attrs.frozen
class Done:
    """A commit or a deletion ended. `refused`: partitions for which another error holds."""

    error: ErrorCode = ErrorCode.NONE
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)
