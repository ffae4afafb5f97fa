"""One query of a machine commits to a group, and a killed one never keeps another out."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.settings import SettingError
from spark_connector.group_lock import lock_group
from tests.stage.processes import ROOT

SERVERS = ("b:9092", "a:9092")


def test_a_group_is_locked_until_its_file_is_closed(tmp_path: Path) -> None:
    lock = lock_group(tmp_path, SERVERS, "g", 0)
    with pytest.raises(SettingError, match=r"commit\.group\.id: another query .* group g, or anot"):
        lock_group(tmp_path, SERVERS[::-1], "g", 0)
    assert lock is not None
    lock.close()
    assert lock_group(tmp_path, SERVERS, "g", 0) is not None


def test_other_groups_and_other_clusters_have_locks_of_their_own(tmp_path: Path) -> None:
    locks = [
        lock_group(tmp_path, servers, group, 0)
        for servers in (SERVERS, ("c:9092",))
        for group in ("g", "../h")
    ]
    assert None not in locks
    assert len(list(tmp_path.iterdir())) == 4


def test_a_killed_process_lets_the_group_go(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from spark_connector.group_lock import *\n"
        "lock = lock_group(Path(sys.argv[1]), ('b:9092',), 'g'); print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(SettingError):
            lock_group(tmp_path, ("b:9092",), "g", 0)
        os.kill(holder.pid, signal.SIGKILL)
    assert lock_group(tmp_path, ("b:9092",), "g", 0) is not None


@pytest.mark.fault("users-30")
def test_a_lock_leaves_no_file_behind(tmp_path: Path) -> None:
    for _ in range(2):
        lock = lock_group(tmp_path, SERVERS, "g", 0)
        assert lock is not None
        assert lock.path.exists()
        lock.close()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("users-30")
def test_what_a_killed_process_has_left_is_removed_by_the_next_query_of_its_user(
    tmp_path: Path,
) -> None:
    (tmp_path / f"kgroup-query-{os.getuid()}-0123.lock").touch()
    kept = [tmp_path / f"kgroup-query-{os.getuid() + 1}-0123.lock", tmp_path / "another.lock"]
    for path in kept:
        path.touch()
    held = lock_group(tmp_path, SERVERS, "h", 0)
    lock = lock_group(tmp_path, SERVERS, "g", 0)
    assert held is not None
    assert lock is not None
    assert set(tmp_path.iterdir()) == {*kept, held.path, lock.path}


class _Crowded(type(Path())):  # type: ignore[misc]
    """A path whose file is removed by its last holder just when somebody else has opened it."""

    others = 1

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if type(self).others > 0:
            type(self).others -= 1
            self.unlink()
        return super().stat(follow_symlinks=follow_symlinks)  # type: ignore[no-any-return]


@pytest.mark.fault("users-30")
def test_a_file_that_is_removed_while_another_query_opens_it_is_no_lock(tmp_path: Path) -> None:
    lock = lock_group(_Crowded(tmp_path), SERVERS, "g", 0)
    assert lock is not None
    assert _Crowded.others == 0
    # The one that comes next meets it.
    with pytest.raises(SettingError):
        lock_group(tmp_path, SERVERS, "g", 0)


def test_a_directory_without_locks_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert lock_group(tmp_path / "missing", SERVERS, "g", 0) is None
    assert "group g: two queries on it will be noticed later" in caplog.text
