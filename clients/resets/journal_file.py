"""The journal of resets in a file, where there can be no topic.

Each line is a record, `{"key": …, "value": …}`. Commands append under a lock, and return when the
line is on the disk. The end of a line that a crash has cut off is not an entry.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from clients.resets.journal_entry import Record
from protocol.frozen import frozen


def journal_path(cluster_id: str | None) -> Path:
    """Return where the journal of a cluster is: below XDG_DATA_HOME, or ~/.local/share."""
    # Before 0.10.1 a cluster had no id.
    name = re.sub(r"[^A-Za-z0-9_-]", "_", cluster_id or "unknown-cluster")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "kgroup" / f"journal-{name}.jsonl"


def _lock(file: IO[bytes]) -> None:
    """Keep other commands out until the file is closed. Windows has no such lock."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return
    fcntl.flock(file, fcntl.LOCK_EX)


@frozen
class JournalFile:
    """The file. Calls raise OSError."""

    path: Path

    @property
    def name(self) -> str:
        """Return the name that messages have for it."""
        return str(self.path)

    async def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.exists()

    async def create(self) -> None:
        """Create the file, and the directories above it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch(mode=0o600)

    async def read(self, start: int = 0) -> tuple[list[Record], int]:
        """Return the records from a byte on, the oldest first, and where to read on."""
        with self.path.open("rb") as file:
            file.seek(start)
            content_bytes = file.read()

        # A line that has no end yet is read once more.
        end = start + content_bytes.rfind(b"\n") + 1
        records: list[Record] = []
        for line in content_bytes.decode("utf-8").splitlines():
            try:
                content = json.loads(line)
                value = content["value"]
                text = None if value is None else json.dumps(value, separators=(",", ":"))
                records.append((str(content["key"]), text))
            except (ValueError, TypeError, KeyError):
                # A crash has cut it off.
                continue
        return records, end

    async def append(self, records: Sequence[Record]) -> None:
        """Write records, and return when they are on the disk."""
        with self.path.open("ab+") as file:
            _lock(file)

            # What a crash has cut off stays a line of its own.
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            for key, value in records:
                content = {"key": key, "value": None if value is None else json.loads(value)}
                file.write(json.dumps(content, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
