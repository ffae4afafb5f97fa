"""Spark's rows as the fields of records: each column of an Arrow batch at once."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from protocol.frozen import frozen
from spark_connector.sink import columns

Headers = tuple[tuple[str, bytes | None], ...]


class BadRow(ValueError):
    """A row cannot be written; the text says why."""


@frozen
class Rows:
    """The rows of an Arrow batch, by columns. A column that is missing repeats what it means."""

    count: int
    topics: Iterable[str]
    partition_ids: Iterable[int | None]
    timestamps_ms: Iterable[int]
    keys: Iterable[bytes | None]
    values: Iterable[bytes | None]
    headers: Iterable[Headers]
    is_plain: bool
    """True if no row has a key, headers or a partition, and all are for one topic."""


def read_rows(batch: pa.RecordBatch, topic: str | None, now_ms: int) -> Rows:
    """Read a batch of Spark's. Rows without a timestamp get `now_ms`. Raises BadRow."""
    by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
    names = set(by_name)
    keys = _payloads(by_name.get(columns.KEY))

    return Rows(
        batch.num_rows,
        repeat(topic) if topic is not None else _topics(by_name[columns.TOPIC]),
        _partition_ids(by_name.get(columns.PARTITION)),
        _timestamps(by_name.get(columns.TIMESTAMP), now_ms),
        repeat(None) if keys is None else keys,
        _payloads(by_name[columns.VALUE]) or [],
        _all_headers(by_name.get(columns.HEADERS)),
        topic is not None
        and not names & {columns.KEY, columns.HEADERS, columns.PARTITION, columns.TIMESTAMP},
    )


def _payloads(column: pa.Array | None) -> list[bytes | None] | None:
    if column is None:
        return None

    # A string is its bytes in UTF-8, as in Spark's cast; so is one that is no valid UTF-8.
    payloads: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return payloads


def _topics(column: pa.Array) -> list[str]:
    topics: list[str] = column.to_pylist()
    if column.null_count or "" in topics:
        raise BadRow(
            "null topic present in the data. Use the topic option for setting a default topic."
        )
    return topics


def _partition_ids(column: pa.Array | None) -> Iterable[int | None]:
    if column is None:
        return repeat(None)

    least = pc.min(column).as_py()
    if least is not None and least < 0:
        raise BadRow(f"partition {least} in the data is negative: give null to have one chosen")
    ids: list[int | None] = column.to_pylist()
    return ids


def _timestamps(column: pa.Array | None, now_ms: int) -> Iterable[int]:
    if column is None:
        return repeat(now_ms)

    # A double has seconds, as in Spark's cast; a timestamp has microseconds.
    if pa.types.is_floating(column.type):
        micros = pc.floor(pc.multiply(column, 1e6)).cast(pa.int64())
    else:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if (pc.min(micros).as_py() or 0) < 0:
        raise BadRow("a timestamp in the data is before 1970, which Kafka has no number for")
    times: list[int] = pc.fill_null(pc.divide(micros, 1000), now_ms).to_pylist()
    return times


def _all_headers(column: pa.Array | None) -> Iterable[Headers]:
    if column is None or column.null_count == len(column):
        return repeat(())
    return list(_each_headers(column))


def _each_headers(column: pa.Array) -> Iterator[Headers]:
    # All headers of all rows as two lists; the offsets say which are whose.
    flat = column.flatten()
    keys: Sequence[bytes | None] = flat.field(0).cast(pa.binary()).to_pylist()
    values: Sequence[bytes | None] = flat.field(1).to_pylist()
    if flat.null_count or flat.field(0).null_count:
        raise BadRow("a header in the data is null or has a null key; only its value may be null")

    # Kafka's header keys are strings: what is no UTF-8 is replaced, as in Spark's Kafka sink.
    names = [(key or b"").decode("utf-8", "replace") for key in keys]
    at = 0
    for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
        yield tuple(zip(names[at : at + length], values[at : at + length], strict=True))
        at += length
