"""Let one query of a machine commit to a group: its planning process holds a file's lock.

The lock goes with the process, however that ends. A query that is started again may come before
Spark has ended the planning process of its last run, so it waits a little.

A file is removed by who holds its lock: its query when it ends, or else the next one that begins.
So who gets the lock of a file that is gone has nothing, and opens it anew.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

import attrs

from protocol.settings import SettingError

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""Time for which a query waits for the planning process of its last run to end."""
_PAUSE_S = 0.05


@attrs.define(eq=False)
class GroupLock:
    """A file that this process has locked. Its lock goes when the process ends, too."""

    path: Path
    _file: FileIO

    def close(self) -> None:
        """Let others have the group, and leave nothing behind."""
        # Nobody else removes a file while it is locked (fault users-30).
        self.path.unlink(missing_ok=True)
        self._file.close()


def lock_group(
    directory: Path, bootstrap_servers: Sequence[str], group: str, patience_s: float = PATIENCE_S
) -> GroupLock | None:
    """Lock a group; closing the lock lets others have it. None if there can be no such file.

    Raises SettingError if another query has the group.
    """
    # Users of one machine cannot open each other's files.
    prefix = f"kgroup-query-{os.getuid()}-"
    name = hashlib.sha256(repr((sorted(bootstrap_servers), group)).encode()).hexdigest()[:32]
    path = directory / f"{prefix}{name}.lock"

    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            lock = _try_to_lock(path, "a+")
        except OSError as error:
            logger.warning("group %s: two queries on it will be noticed later: %s", group, error)
            return None
        if lock is not None:
            # Spark kills planning processes, and these remove nothing (fault users-30).
            _remove_left_over(directory, prefix, path)
            return lock

        if time.monotonic() >= deadline_s:
            raise SettingError(
                "commit.group.id",
                f"another query on this machine commits to group {group}, or another source of "
                "this one: give each a group of its own, or set commit.mode to off in one",
            )
        time.sleep(_PAUSE_S)


def _try_to_lock(path: Path, mode: str) -> GroupLock | None:
    """Lock the file that is at `path` now; None if another process has it. Raises OSError."""
    while True:
        file = FileIO(path, mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None

        # Who had it may have removed it after we opened it (fault users-30, was: True).
        is_there = _is_at(path, file)
        if is_there:
            return GroupLock(path, file)
        file.close()


def _is_at(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _remove_left_over(directory: Path, prefix: str, own: Path) -> None:
    """Remove the files of queries of this user that did not end by themselves."""
    for path in directory.glob(f"{prefix}*.lock"):
        if path != own:
            with suppress(OSError):
                if (left := _try_to_lock(path, "r+")) is not None:
                    left.close()
