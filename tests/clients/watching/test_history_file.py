"""The file of a recording: what is kept, what goes, and that a kill loses nothing written."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from clients.watching.commit_history import Commit, as_of, in_order
from clients.watching.history import History, complete_since
from clients.watching.history_file import HistoryFile, HistoryUnreadable, default_path
from protocol.topic_partition import TopicPartition
from tests.stage.processes import ROOT

T0 = TopicPartition("t", 0)


def commit(at_ms: int, offset: int | None, end_offset: int | None = None) -> Commit:
    return Commit(at_ms, "g", *T0, offset, end_offset, 3, "m-1", "m", "/127.0.0.1")


def test_commits_come_back_as_they_were_and_only_of_the_group_and_time(tmp_path: Path) -> None:
    commits = [commit(1, 10, 12), commit(2, 11), commit(3, None)]
    with HistoryFile(tmp_path / "h") as file:
        file.append([*commits, commits[0]._replace(group="other")], {T0: 12}, 4, began_ms=1)
        assert file.commits("g") == commits
        assert file.commits("g", since_ms=3) == commits[2:]
        assert file.ends(T0) == [(4, 12)]
        assert file.recordings() == [(1, 4)]


def test_commit_that_is_read_again_keeps_the_end_seen_at_its_time(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "h") as file:
        file.append([commit(1, 10, 12)], {}, 2, began_ms=1)
        file.append([commit(1, 10)], {}, 3, began_ms=2)
        assert file.commits("g") == [commit(1, 10, 12)]


def test_rows_older_than_keep_are_deleted(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "h", keep_ms=100) as file:
        file.append([commit(1, 10), commit(150, 11)], {T0: 12}, 150, began_ms=1)
        file.trim(200)
        assert [row.at_ms for row in file.commits("g")] == [150]
        assert file.recordings() == [(100, 150)]


def test_recorder_goes_on_after_its_recording_was_cut_twice(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "h", keep_ms=100) as file:
        for now_ms in (200, 250, 290):
            file.append([], {}, now_ms, began_ms=1)
            file.trim(now_ms)
        assert file.recordings() == [(190, 290)]


def test_file_that_is_too_large_loses_its_oldest_rows(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "h", max_bytes=200_000) as file:
        file.append([commit(at, at) for at in range(1, 5001)], {}, 5001, began_ms=1)
        file.trim(5001)
        left = [row.at_ms for row in file.commits("g")]
        assert left
        assert left == list(range(left[0], 5001))
        assert left[0] > 1
        assert file.recordings() == [(left[0], 5001)]


def test_commits_of_a_process_that_was_killed_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "h"
    writer = f"""
from pathlib import Path
from clients.watching.commit_history import Commit
from clients.watching.history_file import HistoryFile
with HistoryFile(Path({str(path)!r})) as file:
    for at in range(1, 10**9):
        commits = [Commit(at, "g", "t", partition, at) for partition in (0, 1)]
        file.append(commits, {{}}, at, began_ms=1)
        print(at, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", writer], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(50)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    written = int([*lines, *rest.splitlines()][-1])

    with HistoryFile(path) as file:
        times = [row.at_ms for row in file.commits("g") if row.partition == 0]
        assert times[:written] == list(range(1, written + 1))
        # A round is there whole or not at all.
        assert times == [row.at_ms for row in file.commits("g") if row.partition == 1]


def test_file_is_read_while_it_is_written(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "h") as writer, HistoryFile(tmp_path / "h") as reader:
        writer.append([commit(1, 10)], {}, 2, began_ms=1)
        assert reader.commits("g") == [commit(1, 10)]


def test_file_that_is_no_history_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_bytes(b"no database, but long enough to be read as one" * 100)
    with pytest.raises(HistoryUnreadable, match=f"{path}: .*--data"):
        HistoryFile(path)


def test_history_of_a_later_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "h") as db:
        db.execute("pragma user_version = 7")
    with pytest.raises(HistoryUnreadable, match="version 7"):
        HistoryFile(tmp_path / "h")


def test_default_path_is_in_the_users_data() -> None:
    home = Path("/home/u")
    assert str(default_path(None, home, "abc")) == "/home/u/.local/share/kgroup/abc.sqlite"
    assert str(default_path("/data", home, None)) == "/data/kgroup/unknown.sqlite"


def test_offsets_as_of_a_time_are_the_last_ones_before_it() -> None:
    commits = [commit(1, 10), commit(5, 20), commit(9, None)]
    assert as_of(commits, 0) == {}
    assert as_of(commits, 4) == {("g", T0): commits[0]}
    assert as_of(commits, 5) == {("g", T0): commits[1]}
    assert as_of(commits, 9) == {}


def placed(at_ms: int, place: int) -> Commit:
    return commit(at_ms, place)._replace(place=place)


def places(commits: list[Commit], newest_place: int) -> list[int]:
    return [commit.place for commit in in_order(reversed(commits), newest_place)]


def test_commits_are_in_the_order_of_their_records_where_a_clock_was_set_back() -> None:
    commits = [placed(500, 1), placed(100, 2), placed(100, 3), placed(600, 4)]
    assert places(commits, 4) == [1, 2, 3, 4]
    # The one that counted then is the last one whose time is not later.
    (last,) = as_of(commits, 499).values()
    assert last == commits[2]


def test_commits_of_an_earlier_topic_of_the_name_go_by_their_times() -> None:
    earlier = [placed(100, 7), placed(200, 9)]
    assert places([*earlier, placed(300, 0), placed(400, 1)], 1) == [7, 9, 0, 1]


def test_commits_without_a_place_go_between_the_others_by_their_times() -> None:
    seen = commit(350, 3)
    commits = [placed(300, 1), seen, placed(400, 2)]
    assert in_order(reversed(commits), 2) == commits
    assert in_order(reversed(commits), -1) == commits


def test_history_is_complete_back_to_the_first_gap_between_recordings() -> None:
    assert complete_since([(50, 100), (30, 60), (10, 20)]) == 30
    assert complete_since([(50, 100)]) == 50
    assert complete_since([(50, 100), (0, 40)]) == 50


@pytest.mark.fault("strangers-19")
def test_the_history_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "h") as file:
        # Who reads does not say whose it is, nor does who does not know.
        file.require_cluster("b")
        file.require_cluster(None, claims=True)
        file.require_cluster("a", claims=True)
    with HistoryFile(tmp_path / "h") as file:
        file.require_cluster("a")
        file.require_cluster(None)
        for claims in (False, True):
            with pytest.raises(HistoryUnreadable, match="history of cluster a, and this is b"):
                file.require_cluster("b", claims=claims)


@pytest.mark.parametrize(
    ("since_ms", "seen"), [(3, "commits from 3 to 9, of several"), (0, "commits to 9, of several")]
)
def test_reach_of_a_recording_begins_where_it_is_known_to_begin(since_ms: int, seen: str) -> None:
    history = History({}, since_ms, ["file"], is_refused=True, recorded_until_ms=9)
    reach = history.reach(str)
    assert reach is not None
    assert reach.startswith(f"from file: {seen}")
