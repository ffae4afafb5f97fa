"""`kbroker dump`: the files of logs as text, as Kafka's DumpLogSegments prints them.

Files are only read, and may be in use. What is wrong with an index is said on stderr when all files
have been shown, in Kafka's words; where Kafka's tool stops with a stack trace, this one says in one
line what it met and goes on with the next file. The exit code is 1 then, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from broker.kbroker.comma_lists import split_names
from broker.kbroker.dump.files import WRONG, Asked, dumped
from broker.kbroker.dump.findings import Findings
from broker.kbroker.dump.payloads import (
    PayloadDecoder,
    decoder_of,
    field_decoder,
    offsets_payload,
    transaction_payload,
)
from clients.output import EXIT_FAILED

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
@click.option("--files", metavar="A,B", help="Kafka's way to say FILE….")
@click.option("--deep-iteration", is_flag=True, help="Each record, besides the batches.")
@click.option("--print-data-log", is_flag=True, help="Each record with its key and payload.")
@click.option(
    "--key-decoder-class", metavar="CLASS", help="One of Kafka's decoders, or module:name of yours."
)
@click.option("--value-decoder-class", metavar="CLASS", help="Likewise, for payloads.")
@click.option("--offsets-decoder", is_flag=True, help="Records of __consumer_offsets as text.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Records of __transaction_state as text."
)
@click.option("--skip-record-metadata", is_flag=True, help="Only the key and payload of records.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes without printing them.")
@click.option(
    "--index-sanity-check", is_flag=True, help="Only what a broker checks of them as it starts."
)
@click.option(
    "--max-message-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Taken for Kafka's sake: batches of any size are read.",
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
    """Show what is in the files of logs: .log, .index, .timeindex, .txnindex and .snapshot.

    A decoder, and --print-data-log, show records with their keys and payloads.
    """
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("one of --offsets-decoder and --transaction-log-decoder")
    decoder: PayloadDecoder | None = None
    if offsets_decoder:
        decoder = offsets_payload
    elif transaction_log_decoder:
        decoder = transaction_payload
    elif print_data_log or key_decoder_class or value_decoder_class:
        try:
            decoder = decoder_of(
                field_decoder(key_decoder_class), field_decoder(value_decoder_class)
            )
        except LookupError as error:
            raise click.UsageError(str(error.args[0])) from None
    named = (*paths, *split_names(files))
    if not named:
        raise click.UsageError("which files? Give FILE… or --files A,B")
    asked = Asked(
        deep_iteration or decoder is not None,
        decoder,
        not skip_record_metadata,
        not verify_index_only,
        index_sanity_check,
    )
    findings = Findings()
    for path in named:
        print_lines(dumped(path, asked, findings), findings, path)
    for line in findings.lines():
        click.echo(line, err=True)
    if findings.failed:
        raise click.exceptions.Exit(EXIT_FAILED)


def print_lines(lines: Iterator[str], findings: Findings, path: str) -> None:
    """Print lines as they come, many at once, up to what spoils them."""
    out = sys.stdout
    waiting: list[str] = []
    try:
        for line in lines:
            waiting.append(line)
            if len(waiting) == LINES_AT_ONCE:
                out.write("\n".join((*waiting, "")))
                waiting.clear()
        fault = None
    except WRONG as error:
        if isinstance(error, BrokenPipeError):
            raise
        fault = error
    out.write("\n".join((*waiting, "")))
    if fault is not None:
        strerror = fault.strerror if isinstance(fault, OSError) else None
        findings.error(path, strerror or str(fault))
