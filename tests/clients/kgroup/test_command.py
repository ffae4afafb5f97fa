"""The command as a whole: spelling, help, speed, exit codes."""

import logging
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from clients.command_line.kafka_spelling import sub_command_first
from clients.kgroup.command import KAFKA_ACTIONS, ROWS, OneLine, main
from clients.kgroup.migrate import command
from protocol.version import COMPILED, __version__

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        ("describe g", "describe g"),
        ("-b k:1 describe g", "describe g -b k:1"),
        ("-b k:1 describe g h --state", "describe g h -b k:1 --state"),
        ("-b k:1 migrate plan g --to kafka", "migrate plan g -b k:1 --to kafka"),
        ("-b k:1 perf produce --topic t", "perf produce -b k:1 --topic t"),
        ("-b k:1 nonsense", "nonsense -b k:1"),
        ("--zookeeper=z:1 -o json list", "list --zookeeper=z:1 -o json"),
        ("--bootstrap-server k:1 --list", "list --bootstrap-server k:1"),
        ("--describe --group g --members", "describe --group g --members"),
        ("--group list --describe", "describe --group list"),
        ("--list --describe", "list --describe"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_the_sub_command_is_found_wherever_it_stands(typed: str, understood: str) -> None:
    assert sub_command_first(typed.split(), KAFKA_ACTIONS) == understood.split()


def test_consume_offers_both_memberships() -> None:
    offered = CliRunner().invoke(main, ["consume", "--help"]).output
    assert "--membership [zookeeper|coordinator]" in offered


@pytest.mark.parametrize("name", ROWS)
def test_every_sub_command_shows_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert f"  kgroup {name} " in result.output


def test_every_step_of_a_migration_shows_an_example() -> None:
    assert isinstance(command, click.Group)
    assert list(command.commands) == ["plan", "start", "status", "verify", "finalize", "rollback"]
    for name in command.commands:
        result = CliRunner().invoke(main, ["migrate", name, "--help"])
        assert result.exit_code == 0
        assert f"  kgroup migrate {name} analytics " in result.output


def test_an_unknown_sub_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == 2


def test_reset_offsets_of_kafkas_tool_is_reset_and_wants_a_position() -> None:
    for typed in (
        "--bootstrap-server k:1 --group g --reset-offsets --all-topics",
        "--reset-offsets --group g --all-topics",
    ):
        result = CliRunner().invoke(main, typed.split())
        assert result.exit_code == 2
        assert "say where to with exactly one of --to-earliest" in result.output


def test_two_actions_at_once_are_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["--list", "--describe"]).exit_code == 2


@pytest.mark.parametrize(
    "args",
    [
        ["list", "--state", "stable,idle"],
        ["list", "-b", "nowhere"],
        ["describe", "g", "--members", "--state"],
        ["delete", "g", "--all-groups"],
        ["delete"],
        ["list", "--zookeeper", "z:port"],
        ["offsets", "--topic", "t", "--time", "99999999999999999999"],
        ["produce", "--topic", "t", "--request-timeout-ms", "soon"],
        ["export", "--zkconnect", "z:port"],
        ["consume", "--topic", "t", "--zookeeper", "z:1", "--group", ""],
        ["consume", "--topic", "", "--membership", "coordinator", "--group", "g"],
        ["describe", "g", "--as-of", "2099-01-01"],
        ["perf", "produce", "--topic", "t", "--num-records", "1", "--record-size", "99999999999"],
    ],
)
def test_what_cannot_be_meant_is_wrong_usage_before_anybody_is_asked(args: list[str]) -> None:
    result = CliRunner().invoke(main, args)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)


def test_a_file_of_another_kind_has_some_errors_and_the_number_of_the_others(
    tmp_path: Path,
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("".join(f"note {number}\n" for number in range(1000)))
    result = CliRunner().invoke(main, ["import", str(file), "-b", "127.0.0.1:1"])
    *named, more = result.stderr.splitlines()
    assert [line.split(": ")[1] for line in named] == [f"line {n + 1}" for n in range(10)]
    assert (result.exit_code, more) == (1, f"error: {file}: 990 more such errors")


def test_what_a_library_logs_is_one_line_without_a_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("clients", logging.ERROR, "", 0, "%d lost", (3,), sys.exc_info())
    assert OneLine().format(record) == "error: 3 lost: two lines"


def test_version_and_form_are_printed() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="kgroup")
    form = "compiled" if COMPILED else "pure Python"
    assert (result.exit_code, result.output) == (0, f"kgroup {__version__} ({form})\n")


def test_nobody_listening_is_one_line_and_exit_code_one() -> None:
    result = CliRunner().invoke(main, ["list", "-b", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_help_takes_less_than_three_tenths_of_a_second() -> None:
    program = "from clients.kgroup.command import main; main()"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", program, "--help"], cwd=ROOT, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.3  # of the processor: other tests may run beside this one


@pytest.mark.parametrize("module", ["clients.kgroup.command", "broker.kbroker.command"])
def test_a_command_that_only_starts_imports_nothing_that_takes_long(module: str) -> None:
    program = (
        f"import sys, {module}; "
        "print(*sorted({'asyncio', 'kazoo', 'rich', 'ssl', 'clients.admin'} & sys.modules.keys()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert ran.stdout == "\n"
