"""`kgroup produce`: lines of standard input to a topic."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from clients.errors import FailedToSendMessage, KgroupError, QueueFull
from clients.kgroup.line_reader import LINE_READER_NAMES, FieldReader, LineError, LineReader
from clients.kgroup.stdin_lines import lines_of, standard_input
from clients.output import (
    EXIT_FAILED,
    Failure,
    KeyValue,
    Target,
    read_properties,
    report,
    target_options,
)
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import names_producer_type
from clients.producer.producer import Producer
from clients.sessions import bootstrap_of

MAX_FAILURES_SHOWN = 10
INTERRUPTED_CLOSE_MS = 1000
"""What an interrupted run still has to send what is buffered."""


_WHERE = ("zookeeper.connect", "bootstrap.servers", "metadata.broker.list")
"""Settings that say where the brokers are, which has been found out by then."""

OPTIONS = {
    "--request-timeout-ms": ("request.timeout.ms", "Time for one response."),
    "--retry-backoff-ms": ("retry.backoff.ms", "Pause before trying again."),
    "--metadata-expiry-ms": ("metadata.max.age.ms", "Metadata older than this is renewed."),
    "--max-block-ms": ("max.block.ms", "How long to wait for metadata and room."),
    "--metadata-fetch-timeout-ms": ("max.block.ms", "The same."),
    "--message-send-max-retries": ("retries", "Attempts after the first."),
    "--max-memory-bytes": ("buffer.memory", "Bytes not yet acknowledged."),
    "--max-partition-memory-bytes": ("batch.size", "Bytes of a batch."),
    "--socket-buffer-size": ("send.buffer.bytes", "SO_SNDBUF."),
    "--key-serializer": ("key.serializer", "Kafka's class, or module:Class."),
    "--value-serializer": ("value.serializer", "Of values; keys have theirs."),
    "--batch-size": ("batch.num.messages", "Messages of a batch; needs producer.type."),
    "--queue-size": ("queue.size", "Messages that may wait; needs producer.type."),
    "--queue-enqueuetimeout-ms": ("queue.enqueue.timeout.ms", "Time to wait for room there."),
}
"""Options of Kafka's console producer that are a setting under another name."""

LINE_READERS = ("LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")

SETTING_OF = {
    "compression": "compression.type",
    "acks": "acks",
    **{option[2:].replace("-", "_"): setting for option, (setting, _) in OPTIONS.items()},
}
"""Parameter to the setting it gives."""


def console_producer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what Kafka's console producer has besides."""
    options = [
        click.option(
            "--broker-list", metavar="H:P[,…]", help="--bootstrap-server as Kafka spelt it."
        ),
        click.option(
            "--compression",
            "--compression-codec",
            "compression",
            is_flag=False,
            flag_value="gzip",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            help="Codec of batches; gzip if none is named.",
        ),
        click.option(
            "--acks",
            "--request-required-acks",
            "acks",
            type=click.Choice(["0", "1", "all", "-1"]),
            help="Who must have a message before it counts: nobody, the leader, all in-sync "
            "replicas.",
        ),
        click.option(
            "--line-reader", type=click.Choice(LINE_READERS), help="Kafka's own, which this is."
        ),
        click.option(
            "--old-producer/--new-producer",
            "old_producer",
            help="producer.type: sync with --sync, else async; or none, the default.",
        ),
        *(
            click.option(option, metavar="VALUE", help=f"{text} [{setting}]")
            for option, (setting, text) in OPTIONS.items()
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


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
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second.")
@click.option("--sync", is_flag=True, help="Wait for each message before the next is sent.")
@click.option(
    "--property",
    "properties",
    type=KeyValue(),
    multiple=True,
    help="parse.key, key.separator, ignore.error for reading lines; others go to the producer.",
)
@click.option(
    "--producer-property", type=KeyValue(), multiple=True, help="A setting of the producer."
)
@click.option(
    "--producer.config",
    "--producer-config",
    "producer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with settings of the producer.",
)
@console_producer_options
def command(
    target: Target,
    topic: str,
    key_separator: str | None,
    rate: float | None,
    sync: bool,
    properties: tuple[tuple[str, str], ...],
    producer_property: tuple[tuple[str, str], ...],
    producer_config: Path | None,
    broker_list: str | None,
    line_reader: str | None,
    old_producer: bool,
    **given: str | None,
) -> None:
    """Send each line of standard input as a message.

    Ends at the end of the input, when everything is acknowledged. A message that could not be sent
    is named on stderr, and the exit code is 1. With producer.type among the properties it is the
    producer of Kafka 0.8 that sends, under its own settings.
    """
    if broker_list is not None:
        target = attrs.evolve(target, bootstrap=broker_list)
    of_reader = dict(properties)
    reading = {name: of_reader.pop(name) for name in LINE_READER_NAMES & of_reader.keys()}
    if key_separator is not None:
        reading |= {"parse.key": "true", "key.separator": key_separator}
    settings = {
        **({"producer.type": "sync" if sync else "async"} if old_producer else {}),
        **target.settings,
        **read_properties(producer_config),
        **of_reader,
        **dict(producer_property),
        **{SETTING_OF[name]: value for name, value in given.items() if value is not None},
    }
    failed = asyncio.run(produce(target, topic, LineReader.of(reading), settings, rate, sync))
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


async def produce(
    target: Target,
    topic: str,
    reader: LineReader,
    settings: Mapping[str, str],
    rate: float | None,
    sync: bool,
) -> int:
    """Send all of standard input; the number of messages that were not acknowledged."""
    bootstrap = await bootstrap_of(target)
    kept = {name: value for name, value in settings.items() if name not in _WHERE}
    old = names_producer_type(kept)
    producer = Producer(kept | {"bootstrap.servers": bootstrap})
    for note in producer.notes:
        click.echo(f"note: {note}", err=True)
    fields = FieldReader.of(settings)
    failures = _Failures()  # names each line; the producer need not
    logging.getLogger("clients.producer.undelivered").setLevel(logging.ERROR)
    now = asyncio.get_running_loop().time
    number, started = 0, now()
    try:
        async for lines in lines_of(standard_input().fileno()):
            for line in lines:
                number += 1
                key, value = fields.read(*reader.read(line, number), number)
                if old:
                    await _send_in_the_old_way(producer, topic, key, value, number, failures)
                else:
                    with naming(number):
                        delivery = await producer.send(topic, value, key=key)
                    delivery.add_done_callback(partial(failures.note, number))
                    if sync:
                        await asyncio.wait([delivery])
                if rate is not None:
                    await asyncio.sleep(started + number / rate - now())
        await producer.close()
    finally:
        await producer.close(INTERRUPTED_CLOSE_MS)
    return max(failures.count, producer.metrics.failed_sends)


async def _send_in_the_old_way(
    producer: Producer,
    topic: str,
    key: Any,
    value: Any,
    number: int,
    failures: "_Failures",
) -> None:
    """With `producer.type`: sync fails here, and a queue that is full and must not be waited for;
    what async drops later is logged, and counted.
    """
    try:
        with naming(number):
            await producer.send(KeyedMessage(topic, key, value))
    except (FailedToSendMessage, QueueFull) as error:
        failures.count_one(number, error)


@contextlib.contextmanager
def naming(number: int) -> Iterator[None]:
    """What a serializer or a partitioner of anyone's raises is about this line: LineError."""
    try:
        yield
    except KgroupError:
        raise
    except Exception as error:
        raise LineError(f"line {number}: {error}") from error


class _Failures:
    """Counts deliveries that failed and names the first ones."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, number: int, delivery: asyncio.Future[Any]) -> None:
        """To be called with each delivery that is done."""
        error = None if delivery.cancelled() else delivery.exception()
        if isinstance(error, Exception):
            self.count_one(number, error)

    def count_one(self, number: int, error: Exception) -> None:
        """Count the line, and name it if it is among the first."""
        self.count += 1
        if self.count <= MAX_FAILURES_SHOWN:
            report([Failure.of(f"line {number}", error)])
        elif self.count == MAX_FAILURES_SHOWN + 1:
            click.echo("error: … and more", err=True)
