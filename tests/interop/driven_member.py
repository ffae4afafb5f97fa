"""A stock consumer in a process of its own, and what it has said so far."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import attrs

from protocol.topic_partition import TopicPartition
from tests.interop.stock_consumers import Kind
from tests.stage.processes import ROOT, frozen

EXIT_S = 30.0
HEAP_ARENAS = {"MALLOC_ARENA_MAX": "2"}

Partitions = frozenset[TopicPartition]


@attrs.frozen
class Event:
    """A line of a driver: assigned, revoked, lost, message, committed or error.

    `at_ms` is the wall clock of when it happened; one machine has one such clock.
    """

    name: str
    at_ms: int
    fields: dict[str, Any]

    @classmethod
    def of_line(cls, line: str) -> Self:
        """Read a line."""
        fields = json.loads(line)
        return cls(fields.pop("event"), fields.pop("at_ms"), fields)

    @property
    def partitions(self) -> Partitions:
        """Return the partitions that are assigned, revoked or lost."""
        return frozenset(TopicPartition(*pair) for pair in self.fields["partitions"])


@attrs.frozen
class Message:
    """A message that a member was given."""

    member: str
    at_ms: int
    partition: TopicPartition
    offset: int
    value: str


@attrs.define(eq=False)
class DrivenMember:
    """The process, and its events in order. A thread reads them.

    `owned` is what was assigned, and neither revoked nor lost since.
    """

    name: str
    kind: Kind
    process: subprocess.Popen[str]
    log: Path
    events: list[Event] = attrs.field(factory=list)
    owned: Partitions = frozenset()
    _reader: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, kind: Kind, name: str, directory: Path, arguments: dict[str, str]) -> Self:
        """Start a driver. What it writes beside events goes to a file."""
        words = [word for pair in arguments.items() for word in pair]
        log = directory / f"{name}.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [*kind.command(), *words],
                cwd=ROOT,
                env={**os.environ, **HEAP_ARENAS},
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        return cls(name, kind, process, log)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = Event.of_line(line)
            if event.name == "assigned":
                self.owned |= event.partitions
            elif event.name in ("revoked", "lost"):
                self.owned -= event.partitions
            self.events.append(event)

    # ---- what it has said

    def all(self, *names: str) -> list[Event]:
        """Return its events of these names."""
        return [event for event in self.events if event.name in names]

    @property
    def messages(self) -> list[Message]:
        """Return the messages it was given."""
        return [
            Message(
                self.name,
                event.at_ms,
                TopicPartition(event.fields["topic"], event.fields["partition"]),
                event.fields["offset"],
                event.fields["value"],
            )
            for event in self.all("message")
        ]

    @property
    def changes(self) -> list[Event]:
        """Return how what it owns has changed, but for events that change nothing."""
        return [event for event in self.all("assigned", "revoked", "lost") if event.partitions]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """Return the last offset of each partition that it has committed."""
        return {
            TopicPartition(topic, partition): offset
            for event in self.all("committed")
            for topic, partition, offset in event.fields["offsets"]
        }

    def describe(self) -> str:
        """Return what one wants to read when a test has failed."""
        lives = self.process.poll() is None
        head = f"--- {self.name}: {'runs' if lives else f'ended {self.process.returncode}'}"
        heard = f"{len(self.all('message'))} messages, owns {sorted(self.owned)}"
        told = [event for event in self.events if event.name not in ("message", "committed")]
        lines = [f"{event.at_ms} {event.name} {event.fields}" for event in told[-20:]]
        log = self.log.read_text(errors="replace")[-1500:]
        return "\n".join([f"{head}, {heard}", *lines, log])

    # ---- what is done to it

    def stop(self) -> None:
        """Have it leave in good order: SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        assert self._end() == 0, self.describe()

    def kill(self) -> None:
        """End it by SIGKILL, if it has not ended."""
        self.process.kill()
        self._end()

    def _end(self) -> int:
        try:
            returncode = self.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            returncode = -signal.SIGKILL
        self._reader.join()
        return returncode

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Have it do nothing until the end of the block."""
        with frozen(self.process.pid):
            yield
