"""What the round trips in Python share: what they are asked to do, and the lines they write.

A round trip is a client's first attempt with a wrong secret, which must be refused, and then a
login by which it produces, consumes as a member of a group, and commits.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import attrs

TIMEOUT_S = 30.0


@attrs.frozen
class Trip:
    """Where to go, and as whom. The secret is a password, a token, or a PEM file with a key.

    `pause_s` is the time between two values.
    """

    bootstrap: str
    topic: str
    group: str
    protocol: str
    mechanism: str
    user: str
    secret: str
    wrong_secret: str
    ca: str
    values: list[str]
    pause_s: float

    @property
    def has_tls(self) -> bool:
        """True if the broker shows a certificate."""
        return self.protocol.endswith("SSL")

    def with_wrong_secret(self) -> Trip:
        """Return the trip that must not succeed."""
        return attrs.evolve(self, secret=self.wrong_secret)


def read_trip() -> Trip:
    """Read standard input, which has a line `name=value` for each part."""
    lines = sys.stdin.buffer.read().decode().splitlines()
    given: dict[str, Any] = dict(line.split("=", 1) for line in lines)
    pause_s = int(given.pop("pause_ms")) / 1000
    return Trip(**given | {"values": given["values"].split(","), "pause_s": pause_s})


def say(event: str, **fields: object) -> None:
    """Write a line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def say_refused(error: object, complaints: Complaints | None = None) -> None:
    """Write how the client was refused, and what it has logged of it."""
    texts = [] if complaints is None else complaints.texts
    say("refused", message=": ".join([type(error).__name__, str(error), *texts]))


def say_consumed(values: list[bytes]) -> None:
    """Write what was consumed and committed."""
    say("consumed", values=[value.decode() for value in values])


class Complaints(logging.Handler):
    """Keeps what a client logs: some give no reason in their errors."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.texts.append(record.getMessage())
