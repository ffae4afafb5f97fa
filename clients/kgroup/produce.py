"""`kgroup produce`: send the lines of standard input to a topic."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from clients.admin import Admin
from clients.command_line.finite_range import FiniteRange
from clients.command_line.interrupts import end_on_signals
from clients.command_line.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Failure,
    KeyValue,
    Target,
    read_properties,
    report,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import bootstrap_of, client_settings, responding_brokers
from clients.errors import FailedToSendMessage, KgroupError, QueueFull
from clients.kgroup.line_reader import LINE_READER_NAMES, FieldReader, LineError, LineReader
from clients.kgroup.marked_topic import refuse_marked_topic
from clients.kgroup.stdin_lines import lines_of, standard_input
from clients.producer.config import refuse_transactions
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import names_producer_type
from clients.producer.producer import Producer

MAX_FAILURES_SHOWN = 10
INTERRUPTED_CLOSE_MS = 1000
"""Time that an interrupted run has to send its buffered messages."""

_WHERE = ("zookeeper.connect", "bootstrap.servers", "metadata.broker.list")
"""Settings that name the brokers; they are used before the producer is made."""

OPTIONS = {
    "--request-timeout-ms": ("request.timeout.ms", "Longest wait for one response."),
    "--retry-backoff-ms": ("retry.backoff.ms", "Pause before a request is sent again."),
    "--metadata-expiry-ms": ("metadata.max.age.ms", "Age at which metadata is read again."),
    "--max-block-ms": ("max.block.ms", "Longest wait for metadata and for buffer room."),
    "--metadata-fetch-timeout-ms": ("max.block.ms", "The same as --max-block-ms."),
    "--message-send-max-retries": ("retries", "Attempts after the first."),
    "--max-memory-bytes": ("buffer.memory", "Most bytes sent or buffered, not acknowledged."),
    "--max-partition-memory-bytes": ("batch.size", "Bytes in a batch."),
    "--socket-buffer-size": ("send.buffer.bytes", "SO_SNDBUF of connections, in bytes."),
    "--key-serializer": ("key.serializer", "Class for keys: Kafka's, or module:Class."),
    "--value-serializer": ("value.serializer", "Class for values: Kafka's, or module:Class."),
    "--batch-size": ("batch.num.messages", "Messages in a batch; needs producer.type."),
    "--queue-size": ("queue.size", "Messages that may be queued; needs producer.type."),
    "--queue-enqueuetimeout-ms": (
        "queue.enqueue.timeout.ms",
        "Longest wait for room in the queue; needs producer.type.",
    ),
}
"""Options of Kafka's console producer that set a setting of another name."""

LINE_READERS = ("LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")

SETTING_OF = {
    "compression": "compression.type",
    "acks": "acks",
    **{option[2:].replace("-", "_"): setting for option, (setting, _) in OPTIONS.items()},
}
"""Setting of the producer for each parameter of the command."""


def console_producer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the other options of Kafka's console producer."""
    options = [
        click.option(
            "--broker-list", metavar="H:P[,…]", help="--bootstrap-server, as Kafka spells it."
        ),
        click.option(
            "--compression",
            "--compression-codec",
            "compression",
            is_flag=False,
            flag_value="gzip",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            help="Codec of batches; gzip if the option has no value.",
        ),
        click.option(
            "--acks",
            "--request-required-acks",
            "acks",
            type=click.Choice(["0", "1", "all", "-1"]),
            help="Replicas that must have a message before it is acknowledged: none (0), the "
            "leader (1), or all in-sync replicas (all, -1).",
        ),
        click.option(
            "--line-reader",
            type=click.Choice(LINE_READERS),
            help="Kafka's LineMessageReader; no other reader exists.",
        ),
        click.option(
            "--old-producer/--new-producer",
            "old_producer",
            help="--old-producer sets producer.type: sync with --sync, otherwise async.",
        ),
        *(
            click.option(option, metavar="VALUE", help=f"{text} [{setting}]")
            for option, (setting, text) in OPTIONS.items()
        ),
    ]

    # Decorators apply from the inside out, so the help lists them in order.
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
@click.option("--topic", required=True, help="Topic to send to; brokers may create a missing one.")
@click.option("--key-separator", help="Split each line at the first occurrence into key and value.")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Messages per second.")
@click.option("--sync", is_flag=True, help="Wait for each message before sending the next.")
@click.option(
    "--property",
    "properties",
    type=KeyValue(),
    multiple=True,
    help="parse.key, key.separator, ignore.error set how lines are read; other names are settings "
    "of the producer.",
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
    **option_values: str | None,
) -> None:
    """Send each line of standard input as a message.

    The command ends with its input, when all messages are acknowledged. Messages that could not
    be sent are reported on stderr, and the exit code is 1. If producer.type is among the
    properties, the producer of Kafka 0.8 sends, with its own settings. After Ctrl-C or SIGTERM it
    says how many messages were acknowledged.
    """
    # Kafka's spelling outranks the address of the shared option.
    if broker_list is not None:
        target = attrs.evolve(target, bootstrap=broker_list)

    # Some properties say how to read lines; the others are settings of the producer.
    producer_properties = dict(properties)
    reading = {
        name: producer_properties.pop(name)
        for name in LINE_READER_NAMES & producer_properties.keys()
    }

    # `--key-separator` is short for both of Kafka's properties.
    if key_separator is not None:
        reading |= {"parse.key": "true", "key.separator": key_separator}

    # Later places override earlier ones.
    settings = {
        **({"producer.type": "sync" if sync else "async"} if old_producer else {}),
        **target.settings,
        **read_properties(producer_config),
        **producer_properties,
        **dict(producer_property),
        **{SETTING_OF[name]: value for name, value in option_values.items() if value is not None},
    }

    failed = asyncio.run(produce(target, topic, LineReader.of(reading), settings, rate, sync))
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


# --- sending


async def produce(
    target: Target,
    topic: str,
    reader: LineReader,
    settings: Mapping[str, str],
    rate: float | None,
    sync: bool,
) -> int:
    """Send all of standard input. Returns the number of messages that were not acknowledged."""
    # The session in ZooKeeper, if there is one, ends before the first message.
    bootstrap = await bootstrap_of(target)
    producer_settings = {name: value for name, value in settings.items() if name not in _WHERE}
    old = names_producer_type(producer_settings)

    # A setting that cannot be is refused before anybody is asked.
    producer = Producer(producer_settings | {"bootstrap.servers": bootstrap})
    refuse_transactions(producer.config)
    await responding_brokers(attrs.evolve(target, bootstrap=bootstrap))
    async with Admin(client_settings(target, bootstrap)) as admin:
        await refuse_marked_topic(admin, topic)

    for note in producer.notes:
        say(f"note: {note}", err=True)

    fields = FieldReader.of(settings)
    failures = _Failures()
    # This command names each line that failed, so the producer need not.
    logging.getLogger("clients.producer.undelivered").setLevel(logging.ERROR)

    now = asyncio.get_running_loop().time
    number = given = handed_over = 0
    started = now()
    end_on_signals()
    try:
        async for lines in lines_of(standard_input().fileno()):
            for line in lines:
                number += 1
                # The line's fields are what the producer's serializers take.
                key, value = fields.read(*reader.read(line, number), number)

                # With producer.type, failures are raised here or counted by the producer.
                if old:
                    given += 1
                    await _send_keyed_message(producer, topic, key, value, number, failures)
                    handed_over += 1
                else:
                    with naming(number):
                        delivery = await producer.send(topic, value, key=key)
                    given += 1

                    # Without --sync the command goes on, and learns of failures later.
                    delivery.add_done_callback(partial(failures.note, number))
                    if sync:
                        await asyncio.wait([delivery])

                # The pace is that of the whole run: a delay is caught up with.
                if rate is not None:
                    await asyncio.sleep(started + number / rate - now())

        # The end of the input waits for all messages; an interruption only a little.
        await producer.close()
    except asyncio.CancelledError:
        # What the end of the producer fails is no failure of a line.
        failures.is_quiet = True
        # A second signal does not wait for that; what is known is said all the same.
        with contextlib.suppress(FailedToSendMessage, asyncio.CancelledError):
            await producer.close(INTERRUPTED_CLOSE_MS)
        acknowledged = failures.acknowledged
        if old:
            acknowledged = handed_over - max(failures.count, producer.metrics.failed_sends)
        say_interrupted(given, acknowledged, asks_for_acks=producer.config.required_acks != 0)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        await producer.close(INTERRUPTED_CLOSE_MS)
        raise

    # The producer counts what an async one has dropped, the command what it saw.
    return max(failures.count, producer.metrics.failed_sends)


def say_interrupted(number: int, acknowledged: int, *, asks_for_acks: bool) -> None:
    """Print on stderr how many of the messages that were read are known to be stored."""
    done = "acknowledged" if asks_for_acks else "sent (acks=0: no broker says that it has them)"
    rest = "" if acknowledged == number else "; the others may be stored or not"
    say(f"interrupted: {acknowledged} of {number} messages are {done}{rest}", err=True)


async def _send_keyed_message(
    producer: Producer,
    topic: str,
    key: Any,
    value: Any,
    number: int,
    failures: "_Failures",
) -> None:
    """Send with a producer that has `producer.type`.

    Such a producer raises here if it is sync, or if its queue is full and it must not wait. A
    message that async drops later is logged and counted by the producer.
    """
    try:
        with naming(number):
            await producer.send(KeyedMessage(topic, key, value))
    except (FailedToSendMessage, QueueFull) as error:
        failures.add(number, error)


@contextlib.contextmanager
def naming(number: int) -> Iterator[None]:
    """Raise errors of serializers and partitioners as a LineError of this line."""
    try:
        yield
    except KgroupError:
        # Kafka's errors name what they are about, and not the line.
        raise
    except Exception as error:
        raise LineError(f"line {number}: {error}") from error


class _Failures:
    """Counts the messages that failed and those that did not, and reports the first failures."""

    def __init__(self) -> None:
        self.count = 0
        self.acknowledged = 0
        self.is_quiet = False

    def note(self, number: int, delivery: asyncio.Future[Any]) -> None:
        """Count the delivery, or its failure. A callback for deliveries that are done."""
        error = None if delivery.cancelled() else delivery.exception()

        if isinstance(error, Exception):
            self.add(number, error)
        elif not delivery.cancelled():
            self.acknowledged += 1

    def add(self, number: int, error: Exception) -> None:
        """Count the line's failure, and report it if it is among the first."""
        self.count += 1
        if self.is_quiet:
            return
        if self.count <= MAX_FAILURES_SHOWN:
            report([Failure.of(f"line {number}", error)])
        elif self.count == MAX_FAILURES_SHOWN + 1:
            say("error: … and more messages", err=True)
