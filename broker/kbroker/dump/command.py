"""`kbroker dump`: print log files and indexes as text, in the lines of Kafka's DumpLogSegments.

Files are only read, and may be in use. Defects of indexes are reported on stderr in Kafka's words,
after all files. Where Kafka's tool stops with a stack trace, this command prints one line and goes
on with the next file. Both make the exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from broker.kbroker.comma_lists import split_names
from broker.kbroker.dump.files import FILE_ERRORS, DumpOptions, dump_file
from broker.kbroker.dump.findings import Findings
from broker.kbroker.dump.payloads import (
    PayloadDecoder,
    choose_field_decoder,
    decode_offsets_payload,
    decode_transaction_payload,
    make_payload_decoder,
)
from clients.command_line.output import EXIT_FAILED
from clients.command_line.printing import for_stdout, say

LINES_AT_ONCE = 512


@click.command(
    "dump",
    epilog="""\b
Examples:
  kbroker dump /var/lib/kafka/flights-0/00000000000000000000.log --print-data-log
  kbroker dump dev/broker-0/__consumer_offsets-7/*.log --offsets-decoder
  kbroker dump --files 00000000000000000000.index,00000000000000000000.timeindex""",
)
@click.argument("paths", metavar="FILE…", nargs=-1)
@click.option("--files", metavar="A,B", help="Kafka's spelling of FILE….")
@click.option("--deep-iteration", is_flag=True, help="Print each record, besides the batches.")
@click.option("--print-data-log", is_flag=True, help="Print each record with key and payload.")
@click.option(
    "--key-decoder-class",
    metavar="CLASS",
    help="Decoder of keys: one of Kafka's, or module:name of your own.",
)
@click.option(
    "--value-decoder-class", metavar="CLASS", help="Decoder of payloads, named in the same way."
)
@click.option("--offsets-decoder", is_flag=True, help="Decode the records of __consumer_offsets.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Decode the records of __transaction_state."
)
@click.option(
    "--skip-record-metadata", is_flag=True, help="Print only the key and payload of records."
)
@click.option("--verify-index-only", is_flag=True, help="Check indexes without printing them.")
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="Make only the checks that a starting broker makes of indexes.",
)
@click.option(
    "--max-message-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Accepted for Kafka's sake; no effect: batches of any size are read.",
)
def command(
    paths: tuple[str, ...],
    files: str | None,
    deep_iteration: bool,
    print_data_log: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    skip_record_metadata: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_message_size: int | None,
) -> None:
    """Print the content of log files: .log, .index, .timeindex, .txnindex and .snapshot.

    With a decoder or --print-data-log, records are printed with their keys and payloads.
    """
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("give --offsets-decoder or --transaction-log-decoder, not both")

    # How keys and payloads are decoded, if they are printed.
    decoder: PayloadDecoder | None = None
    if offsets_decoder:
        decoder = decode_offsets_payload
    elif transaction_log_decoder:
        decoder = decode_transaction_payload
    elif print_data_log or key_decoder_class or value_decoder_class:
        try:
            decoder = make_payload_decoder(
                choose_field_decoder(key_decoder_class), choose_field_decoder(value_decoder_class)
            )
        except LookupError as error:
            raise click.UsageError(str(error.args[0])) from None

    # Which files, and what of them.
    all_paths = (*paths, *split_names(files))
    if not all_paths:
        raise click.UsageError("say which files: FILE…, or --files A,B")
    options = DumpOptions(
        print_records=deep_iteration or decoder is not None,
        decoder=decoder,
        print_metadata=not skip_record_metadata,
        print_index=not verify_index_only,
        sanity_check_only=index_sanity_check,
    )

    # Defects of indexes come after all files, as from Kafka's tool.
    findings = Findings()
    for path in all_paths:
        print_lines(dump_file(path, options, findings), findings, path)
    for line in findings.lines():
        say(line, err=True)
    if findings.has_failures:
        raise click.exceptions.Exit(EXIT_FAILED)


def print_lines(lines: Iterator[str], findings: Findings, path: str) -> None:
    """Print the lines of a file, LINES_AT_ONCE together; report an error that ends them."""
    # A log may have millions of lines: few large writes.
    out = sys.stdout
    batch: list[str] = []
    failure = None
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == LINES_AT_ONCE:
                out.write(for_stdout("\n".join((*batch, ""))))
                batch.clear()
    except FILE_ERRORS as error:
        # The reader of our output, such as `head`, has seen enough.
        if isinstance(error, BrokenPipeError):
            raise
        failure = error

    # The lines before the error are good.
    out.write(for_stdout("\n".join((*batch, ""))))
    if failure is not None:
        strerror = failure.strerror if isinstance(failure, OSError) else None
        findings.report_error(path, strerror or str(failure))
