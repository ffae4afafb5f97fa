"""Spark's texts for durations, such as `15m` or `500ms`."""

import re

_MS_OF = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_TEXT = re.compile("([0-9]+)([a-z]*)")


def read_ms(text: str) -> int:
    """Return the duration in ms; a number without a unit is in ms already. Raises ValueError."""
    number = _TEXT.fullmatch(text.strip().lower())
    unit = number[2] or "ms" if number else ""
    if number is None or not (unit in _MS_OF or unit == "us"):
        raise ValueError(f"{text!r} is no duration such as 500ms, 30s, 15m, 1h or 1d")
    return int(number[1]) // 1_000 if unit == "us" else int(number[1]) * _MS_OF[unit]
