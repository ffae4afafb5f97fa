"""`python -m compaction.worker`: clean one log after another, for the broker that started it.

Reading, hashing and copying keep a processor busy for minutes, which no event loop can spare. So
they are done here. A job comes in by standard input, its events go out by standard output
(`frames`). While it runs only another speed may come in. When the input ends the job is aborted:
the broker has closed the pipe, or is gone. Then this process ends, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

from compaction.clean import clean
from compaction.frames import LENGTH, Failed, Speed, Start, decode, encode
from compaction.job import CleaningProgress, Finished
from compaction.pace import Throttler
from core_log.directory import LogDirectory

JOBS, EVENTS = 0, 1
NICENESS = 5
"""Requests to the broker go first, and a log that is cleaned later harms nobody."""


def main() -> None:
    """Work until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends us
    os.nice(NICENESS)
    events = os.dup(EVENTS)
    os.dup2(sys.stderr.fileno(), EVENTS)  # nothing else may come between the frames

    with contextlib.suppress(BrokenPipeError):
        while (start := _next_job()) is not None and _work(start, events):
            pass


def _next_job() -> Start | None:
    while isinstance(message := _receive(), Speed):
        pass  # it is for a job that has just ended
    return message


def _receive() -> Start | Speed | None:
    head = _read(LENGTH.size)
    payload = _read(*LENGTH.unpack(head)) if head else b""
    return decode(payload) if payload else None


def _work(start: Start, events: int) -> bool:
    """Do a job. Returns whether there may be another one."""
    throttler = Throttler(start.bytes_per_second, time.monotonic())
    try:
        steps = clean(start.job, LogDirectory(start.path, create=False))
        with contextlib.closing(steps):
            for event in steps:
                now_s = time.monotonic()
                if isinstance(event, Finished):
                    event = throttler.add_times(event, now_s)
                _write(events, event)

                # A job is not aborted before the step that follows handed over files (`clean`).
                if isinstance(event, CleaningProgress):
                    pause_s = throttler.pause_s(event, now_s)
                    if _is_aborted(throttler, pause_s):
                        return False
    except BrokenPipeError:
        raise
    except Exception as error:
        _write(events, Failed(f"{type(error).__name__}: {error}", getattr(error, "errno", None)))
    return True


def _is_aborted(throttler: Throttler, pause_s: float) -> bool:
    """Wait for `pause_s`, or as long as another speed that comes in asks for."""
    # What comes in is another speed. The end of the input aborts the job.
    while select.select([JOBS], [], [], pause_s)[0]:
        message = _receive()
        if not isinstance(message, Speed):
            return True
        pause_s = throttler.change_speed(message.bytes_per_second, time.monotonic())
    return False


def _read(size: int) -> bytes:
    """Read so many bytes, or none if the pipe ends."""
    parts: list[bytes] = []
    while size and (part := os.read(JOBS, size)):
        parts.append(part)
        size -= len(part)
    return b"" if size else b"".join(parts)


def _write(events: int, event: object) -> None:
    frame = encode(event)
    while frame:
        frame = frame[os.write(events, frame) :]


if __name__ == "__main__":
    main()
