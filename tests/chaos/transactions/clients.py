"""Transactional clients as processes, which can be killed and stopped: ours, and stock ones.

Each is a transactor of `tests/interop/drivers`: it is told a transaction in a line, and writes what
becomes of it. What it plans is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import attrs
import pytest

from protocol.topic_partition import TopicPartition
from tests.interop.driven_member import HEAP_ARENAS
from tests.interop.stock_consumers import java_driver, python_driver
from tests.stage.processes import ROOT
from tests.transactions.history import Outcome, Reading
from tests.transactions.workload import FAILURES, GROUP, TIMEOUT_MS, Part, Plan, Stage

T = TypeVar("T")

PAUSE_S = 0.25
HANG_S = 90.0
"""A client that says nothing for so long hangs."""
LINE_BYTES = 1024 * 1024


@attrs.frozen
class Kind:
    """A client that knows transactions, and how its driver is started."""

    name: str
    command: Callable[[], list[str]] = attrs.field(repr=False)

    may_hang: bool = False
    """It is known to stop for ever, though the brokers are well: such a process is replaced, as
    whoever operates it would do."""

    def __str__(self) -> str:
        return self.name


OURS = Kind("ours", partial(python_driver, "transactions.ours"))
LIBRDKAFKA = Kind("librdkafka", partial(python_driver, "transactions.librdkafka"), may_hang=True)
"""After all brokers were gone at once, 2.x may open no connection to its coordinator ever again."""
AIOKAFKA = Kind("aiokafka", partial(python_driver, "transactions.aiokafka"), may_hang=True)
KAFKA_PYTHON = Kind(
    "kafka-python", partial(python_driver, "transactions.kafka_python"), may_hang=True
)
"""A commit may not return in 3.0, though the coordinator has answered it."""
JAVA_2_8 = Kind("java-2.8", partial(java_driver, "TransactionRunner", "2.8.2"))
JAVA_3_9 = Kind("java-3.9", partial(java_driver, "TransactionRunner", "3.9.1"))
PRODUCERS = (OURS, LIBRDKAFKA, AIOKAFKA, KAFKA_PYTHON, JAVA_2_8, JAVA_3_9)

READERS = (
    Kind("librdkafka reader", partial(python_driver, "transactions.librdkafka_reader")),
    Kind("java-2.8 reader", partial(java_driver, "CommittedReader", "2.8.2")),
)


def missing_tool(kinds: Sequence[Kind]) -> str | None:
    """Build what these kinds are made of. Return what is missing for it, or None."""
    try:
        for kind in kinds:
            kind.command()
    except pytest.skip.Exception as missing:
        return str(missing)
    return None


def available(kinds: Sequence[Kind]) -> list[Kind]:
    """Return those kinds for which nothing is missing here."""
    return [kind for kind in kinds if missing_tool([kind]) is None]


class Ended(Exception):
    """A driver has ended: it was killed, or had failed and says why."""


@attrs.define(eq=False)
class Driver:
    """The process of a driver."""

    name: str
    process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, kind: Kind, name: str, directory: Path, *arguments: str) -> Driver:
        """Start a process. What it writes beside its lines goes to a file."""
        with (directory / f"{name}.log").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *kind.command(),
                *arguments,
                cwd=ROOT,
                env={**os.environ, **HEAP_ARENAS},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_BYTES,
            )
        return cls(name, process)

    async def line(self) -> list[str]:
        """Return the words of its next line. Raises Ended."""
        assert self.process.stdout is not None
        words = (await self.process.stdout.readline()).decode().split()
        if not words:
            raise Ended(f"ended with {await self.process.wait()}")
        if words[0] == "failed":
            raise Ended(" ".join(words))
        return words

    def tell(self, line: str) -> None:
        """Write a line to it; one that has ended does not mind."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def end(self) -> None:
        """End it, however it is."""
        self.signal(signal.SIGKILL)
        await self.process.wait()


@attrs.define(eq=False)
class Incarnation:
    """One of those who live under a name, each with processes of its own.

    A zombie is one that was replaced while it was stopped: it ends with its process.
    """

    name: str
    is_replaced: bool = False
    driver: Driver | None = None


@attrs.define(eq=False)
class Client:
    """A transactional id, whose transactions are run by clients of several kinds in turn."""

    stage: Stage
    name: str
    directory: Path
    kinds: Iterator[Kind]
    make_part: Callable[[Random], Part]
    rng: Random
    ending: asyncio.Event
    """Set when a commit begins."""
    outcomes: Counter[tuple[str, Outcome]] = attrs.field(factory=Counter)
    hung: list[Kind] = attrs.field(factory=list)
    """The kinds of processes that hung."""
    incarnation: Incarnation = attrs.field(init=False)
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def start(self) -> None:
        """Begin to live; who lives under this name already goes on as a zombie."""
        if self.tasks:
            self.incarnation.is_replaced = True
        self.incarnation = Incarnation(f"{self.name}-{len(self.tasks)}")
        live = self._live(self.incarnation)
        self.tasks.append(asyncio.get_running_loop().create_task(live, name=self.name))

    async def _live(self, incarnation: Incarnation) -> None:
        while not self.stage.is_over and not incarnation.is_replaced:
            async with self._process(incarnation) as (kind, driver):
                try:
                    await self._transact(kind, driver)
                except Ended as error:
                    self.stage.tell(driver.name, str(error)[:300])
            await asyncio.sleep(self.rng.uniform(0.1, 0.5))

    @contextlib.asynccontextmanager
    async def _process(self, incarnation: Incarnation) -> AsyncIterator[tuple[Kind, Driver]]:
        kind = next(self.kinds)
        arguments = {
            "--bootstrap": self.stage.bootstrap,
            "--transactional-id": self.name,
            "--timeout-ms": str(TIMEOUT_MS),
        }
        words = [word for pair in arguments.items() for word in pair]
        name = f"{self.name}-{next(self._numbers)}-{kind}"
        driver = await Driver.start(kind, name, self.directory, *words)
        incarnation.driver = driver
        try:
            yield kind, driver
        finally:
            await driver.end()

    async def _transact(self, kind: Kind, driver: Driver) -> None:
        """Run transactions until the story is over. Raises Ended."""
        await self._line(kind, driver)
        part = self.make_part(Random(self.rng.random()))
        await self._patiently(part.begin)
        while not self.stage.is_over:
            await asyncio.sleep(self.rng.expovariate(1 / PAUSE_S))
            plan = await self._patiently(part.plan)
            if plan is None:
                continue
            try:
                await self._run(kind, driver, plan)
            finally:
                self.outcomes[kind.name, plan.attempt.outcome] += 1
            await self._patiently(partial(part.note, plan))

    async def _line(self, kind: Kind, driver: Driver) -> list[str]:
        """Return the words of its next line. Raises Ended, also where it hangs."""
        try:
            async with asyncio.timeout(HANG_S):
                return await driver.line()
        except TimeoutError:
            self.hung.append(kind)
            raise Ended(f"says nothing for {HANG_S:.0f} s") from None

    @staticmethod
    async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except FAILURES:
                await asyncio.sleep(0.2)

    async def _run(self, kind: Kind, driver: Driver, plan: Plan) -> None:
        """Have it run a transaction, and note what it says. Raises Ended."""
        attempt = plan.attempt
        attempt.writes.update({value: (place, -1) for place, value in plan.writes})
        attempt.offsets.update(plan.offsets)
        driver.tell(line_of(plan))

        while True:
            match await self._line(kind, driver):
                case ["written", value, offset]:
                    place, _ = attempt.writes[value.encode()]
                    attempt.writes[value.encode()] = place, int(offset)
                case ["ending"]:
                    attempt.outcome = Outcome.UNKNOWN
                    self.ending.set()
                case ["committed"]:
                    attempt.outcome = Outcome.COMMITTED
                    return
                case ["aborted", *_]:
                    attempt.outcome = Outcome.ABORTED
                    return
                case words:
                    raise AssertionError(f"{driver.name} says {words}")


def line_of(plan: Plan) -> str:
    """Return a transaction as transactors are told it."""
    words = ["commit" if plan.commits else "abort", GROUP if plan.offsets else "-"]
    words += [f"w {topic} {number} {value.decode()}" for (topic, number), value in plan.writes]
    words += [f"o {topic} {number} {offset}" for (topic, number), offset in plan.offsets.items()]
    return " ".join(words)


async def read_by(
    kind: Kind, stage: Stage, directory: Path, partitions: Sequence[TopicPartition]
) -> None:
    """Read committed data by a stock consumer, until cancelled."""
    names = ",".join(f"{topic}-{number}" for topic, number in partitions)
    arguments = ("--bootstrap", stage.bootstrap, "--partitions", names)
    name = str(kind)
    driver = await Driver.start(kind, name.replace(" ", "-"), directory, *arguments)
    readings: dict[TopicPartition, Reading] = {
        partition: stage.history.read(name, partition) for partition in partitions
    }
    try:
        while True:
            _, topic, number, offset, value = await driver.line()
            reading = readings[TopicPartition(topic, int(number))]
            reading.rows.append((int(offset), value.encode()))
            reading.position = int(offset) + 1
    except Ended as error:
        stage.history.stuck.append(f"{name} {error}")
    finally:
        await driver.end()
