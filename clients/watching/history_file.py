"""The history of a cluster's groups in a file of SQLite: commits, and the ends of logs over time.

The file is in WAL mode: commands read it while it is written, and what was committed to it survives
a kill. It keeps `keep_ms`, and at most `max_bytes`: the oldest rows go first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from clients.watching.commit_history import Commit
from protocol.topic_partition import TopicPartition

KEEP_MS = 30 * 86_400_000
MAX_BYTES = 1 << 30
VERSION = 1
_SCHEMA = """
create table if not exists commits (
    at_ms integer not null, group_id text not null, topic text not null,
    partition integer not null, offset integer, end_offset integer, generation integer,
    member_id text, client_id text, host text, place integer not null,
    primary key (group_id, topic, partition, at_ms, place)
) without rowid;
create index if not exists commits_by_time on commits (at_ms);
create table if not exists ends (
    at_ms integer not null, topic text not null, partition integer not null,
    end_offset integer not null,
    primary key (topic, partition, at_ms)
) without rowid;
create index if not exists ends_by_time on ends (at_ms);
create table if not exists recordings (began_ms integer primary key, until_ms integer not null);
create table if not exists cluster (id text primary key);
"""


class HistoryUnreadable(Exception):
    """The file is not a history that this version reads."""


class HistoryFile:
    """The file, open until `close`. Raises HistoryUnreadable, also where it cannot be opened."""

    def __init__(self, path: Path, *, keep_ms: int = KEEP_MS, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.keep_ms = keep_ms
        self.max_bytes = max_bytes
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            version = self._db.execute("pragma user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise HistoryUnreadable(f"{path}: history of version {version}, this reads 1")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.executescript(f"{_SCHEMA} pragma user_version = {VERSION};")
        except sqlite3.Error as error:
            raise HistoryUnreadable(f"{path}: {error}; name another file with --data") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def require_cluster(self, cluster_id: str | None, *, claims: bool = False) -> None:
        """Refuse the history of another cluster; None does not know which it is.

        A recorder `claims` one that says of no cluster yet that it is of it. Raises
        HistoryUnreadable.
        """
        if cluster_id is None:
            return
        found = self._db.execute("select id from cluster").fetchone()
        # Commits of two clusters would be taken for those of one (fault strangers-19).
        if found is not None and found[0] != cluster_id:
            raise HistoryUnreadable(
                f"{self.path}: history of cluster {found[0]}, and this is {cluster_id}; name "
                "another file with --data"
            )
        if found is None and claims:
            with self._db:
                self._db.execute("insert into cluster values (?)", (cluster_id,))

    def append(
        self,
        commits: Iterable[Commit],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
        *,
        began_ms: int,
        complete_since_ms: int | None = None,
    ) -> None:
        """Write one round of a recording that began at `began_ms`, whole or not at all.

        `complete_since_ms` is the time from which on the first round has every commit.
        """
        since_ms = began_ms if complete_since_ms is None else min(began_ms, complete_since_ms)
        with self._db:
            # A commit that is read again must not lose the end that was seen at its time.
            self._db.executemany(
                "insert into commits values (?,?,?,?,?,?,?,?,?,?,?) on conflict do update set "
                "end_offset = coalesce(excluded.end_offset, end_offset)",
                commits,
            )
            self._db.executemany(
                "insert or ignore into ends values (?,?,?,?)",
                [(now_ms, *partition, end) for partition, end in ends.items()],
            )
            self._db.execute("insert or replace into recordings values (?,?)", (since_ms, now_ms))

    def trim(self, now_ms: int) -> None:
        """Delete what is older than `keep_ms`, and the oldest tenth while the file is too large."""
        self._delete_before(now_ms - self.keep_ms)
        while self._size() > self.max_bytes:
            oldest, newest = self._db.execute(
                "select min(at_ms), max(at_ms) from (select at_ms from commits union all "
                "select at_ms from ends)"
            ).fetchone()
            if oldest is None or oldest == newest:
                break
            self._delete_before(oldest + (newest - oldest) // 10 + 1)

    def _delete_before(self, at_ms: int) -> None:
        with self._db:
            for table in ("commits", "ends"):
                self._db.execute(f"delete from {table} where at_ms < ?", (at_ms,))
            self._db.execute("delete from recordings where until_ms < ?", (at_ms,))

            # A recorder whose recording was cut writes its old beginning again, so there may be
            # two that began before. All of them go on behind this time: they are one.
            until_ms = self._db.execute(
                "select max(until_ms) from recordings where began_ms <= ?", (at_ms,)
            ).fetchone()[0]
            if until_ms is not None:
                self._db.execute("delete from recordings where began_ms <= ?", (at_ms,))
                self._db.execute("insert into recordings values (?,?)", (at_ms, until_ms))

    def _size(self) -> int:
        pages, free, size = (
            self._db.execute(f"pragma {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def commits(self, group: str, since_ms: int = 0) -> list[Commit]:
        """Return the commits of a group from a time on, by their times."""
        rows = self._db.execute(
            "select * from commits where group_id = ? and at_ms >= ? order by at_ms, place",
            (group, since_ms),
        )
        return [Commit(*row) for row in rows]

    def commits_of_partition(
        self, group: str, partition: TopicPartition, since_ms: int
    ) -> list[Commit]:
        """Return the commits of a group in one partition from a time on, by their times."""
        rows = self._db.execute(
            "select * from commits where group_id = ? and topic = ? and partition = ? and "
            "at_ms >= ? order by at_ms, place",
            (group, *partition, since_ms),
        )
        return [Commit(*row) for row in rows]

    def groups(self) -> set[str]:
        """Return the groups that have commits."""
        return {group for (group,) in self._db.execute("select distinct group_id from commits")}

    def ends(self, partition: TopicPartition, since_ms: int = 0) -> list[tuple[int, int]]:
        """Return (time, end offset) of a log from a time on, in their order."""
        return self._db.execute(
            "select at_ms, end_offset from ends where topic = ? and partition = ? and at_ms >= ? "
            "order by at_ms",
            (*partition, since_ms),
        ).fetchall()

    def recordings(self) -> list[tuple[int, int]]:
        """Return (from, to) of the times in which all commits were seen, in their order."""
        return self._db.execute("select * from recordings order by began_ms").fetchall()


def default_path(data_home: str | None, home: Path, cluster_id: str | None) -> Path:
    """Return where a cluster's history is kept if no file is named."""
    base = Path(data_home) if data_home else home / ".local" / "share"
    return base / "kgroup" / f"{cluster_id or 'unknown'}.sqlite"
