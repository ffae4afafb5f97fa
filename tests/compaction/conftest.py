"""Partitions to clean, and numpy taken away."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from compaction import offset_map
from protocol.records import record_spans
from tests.compaction.partition import Partition


@pytest.fixture
def partition() -> Partition:
    """An empty partition, on a disk in memory."""
    return Partition()


@pytest.fixture(params=["numpy", "plain"])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The test runs twice: with numpy, and as on a machine that does not have it."""
    if request.param == "plain":
        for name in ("protocol.records.span_columns", "compaction.sum_table"):
            monkeypatch.setitem(sys.modules, name, None)
    chosen = (record_spans._columns_finder, offset_map._fastest)
    for choice in chosen:
        choice.cache_clear()
    yield request.param
    for choice in chosen:
        choice.cache_clear()
