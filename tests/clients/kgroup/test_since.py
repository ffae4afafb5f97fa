"""What `--since` and `--as-of` take: ages, times, and times of day."""

from datetime import UTC, datetime

import click
import pytest
from freezegun import freeze_time

from clients.kgroup.events import Since


@freeze_time("2026-11-24T10:00:00Z")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("10:00", "2026-11-24T10:00:00"),
        ("09:59:30", "2026-11-24T09:59:30"),
        ("10:01", "2026-11-23T10:01:00"),
        ("90s", "2026-11-24T09:58:30"),
        ("2d", "2026-11-22T10:00:00"),
        ("2026-11-24T01:00", "2026-11-24T01:00:00"),
        ("2026-11-24T01:00+02:00", "2026-11-23T23:00:00"),
    ],
)
def test_an_age_or_a_time_of_day_counts_back_from_now(text: str, meant: str) -> None:
    at = datetime.fromtimestamp(Since().convert(text, None, None) / 1000, UTC)
    assert at == datetime.fromisoformat(meant).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["24:00", "10:60", "1:00", "10:00:99", "soon", "2x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        Since().convert(text, None, None)
