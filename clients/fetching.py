"""Fetch records for all consumers, and decode every partition's batches.

A broker sends whole ranges of its log. The first batch is the one that holds the offset asked for,
from its first record on. Batches may be empty after compaction, or end before their last offset.
There are markers of transactions, and perhaps a part of a batch at the end. In place of batches
there may be messages of older formats. A broker from before KIP-74 sends a part of the first
message if that does not fit (INVALID_FETCH_SIZE). A consumer gets the records at or behind the
offset asked for, and the next offset, which is behind the last batch and not the last record.

With `read_committed` the broker names the transactions that it knows to be aborted. Their batches,
up to the marker that ends them, are left out (KIP-98).
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import attrs

from clients.epoch_trail import Divergence
from clients.errors import BrokerError, left_out
from clients.fetch_requests import Isolation, request_records, visible_end
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.encoding import Buffer
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch import Record, as_records, decode_batch, decode_rows
from protocol.records.checksums import check_entry
from protocol.records.compression import CompressionUnavailable
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import EntryHeader, read_entry
from protocol.records.record_run import Row
from protocol.topic_partition import TopicPartition

_ABORT_MARKER = b"\x00\x00\x00\x00"
"""Key of the record in a control batch that aborts a transaction: version 0, type 0."""


@frozen
class FetchedPartition:
    """The result of a fetch for one partition.

    INVALID_FETCH_SIZE: the next message is larger than was asked for. CORRUPT_MESSAGE: `records`
    are those before the corrupt batch, and `next_offset` is its start. The same holds for
    UNSUPPORTED_COMPRESSION_TYPE, if a batch needs a codec that is not installed. Iterating raises
    the error, if there is one, after the records.
    """

    error: ErrorCode
    high_watermark: int = -1
    """-1 with an error, and while a new leader does not know it."""
    log_start_offset: int = -1
    last_stable_offset: int = -1
    next_offset: int = -1
    """Start of the next fetch."""
    rows: list[Row] = attrs.field(factory=list, repr=lambda rows: f"<{len(rows)}>")
    detail: str = ""
    timestamp_type: int = 0
    """0 CreateTime, 1 LogAppendTime, -1 none. A topic has one, so the last batch gives it."""
    size_bytes: int = 0
    """Size of what the broker sent of the partition."""
    leader_epochs: Sequence[tuple[int, int]] = ()
    """The leader epochs of what came, each with the offset at which it begins."""
    divergence: Divergence | None = None
    """Where the log has other records than those of the epoch that was named."""

    def end_offset(self, isolation: Isolation) -> int:
        """Return the end of what a consumer can see; -1 where it is not known."""
        return visible_end(self.high_watermark, self.last_stable_offset, isolation)

    @property
    def records(self) -> list[Record]:
        """The rows as records, which are made at each access."""
        return as_records(self.rows)

    def __iter__(self) -> Iterator[Record]:
        yield from self.records
        self.raise_for_error()

    def raise_for_error(self) -> None:
        """Raise BrokerError if the partition could not be read."""
        if self.error is not ErrorCode.NONE:
            raise BrokerError(self.error, self.detail, ApiKey.FETCH)


async def fetch_once(
    connection: Connection,
    requests: Mapping[TopicPartition, tuple[int, int]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
    leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    last_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, FetchedPartition]:
    """Fetch from partitions of one broker, each with (offset, max bytes), in this order.

    The broker fills the partitions in order until `max_bytes`, so a caller that wants fairness
    rotates them. An error of a partition is in its result. An error of the whole request raises
    BrokerError, a lost connection ConnectionFailed. `leader_epochs` and
    `last_epochs` are as in `request_records`.
    """
    responses = await request_records(
        connection,
        requests,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation=isolation,
        leader_epochs=leader_epochs,
        last_epochs=last_epochs,
    )

    fetched = {
        partition: read_rows(partition, requests[partition][0], response)
        for partition, response in responses.items()
    }

    # A partition that the response lacks has an error, not nothing to read.
    for partition in requests:
        if partition not in fetched:
            missing = left_out(partition)
            fetched[partition] = FetchedPartition(missing.code, detail=missing.detail)
    return fetched


def read_rows(
    partition: TopicPartition, offset: int, response: FetchResponsePartition
) -> FetchedPartition:
    """Decode the records that a broker sent of a partition, asked for from `offset` on."""
    error = ErrorCode.of(response.error_code)
    detail = ""
    if error is not ErrorCode.NONE:
        detail = f"{partition} at offset {offset}"
    rows: list[Row] = []
    next_offset = offset
    timestamp_type = 0
    leader_epochs: Sequence[tuple[int, int]] = ()

    if error is ErrorCode.NONE and response.records:
        batches = VisibleBatches.of(response, offset)

        # Records before a damaged batch are good.
        try:
            for pos, header in batches:
                rows += _rows_from(offset, response.records, pos, header)
        except CorruptRecord as corrupt:
            error = ErrorCode.CORRUPT_MESSAGE
            detail = f"{partition} at offset {batches.next_offset}: {corrupt}"
        except CompressionUnavailable as unavailable:
            error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            detail = f"{partition} at offset {batches.next_offset}: {unavailable}"

        # Not even the first batch is complete.
        if batches.is_partial:
            error = ErrorCode.INVALID_FETCH_SIZE
            detail = f"{partition} at offset {offset}: the message is larger than was asked for"
        next_offset = batches.next_offset
        timestamp_type = batches.timestamp_type
        leader_epochs = batches.leader_epochs

    return FetchedPartition(
        error,
        response.high_watermark,
        response.log_start_offset,
        response.last_stable_offset,
        next_offset,
        rows,
        detail,
        timestamp_type,
        len(response.records or b""),
        leader_epochs,
        _divergence(response),
    )


def _divergence(response: FetchResponsePartition) -> Divergence | None:
    parts = response.diverging_epoch
    return None if parts.epoch < 0 else Divergence(parts.epoch, parts.end_offset)


def _rows_from(offset: int, buf: Buffer, pos: int, header: EntryHeader) -> list[Row]:
    rows = decode_rows(buf, pos, header)

    # The first batch may begin before the offset: drop its first records.
    if rows and rows[0][0] < offset:
        return [row for row in rows if row[0] >= offset]
    return rows


@attrs.define(eq=False)
class VisibleBatches:
    """Walks over fetched bytes batch by batch; `next_offset` follows the walk."""

    buf: Buffer
    next_offset: int
    """At a batch, and after its failure, the offset where the batch before it ended."""
    aborted: list[tuple[int, int]]
    """(first offset, producer id) of aborted transactions, the first one last."""
    timestamp_type: int = 0
    is_partial: bool = attrs.field(init=False, default=False)
    """True if the bytes ended within the first batch."""
    position: int = attrs.field(init=False, default=0)
    """Where the batch begins that the walk is at, or that could not be read."""
    leader_epochs: list[tuple[int, int]] = attrs.field(init=False, factory=list)
    """The epochs that the walk has come to, each with the offset of its first batch."""
    _epoch: int | None = attrs.field(init=False, default=None)
    _aborting: set[int] = attrs.field(init=False, factory=set)
    """Producers whose current transaction, at this point of the log, was aborted."""

    @classmethod
    def of(cls, response: FetchResponsePartition, offset: int) -> "VisibleBatches":
        """Walk over what a broker sent of a partition, asked for from `offset` on."""
        # The batches take transactions from the end of the list as they come to them.
        aborted = [
            (transaction.first_offset, transaction.producer_id)
            for transaction in response.aborted_transactions or ()
        ]
        # A broker may send null for no records.
        return cls(response.records or b"", offset, sorted(aborted, reverse=True))

    def __iter__(self) -> Iterator[tuple[int, EntryHeader]]:
        """Yield position and header of each batch, unchecked. Raises CorruptRecord."""
        end = len(self.buf)
        offset = self.next_offset
        while (header := read_entry(self.buf, self.position, end)) is not None:
            # Brokers begin with the batch of the offset, unless its damaged header says otherwise.
            if header.next_offset <= offset:
                check_entry(self.buf, self.position, header)
            elif self._is_visible(header, self.position):
                yield self.position, header
                self.timestamp_type = header.timestamp_type

            # Also of what is not visible: the offset behind it is behind its epoch.
            if header.partition_leader_epoch != self._epoch:
                self._epoch = header.partition_leader_epoch
                self.leader_epochs.append((header.base_offset, self._epoch))

            # Invisible and empty batches move the offset too, or it would stay before them.
            self.next_offset = max(self.next_offset, header.next_offset)
            self.position += header.size
        self.is_partial = self.position == 0

    def _is_visible(self, header: EntryHeader, pos: int) -> bool:
        # Transactions that begin up to this batch are in force, each until its marker.
        while self.aborted and self.aborted[-1][0] <= header.last_offset:
            self._aborting.add(self.aborted.pop()[1])

        if header.is_control:
            # Decode all of them, since only the checksum proves that it is a control batch.
            markers = decode_batch(self.buf, pos, header)
            if any(marker.key == _ABORT_MARKER for marker in markers):
                self._aborting.discard(header.producer_id)
            return False

        # Records outside of transactions are visible, also those of the same producer.
        return not (header.is_transactional and header.producer_id in self._aborting)
