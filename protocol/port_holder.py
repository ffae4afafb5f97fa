"""Say why a port cannot be bound, and which process has it, as far as this one may see that."""

import errno
import os
from pathlib import Path

MAX_COMMAND = 200
"""Characters of a command line that are shown."""

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def explain_refusal(error: OSError, port: int) -> str:
    """Return the reason of a `bind` that failed, and what to do about it."""
    reason = os.strerror(error.errno or 0)
    if error.errno != errno.EADDRINUSE:
        return reason

    holder = find_holder(port)
    if holder is None:
        return f"{reason}: stop the process that has it (`lsof -i :{port}`), or take another port"
    pid, command = holder
    return f"{reason} by process {pid} ({command}): stop it, or take another port"


def find_holder(port: int) -> tuple[int, str] | None:
    """Return the id and the command line of the process that has a TCP port.

    None where the system does not tell, as of another user's process, or without Linux' /proc.
    """
    inodes = {inode for table in _TABLES for inode in _inodes_of(Path(table), port)}
    sockets = {f"socket:[{inode}]" for inode in inodes}
    if not sockets:
        return None

    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(file) in sockets for file in (process / "fd").iterdir()):
                return int(process.name), _command_of(process)
        except OSError:
            # It is another user's, or has ended meanwhile.
            continue
    return None


def _inodes_of(table: Path, port: int) -> list[str]:
    """Return the inodes of the sockets whose local port it is, of one of the kernel's tables."""
    try:
        rows = [line.split() for line in table.read_text("ascii").splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[9] != "0"]


def _command_of(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    command = " ".join(filter(None, words))
    return "".join(c if c.isprintable() else "?" for c in command)[:MAX_COMMAND]
