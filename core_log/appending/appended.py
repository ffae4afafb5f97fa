"""The result of an append to a log."""

from __future__ import annotations

from typing import NamedTuple


class LogAppendInfo(NamedTuple):
    """The result of an append. `log_append_time_ms` is -1 unless the topic stamps that time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
