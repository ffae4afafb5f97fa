"""`python -m compaction.worker`: cleans one log after another, for the broker that started it.

Reading, hashing and copying keep a processor busy for minutes, which no event loop has to spare.
So they are done here: a job comes in by standard input, its events go out by standard output
(`frames`). While it runs nothing but another speed may come. Where the input ends the job is given
up: the broker has closed the pipe, or is no more. Then this process ends, too.
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
"""Who waits for an answer of the broker goes first, who waits for a smaller log does not notice."""


def main() -> None:
    """Work until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which tells us
    os.nice(NICENESS)
    events = os.dup(EVENTS)
    os.dup2(sys.stderr.fileno(), EVENTS)  # nothing else may come between the frames
    with contextlib.suppress(BrokenPipeError):
        while (start := _next_job()) is not None and _work(start, events):
            pass


def _next_job() -> Start | None:
    while isinstance(said := _receive(), Speed):
        pass  # of a job that came to its end meanwhile
    return said


def _receive() -> Start | Speed | None:
    head = _read(LENGTH.size)
    payload = _read(*LENGTH.unpack(head)) if head else b""
    return decode(payload) if payload else None


def _work(start: Start, events: int) -> bool:
    """Do a job; whether there may be another one."""
    throttler = Throttler(start.bytes_per_second, time.monotonic())
    try:
        steps = clean(start.job, LogDirectory(start.path, create=False))
        with contextlib.closing(steps):
            for event in steps:
                now_s = time.monotonic()
                _write(
                    events,
                    throttler.add_times(event, now_s) if isinstance(event, Finished) else event,
                )
                # Whose files are handed over is not given up before the next step (`clean`).
                if isinstance(event, CleaningProgress) and _is_given_up(
                    throttler, throttler.pause_s(event, now_s)
                ):
                    return False
    except BrokenPipeError:
        raise
    except Exception as error:
        _write(events, Failed(f"{type(error).__name__}: {error}", getattr(error, "errno", None)))
    return True


def _is_given_up(throttler: Throttler, pause_s: float) -> bool:
    """Wait for so long, or as long as a speed that is told meanwhile has it."""
    while select.select([JOBS], [], [], pause_s)[0]:
        said = _receive()
        if not isinstance(said, Speed):
            return True
        pause_s = throttler.change_speed(said.bytes_per_second, time.monotonic())
    return False


def _read(size: int) -> bytes:
    """So many bytes; none where the pipe ends."""
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
