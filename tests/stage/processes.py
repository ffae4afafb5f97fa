"""Other processes: our commands as command lines, the end of a process, and one that is stopped."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
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
    return [sys.executable, "-P", "-c", _COMMANDS[program], *args]


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Have a process do nothing until the end of the block: connections to it stay, and hang."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def interrupt_after(
    process: subprocess.Popen[str], beginning: str, number: signal.Signals = signal.SIGINT
) -> tuple[str, str]:
    """Interrupt a command when it has written a line that begins so; return all that it writes.

    The line may be on stdout or stderr: what is written before it there counts too.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    texts = {process.stdout: "", process.stderr: ""}
    ends_s = time.monotonic() + DEADLINE_S
    while not any(line.startswith(beginning) for text in texts.values() for line in lines_of(text)):
        ready, _, _ = select.select(list(texts), [], [], max(0, ends_s - time.monotonic()))
        assert ready, f"no line with {beginning!r}: {list(texts.values())}"
        for stream in ready:
            # Not `readline`, which would read more than it returns.
            text = os.read(stream.fileno(), 1 << 16).decode()
            assert text, f"it has ended without {beginning!r}: {list(texts.values())}"
            texts[stream] += text

    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    return texts[process.stdout] + stdout, texts[process.stderr] + stderr


def lines_of(text: str) -> list[str]:
    """Return the whole lines of a text that is still being written."""
    return text.split("\n")[:-1]


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
