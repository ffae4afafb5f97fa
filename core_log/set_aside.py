"""Logs of earlier topics: set aside for a while, so that nothing is lost by a mistake.

A log whose topic was deleted, and whose name another topic has, gets a name of its own beside the
others (`directory_name`). It is not opened, and is removed after SET_ASIDE_MS. The file `set-aside`
in it has the time, in ms since 1970. A topic may have such a name too: without the file the log is
that topic's, and is served.
"""

from __future__ import annotations

from core_log.storage import Directory

SET_ASIDE = "set-aside"
SET_ASIDE_DAYS = 7
SET_ASIDE_MS = SET_ASIDE_DAYS * 86_400_000


def note_set_aside(directory: Directory, now_ms: int) -> None:
    """Note in the directory of a log that it is set aside now. Raises OSError."""
    directory.write_atomic(SET_ASIDE, b"%d\n" % now_ms)


def is_set_aside(directory: Directory) -> bool:
    """Return whether the log in a directory with such a name is set aside. Raises OSError."""
    return directory.read(SET_ASIDE) is not None


def is_set_aside_over(directory: Directory, now_ms: int) -> bool:
    """Return whether a log was set aside long enough ago. Raises OSError."""
    # The name alone may be that of a topic (fault core-R1).
    if not is_set_aside(directory):
        return False
    noted = (directory.read(SET_ASIDE) or b"").strip()
    # Somebody made the file by hand: its time begins now.
    if not noted.isdigit():
        note_set_aside(directory, now_ms)
        return False
    return now_ms - int(noted) >= SET_ASIDE_MS
