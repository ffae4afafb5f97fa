"""Reads as clients of a broker do: what has to wait for a flush is asked for again after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core_log.log import Log
from protocol.errors import ApiError, ErrorCode

T = TypeVar("T")


def after_flush(log: Log, look: Callable[[], T]) -> T:
    """Return what `look` finds, after the flush that rebuilds a bad index it meets."""
    try:
        return look()
    except ApiError as error:
        if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise
    assert log.is_flush_due(0)
    flush = log.begin_flush()
    flush.run()
    log.end_flush(flush)
    return look()
