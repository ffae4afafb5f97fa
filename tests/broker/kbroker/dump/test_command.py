"""`kbroker dump` on small logs of all kinds, compared with the output of Kafka's own tool."""

import os
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.kbroker.command import main
from protocol.records.builder import encode_batch
from tests.stage.segment_files import OPTIONS, SEGMENTS, files_of, stock_errors, stock_output

DIFFERENT_LINES = {"indexes_padding"}
DIFFERENT_ERRORS = {
    "indexes_mismatch",
    "indexes_older",
    "indexes_padding",
    "indexes_run",
    "producers",
}
"""Logs on whose correctness the stock tool and we disagree."""

LOG = f"{0:020d}.log"
INDEX = f"{0:020d}.index"


def dump(case: str, *options: str) -> Result:
    """Dump all files of a folder, with the folder as the current directory."""
    return dump_in(SEGMENTS / case, "--files", files_of(case), *options)


def dump_in(directory: Path, *args: str) -> Result:
    before = Path.cwd()
    os.chdir(directory)
    try:
        return CliRunner().invoke(main, ["dump", *args])
    finally:
        os.chdir(before)


@pytest.mark.parametrize("case", sorted(OPTIONS.keys() - DIFFERENT_LINES))
def test_the_lines_are_those_of_the_stock_tool(case: str) -> None:
    assert dump(case, *OPTIONS[case]).stdout == stock_output(case)


@pytest.mark.parametrize("case", sorted(OPTIONS.keys() - DIFFERENT_ERRORS))
def test_stderr_is_that_of_the_stock_tool_and_gaps_are_no_failure(case: str) -> None:
    result = dump(case, *OPTIONS[case])
    assert (result.stderr, result.exit_code) == (stock_errors(case), 0)


@pytest.mark.parametrize("case", ["indexes_older", "indexes_run"])
def test_an_index_of_first_offsets_or_of_many_batches_at_once_is_true(case: str) -> None:
    result = dump(case)
    assert (result.stderr, result.exit_code) == ("", 0)


def test_an_index_with_nothing_but_room_for_entries_is_empty() -> None:
    result = dump("indexes_padding")
    assert f"{500:020d}.index is empty.\n" in result.stdout
    assert "timestamp: 0" not in result.stdout
    assert (result.stderr, result.exit_code) == ("", 0)


def test_index_entries_that_are_not_the_logs_are_named_at_the_end() -> None:
    result = dump("indexes_mismatch")
    directory = SEGMENTS / "indexes_mismatch"
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"Mismatches in :{directory}/{500:020d}.index",
        "  Index offset: 511, log offset: 514",
        "  Index offset: 506, log offset: 505",
        f"Found timestamp mismatch in :{directory}/{500:020d}.timeindex",
        "  Index timestamp: 1500000000999, log timestamp: 1500000000022",
        f"Found out of order timestamp in :{directory}/{500:020d}.timeindex",
        "  Index timestamp: 1500000000032, Previously indexed timestamp: 1500000000999",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 1400, found log offset: -1",
    ]


def test_a_snapshot_with_a_wrong_checksum_is_named_and_the_next_file_dumped() -> None:
    result = dump("producers")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"error: {700:020d}.snapshot: the checksum is wrong",
        f"error: {800:020d}.snapshot: 3 bytes are no snapshot",
    ]


def test_indexes_are_verified_without_being_printed() -> None:
    result = dump("indexes_mismatch", "--verify-index-only")
    assert "position: 235\n" not in result.stdout
    assert "  Index offset: 506, log offset: 505\n" in result.stderr


def test_the_sanity_check_is_what_a_broker_looks_at() -> None:
    sane = dump("indexes", "--index-sanity-check")
    assert f"{500:020d}.index passed sanity check.\n" in sane.stdout
    assert f"{500:020d}.timeindex passed sanity check.\n" in sane.stdout
    torn = dump("indexes_torn", "--index-sanity-check")
    assert torn.exit_code == 1
    assert f"error: {500:020d}.index: its size of 43 bytes is not a multiple of 8\n" in torn.stderr


def test_batches_alone_are_shown_unless_records_are_asked_for() -> None:
    lines = dump("v2").stdout.splitlines()
    assert lines[:2] == [f"Dumping {1200:020d}.log", "Starting offset: 1200"]
    assert all(line.startswith("baseOffset: ") for line in lines[2:])
    deep = dump("v2", "--deep-iteration").stdout
    assert "| offset: 1200 " in deep
    assert "payload:" not in deep


def test_keys_and_payloads_are_shown_without_the_rest() -> None:
    result = dump("v2", "--print-data-log", "--skip-record-metadata")
    assert "\n| key: k0 payload: v0\n payload: v1\n" in result.stdout


def test_decoders_are_kafkas_or_ones_own() -> None:
    options = ("--value-decoder-class", "base64:b64encode", "--print-data-log")
    assert "key: k0 payload: b'djA='\n" in dump("v2", *options).stdout
    result = dump("v2", "--key-decoder-class", "kafka.serializer.IntegerDecoder")
    assert f"key: {0x6B30} payload: v0\n" in result.stdout


@pytest.mark.parametrize("name", ["com.example.Decoder", "no.module:Decoder"])
def test_a_decoder_that_is_not_there_is_wrong_usage(name: str) -> None:
    assert dump("v2", "--value-decoder-class", name).exit_code == 2


def test_records_that_are_no_offsets_are_named_and_the_others_shown() -> None:
    result = dump("v2", "--offsets-decoder")
    assert result.exit_code == 1
    assert f"error: {1200:020d}.log: the record at offset 1200: " in result.stderr
    assert result.stdout.count("| offset: ") == stock_output("v2").count("| offset: ")


def test_no_file_is_wrong_usage() -> None:
    assert dump_in(SEGMENTS).exit_code == 2


def test_files_that_are_missing_or_of_another_kind_do_not_keep_others_from_being_dumped(
    tmp_path: Path,
) -> None:
    result = dump_in(SEGMENTS / "tombstone", "missing.log", f"{7:020d}.log", "stock.out", LOG)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: missing.log: No such file or directory",
        f"error: {7:020d}.log: No such file or directory",
        "Ignoring unknown file stock.out",
    ]
    assert result.stdout.endswith(stock_output("tombstone").splitlines()[2] + "\n")


def test_a_directory_and_a_missing_file_of_another_kind_are_no_unknown_files() -> None:
    result = dump_in(SEGMENTS, "tombstone", "nothing")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: tombstone: it is a directory: name the files in it",
        "error: nothing: No such file or directory",
    ]


def test_an_index_with_positions_before_its_log_is_dumped(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(encode_batch([(0, None, b"a", ())]))
    (tmp_path / INDEX).write_bytes((5).to_bytes(4) + (-1).to_bytes(4, signed=True))
    result = dump_in(tmp_path, INDEX)
    assert "offset: 5 position: -1" in result.stdout.splitlines()
    assert result.exit_code == 1
    assert "Mismatches in" in result.stderr


def test_garbage_between_batches_ends_the_file_in_one_line(tmp_path: Path) -> None:
    batch = encode_batch([(0, None, b"v", ())])
    (tmp_path / LOG).write_bytes(batch + b"\xff" * 100)
    result = dump_in(tmp_path, LOG)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == f"Found 100 invalid bytes at the end of {LOG}"
    assert (
        result.stderr == f"error: {LOG}: no batch at position {len(batch)}: size 11, format 255\n"
    )


def test_a_batch_that_lies_about_its_records_is_named_and_the_next_one_shown(
    tmp_path: Path,
) -> None:
    lying = bytearray(encode_batch([(0, None, b"v", ())]))
    struct.pack_into(">i", lying, 57, 9)
    (tmp_path / LOG).write_bytes(lying + encode_batch([(0, None, b"w", ())], base_offset=1))
    result = dump_in(tmp_path, LOG, "--print-data-log")
    assert result.exit_code == 1
    assert "count: 9 " in result.stdout
    assert "isvalid: false" in result.stdout
    assert result.stdout.endswith(" payload: w\n")
    assert result.stderr.startswith(f"error: {LOG}: the batch at position 0: ")


def test_what_is_missing_is_not_made_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.timeindex").write_bytes(bytes(12))
    (tmp_path / LOG).write_bytes(encode_batch([(0, None, b"v", ())]))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    dump_in(tmp_path, LOG, INDEX, f"{0:020d}.timeindex")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_an_active_segments_file_is_dumped_while_batches_are_appended(tmp_path: Path) -> None:
    batch = encode_batch([(0, None, b"v" * 100, ())])
    with (tmp_path / LOG).open("ab") as file:
        file.write(batch + batch[:80])
        file.flush()
        result = dump_in(tmp_path, LOG)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"Found 80 invalid bytes at the end of {LOG}"
