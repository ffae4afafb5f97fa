"""A batch of a partition's log that cannot be read, and where the log goes on behind it. Pure."""

import logging

from clients.fetching import VisibleBatches
from protocol.encoding import Buffer
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch import decode_rows
from protocol.records.batch_header import BatchHeader
from protocol.records.checksums import check_entry
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import EntryHeader, read_entry
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

FAIL = "fail"
SKIP = "skip"


class CorruptBatch(Exception):
    """A batch cannot be read; the text says where it is, and what to do."""


@frozen
class Damage:
    """The first batch of a response cannot be read."""

    offset: int
    """Offset that was to be read next."""
    reason: str
    next_offset: int | None = None
    """Offset at which the log goes on; None if the batch's own header does not tell."""


def find_damage(response: FetchResponsePartition, start: int) -> Damage | None:
    """Return what is wrong with the first batch of a response, asked for from `start` on.

    Return None if that batch can be read, or could if something was installed.
    """
    error = ErrorCode.of(response.error_code)
    if error is ErrorCode.CORRUPT_MESSAGE:
        return Damage(start, "its broker cannot read it either")
    if error is not ErrorCode.NONE or not response.records:
        return None

    batches = VisibleBatches.of(response, start)
    try:
        for pos, header in batches:
            decode_rows(response.records, pos, header)
            return None
    except CorruptRecord as corrupt:
        behind = _find_next_offset(response, batches.position, start)
        return Damage(batches.next_offset, str(corrupt), behind)

    # Brokers from before KIP-74 send a part of a batch that is larger than what was asked for.
    if batches.is_partial:
        text = f"it is longer than the {len(response.records)} bytes that the broker sent"
        return Damage(start, f"{text}; raise kafka.max.partition.fetch.bytes")
    return None


def skip_damage(partition: TopicPartition, damage: Damage, choice: str) -> int:
    """Return where to go on behind a damaged batch, with a warning; `choice` is `kgroup.corrupt`.

    Raises CorruptBatch unless it may be left out and one can know where the next batch begins.
    """
    if damage.next_offset is None:
        raise CorruptBatch(
            f"{partition}: the batch at offset {damage.offset} cannot be read ({damage.reason}). "
            "Let a replica lead whose log is sound. kgroup.corrupt=skip does not help here, as "
            "nothing says where the next batch begins"
        )

    text = (
        f"{partition}: the batch with offsets {damage.offset} to {damage.next_offset - 1} cannot "
        f"be read ({damage.reason})"
    )
    if choice == FAIL:
        raise CorruptBatch(
            f"{text}. Let a replica lead whose log is sound (kbroker log verify looks for damage), "
            "or leave the batch out with kgroup.corrupt=skip"
        )
    logger.warning("%s; going on behind it, as kgroup.corrupt is skip", text)
    return damage.next_offset


def _find_next_offset(response: FetchResponsePartition, pos: int, start: int) -> int | None:
    """Return where the log goes on behind the damaged entry at `pos`, if that can be known."""
    buf = response.records
    assert buf is not None
    try:
        header = read_entry(buf, pos, len(buf))
        if header is None:
            return None
        behind = read_entry(buf, pos + header.size, len(buf))
    except CorruptRecord:
        return None

    # The checksum is right, so the header is too: what it covers makes no sense to us.
    if _is_sound(buf, pos, header):
        next_offset = header.next_offset
    # What is behind it is sound, so the size is right; the offset of a message says where it ends.
    elif behind is not None and _is_sound(buf, pos + header.size, behind):
        is_batch = isinstance(behind, BatchHeader)
        next_offset = behind.base_offset if is_batch else header.next_offset
    # Two numbers of the header agree.
    elif isinstance(header, BatchHeader) and header.count == header.last_offset_delta + 1:
        next_offset = header.next_offset
    else:
        return None

    return next_offset if start < next_offset <= response.high_watermark else None


def _is_sound(buf: Buffer, pos: int, header: EntryHeader) -> bool:
    try:
        check_entry(buf, pos, header)
    except CorruptRecord:
        return False
    return True
