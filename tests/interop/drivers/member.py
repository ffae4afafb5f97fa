"""What the consumers in Python share: their arguments, the lines they write, and how they end."""

from __future__ import annotations

import argparse
import json
import signal
import ssl
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

POLL_S = 0.1
HEARTBEATS_A_SESSION = 10

Partition = tuple[str, int]


@attrs.frozen
class Login:
    """Who logs in over TLS, by SCRAM-SHA-512."""

    ca: str
    user: str
    password: str

    @classmethod
    def read(cls, file: str) -> Login:
        """Read a file with a line name=value for each part."""
        lines = Path(file).read_text().splitlines()
        return cls(**dict(line.split("=", 1) for line in lines))

    @property
    def of_librdkafka(self) -> dict[str, str]:
        """Return the settings in librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    @property
    def of_python(self) -> dict[str, Any]:
        """Return what kafka-python and aiokafka have in common."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=self.ca),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


@attrs.frozen
class Arguments:
    """What to consume, as which member."""

    bootstrap: str
    group: str
    topics: list[str]
    strategies: list[str]
    client_id: str
    instance_id: str | None
    session_timeout_ms: int
    login: Login | None

    @property
    def heartbeat_ms(self) -> int:
        """Return the time between two heartbeats."""
        return self.session_timeout_ms // HEARTBEATS_A_SESSION


def parse_arguments() -> Arguments:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topics", required=True, help="with a comma between two")
    parser.add_argument("--strategy", required=True, help="with a comma between two")
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--instance-id")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000)
    parser.add_argument("--login", type=Login.read, help="a file with ca, user and password")
    words = parser.parse_args()
    return Arguments(
        words.bootstrap,
        words.group,
        words.topics.split(","),
        words.strategy.split(","),
        words.client_id,
        words.instance_id,
        words.session_timeout_ms,
        words.login,
    )


def say(event: str, **fields: Any) -> None:
    """Write a line."""
    at_ms = time.time_ns() // 1_000_000
    print(json.dumps({"event": event, "at_ms": at_ms, **fields}), flush=True)


def say_changed(event: str, partitions: Iterable[Any]) -> None:
    """Write that partitions are "assigned", "revoked" or "lost"."""
    say(event, partitions=[(each.topic, each.partition) for each in partitions])


def say_message(topic: str, partition: int, offset: int, value: bytes) -> None:
    """Write a message that was consumed."""
    say("message", topic=topic, partition=partition, offset=offset, value=value.decode())


def say_error(error: object) -> None:
    """Write what the client complains of."""
    say("error", message=f"{type(error).__name__}: {error}")


@attrs.define(eq=False)
class Progress:
    """The offset behind the last message of each partition that is written and not committed."""

    offsets: dict[Partition, int] = attrs.field(factory=dict)

    def add(self, topic: str, partition: int, offset: int) -> None:
        """Note a message that was written."""
        self.offsets[topic, partition] = offset + 1

    def forget(self, partitions: Iterable[Any]) -> None:
        """Leave partitions to those who have them now."""
        for each in partitions:
            self.offsets.pop((each.topic, each.partition), None)

    def end_commit(self, committed: Mapping[Partition, int] | None = None) -> None:
        """Write that all of it is committed, or what is given: later messages are not, then."""
        committed = dict(self.items() if committed is None else committed)
        say("committed", offsets=[(*partition, offset) for partition, offset in committed.items()])
        self.offsets = dict(self.offsets.items() - committed.items())

    def items(self) -> list[tuple[Partition, int]]:
        """Return the partitions with their offsets."""
        return [*self.offsets.items()]


@attrs.define(eq=False)
class Stop:
    """Whether SIGTERM has come."""

    is_wanted: bool = False

    @classmethod
    def on_sigterm(cls) -> Stop:
        """Watch for it from now on."""
        stop = cls()
        signal.signal(signal.SIGTERM, lambda *_: setattr(stop, "is_wanted", True))
        return stop
