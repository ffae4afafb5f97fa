"""One file of a log as lines of text; which lines depends on its kind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from itertools import chain

import attrs
import click

from broker.kbroker.dump.findings import Findings
from broker.kbroker.dump.lines import (
    INDENT,
    aborted_line,
    batch_line,
    producer_line,
    record_line,
    record_prefix,
)
from broker.kbroker.dump.payloads import PayloadDecoder, UndecodableRecord
from broker.kbroker.log.entries import Entry, entries, is_room
from broker.kbroker.log.indexes import (
    JudgedTime,
    aborted_transactions,
    check_offset_index,
    check_time_index,
    judged_positions,
    judged_times,
    offset_entries,
    time_entries,
)
from broker.kbroker.log.read_only_directory import ReadOnlyFile
from broker.kbroker.log.records import records
from core_log.producers.producer_snapshots import SNAPSHOT, decode
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, base_offset_of
from protocol.records.compression import CompressionUnavailable
from protocol.records.corrupt_record import CorruptRecord

WRONG = (CompressionUnavailable, OSError, ValueError)
"""What a file may have against being dumped: all that says "corrupt" is a ValueError."""


@attrs.frozen
class Asked:
    """How files are to be shown."""

    deep: bool
    decoder: PayloadDecoder | None
    metadata: bool
    print_index: bool
    sanity_only: bool


def dumped(path: str, asked: Asked, findings: Findings) -> Iterator[str]:
    """The lines of one file. Raises one of WRONG."""
    yield f"Dumping {path}"
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "it is a directory: name the files in it")
    os.stat(path)  # what is not there is no unknown file
    dump = KINDS.get(os.path.splitext(path)[1])
    if dump is None:
        click.echo(f"Ignoring unknown file {path}", err=True)
    else:
        yield from dump(path, asked, findings)


def log_lines(path: str, asked: Asked, findings: Findings) -> Iterator[str]:
    """A `.log`: its batches, and their records if asked for."""
    yield f"Starting offset: {_base_offset(path)}"
    file = ReadOnlyFile(path)
    position, before = 0, -1
    gaps: list[tuple[int, int]] = []
    fault = None
    try:
        for entry in entries(file):
            yield batch_line(entry)
            position = entry.end_position
            if asked.deep:
                before = yield from _record_lines(path, entry, asked, findings, before, gaps)
    except CorruptRecord as error:
        fault = error
    if gaps:
        findings.gaps[os.path.abspath(path)] = gaps
    if file.size > position:
        yield f"Found {file.size - position} invalid bytes at the end of {os.path.basename(path)}"
    if fault is not None and not is_room(file, position):
        raise fault


def _record_lines(
    path: str,
    entry: Entry,
    asked: Asked,
    findings: Findings,
    before: int,
    gaps: list[tuple[int, int]],
) -> Generator[str, None, int]:
    """An entry's records; the last offset, `before` if there is none."""
    try:
        found = records(entry)
    except (CorruptRecord, CompressionUnavailable) as error:
        findings.error(path, f"the batch at position {entry.position}: {error}")
        return before
    common = record_prefix(entry, found[0].offset if found else -1)
    for record in found:
        if before not in (-1, record.offset - 1):
            gaps.append((before, record.offset))
        before = record.offset
        line = record_line(entry, common, record) if asked.metadata else ""
        if asked.decoder is not None and not entry.header.is_control:
            try:
                key, payload = asked.decoder(record)
            except UndecodableRecord as error:
                findings.error(path, f"the record at offset {record.offset}: {error}")
                key = payload = None
            if key is not None:
                line += f"{' ' if asked.metadata else INDENT}key: {key}"
            if payload is not None:
                line += f" payload: {payload}"
        yield line
    return before


def index_lines(path: str, asked: Asked, findings: Findings) -> Iterator[str]:
    """A `.index`, held against its log."""
    base_offset = _base_offset(path)
    index = ReadOnlyFile(path)
    found = offset_entries(index, base_offset)
    first = next(found, None)
    if first is None:
        yield f"{path} is empty."
        return
    if asked.sanity_only:
        check_offset_index(index, base_offset)
        yield f"{path} passed sanity check."
        return
    mismatches: list[tuple[int, int]] = []
    log = ReadOnlyFile(_log_of(path))
    for entry, log_offset in judged_positions(chain([first], found), log):
        if log_offset is not None:
            mismatches.append((entry.offset, log_offset))
        if asked.print_index:
            yield f"offset: {entry.offset} position: {entry.position}"
    if mismatches:
        findings.index_mismatches[os.path.abspath(path)] = mismatches


def time_index_lines(path: str, asked: Asked, findings: Findings) -> Iterator[str]:
    """A `.timeindex`, held against its log."""
    base_offset = _base_offset(path)
    index = ReadOnlyFile(path)
    if asked.sanity_only:
        check_time_index(index, base_offset)
        yield f"{path} passed sanity check."
        return
    wrong: list[JudgedTime] = []
    found = time_entries(index, base_offset)
    for judged in judged_times(found, ReadOnlyFile(_log_of(path)), base_offset):
        if not judged.is_true:
            wrong.append(judged)
        if asked.print_index:
            yield f"timestamp: {judged.entry.timestamp} offset: {judged.entry.offset}"
    if wrong:
        findings.times[os.path.abspath(path)] = wrong


def transaction_index_lines(path: str, asked: Asked, findings: Findings) -> Iterator[str]:
    """A `.txnindex`."""
    for aborted in aborted_transactions(ReadOnlyFile(path)):
        yield aborted_line(aborted)


def snapshot_lines(path: str, asked: Asked, findings: Findings) -> Iterator[str]:
    """A `.snapshot` of producers."""
    file = ReadOnlyFile(path)
    for producer_id, producer in decode(file.read(0, file.size)).items():
        yield producer_line(producer_id, producer)


KINDS: dict[str, Callable[[str, Asked, Findings], Iterator[str]]] = {
    LOG: log_lines,
    INDEX: index_lines,
    TIME_INDEX: time_index_lines,
    TRANSACTION_INDEX: transaction_index_lines,
    SNAPSHOT: snapshot_lines,
}


def _base_offset(path: str) -> int:
    return base_offset_of(os.path.basename(path))


def _log_of(path: str) -> str:
    """The log of an index."""
    return os.path.splitext(path)[0] + LOG
