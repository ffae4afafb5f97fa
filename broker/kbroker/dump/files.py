"""Turn one file of a log into lines of text, by the kind of the file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from itertools import chain

from broker.kbroker.dump.findings import Findings
from broker.kbroker.dump.lines import (
    INDENT,
    format_aborted,
    format_batch,
    format_producer,
    format_record,
    format_record_context,
)
from broker.kbroker.dump.payloads import PayloadDecoder, UndecodableRecord
from broker.kbroker.log.entries import LogEntry, is_preallocated, read_entries
from broker.kbroker.log.indexes import (
    CheckedTime,
    check_offset_index,
    check_positions,
    check_time_index,
    check_times,
    read_aborted_transactions,
    read_offset_entries,
    read_time_entries,
)
from broker.kbroker.log.read_only_directory import ReadOnlyFile
from broker.kbroker.log.records import read_records
from clients.command_line.printing import say
from core_log.producers.producer_snapshots import SNAPSHOT, decode
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, base_offset_of
from protocol.frozen import frozen
from protocol.records.compression import CompressionUnavailable
from protocol.records.corrupt_record import CorruptRecord

FILE_ERRORS = (CompressionUnavailable, OSError, ValueError)
"""Errors that end the dump of a file; all errors of corruption are ValueErrors."""


@frozen(kw_only=True)
class DumpOptions:
    """The contents to print.

    `print_records`: each record, besides the batches. `decoder`: decodes keys and payloads, which
    are printed then. `print_metadata`: offsets, sizes and times of records. `print_index`: the
    entries of indexes. `sanity_check_only`: only a broker's own checks of indexes.
    """

    print_records: bool
    decoder: PayloadDecoder | None
    print_metadata: bool
    print_index: bool
    sanity_check_only: bool


def dump_file(path: str, options: DumpOptions, findings: Findings) -> Iterator[str]:
    """Yield the lines of one file. Raises one of FILE_ERRORS."""
    yield f"Dumping {path}"

    # Mistakes that no reader of a file would explain.
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "it is a directory: name the files in it")
    os.stat(path)  # a missing file is an error, whatever its kind

    dump = DUMPERS.get(os.path.splitext(path)[1])
    if dump is None:
        say(f"Ignoring unknown file {path}", err=True)
    else:
        yield from dump(path, options, findings)


def dump_log(path: str, options: DumpOptions, findings: Findings) -> Iterator[str]:
    """Yield the lines of a `.log`: its batches, and their records if wanted."""
    yield f"Starting offset: {_parse_base_offset(path)}"
    file = ReadOnlyFile(path)
    position = 0
    previous_offset = -1
    gaps: list[tuple[int, int]] = []
    failure = None

    try:
        # The entries, up to the end or to the first bytes that are none.
        for entry in read_entries(file):
            yield format_batch(entry)
            position = entry.end_position
            if options.print_records:
                previous_offset = yield from _dump_records(
                    path, entry, options, findings, previous_offset, gaps
                )
    except CorruptRecord as error:
        failure = error

    # Gaps are no failure: compaction leaves them.
    if gaps:
        findings.gaps[os.path.abspath(path)] = gaps

    # As in Kafka's tool, preallocated space counts as invalid bytes here.
    if file.size > position:
        yield f"Found {file.size - position} invalid bytes at the end of {os.path.basename(path)}"

    # But zeros are no corruption.
    if failure is not None and not is_preallocated(file, position):
        raise failure


def _dump_records(
    path: str,
    entry: LogEntry,
    options: DumpOptions,
    findings: Findings,
    previous_offset: int,
    gaps: list[tuple[int, int]],
) -> Generator[str, None, int]:
    """Yield the lines of an entry's records, and add gaps between their offsets to `gaps`.

    Returns the last offset; `previous_offset`, the one before the entry, if it has no records.
    """
    try:
        records = read_records(entry)
    except (CorruptRecord, CompressionUnavailable) as error:
        findings.report_error(path, f"the batch at position {entry.position}: {error}")
        return previous_offset

    context = format_record_context(entry, records[0].offset if records else -1)
    for record in records:
        # -1: it is the file's first record.
        if previous_offset not in (-1, record.offset - 1):
            gaps.append((previous_offset, record.offset))
        previous_offset = record.offset

        # A control record has no payload to decode.
        line = format_record(entry, context, record) if options.print_metadata else ""
        if options.decoder is not None and not entry.header.is_control:
            try:
                key, payload = options.decoder(record)
            except UndecodableRecord as error:
                findings.report_error(path, f"the record at offset {record.offset}: {error}")
                key = payload = None
            if key is not None:
                line += f"{' ' if options.print_metadata else INDENT}key: {key}"
            if payload is not None:
                line += f" payload: {payload}"
        yield line
    return previous_offset


def dump_offset_index(path: str, options: DumpOptions, findings: Findings) -> Iterator[str]:
    """Yield the lines of a `.index`, compared with its log."""
    base_offset = _parse_base_offset(path)
    index = ReadOnlyFile(path)
    offset_entries = read_offset_entries(index, base_offset)
    first = next(offset_entries, None)
    if first is None:
        yield f"{path} is empty."
        return

    if options.sanity_check_only:
        check_offset_index(index, base_offset)
        yield f"{path} passed sanity check."
        return

    # The log is opened after the index was read, so that no entry is ahead of it.
    mismatches: list[tuple[int, int]] = []
    log = ReadOnlyFile(_log_path(path))
    for entry, log_offset in check_positions(chain([first], offset_entries), log):
        if log_offset is not None:
            mismatches.append((entry.offset, log_offset))
        if options.print_index:
            yield f"offset: {entry.offset} position: {entry.position}"
    if mismatches:
        findings.index_mismatches[os.path.abspath(path)] = mismatches


def dump_time_index(path: str, options: DumpOptions, findings: Findings) -> Iterator[str]:
    """Yield the lines of a `.timeindex`, compared with its log."""
    base_offset = _parse_base_offset(path)
    index = ReadOnlyFile(path)
    if options.sanity_check_only:
        check_time_index(index, base_offset)
        yield f"{path} passed sanity check."
        return

    # Here too the log is opened after the index.
    incorrect: list[CheckedTime] = []
    time_entries = read_time_entries(index, base_offset)
    for time in check_times(time_entries, ReadOnlyFile(_log_path(path)), base_offset):
        if not time.is_correct:
            incorrect.append(time)
        if options.print_index:
            yield f"timestamp: {time.entry.timestamp} offset: {time.entry.offset}"
    if incorrect:
        findings.times[os.path.abspath(path)] = incorrect


def dump_transaction_index(path: str, options: DumpOptions, findings: Findings) -> Iterator[str]:
    """Yield the lines of a `.txnindex`."""
    for aborted in read_aborted_transactions(ReadOnlyFile(path)):
        yield format_aborted(aborted)


def dump_snapshot(path: str, options: DumpOptions, findings: Findings) -> Iterator[str]:
    """Yield the lines of a producer `.snapshot`."""
    file = ReadOnlyFile(path)
    for producer_id, producer in decode(file.read(0, file.size)).items():
        yield format_producer(producer_id, producer)


DUMPERS: dict[str, Callable[[str, DumpOptions, Findings], Iterator[str]]] = {
    LOG: dump_log,
    INDEX: dump_offset_index,
    TIME_INDEX: dump_time_index,
    TRANSACTION_INDEX: dump_transaction_index,
    SNAPSHOT: dump_snapshot,
}
"""Suffix of a file -> the function that dumps it."""


def _parse_base_offset(path: str) -> int:
    return base_offset_of(os.path.basename(path))


def _log_path(path: str) -> str:
    """Return the path of an index's log."""
    return os.path.splitext(path)[0] + LOG
