"""Write times as text, whatever a client or a file calls a time. Pure."""

from datetime import UTC, datetime, timedelta

from clients.command_line.printing import plain

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(epoch_ms: int | None) -> str:
    """Return the time in UTC, to the second; `-` for None.

    A number outside the calendar stays one: clients may send any 64 bits.
    """
    at = _at(epoch_ms)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if isinstance(at, datetime) else at


def timestamp_to_ms(epoch_ms: int | None) -> str:
    """Return the time as `timestamp` does, to the millisecond."""
    at = _at(epoch_ms)
    if isinstance(at, str):
        return at
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _at(epoch_ms: int | None) -> datetime | str:
    """Return the time, or the text of what is none."""
    if epoch_ms is None:
        return plain(None)

    # What no calendar has must not hide all else that a table shows (fault tool-F3).
    try:
        return _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{epoch_ms} ms"
