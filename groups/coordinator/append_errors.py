"""Errors of appends, as the clients of a coordinator know them."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import ErrorCode

_TRY_AGAIN: Mapping[ErrorCode, ErrorCode] = {
    # The log is not there yet, or has too few replicas: try again.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Another broker leads it, or will: look for that one.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}

COMMIT_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **_TRY_AGAIN,
    # It fits into no batch, and will not next time either.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Error of an append of offsets -> the error for the committer. Others stay."""

GROUP_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **_TRY_AGAIN,
    # The record may still be written: join again, and find out.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    # Clients know no such error of a group.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error of an append of a group's record -> the error for its members. Others stay."""
