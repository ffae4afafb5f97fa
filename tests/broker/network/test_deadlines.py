"""When a client is too late with a frame or a login: by value."""

from __future__ import annotations

from broker.network.deadlines import (
    FRAME_BASE_S,
    FRAME_BYTES_PER_S,
    FRAME_SILENCE_S,
    LOGIN_STEP_S,
    frame_lateness,
    login_lateness,
)


def test_silence_within_a_frame_has_an_end() -> None:
    assert frame_lateness(100, 100, 5000, 100 + FRAME_SILENCE_S) is None
    assert frame_lateness(100, 100, 5000, 101 + FRAME_SILENCE_S) == (
        "nothing came for 30 s within a request"
    )


def test_slow_client_has_time_for_what_it_sends() -> None:
    """A large frame by a slow link may take an hour, if it goes on coming."""
    arrived = 3600 * FRAME_BYTES_PER_S
    assert frame_lateness(0, 3600, arrived, 3600) is None
    assert frame_lateness(0, 3600 + FRAME_BASE_S, arrived, 3600 + FRAME_BASE_S) is None


def test_byte_now_and_then_keeps_no_frame() -> None:
    now = FRAME_BASE_S + 1
    assert frame_lateness(0, now, 100, now) == (
        "a request came more slowly than 1024 bytes a second"
    )


def test_step_of_a_login_has_an_end() -> None:
    assert login_lateness(100, 100 + LOGIN_STEP_S) is None
    assert login_lateness(100, 101 + LOGIN_STEP_S) == "a step of the login took longer than 30 s"
