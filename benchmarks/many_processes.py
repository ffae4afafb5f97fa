"""Measure several broker processes that one file starts (`kbroker start --processes`) beside one.

Both have a topic of as many partitions, and the same load on all of them. The load's driver takes
a part of the machine's cores. Where it leaves less than one and a half to the brokers, the row says
so and has no bound.
"""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import attrs

from benchmarks.brokers import SETTINGS, Side, await_true, is_serving
from benchmarks.load import Address, LoadError, drive_all
from benchmarks.process import Process, spawn
from benchmarks.produce import EQUAL, encode_produce, make_batch
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_least
from broker.kbroker.local_cluster import HOST, LocalClusterError, claim_ports
from clients.admin import LATEST_TIME, Admin, NewTopic
from protocol.topic_partition import TopicPartition

PROCESSES = 4
CONNECTIONS = 8
OUTSTANDING = 5
BATCH_BYTES = 1024
LEAST_CORES = 1.5
"""Cores for the brokers with which several processes can show what they gain."""
TOPIC = "many-processes"


@attrs.frozen
class Brokers:
    """The brokers of one supervisor. `leaders` has the address of each partition's leader."""

    process: Process
    leaders: list[Address]


def measure(side: Side, directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row of requests a second; the second column has one process."""
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(_start(side, directory / f"processes-{count}", count))
            for count in (PROCESSES, 1)
        ]
        figures = alternate([partial(_produce, brokers) for brokers in both], rounds)
        rate, cores, drivers_cores = figures

    # What one process leaves is what several can take.
    left = len(os.sched_getaffinity(0)) - median(drivers_cores[1])
    question = f"produce 1 KB, {CONNECTIONS} × {OUTSTANDING}, {PROCESSES} processes · one"
    if left < LEAST_CORES:
        yield Row(
            f"{question}, on {left:.1f} cores",
            "requests/s",
            None,
            rate,
            cores,
            beside=Beside.OURSELVES,
        )
    else:
        yield Row(question, "requests/s", at_least(1.3), rate, cores, beside=Beside.OURSELVES)


@contextlib.contextmanager
def _start(side: Side, directory: Path, count: int) -> Iterator[Brokers]:
    """Start so many brokers with a topic; stop them and delete the data at the end."""
    port = _claim_ports_in_a_row(count)
    settings = SETTINGS | {
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / "log"),
        "zookeeper.connect": f"{side.zookeeper}/{directory.name}",
    }
    directory.mkdir(parents=True)
    properties = directory / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    command = [*side.command, str(properties), "--processes", str(count)]
    process = spawn("brokers", command, directory)
    try:
        addresses = [(HOST, port + index) for index in range(count)]
        for address in addresses:
            await_true(partial(is_serving, address), process)
        asyncio.run(_create_topic(addresses[0], count))
        yield Brokers(process, [addresses[p % count] for p in range(PROCESSES)])
    finally:
        process.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _claim_ports_in_a_row(count: int) -> int:
    """Return the first of so many free ports: the brokers' ports are that of the file, plus 1, …"""
    while True:
        (first,) = claim_ports(0, 1)
        with contextlib.suppress(LocalClusterError):
            claim_ports(first, count)
            return first


async def _create_topic(address: Address, brokers: int) -> None:
    """Create the topic; return when each partition has its leader."""
    assignments = {partition: [partition % brokers] for partition in range(PROCESSES)}
    async with Admin("{}:{}".format(*address)) as admin:
        refusal = (await admin.create_topics([NewTopic(TOPIC, assignments=assignments)]))[TOPIC]
        if refusal:
            raise LoadError(f"the topic is not created: {refusal}")
        await _end_offsets(admin)


async def _end_offsets(admin: Admin) -> int:
    """Return the number of records in the topic. Raises LoadError."""
    listed = await admin.list_offsets(
        {TopicPartition(TOPIC, partition): LATEST_TIME for partition in range(PROCESSES)}
    )
    if any(end.error for end in listed.values()):
        raise LoadError(f"a partition of {TOPIC} has no leader")
    return sum(end.offset for end in listed.values())


def _count_records(brokers: Brokers) -> int:
    async def count() -> int:
        async with Admin("{}:{}".format(*brokers.leaders[0])) as admin:
            return await _end_offsets(admin)

    return asyncio.run(count())


def _produce(brokers: Brokers, seconds: float) -> tuple[float, float, float]:
    """Return requests a second, and the cores that the brokers and the driver used."""
    batch, records = make_batch(BATCH_BYTES, EQUAL)
    partitions = [nth % PROCESSES for nth in range(CONNECTIONS)]
    plans = [[encode_produce(TOPIC, batch, 1, partition)] for partition in partitions]
    addresses = [brokers.leaders[partition] for partition in partitions]

    count_before = _count_records(brokers)
    brokers_s, driver_s = brokers.process.children_cpu_s, time.process_time()
    driven = drive_all(addresses, plans, outstanding=OUTSTANDING, seconds=seconds)
    cores = (brokers.process.children_cpu_s - brokers_s) / driven.seconds
    drivers_cores = (time.process_time() - driver_s) / driven.seconds

    # Each response must stand for a batch in the log.
    written = _count_records(brokers) - count_before
    if written != driven.total_responses * records:
        raise LoadError(f"{driven.total_responses} batches were taken, but {written} records")
    return driven.per_second, cores, drivers_cores
