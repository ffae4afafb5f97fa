"""Checks of a log that was opened after a crash, by itself and against its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import attrs

from core_log.log import Log
from core_log.producers.producer_state import ProducerState
from core_log.segments.batch_scan import ShallowBatch, scan_checked
from core_log.segments.segment import Segment
from protocol.records.batch import decode_batch, decode_records, read_header
from protocol.records.control_record import ABORT, marker_type
from protocol.topic_partition import TopicPartition
from tests.crash.history import Batch, Floor, Line, Requirement

Producers = Mapping[int, tuple[int, int, int]]
"""Epoch, last sequence and last offset, by producer id."""


@attrs.frozen
class Found:
    """One partition's log as it was found; epochs in which nothing was written are left out."""

    log_start_offset: int
    log_end_offset: int
    batches: tuple[Batch, ...]
    epochs: tuple[tuple[int, int], ...]
    producers: Producers


@attrs.frozen
class FoundDisk:
    """All that was found on a disk. `faults` are wrong whatever happened before."""

    logs: Mapping[TopicPartition, Found]
    high_watermarks: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    meta_properties: bytes | None
    faults: tuple[str, ...]


@attrs.frozen
class Bounds:
    """What may be lost of what was told to be kept, when power fails at `now_ms`."""

    flush_messages: int
    flush_within_ms: int
    now_ms: int


def look_at(log: Log) -> tuple[Found, list[str]]:
    """Read a log, and list its contradictions."""
    scanned = [(segment, list(scan_checked(segment.log))) for segment in log.segments]
    batches = [_batch(segment, batch) for segment, found in scanned for batch in found]
    found = Found(
        log.log_start_offset,
        log.log_end_offset,
        tuple(batches),
        tuple(e for e in log.leader_epochs.entries if e[1] < log.log_end_offset),
        summary(log.producers),
    )
    return found, [f"{log.topic_partition}: {fault}" for fault in _faults(log, found, scanned)]


def batches_of(segment: Segment) -> Iterator[Batch]:
    """The batches of a segment, each held to its checksum."""
    for batch in scan_checked(segment.log):
        yield _batch(segment, batch)


def _batch(segment: Segment, batch: ShallowBatch) -> Batch:
    data = segment.log.read(batch.position, batch.size)
    return Batch(
        batch.base_offset, batch.last_offset, data, batch.max_timestamp, batch.leader_epoch
    )


def summary(state: ProducerState) -> Producers:
    """Return the fields of producers that are compared."""
    return {
        number: (producer.epoch, last.last_sequence, last.last_offset)
        for number, producer in state.producers.items()
        if producer.batches and (last := producer.batches[-1])
    }


def producers_of(batches: Sequence[Batch]) -> Producers:
    """The producers of these batches, read one by one."""
    state = ProducerState()
    for batch in batches:
        if batch.leader_epoch >= 0 and (header := read_header(batch.data)).producer_id >= 0:
            state.update(header, header.last_offset, header.max_timestamp)
    return summary(state)


def _faults(
    log: Log, found: Found, scanned: Sequence[tuple[Segment, Sequence[ShallowBatch]]]
) -> Iterator[str]:
    if log.failure is not None or log.damage is not None:
        yield f"is damaged: {log.failure or log.damage}"
    ends = [*(segment.base_offset for segment, _ in scanned[1:]), found.log_end_offset]
    for (segment, batches), end_offset in zip(scanned, ends, strict=True):
        if sum(batch.size for batch in batches) != segment.size:
            yield f"segment {segment.base_offset} does not end with a whole batch"
        if batches and batches[-1].last_offset >= end_offset:
            yield f"segment {segment.base_offset} goes beyond {end_offset}"
        yield from _index_faults(segment, {batch.position: batch for batch in batches})
    yield from _name_faults(log)
    yield from _reading_faults(log, found)
    yield from _epoch_faults(log, found)
    yield from _transaction_faults(log, found)
    if found.log_end_offset < log.recovery_point:
        yield f"is flushed to {log.recovery_point}, beyond its end {found.log_end_offset}"


def _index_faults(segment: Segment, batches: Mapping[int, ShallowBatch]) -> Iterator[str]:
    """Entries lead to batches, by their positions, go up, and are true."""
    name = f"segment {segment.base_offset}"
    before = (-1, -1)
    for slot in range(segment.offset_index.file.count):
        relative, position = segment.offset_index.file.entry(slot)
        offset = segment.base_offset + relative
        if position not in batches or not batches[position].base_offset <= offset:
            yield f"{name}: index entry {offset} at {position}, where it is not"
        elif any(b.last_offset >= offset for b in batches.values() if b.position < position):
            yield f"{name}: index entry {offset} at {position}, behind it"
        if (offset, position) <= before or offset <= before[0]:
            yield f"{name}: index entry {offset} at {position} after {before}"
        before = (offset, position)
    latest = (-1, -1)
    for slot in range(segment.time_index.file.count):
        timestamp, relative = segment.time_index.file.entry(slot)
        offset = segment.base_offset + relative
        if (timestamp, offset) <= latest or timestamp <= latest[0]:
            yield f"{name}: time index entry {timestamp}, {offset} after {latest}"
        latest = (timestamp, offset)
        earlier = [b.max_timestamp for b in batches.values() if b.last_offset <= offset]
        if max(earlier, default=-1) != timestamp:
            yield f"{name}: time index entry {timestamp}, {offset} of {earlier}"
    truth = max((batch.max_timestamp for batch in batches.values()), default=-1)
    if segment.latest.timestamp != truth:
        yield f"{name}: latest timestamp {segment.latest.timestamp}, it is {truth}"


def _name_faults(log: Log) -> Iterator[str]:
    """No index without its log, nothing half replaced, no snapshot beyond the end."""
    names = log.directory.files()
    bases = {f"{segment.base_offset:020d}" for segment in log.segments}
    for name in names:
        stem, _, suffix = name.partition(".")
        if suffix in ("log", "index", "timeindex") and stem not in bases:
            yield f"{name} is no segment's"
        if suffix.endswith(("cleaned", "swap", "deleted")):
            yield f"{name} was left"
        if suffix == "snapshot" and int(stem) > log.log_end_offset:
            yield f"{name} is beyond the end {log.log_end_offset}"


def _reading_faults(log: Log, found: Found) -> Iterator[str]:
    """Check that each batch is found by its offsets and by its time."""
    times: list[tuple[int, int]] = []
    for batch in found.batches:
        if batch.last_offset < found.log_start_offset:
            continue
        for offset in {max(batch.base_offset, found.log_start_offset), batch.last_offset}:
            fetched = log.read(offset, len(batch.data), log.log_end_offset)
            if fetched is None or fetched.read() != batch.data:
                yield f"offset {offset} is not read"
        if batch.timestamp >= 0:
            times += [time for time in times_of(batch.data) if time[1] >= found.log_start_offset]
    for timestamp in {timestamp for timestamp, _ in times}:
        expected = next(pair for pair in times if pair[0] >= timestamp)
        if log.offset_for_timestamp(timestamp) != expected:
            answer = log.offset_for_timestamp(timestamp)
            yield f"timestamp {timestamp} is found at {answer}, not at {expected}"


@cache
def times_of(data: bytes) -> list[tuple[int, int]]:
    """Timestamp and offset of each record of a batch."""
    return [(record.timestamp_ms, record.offset) for record in decode_records(data)]


def _epoch_faults(log: Log, found: Found) -> Iterator[str]:
    entries = log.leader_epochs.entries
    if list(entries) != sorted(entries) or len({epoch for epoch, _ in entries}) < len(entries):
        yield f"leader epochs {entries} go back"
    if entries and entries[-1][1] > found.log_end_offset:
        yield f"leader epochs {entries} go beyond the end {found.log_end_offset}"
    for batch in found.batches:
        if batch.last_offset < found.log_start_offset or batch.leader_epoch < 0:
            continue
        offset = max(batch.base_offset, found.log_start_offset)
        actual = log.leader_epochs.epoch_of(offset)
        if actual not in (batch.leader_epoch, -1):
            yield f"offset {offset} has epoch {batch.leader_epoch}, the list is {entries}"


def _transaction_faults(log: Log, found: Found) -> Iterator[str]:
    """Check that the index has what the markers in the log abort, and nothing else."""
    actual = [
        (transaction.producer_id, transaction.first_offset, transaction.last_offset)
        for transaction in log.aborted_transactions(found.log_start_offset, found.log_end_offset)
    ]
    if actual != (true := _aborted(found.batches)):
        yield f"aborted transactions are {actual}, and by the log {true}"


def _aborted(batches: Sequence[Batch]) -> list[tuple[int, int, int]]:
    """Producer, first offset and marker of each aborted transaction, read one by one."""
    starts: dict[int, int] = {}
    aborted = []
    for batch in batches:
        if batch.leader_epoch < 0 or not (header := read_header(batch.data)).is_transactional:
            continue
        if not header.is_control:
            starts.setdefault(header.producer_id, batch.base_offset)
            continue
        start = starts.pop(header.producer_id, batch.base_offset)
        if marker_type(decode_batch(batch.data)[0].key or b"") == ABORT:
            aborted.append((header.producer_id, start, batch.last_offset))
    return aborted


# ---- beside its history


def contradictions(
    found: Found | None, required: Requirement, bounds: Bounds, was_killed: bool
) -> Iterator[str]:
    """List what in a partition does not fit its history."""
    if found is None:
        if required.must_exist:
            yield "the partition is gone"
        return
    if not required.may_exist:
        yield "the partition is there again"
        return
    floor = required.if_killed if was_killed else required.without_power
    if found.log_start_offset > required.highest_start:
        yield f"the log starts at {found.log_start_offset}, not {required.highest_start}"
    if found.log_start_offset < floor.log_start:
        yield f"the log starts at {found.log_start_offset}, though {floor.log_start} was kept"
    known_from = min((start for _, start in found.epochs), default=found.log_end_offset)
    for batch in found.batches:
        offset = max(batch.base_offset, found.log_start_offset, required.highest_start)
        if batch.leader_epoch >= 0 and offset <= batch.last_offset and offset < known_from:
            yield f"the epoch of {offset} is not known: {found.epochs}"
    lines = required.lines[floor.line :]
    whys = [_unlike(found, line, floor) for line in lines]
    if all(whys):
        yield f"the log is not what was written: {whys[-1]}"
        return
    lost = required.acknowledged_end - found.log_end_offset
    if lost >= bounds.flush_messages:
        yield f"{lost} messages are lost, flush.messages is {bounds.flush_messages}"
    for batch in required.lines[-1].batches:
        age_ms = bounds.now_ms - batch.appended_ms
        if batch.last_offset >= found.log_end_offset and age_ms > bounds.flush_within_ms:
            yield f"offset {batch.last_offset} is lost after {age_ms} ms"
    end_offset = found.log_end_offset
    fitting = [line for line, why in zip(lines, whys, strict=True) if not why]
    truth = producers_of([b for b in fitting[-1].batches if b.last_offset < end_offset])
    needed = producers_of(
        [batch for batch in found.batches if batch.last_offset >= found.log_start_offset]
    )
    if not needed.keys() <= found.producers.keys():
        yield f"producers {found.producers}, there are {needed}"
    for number, actual in found.producers.items():
        if truth.get(number) != actual:
            yield f"producer {number} is {actual}, it was {truth.get(number)}"


def _unlike(found: Found, line: Line, floor: Floor) -> str:
    """Why a log is no run of `line` that has all there must be; nothing if it is."""
    batches = line.batches
    if found.batches:
        first = found.batches[0].base_offset
        at = next((n for n, batch in enumerate(batches) if batch.base_offset == first), None)
        if at is None:
            return f"nothing was written at {first}"
        expected = tuple(batches[at : at + len(found.batches)])
        if found.batches != expected:
            return f"found {_offsets(found.batches)}, written {_offsets(expected)} in other bytes"
        if found.log_end_offset != found.batches[-1].last_offset + 1:
            return f"the end is {found.log_end_offset} after {_offsets(found.batches)}"
        if at and batches[at].base_offset > found.log_start_offset:
            return f"it begins with {first}, the log with {found.log_start_offset}"
    if found.log_end_offset > line.end_offset:
        return f"it ends at {found.log_end_offset}, beyond {line.end_offset}"
    if found.log_end_offset < floor.end_offset:
        return f"it ends at {found.log_end_offset}, {floor.end_offset} was kept"
    return ""


def _offsets(batches: Sequence[Batch]) -> list[int]:
    return [batch.base_offset for batch in batches]
