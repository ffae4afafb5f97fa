"""Read what a command shows in a pseudo-terminal."""

import os
import select
import time

from tests.stage.waiting import DEADLINE_S


def read_until(terminal: int, text: str) -> str:
    """Return what the terminal shows, up to `text`."""
    shown = ""
    ends_s = time.monotonic() + DEADLINE_S
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(ends_s - time.monotonic(), 0))
        assert ready, f"no {text!r} in {shown!r}"
        shown += os.read(terminal, 65_536).decode("utf-8", "replace")
    return shown
