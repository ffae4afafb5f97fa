"""Stock clients that log in: how the driver of each is started, and what it reports.

A driver is refused with a wrong secret first. Then it logs in, produces, consumes as a member of a
group, commits, and ends.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tests.interop.stock_consumers import go_driver, java_driver, node_driver, python_driver
from tests.stage.processes import ROOT

TRIP_S = 90.0
VALUES = ("a", "b", "c")


@attrs.frozen
class Client:
    """A stock client that logs in."""

    name: str
    command: Callable[[], list[str]] = attrs.field(repr=False)

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class Report:
    """What a driver has written: how it was refused, and what it has consumed and committed."""

    refusal: str | None
    consumed: Sequence[str]


def make_round_trip(
    client: Client, asked: Mapping[str, str], values: Sequence[str] = VALUES, pause_ms: int = 0
) -> Report:
    """Run a driver to its end; it pauses between two values. Raises AssertionError if it fails."""
    lines = {**asked, "values": ",".join(values), "pause_ms": str(pause_ms)}
    ran = subprocess.run(
        client.command(),
        cwd=ROOT,
        input="".join(f"{name}={value}\n" for name, value in lines.items()).encode(),
        capture_output=True,
        timeout=TRIP_S,
    )
    printed, complaints = ran.stdout.decode(), ran.stderr.decode(errors="replace")
    assert ran.returncode == 0, printed + complaints
    events: dict[str, Any] = {}
    for line in printed.splitlines():
        event = json.loads(line)
        events[event.pop("event")] = event
    assert "consumed" in events, printed + complaints
    refusal = events.get("refused", {}).get("message")
    return Report(refusal, events["consumed"]["values"])


JAVA_2_8 = Client("java-2.8", functools.partial(java_driver, "RoundTrip", "2.8.2"))
JAVA_3_9 = Client("java-3.9", functools.partial(java_driver, "RoundTrip", "3.9.1"))
LIBRDKAFKA = Client("librdkafka", functools.partial(python_driver, "round_trip.librdkafka"))
FRANZ_GO = Client("franz-go", functools.partial(go_driver, "franz-go-trip"))
SARAMA = Client("sarama", functools.partial(go_driver, "sarama-trip"))
KAFKAJS = Client("kafkajs", functools.partial(node_driver, "round_trip.js"))
KAFKA_PYTHON = Client("kafka-python", functools.partial(python_driver, "round_trip.kafka_python"))
AIOKAFKA = Client("aiokafka", functools.partial(python_driver, "round_trip.aiokafka"))

CLIENTS = (
    JAVA_2_8,
    JAVA_3_9,
    LIBRDKAFKA,
    FRANZ_GO,
    SARAMA,
    KAFKAJS,
    KAFKA_PYTHON,
    AIOKAFKA,
)
