"""`kgroup produce`: lines of standard input to a topic."""

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from clients.kgroup.line_reader import LINE_READER_NAMES, LineReader
from clients.kgroup.stdin_lines import lines_of
from clients.output import EXIT_FAILED, Failure, KeyValue, Target, report, target_options
from clients.producer.producer import Producer
from clients.sessions import bootstrap_of

MAX_FAILURES_SHOWN = 10
INTERRUPTED_CLOSE_MS = 1000
"""What an interrupted run still has to send what is buffered."""


@click.command(
    "produce",
    epilog="""\b
Examples:
  kgroup produce --topic flights < flights.txt
  kgroup produce --topic flights --key-separator : --compression zstd --acks all < keyed.txt""",
)
@target_options
@click.option("--topic", required=True, help="Where to; made when missing, if brokers allow it.")
@click.option("--key-separator", help="A line is KEY, this, VALUE; cut at its first occurrence.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Codec of batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    help="Who must have a message before it counts: nobody, the leader, all in-sync replicas.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second.")
@click.option(
    "--property",
    "properties",
    type=KeyValue(),
    multiple=True,
    help="parse.key, key.separator, ignore.error for reading lines; others go to the producer.",
)
def command(
    target: Target,
    topic: str,
    key_separator: str | None,
    compression: str | None,
    acks: str | None,
    rate: float | None,
    properties: tuple[tuple[str, str], ...],
) -> None:
    """Send each line of standard input as a message.

    Ends at the end of the input, when everything is acknowledged. A message that could not be sent
    is named on stderr, and the exit code is 1.
    """
    settings = dict(target.settings) | dict(properties)
    reading = {name: settings.pop(name) for name in LINE_READER_NAMES & settings.keys()}
    if key_separator is not None:
        reading |= {"parse.key": "true", "key.separator": key_separator}
    if compression is not None:
        settings["compression.type"] = compression
    if acks is not None:
        settings["acks"] = acks
    failed = asyncio.run(produce(target, topic, LineReader.of(reading), settings, rate))
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


async def produce(
    target: Target, topic: str, reader: LineReader, settings: Mapping[str, str], rate: float | None
) -> int:
    """Send all of standard input; the number of messages that were not acknowledged."""
    bootstrap = await bootstrap_of(target)
    kept = {name: value for name, value in settings.items() if name != "zookeeper.connect"}
    producer = Producer(kept | {"bootstrap.servers": bootstrap})
    for note in producer.notes:
        click.echo(f"note: {note}", err=True)
    failures = _Failures()
    now = asyncio.get_running_loop().time
    number, started = 0, now()
    try:
        async for lines in lines_of(sys.stdin.fileno()):
            for line in lines:
                number += 1
                key, value = reader.read(line, number)
                delivery = await producer.send(topic, value, key=key)
                delivery.add_done_callback(partial(failures.note, number))
                if rate is not None:
                    await asyncio.sleep(started + number / rate - now())
        await producer.close()
    finally:
        await producer.close(INTERRUPTED_CLOSE_MS)
    return failures.count


class _Failures:
    """Counts deliveries that failed and names the first ones."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, number: int, delivery: asyncio.Future[Any]) -> None:
        """To be called with each delivery that is done."""
        error = None if delivery.cancelled() else delivery.exception()
        if not isinstance(error, Exception):
            return
        self.count += 1
        if self.count <= MAX_FAILURES_SHOWN:
            report([Failure.of(f"line {number}", error)])
        elif self.count == MAX_FAILURES_SHOWN + 1:
            click.echo("error: … and more", err=True)
