"""The error of a fenced producer, as each version of a request knows it (KIP-588)."""

from __future__ import annotations

from protocol.errors import ErrorCode


def error_for(error: ErrorCode, version: int, first_version_of_fenced: int) -> ErrorCode:
    """Return the error for a client: older ones know PRODUCER_FENCED as another one."""
    if error is ErrorCode.PRODUCER_FENCED and version < first_version_of_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
