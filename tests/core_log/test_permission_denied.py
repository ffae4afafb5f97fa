"""Each operation of a run is refused once, and only the log that it belongs to suffers."""

from __future__ import annotations

import errno

import pytest

from tests.core_log.life_of_logs import A0, B0, Beginning

BEGINNINGS = {"empty": (), "closed": (True,), "killed": (False,)}


@pytest.mark.parametrize("runs", BEGINNINGS.values(), ids=BEGINNINGS)
def test_an_operation_that_is_refused_loses_nothing_and_stops_no_other_log(
    runs: tuple[bool, ...],
) -> None:
    struck = set()
    for fault, life in Beginning.after(*runs).failures(errno.EACCES, of_reads=True):
        assert fault.struck is not None
        path, operation = fault.struck
        struck.add((path.rpartition("/")[2], operation.split()[0]))
        if path.endswith("/a-0"):
            assert life.refused[B0] == 0, fault
        if path.endswith("/b-0"):
            assert life.refused[A0] == 0, fault
    assert {("a-0", "rename"), ("a-0", "open"), ("a-0", "fsync"), ("logs", "write")} <= struck
