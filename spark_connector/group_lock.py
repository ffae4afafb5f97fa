"""Let one query of a machine commit to a group: its planning process holds a file's lock.

The lock goes with the process, however that ends. A query that is started again may come before
Spark has ended the planning process of its last run, so it waits a little.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from protocol.settings import SettingError

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""Time for which a query waits for the planning process of its last run to end."""
_PAUSE_S = 0.05


def lock_group(
    directory: Path, bootstrap_servers: Sequence[str], group: str, patience_s: float = PATIENCE_S
) -> TextIOWrapper | None:
    """Return the locked file; closing it releases the lock. None if there can be no such file.

    Raises SettingError if another query has the group.
    """
    # Users of one machine cannot open each other's files.
    name = hashlib.sha256(repr((sorted(bootstrap_servers), group)).encode()).hexdigest()[:32]
    path = directory / f"kgroup-query-{os.getuid()}-{name}.lock"
    try:
        file = path.open("a+")
    except OSError as error:
        logger.warning("group %s: two queries on it will be noticed later: %s", group, error)
        return None

    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                file.close()
                raise SettingError(
                    "commit.group.id",
                    f"another query on this machine commits to group {group}, or another source of "
                    "this one: give each a group of its own, or set commit.mode to off in one",
                ) from None
            time.sleep(_PAUSE_S)
