"""Measure `kgroup` beside Kafka's ConsumerGroupCommand, from the start of a process to its end.

Both ask our broker, so that the tools are compared and not the brokers.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from benchmarks.brokers import Broker, Side
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_most
from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

GROUPS = 1000
AT_ONCE = 100
KAFKA_TOOL = "kafka.admin.ConsumerGroupCommand"

Arguments = Sequence[str]


def measure(sides: Sequence[Side], broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each thing that people ask of both tools, and one for lags in time."""
    host, port = broker.address
    bootstrap = f"{host}:{port}"
    run = uuid4().hex[:8]
    asyncio.run(_prepare(bootstrap, run))

    ours = (*sides[0].python, "-m", "clients.kgroup.command", "--bootstrap-server", bootstrap)
    tools = [ours]
    if len(sides) > 1:
        # The same JVM, with the same options, as the peer's broker.
        tools.append((*sides[1].command[:-1], KAFKA_TOOL, "--bootstrap-server", bootstrap))

    def times(*arguments: str) -> list[tuple[float, ...]]:
        (seconds,) = alternate([_runner((*tool, *arguments)) for tool in tools], rounds)
        return list(seconds)

    small, big = ("--describe", "--group", f"small-{run}"), ("--describe", "--group", f"big-{run}")
    yield Row("kgroup describe, 4 partitions", "s", at_most(1 / 5), times(*small))
    yield Row("kgroup describe, 1,000 partitions", "s", at_most(1 / 10), times(*big))
    yield Row(f"kgroup list, {GROUPS:,} groups", "s", at_most(1 / 10), times("--list"))
    every = times("--describe", "--all-groups")
    yield Row(f"kgroup describe --all-groups, {GROUPS:,} × 10", "s", at_most(1 / 10), every)

    lags = [_runner((*ours, *big, "--time-lag")), _runner((*ours, *big))]
    (seconds,) = alternate(lags, rounds)
    question = "kgroup describe, 1,000 partitions, --time-lag · without"
    yield Row(question, "s", at_most(2), seconds, beside=Beside.OURSELVES)


def _runner(command: Arguments) -> Callable[[float], tuple[float]]:
    def run(_: float) -> tuple[float]:
        begin = time.perf_counter()
        directory = Path(__file__).resolve().parent.parent
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
        return (time.perf_counter() - begin,)

    return run


async def _prepare(bootstrap: str, run: str) -> None:
    """Write topics and commit for groups: one of 4 partitions, one of 1,000, and many of 10."""
    sizes = {"small": 4, "big": 1000, "ten": 10}
    async with Admin(bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        await admin.create_topics([NewTopic(f"{n}-{run}", size, 1) for n, size in sizes.items()])
        for name, size in sizes.items():
            for partition in range(size):
                for _ in range(3):
                    await producer.send(f"{name}-{run}", bytes(100), partition=partition)
        await producer.flush()

        def committed(name: str) -> dict[TopicPartition, OffsetAndMetadata]:
            topic = f"{name}-{run}"
            return {TopicPartition(topic, p): OffsetAndMetadata(1) for p in range(sizes[name])}

        for name in ("small", "big"):
            await admin.commit_group_offsets(f"{name}-{run}", committed(name))
        for start in range(0, GROUPS, AT_ONCE):
            names = [f"g{number}-{run}" for number in range(start, start + AT_ONCE)]
            commits = (admin.commit_group_offsets(name, committed("ten")) for name in names)
            await asyncio.gather(*commits)
