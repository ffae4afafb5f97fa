"""Errors of appends, as members of groups and those who commit know them."""

from __future__ import annotations

from collections.abc import Mapping

from groups.runtime.append_errors import TRY_AGAIN
from protocol.errors import ErrorCode

COMMIT_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **TRY_AGAIN,
    # It fits into no batch, and will not next time either.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Error of an append of offsets -> the error for the committer. Others stay."""

GROUP_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **TRY_AGAIN,
    # The record may still be written: join again, and find out.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    # Clients know no such error of a group.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error of an append of a group's record -> the error for its members. Others stay."""
