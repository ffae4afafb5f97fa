"""The cleaner's state for people: `cleaner-status.json` in each log directory.

    {"version": 1, "written_ms": ..., "partitions": {"positions-0": {
        "last": {...}, "running": {...}, "quarantine": {...}}}}

Each of the three is null, or has the fields of its class here. The file is for
`kbroker log cleaner`, which can ask nobody while a broker is stopped. Kafka ignores files of this
name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from compaction.job import CleanerStatistics
from compaction.quarantine import Quarantine
from protocol.frozen import frozen

STATUS_FILE = "cleaner-status.json"
VERSION = 1

T = TypeVar("T")


class StatusError(ValueError):
    """A file is no status file of this version."""


@frozen
class Pass:
    """A finished cleaning. Offsets that end something are exclusive."""

    started_ms: int
    ended_ms: int
    first_dirty_offset: int
    end_offset: int
    segments_before: int
    segments_after: int
    statistics: CleanerStatistics

    @property
    def bytes_per_second(self) -> float:
        """Bytes read, over the time that it took."""
        read = self.statistics.map_bytes_read + self.statistics.bytes_read
        return read * 1000 / max(1, self.statistics.map_ms + self.statistics.clean_ms)


@frozen
class Running:
    """A cleaning in flight, and how much of `phase` is done."""

    since_ms: int
    phase: str
    percent: float


@frozen
class CleanerStatus:
    """The state of one log."""

    last: Pass | None = None
    running: Running | None = None
    quarantine: Quarantine | None = None


def encode_status(partitions: Mapping[str, CleanerStatus], written_ms: int) -> bytes:
    """Encode the file's text. `partitions` are by the names of their directories."""
    described = {name: attrs.asdict(partitions[name]) for name in sorted(partitions)}
    status = {"version": VERSION, "written_ms": written_ms, "partitions": described}
    return json.dumps(status, indent=1).encode() + b"\n"


def decode_status(text: bytes | None) -> dict[str, CleanerStatus]:
    """Decode the file's text. `text` is None without a file. Raises StatusError."""
    if text is None:
        return {}
    try:
        status = json.loads(text)
        if status["version"] != VERSION:
            raise StatusError(f"version {status['version']} is unknown")
        return {name: _partition(fields) for name, fields in status["partitions"].items()}
    except (UnicodeError, json.JSONDecodeError) as error:
        raise StatusError(f"not JSON: {error}" if text else "it is empty") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise StatusError(f"not a cleaner's status: {error!r}") from error


def _partition(fields: Mapping[str, Any]) -> CleanerStatus:
    # Fields of another version raise TypeError: the file is ignored then.
    last = fields["last"]
    if last is not None:
        last = Pass(**{**last, "statistics": CleanerStatistics(**last["statistics"])})
    return CleanerStatus(
        last,
        _optional(Running, fields["running"]),
        _optional(Quarantine, fields["quarantine"]),
    )


def _optional(kind: type[T], fields: Mapping[str, Any] | None) -> T | None:
    return None if fields is None else kind(**fields)
