"""Decode what a broker sent of a partition into Arrow batches: by columns, else by rows."""

from collections.abc import Collection
from functools import cache
from typing import Protocol

from clients.fetching import read_rows
from protocol.messages.fetch import FetchResponsePartition
from protocol.topic_partition import TopicPartition
from spark_connector.damage import find_damage
from spark_connector.rows import FetchedBatches, record_batches


def decode_response(
    partition: TopicPartition,
    response: FetchResponsePartition,
    start: int,
    end: int,
    names: Collection[str],
) -> FetchedBatches:
    """Decode the columns `names` of the records from `start` to `end` (exclusive).

    Records before a damaged batch are returned first: it is the next response's first batch, and
    that is the `damage`. Raises BrokerError: the broker's, and if a codec is not installed.
    """
    # By columns, where numpy is there and nothing is unusual.
    read_columns = _columns_reader()
    if read_columns is not None and response.records and not response.error_code:
        by_columns = read_columns(partition, response, start, end, names)
        if by_columns is not None:
            return by_columns

    # By rows, which also say what is wrong.
    size = len(response.records or b"")
    fetched = read_rows(partition, start, response)
    if fetched.next_offset == start and (damage := find_damage(response, start)) is not None:
        return FetchedBatches([], start, size, damage)
    if fetched.next_offset == start:
        fetched.raise_for_error()
    records = fetched.records

    # The last batch may go beyond the range.
    if records and records[-1].offset >= end:
        records = [record for record in records if record.offset < end]
    batches = record_batches(partition, records, fetched.timestamp_type, names)
    return FetchedBatches(list(batches), fetched.next_offset, size)


class _ReadColumns(Protocol):
    def __call__(
        self,
        partition: TopicPartition,
        response: FetchResponsePartition,
        start: int,
        end: int,
        names: Collection[str],
    ) -> FetchedBatches | None: ...


@cache
def _columns_reader() -> _ReadColumns | None:
    """Import numpy on first use, if it is there."""
    try:
        from spark_connector.columns import read_columns
    except ImportError:
        return None
    return read_columns
