"""The command as a whole: spelling, help, speed, exit codes."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from clients.kgroup.command import ROWS, main, sub_command_first

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        ("describe g", "describe g"),
        ("-b k:1 describe g", "describe -b k:1 g"),
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
    assert sub_command_first(typed.split(), ROWS) == understood.split()


@pytest.mark.parametrize("name", ROWS)
def test_every_sub_command_shows_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert f"  kgroup {name} " in result.output


def test_an_unknown_sub_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == 2


def test_two_actions_at_once_are_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["--list", "--describe"]).exit_code == 2


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="kgroup")
    assert result.exit_code == 0
    assert result.output.startswith("kgroup ")


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
