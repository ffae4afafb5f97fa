"""Other processes: our commands as command lines, the end of a process, and one that is stopped."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.stage.waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]

_COMMANDS = {
    "kgroup": "from clients.kgroup.command import main; main(prog_name='kgroup')",
    "kbroker": "from broker.kbroker.command import main; main(prog_name='kbroker')",
}


def command_line(program: str, *args: str) -> list[str]:
    """Return `kgroup …` or `kbroker …` as a command line that needs no installation."""
    return [sys.executable, "-c", _COMMANDS[program], *args]


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Have a process do nothing until the end of the block: connections to it stay, and hang."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def lives(pid: int) -> bool:
    """Return whether there is such a process that is not a zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it is read
        return False


def first_line(process: subprocess.Popen[str], deadline_s: float = DEADLINE_S) -> str:
    """Return the first line of its standard output, or "" when it ends without one."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], deadline_s)
    assert ready, f"no line within {deadline_s:.0f} s"
    return process.stdout.readline()
