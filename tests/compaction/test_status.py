"""cleaner-status.json: what is written is read again."""

from __future__ import annotations

import pytest

from compaction.job import CleanerStatistics
from compaction.quarantine import Quarantine
from compaction.status import (
    CleanerStatus,
    Pass,
    Running,
    StatusError,
    decode_status,
    encode_status,
)

STATISTICS = CleanerStatistics(map_bytes_read=3000, bytes_read=5000, map_ms=500, clean_ms=1500)
ALL = CleanerStatus(
    Pass(1, 2, 3, 4, 5, 6, STATISTICS),
    Running(7, "index", 50.5),
    Quarantine("why", 8, 9, 10),
)


def test_everything_comes_back() -> None:
    statuses = {"b-0": ALL, "a-1": CleanerStatus()}
    assert decode_status(encode_status(statuses, 11)) == statuses


def test_no_file_is_no_status() -> None:
    assert decode_status(None) == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1, "partitions": {"a-0": {}}}',
        b'{"version": 1, "partitions": {"a-0": {"last": 1, "running": null, "quarantine": null}}}',
        b"\xff\xfe{",
    ],
)
def test_what_is_no_status_is_refused(text: bytes) -> None:
    with pytest.raises(StatusError):
        decode_status(text)


def test_the_rate_is_of_both_phases() -> None:
    assert ALL.last is not None
    assert ALL.last.bytes_per_second == 4000
    assert Pass(1, 1, 0, 0, 0, 0, CleanerStatistics()).bytes_per_second == 0
