"""What a broker and its cleaning workers say to each other, and how it looks in a pipe.

    uint32 length | pickle of one of the classes below or of `job`'s events

Both ends are the same program, one the other's child, so a pickle is nobody else's.
"""

from __future__ import annotations

import pickle
from struct import Struct
from typing import Any

import attrs

from compaction.job import CleaningJob

LENGTH = Struct(">I")


@attrs.frozen
class Start:
    """Clean the log in the directory at `path`, at this speed until another is told. Whoever
    closes the pipe wants it given up."""

    job: CleaningJob
    path: str
    bytes_per_second: float


@attrs.frozen
class Speed:
    """Go on at this speed; nothing to a worker whose job has just come to its end."""

    bytes_per_second: float


@attrs.frozen
class Failed:
    """The job came to nothing: `reason` for people, `errno` if the system had refused something."""

    reason: str
    errno: int | None = None


def encode(message: object) -> bytes:
    """A frame."""
    payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(payload)) + payload


def decode(payload: bytes) -> Any:
    """What is behind the length of a frame."""
    return pickle.loads(payload)
