"""Checks of states after each decision, for the tests of a folder and for simulations.

A folder's `conftest.py` imports `checked_states`. A simulation runs its story in `checking_states`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from protocol.state_checks import STATE_CHECKS


@contextlib.contextmanager
def checking_states() -> Iterator[None]:
    """Turn the checks on. Failures are left to `STATE_CHECKS.take_failures`."""
    was_on = STATE_CHECKS.is_on
    STATE_CHECKS.is_on = True
    STATE_CHECKS.take_failures()
    try:
        yield
    finally:
        STATE_CHECKS.is_on = was_on


@pytest.fixture(autouse=True)
def checked_states() -> Iterator[None]:
    """Check states during a test, and fail it even if somebody swallowed the exception."""
    with checking_states():
        yield
    failures = STATE_CHECKS.take_failures()
    assert not failures, "\n".join(failures)
