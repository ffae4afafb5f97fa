"""Partitions to clean, and numpy taken away."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from protocol.records import record_spans
from tests.compaction.partition import Partition


@pytest.fixture
def partition() -> Partition:
    """An empty one, on a disk in memory."""
    return Partition()


@pytest.fixture(params=["numpy", "plain"])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The test runs twice: with numpy, and as on a machine that does not have it."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "protocol.records.span_columns", None)
    record_spans._columns_finder.cache_clear()
    yield request.param
    record_spans._columns_finder.cache_clear()
