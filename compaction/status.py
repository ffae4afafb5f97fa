"""What people may know of the cleaner: `cleaner-status.json` in each log directory.

    {"version": 1, "written_ms": ..., "partitions": {"positions-0": {
        "last": {...}, "running": {...}, "quarantine": {...}}}}

Each of the three is null or as its class here says. The file is for `kbroker log cleaner`, which
has nobody to ask where a broker is stopped; Kafka ignores files of this name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from compaction.job import CleanerStatistics
from compaction.quarantine import Quarantine

STATUS_FILE = "cleaner-status.json"
VERSION = 1

T = TypeVar("T")


class StatusError(ValueError):
    """A status file that is of another version or of none."""


@attrs.frozen
class Pass:
    """A cleaning that was finished. Offsets are exclusive where they end something."""

    started_ms: int
    ended_ms: int
    first_dirty_offset: int
    end_offset: int
    segments_before: int
    segments_after: int
    statistics: CleanerStatistics

    @property
    def bytes_per_second(self) -> float:
        """What was read, over the time it took."""
        read = self.statistics.map_bytes_read + self.statistics.bytes_read
        return read * 1000 / max(1, self.statistics.map_ms + self.statistics.clean_ms)


@attrs.frozen
class Running:
    """A cleaning that is under way: how much of `phase` is done."""

    since_ms: int
    phase: str
    percent: float


@attrs.frozen
class CleanerStatus:
    """What there is to say of one log."""

    last: Pass | None = None
    running: Running | None = None
    quarantine: Quarantine | None = None


def encode_status(partitions: Mapping[str, CleanerStatus], written_ms: int) -> bytes:
    """The file's text; `partitions` by the names of their directories."""
    described = {name: attrs.asdict(partitions[name]) for name in sorted(partitions)}
    status = {"version": VERSION, "written_ms": written_ms, "partitions": described}
    return json.dumps(status, indent=1).encode() + b"\n"


def decode_status(text: bytes | None) -> dict[str, CleanerStatus]:
    """What the file says; None is a file that is not there. Raises StatusError."""
    if text is None:
        return {}
    try:
        status = json.loads(text)
        if status["version"] != VERSION:
            raise StatusError(f"version {status['version']} is unknown")
        return {name: _partition(each) for name, each in status["partitions"].items()}
    except (KeyError, TypeError, AttributeError, UnicodeError, json.JSONDecodeError) as error:
        raise StatusError(f"not a cleaner's status: {error!r}") from error


def _partition(described: Mapping[str, Any]) -> CleanerStatus:
    last = described["last"]
    if last is not None:
        last = Pass(**{**last, "statistics": CleanerStatistics(**last["statistics"])})
    return CleanerStatus(
        last,
        _of(Running, described["running"]),
        _of(Quarantine, described["quarantine"]),
    )


def _of(kind: type[T], fields: Mapping[str, Any] | None) -> T | None:
    return None if fields is None else kind(**fields)
