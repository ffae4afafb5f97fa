"""A group of stock consumers that subscribe: one of each kind, each in a process of its own.

Each is a driver of `tests/interop/drivers`. It commits after every poll, and writes what it is
assigned, what it is given, and which commits were acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
import pytest

from protocol.topic_partition import TopicPartition
from tests.chaos.checker import Commit, Start
from tests.chaos.ledger import Committed, Observed
from tests.interop.driven_group import beginnings
from tests.interop.driven_member import DrivenMember, Event
from tests.interop.stock_consumers import JAVA_2_8, KAFKA_PYTHON, LIBRDKAFKA, RANGE, Kind

STOCK_KINDS = (JAVA_2_8, LIBRDKAFKA, KAFKA_PYTHON)
STOCK_GROUP = "stock-members"
SESSION_TIMEOUT_MS = 10_000
POLL_S = 0.25


def missing_tool(kinds: Iterable[Kind]) -> str | None:
    """Build what these kinds are made of. Return what is missing for it, or None."""
    try:
        for kind in kinds:
            kind.command()
    except pytest.skip.Exception as missing:
        return str(missing)
    return None


@attrs.frozen
class StockRow:
    """What became of the consumers of a kind, for the report."""

    consumer: str
    handed_out: int
    again: int
    assigned: int
    commits: int
    errors: int


@attrs.define(eq=False)
class StockGroup:
    """`run` it; a member that ends by itself is replaced, and noted in `deaths`."""

    bootstrap: str
    topics: Sequence[str]
    kinds: Sequence[Kind]
    directory: Path
    committed: Committed = attrs.field(factory=lambda: Committed(f"group {STOCK_GROUP}"))
    observed: dict[Kind, Observed] = attrs.field(init=False)
    running: dict[Kind, DrivenMember] = attrs.field(factory=dict)
    everyone: list[DrivenMember] = attrs.field(factory=list)
    deaths: list[str] = attrs.field(factory=list)
    _num_read: dict[DrivenMember, int] = attrs.field(factory=dict)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.observed = {kind: Observed(str(kind)) for kind in self.kinds}

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until told to stop."""
        try:
            for kind in self.kinds:
                self.start(kind)
            while not stop.is_set():
                self._replace_dead()
                self._read_events()
                await asyncio.sleep(POLL_S)
            await asyncio.gather(*map(self._end, self.running.values()))
        finally:
            for member in self.everyone:
                member.kill()
            self._read_events()

    def start(self, kind: Kind) -> None:
        """Start a member."""
        name = f"{kind}-{next(self._numbers)}"
        arguments = {
            "--bootstrap": self.bootstrap,
            "--group": STOCK_GROUP,
            "--topics": ",".join(self.topics),
            "--strategy": RANGE,
            "--client-id": name,
            "--session-timeout-ms": str(SESSION_TIMEOUT_MS),
        }
        member = DrivenMember.start(kind, name, self.directory, arguments)
        self.running[kind] = member
        self.everyone.append(member)

    def kill(self, kind: Kind) -> None:
        """End the member of a kind by SIGKILL. Whoever calls this starts another one."""
        self.running.pop(kind).kill()

    def have_all_joined(self) -> bool:
        """Return whether each member owns something."""
        return all(member.owned for member in self.running.values())

    def _replace_dead(self) -> None:
        for kind, member in list(self.running.items()):
            if member.process.poll() is not None:
                self.deaths.append(member.describe())
                self.start(kind)

    async def _end(self, member: DrivenMember) -> None:
        try:
            await asyncio.to_thread(member.stop)
        except AssertionError as error:
            self.deaths.append(str(error))

    # ---- what they have said

    def _read_events(self) -> None:
        for member in self.everyone:
            first = self._num_read.get(member, 0)
            events = member.events[first:]
            self._num_read[member] = first + len(events)
            for event in events:
                self._read(member.kind, event)

    def _read(self, kind: Kind, event: Event) -> None:
        if event.name == "message":
            at = TopicPartition(event.fields["topic"], event.fields["partition"])
            self.observed[kind].enter(at, event.fields["offset"], event.fields["value"].encode())
        elif event.name == "committed":
            self.committed.count += 1
            for topic, partition, offset in event.fields["offsets"]:
                self.committed.confirm(TopicPartition(topic, partition), offset)

    @property
    def commits(self) -> list[Commit]:
        """Return what each acknowledged commit said of each partition."""
        return [
            Commit(event.at_ms, TopicPartition(topic, partition), offset)
            for member in self.everyone
            for event in member.all("committed")
            for topic, partition, offset in event.fields["offsets"]
        ]

    @property
    def starts(self) -> list[Start]:
        """Return where each member began, each time it was assigned a partition."""
        return [
            Start(member.name, at_ms, partition, offset)
            for member in self.everyone
            for partition, at_ms, offset in beginnings(member)
        ]

    @property
    def steps_back(self) -> list[str]:
        """Return where a member went back while it owned a partition."""
        return [
            f"{member.name} {step}"
            for member in self.everyone
            for step in steps_back(member.events)
        ]

    @property
    def rows(self) -> list[StockRow]:
        """Return a row for each kind."""
        return [self._row(kind, observed) for kind, observed in self.observed.items()]

    def _row(self, kind: Kind, observed: Observed) -> StockRow:
        members = [member for member in self.everyone if member.kind is kind]

        def count(name: str) -> int:
            return sum(len(member.all(name)) for member in members)

        handed_out = sum(map(len, observed.values.values()))
        numbers = map(count, ("assigned", "committed", "error"))
        return StockRow(str(kind), handed_out, observed.again, *numbers)


def steps_back(events: Iterable[Event]) -> list[str]:
    """Return each message of a member that came again while it owned the partition."""
    steps, last = [], dict[TopicPartition, int]()
    for event in events:
        if event.name in ("assigned", "revoked", "lost"):
            last = {at: offset for at, offset in last.items() if at not in event.partitions}
        elif event.name == "message":
            at = TopicPartition(event.fields["topic"], event.fields["partition"])
            offset = event.fields["offset"]
            if offset <= last.get(at, -1):
                steps.append(f"{at}: {offset} after {last[at]}")
            last[at] = offset
    return steps
