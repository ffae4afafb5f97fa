"""Responses to requests of groups, as values that the handlers render."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


@frozen
class Done:
    """A commit or a deletion ended. `refused`: partitions with an error of their own."""

    error: ErrorCode = ErrorCode.NONE
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)
