"""`kgroup perf produce`: send records as fast as told, as kafka-producer-perf-test.sh does."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from clients.admin import Admin
from clients.command_line.command_group import CommandFailed
from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import KeyValue, Target, read_properties, target_options
from clients.command_line.sessions import client_settings, responding_brokers
from clients.kgroup.marked_topic import refuse_marked_topic
from clients.kgroup.perf.figures import Figures
from clients.kgroup.perf.reporting import keep_pace, monotonic_ms, reporting
from clients.producer.config import refuse_transactions
from clients.producer.producer import Producer
from protocol.bounds import MAX_PRODUCED_BYTES

INTERRUPTED_CLOSE_MS = 1000
_WHERE = ("zookeeper.connect", "bootstrap.servers")


class ManyValues(click.Command):
    """A command whose option `--producer-props` takes several words, as Kafka's tool does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its words, then parse."""
        repeated = []
        is_inside = False
        for position, arg in enumerate(args):
            if is_inside and "=" in arg and not arg.startswith("-"):
                if args[position - 1] != "--producer-props":
                    repeated.append("--producer-props")
            else:
                is_inside = arg == "--producer-props"
            repeated.append(arg)
        return super().parse_args(ctx, repeated)


@click.command(
    "produce",
    cls=ManyValues,
    epilog="""\b
Examples:
  kgroup perf produce --topic flights --num-records 100000 --record-size 100 --throughput -1
  kgroup perf produce --topic flights --num-records 1000 --payload-file flights.txt \\
    --throughput 100 --producer-props acks=1 linger.ms=5""",
)
@target_options
@click.option("--topic", required=True, help="The topic to send to.")
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Records to send.")
@click.option(
    "--record-size",
    # A typing error took all the memory of the machine.
    type=click.IntRange(0, MAX_PRODUCED_BYTES),
    help="Bytes of a record's value.",
)
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with values, of which each record gets one at random.",
)
@click.option(
    "--payload-delimiter", default="\\n", show_default=True, help="Separates values in that file."
)
@click.option(
    "--throughput",
    type=FiniteRange(),
    default=-1,
    show_default=True,
    help="Records a second; -1: no limit.",
)
@click.option(
    "--producer-props", type=KeyValue(), multiple=True, help="Settings of the producer: k=v k=v …"
)
@click.option(
    "--producer.config",
    "--producer-config",
    "producer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with settings of the producer.",
)
def command(
    target: Target,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    throughput: float,
    producer_props: tuple[tuple[str, str], ...],
    producer_config: Path | None,
) -> None:
    """Send records, and print their number, rate and latency.

    A line is printed each 5 s, and one for the whole run at its end or after Ctrl-C. The latency
    of a record is the time from the call that sends it to its acknowledgement.
    """
    if (record_size is None) == (payload_file is None):
        raise click.UsageError("give one of --record-size and --payload-file")

    settings = {**target.settings, **read_properties(producer_config), **dict(producer_props)}
    values = (
        [random_letters(record_size)]
        if record_size is not None
        else read_payloads(payload_file, payload_delimiter)
    )
    asyncio.run(produce(target, topic, settings, values, num_records, throughput))


def random_letters(size: int) -> bytes:
    """Return capital letters, as Kafka's tool sends."""
    return bytes(random.Random(0).choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size))


def read_payloads(path: Path | None, delimiter: str) -> list[bytes]:
    """Return the values of a file. Raises CommandFailed for an empty file."""
    assert path is not None
    # A shell passes backslash and n, as Kafka's default has it.
    separator = delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    values = path.read_bytes().removesuffix(separator).split(separator)
    if values == [b""]:
        raise CommandFailed(f"{path}: empty, so there is nothing to send")
    return values


async def produce(
    target: Target,
    topic: str,
    settings: Mapping[str, str],
    values: Sequence[bytes],
    num_records: int,
    throughput: float,
) -> None:
    """Send the records, and wait for their acknowledgements."""
    # As Kafka's tool, which has no option for brokers: they are among the producer's settings.
    named = settings.get("bootstrap.servers") or target.bootstrap
    bootstrap = await responding_brokers(attrs.evolve(target, bootstrap=named))
    others = {name: value for name, value in settings.items() if name not in _WHERE}
    producer = Producer(others | {"bootstrap.servers": bootstrap})
    refuse_transactions(producer.config)
    async with Admin(client_settings(target, bootstrap)) as admin:
        await refuse_marked_topic(admin, topic)
    choose = random.Random(0).choice

    try:
        # The first line would count the time to connect and to find the topic.
        await producer.partitions(topic)

        async with reporting("records") as figures:
            for number in range(1, num_records + 1):
                value = values[0] if len(values) == 1 else choose(values)
                delivery = await producer.send(topic, value)
                delivery.add_done_callback(counting(figures, len(value)))
                await keep_pace(figures.begins_ms, number, throughput)
            await producer.close()
    finally:
        await producer.close(INTERRUPTED_CLOSE_MS)


def counting(figures: Figures, size: int) -> Callable[[asyncio.Future[Any]], None]:
    """Return the callback that counts a record when it is acknowledged, or has failed."""
    begins_ms = monotonic_ms()

    def count(delivery: asyncio.Future[Any]) -> None:
        error = None if delivery.cancelled() else delivery.exception()
        if error is not None:
            figures.fail(error)
        elif not delivery.cancelled():
            figures.add(size, monotonic_ms() - begins_ms)

    return count
