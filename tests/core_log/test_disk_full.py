"""No room on the disk, in the middle of whatever is being done."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_log.directory import LogDirectory
from tests.core_log.life_of_logs import A0, B0, Beginning, Life

BEGINNINGS = {"empty": (), "closed": (True,), "killed": (False,)}


@pytest.mark.parametrize("runs", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_write_without_room_loses_nothing_and_stops_no_other_log(runs: tuple[bool, ...]) -> None:
    refusals = 0
    for fault, life in Beginning.after(*runs).failures(errno.ENOSPC, of_reads=False):
        assert fault.struck is not None
        path, _ = fault.struck
        refusals += sum(life.refused.values())
        if path.endswith("/a-0"):
            assert life.refused[B0] == 0, fault
        if path.endswith("/b-0"):
            assert life.refused[A0] == 0, fault
    assert refusals > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 300 KB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_real_disk_that_is_full_and_has_room_again(small_disk: Path) -> None:
    filling = small_disk / "filling"
    filling.write_bytes(bytes(150_000))
    life = Life()
    for _ in range(8):
        life.run(LogDirectory(small_disk / "logs"), close=True)
        with filling.open("ab") as file, contextlib.suppress(OSError):
            file.write(bytes(20_000))
    assert sum(life.refused.values()) > 0
    assert min(map(len, life.kept.values())) > 10
    filling.unlink()
    life.check(LogDirectory(small_disk / "logs"))
