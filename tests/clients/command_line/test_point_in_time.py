"""Times as text: those of the calendar, and what clients and files call a time."""

import pytest

from clients.command_line.point_in_time import timestamp, timestamp_to_ms


def test_a_time_is_shown_in_utc() -> None:
    assert timestamp(1_418_710_530_123) == "2014-12-16T06:15:30Z"
    assert timestamp_to_ms(1_418_710_530_123) == "2014-12-16T06:15:30.123Z"
    assert (timestamp(None), timestamp_to_ms(None)) == ("-", "-")


@pytest.mark.fault("tool-F3")
@pytest.mark.parametrize(
    "number",
    [
        # One ms behind the year 9999, and a time in microseconds.
        253_402_300_800_000,
        1_764_381_343_000_000,
        2**63 - 1,
        -(2**63),
    ],
)
def test_what_no_calendar_has_is_shown_as_a_number_with_its_unit(number: int) -> None:
    assert timestamp(number) == f"{number} ms"
    assert timestamp_to_ms(number) == f"{number} ms"
