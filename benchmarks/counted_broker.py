"""Start a broker that counts the Python calls of its main thread: `kbroker start`, watched.

    python counted_broker.py FILE start server.properties

Each SIGUSR1 begins a count, or ends it and writes the number into FILE. This is run by the Python
of the checkout that is measured, so it imports nothing of ours but the command.
"""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any


class CallCount:
    """The calls of Python functions since the count began."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._calls = 0
        self._is_counting = False

    def toggle(self, number: int, frame: FrameType | None) -> None:
        """Begin to count, or stop and write the number; a new file appears as a whole."""
        self._is_counting = not self._is_counting
        if self._is_counting:
            self._calls = 0
            sys.setprofile(self._count)
        else:
            sys.setprofile(None)

            # Renamed when it is whole: the file's existence is the reader's signal.
            partial_file = self._file.with_suffix(".partial")
            partial_file.write_text(str(self._calls))
            partial_file.rename(self._file)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._calls += 1


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, CallCount(Path(sys.argv[1])).toggle)

    # The command sees its own arguments alone.
    sys.argv[:2] = ["kbroker"]

    # Import from the checkout that is measured, and not from the one with this file.
    sys.path[0] = str(Path.cwd())

    from broker.kbroker.command import main

    main()
