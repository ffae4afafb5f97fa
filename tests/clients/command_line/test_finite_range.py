"""Numbers of options that no wait, rate or size can have."""

import click
import pytest

from clients.command_line.finite_range import FiniteRange
from clients.kgroup.reset import Duration


@pytest.mark.fault("strangers-168")
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "NaN"])
def test_what_is_not_finite_is_no_number_of_a_range(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a finite number|is not in the range"):
        FiniteRange(min=0.1).convert(text, None, None)
    assert FiniteRange(min=0.1).convert("0.5", None, None) == 0.5


@pytest.mark.fault("strangers-168", needs_no_remedy="the bound of a duration is another line")
def test_a_duration_that_no_clock_has_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is longer than 64 bits of ms"):
        Duration().convert(f"P{'9' * 400}D", None, None)
