"""What a log's files hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core_log.storage import Directory

Open = Callable[..., Any]
T0 = 1_000_000
ONE = 61 + 10  # bytes of a batch of one three-byte record


def bases(writer: Any) -> list[int]:
    return [segment.base_offset for segment in writer.log.segments]


def contents(directory: Directory, name: str) -> bytes:
    found = directory.read(name)
    assert found is not None
    return found
