"""Errors of appends, as the clients of every coordinator know them."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import ErrorCode

TRY_AGAIN: Mapping[ErrorCode, ErrorCode] = {
    # The log is not there yet, or has too few replicas: try again.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Another broker leads it, or will: look for that one.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Error of an append -> the error for whoever asked for it: it asks again."""
