"""Go through fetched batches from a position on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.records.batch import decode_rows
from protocol.records.entry import EntryHeader, read_entry
from protocol.records.record_run import Row


def batches_behind(
    positions: dict[int, int], partition_id: int, batches: bytes | memoryview
) -> Iterator[tuple[EntryHeader, Sequence[Row], int]]:
    """Give each batch behind a partition's position: its header, its rows, and the position.

    The position moves behind a batch when the next one is asked for. The last batch may be
    incomplete. Raises CorruptRecord, CompressionUnavailable; the position is before that batch
    then.
    """
    pos = 0
    while (header := read_entry(batches, pos, len(batches))) is not None:
        # A broker sends the whole batch that holds the position.
        start = positions.get(partition_id, 0)
        if header.next_offset > start:
            yield header, decode_rows(batches, pos, header), start
            positions[partition_id] = header.next_offset
        pos += header.size
