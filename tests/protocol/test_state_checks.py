"""The switch for checks of states."""

import pytest

from protocol.state_checks import STATE_CHECKS, StateChecks


def hold() -> None:
    """A state in which everything holds."""


def break_() -> None:
    assert 1 == 2, "the state is broken"


def test_production_checks_nothing() -> None:
    assert not StateChecks().is_on
    assert not STATE_CHECKS.is_on, "a test that turns it on turns it off again"


def test_failure_is_raised_and_noted_for_those_who_never_see_the_exception() -> None:
    checks = StateChecks()
    checks.run(hold)
    assert checks.take_failures() == []
    with pytest.raises(AssertionError, match="the state is broken"):
        checks.run(break_)
    (failure,) = checks.take_failures()
    assert "the state is broken" in failure
    assert checks.take_failures() == []
