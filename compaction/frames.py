"""The messages between a broker and its cleaning workers, and their frames in a pipe.

    uint32 length | pickle of one of the classes below or of `job`'s events

Both ends are the same program, one the other's child, so nobody else can send a pickle.
"""

from __future__ import annotations

import pickle
from struct import Struct
from typing import Any

from compaction.job import CleaningJob
from protocol.frozen import frozen

LENGTH = Struct(">I")


@frozen
class Start:
    """Clean the log in the directory at `path`, at this speed. Closing the pipe aborts the job."""

    job: CleaningJob
    path: str
    bytes_per_second: float


@frozen
class Speed:
    """Go on at this speed. A worker whose job has just ended ignores it."""

    bytes_per_second: float


@frozen
class Failed:
    """A job failed: `reason` for people, `errno` of a system call's error."""

    reason: str
    errno: int | None = None


def encode(message: object) -> bytes:
    """Encode a message with its length."""
    payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(payload)) + payload


def decode(payload: bytes) -> Any:
    """Decode the part of a frame behind the length."""
    return pickle.loads(payload)
