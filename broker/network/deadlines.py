"""Say when a client is too late with the rest of a frame, or with the next step of its login.

A frame that has begun is kept in memory, so nobody may let it wait for ever. A slow client is not
late as long as it goes on sending: silence ends its connection, or a rate so low that no client of
Kafka would wait for the response.
"""

from __future__ import annotations

FRAME_SILENCE_S = 30.0
"""Longest time within a frame in which nothing arrives."""
FRAME_BASE_S = 60.0
"""Time for a frame of any size."""
FRAME_BYTES_PER_S = 1024
"""Least rate of a frame beyond that time, on average."""
LOGIN_STEP_S = 30.0
"""Longest time to the first frame of a login, and from each frame of it to the next."""


def frame_lateness(begun_s: float, read_s: float, arrived_bytes: int, now_s: float) -> str | None:
    """Return why a frame that is not complete is too late; None if it is not.

    It began at `begun_s`, and its latest bytes arrived at `read_s`.
    """
    if now_s - read_s > FRAME_SILENCE_S:
        return f"nothing came for {FRAME_SILENCE_S:g} s within a request"
    if now_s - begun_s > FRAME_BASE_S + arrived_bytes / FRAME_BYTES_PER_S:
        return f"a request came more slowly than {FRAME_BYTES_PER_S} bytes a second"
    return None


def login_lateness(since_s: float, now_s: float) -> str | None:
    """Return why a login is too late, whose latest step was at `since_s`; None if it is not."""
    if now_s - since_s > LOGIN_STEP_S:
        return f"a step of the login took longer than {LOGIN_STEP_S:g} s"
    return None
