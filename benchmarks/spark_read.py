"""Compare our Spark source with Spark's own, spark-sql-kafka-0-10, in one session on one broker.

Both read the same topics into the `noop` sink, on local[2]; the peer's column is the JVM source, or
the naive Python source where the row says so. Processor seconds are those of the JVM and of all
Python processes together, without the broker's.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs
import click

from benchmarks.brokers import Broker
from benchmarks.load import LoadError, ask, connect
from benchmarks.peer import PeerMissing, fetch_jars
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.spark_session import Session
from benchmarks.table import Beside, Row, Wanted, at_least, at_most
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.builder import BatchBuilder
from protocol.records.compression import Codec

SOURCE_VERSION = "4.2.0"
"""The newest that Maven has; it runs in a session of PySpark 4.3 too."""
OURS = "kgroup"
JVM = "kafka"
NAIVE = "naive"

PARTITIONS = 2
BATCH_BYTES = 16 * 1024
SMALL_PARTITIONS = 200
SMALL_RECORDS = 100
NAIVE_RECORDS = 500_000
STREAM_RECORDS = 2_000_000
OFFSETS_PER_TRIGGER = 100_000

_PRODUCE_VERSION = 7
"""The first with zstd."""
_SEED = 7
_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


@attrs.frozen
class Load:
    """A topic to read whole. `value_bytes`: least and most bytes of a value."""

    question: str
    records: int
    value_bytes: tuple[int, int]
    codec: Codec
    wanted: Wanted
    wanted_cpu: Wanted | None = None


_LOADS = (
    Load("100 B", 2_000_000, (100, 100), Codec.NONE, at_least(2.5), at_most(0.7)),
    Load("1 KB", 400_000, (1000, 1000), Codec.NONE, at_least(1.4)),
    Load("20 to 180 B", 2_000_000, (20, 180), Codec.NONE, at_least(1.2)),
    Load("100 B, lz4", 2_000_000, (100, 100), Codec.LZ4, at_least(1.2)),
    Load("100 B, zstd", 2_000_000, (100, 100), Codec.ZSTD, at_least(1.2)),
    Load("200 to 1800 B, lz4", 400_000, (200, 1800), Codec.LZ4, at_least(1.2)),
    Load("200 to 1800 B, zstd", 400_000, (200, 1800), Codec.ZSTD, at_least(1.2)),
)


def measure(broker: Broker, directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield the rows of batch queries, and of streams."""
    jars: Sequence[Path] = ()
    sources = [OURS]
    try:
        fetched = fetch_jars(
            f"spark-kafka-{SOURCE_VERSION}",
            (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SOURCE_VERSION}",),
        )
    except PeerMissing as missing:
        click.echo(str(missing), err=True)
    else:
        # PySpark has the others.
        jars = [jar for jar in sorted(fetched.iterdir()) if jar.name.startswith(_JARS)]
        sources.append(JVM)

    with Session(jars, directory / "spark.log") as session:
        for load in _LOADS:
            yield from _measure_load(session, broker, sources, load, rounds)
        yield from _measure_small(session, broker, sources, rounds)
        yield from _measure_naive(session, broker, rounds)
        yield from _measure_streams(session, broker, sources, rounds)


def _measure_load(
    session: Session, broker: Broker, sources: Sequence[str], load: Load, rounds: Rounds
) -> Iterator[Row]:
    with filled_topic(broker, load.records, load.value_bytes, load.codec) as topic:
        contestants: list[Contestant] = []
        for source in sources:
            options = _options(broker, topic)
            # Each side must see all records, or its rate says nothing.
            count = session.run("count", source, options)
            if count != load.records:
                raise LoadError(f"{source} sees {count:.0f} of {load.records} records")
            contestants.append(partial(_read, session, source, options, load.records))
        rates, cpu = alternate(contestants, rounds)

    yield Row(f"Spark reads {load.question}", "rows/s", load.wanted, rates)
    question = f"CPU of Spark for {load.question}"
    yield Row(question, "s/million rows", load.wanted_cpu, cpu)


def _measure_small(
    session: Session, broker: Broker, sources: Sequence[str], rounds: Rounds
) -> Iterator[Row]:
    records = SMALL_PARTITIONS * SMALL_RECORDS
    with filled_topic(broker, records, partitions=SMALL_PARTITIONS) as topic:
        options = _options(broker, topic)
        contestants = [partial(_time, session, source, options) for source in sources]
        (seconds,) = alternate(contestants, rounds)
    question = f"Spark reads {SMALL_PARTITIONS} partitions of {SMALL_RECORDS} records"
    yield Row(question, "s", at_most(0.3), seconds)


def _measure_naive(session: Session, broker: Broker, rounds: Rounds) -> Iterator[Row]:
    with filled_topic(broker, NAIVE_RECORDS) as topic:
        options = _options(broker, topic)
        contestants = [
            partial(_read, session, source, options, NAIVE_RECORDS) for source in (OURS, NAIVE)
        ]
        rates, _ = alternate(contestants, rounds)
    question = "Spark reads 100 B · naive Python source"
    yield Row(question, "rows/s", at_least(8), rates, beside=Beside.OURSELVES)


def _measure_streams(
    session: Session, broker: Broker, sources: Sequence[str], rounds: Rounds
) -> Iterator[Row]:
    limit = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(OFFSETS_PER_TRIGGER)}
    with filled_topic(broker, STREAM_RECORDS) as topic:
        options = {**_options(broker, topic), **limit}
        streams: list[Contestant] = []
        starts: list[Contestant] = []
        idle: list[Contestant] = []
        for source in sources:
            streams.append(partial(_stream, session, source, options))
            starts.append(partial(_start, session, source, _options(broker, topic)))
            idle.append(partial(_idle, session, source, _options(broker, topic)))
        (rates,) = alternate(streams, rounds)
        (waits,) = alternate(starts, rounds)
        (times,) = alternate(idle, rounds)
    yield Row("Spark streams 100 B, 100,000 a trigger", "rows/s", at_least(1.5), rates)
    yield Row("a stream of Spark starts", "s", None, waits)
    yield Row("an idle trigger of Spark", "ms", at_most(1.2), times)


def _options(broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}


def _read(
    session: Session, source: str, options: dict[str, str], records: int, _: float
) -> tuple[float, float]:
    cpu_s = session.cpu_s
    seconds = session.run("read", source, options)
    return records / seconds, (session.cpu_s - cpu_s) * 1e6 / records


def _time(session: Session, source: str, options: dict[str, str], _: float) -> tuple[float]:
    return (session.run("read", source, options),)


def _stream(session: Session, source: str, options: dict[str, str], _: float) -> tuple[float]:
    return (STREAM_RECORDS / session.run("stream", source, options),)


def _start(session: Session, source: str, options: dict[str, str], _: float) -> tuple[float]:
    return (session.run("start", source, options),)


def _idle(session: Session, source: str, options: dict[str, str], _: float) -> tuple[float]:
    return (session.run("idle", source, options),)


@contextmanager
def filled_topic(
    broker: Broker,
    records: int,
    value_bytes: tuple[int, int] = (100, 100),
    codec: Codec = Codec.NONE,
    *,
    partitions: int = PARTITIONS,
) -> Iterator[str]:
    """Create a topic with so many records, in batches of 16 KB; delete it at the end."""
    with ExitStack() as stack:
        topic = stack.enter_context(broker.create_topic(partitions))
        connection = stack.enter_context(connect(broker.address))
        values = _values(value_bytes)
        for partition in range(partitions):
            for batch in _batches(values, records // partitions, codec):
                ask(connection, _encode_produce(topic, partition, batch))
        yield topic


def _values(value_bytes: tuple[int, int]) -> Sequence[bytes]:
    """Return values of words, which compress to about a half."""
    rng = random.Random(_SEED)
    words = [rng.randbytes(rng.randint(2, 8)).hex().encode() for _ in range(300)]
    text = b" ".join(rng.choices(words, k=100_000))
    values = []
    for _ in range(10_000):
        size = rng.randint(*value_bytes)
        at = rng.randrange(len(text) - size)
        values.append(text[at : at + size])
    return values


def _batches(values: Sequence[bytes], records: int, codec: Codec) -> Iterator[bytes]:
    # Of today, or retention would delete them.
    now_ms = time.time_ns() // 1_000_000
    builder = BatchBuilder(codec, BATCH_BYTES)
    for nth in range(records):
        value = values[nth % len(values)]
        # The batch is full: the record begins the next one.
        if not builder.try_append(now_ms + nth, None, value):
            yield builder.build()
            builder = BatchBuilder(codec, BATCH_BYTES)
            builder.try_append(now_ms + nth, None, value)
    yield builder.build()


def _encode_produce(topic: str, partition: int, batch: bytes) -> bytes:
    of_partition = ProduceRequestPartition(index=partition, records=batch)
    of_topic = ProduceRequestTopic(name=topic, partition_data=[of_partition])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[of_topic])
    return encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, 0, "benchmarks", request)
