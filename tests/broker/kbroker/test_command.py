"""`kbroker` as a whole: help texts."""

import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker.kbroker.command import ROWS, main

ROOT = Path(__file__).resolve().parents[3]


def list_leaves(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the full name of every sub-command that is not a group."""
    context = click.Context(group)
    names = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        full_name = (*path, name)
        names += (
            list_leaves(command, full_name) if isinstance(command, click.Group) else [full_name]
        )
    return names


@pytest.mark.parametrize("name", list_leaves(main), ids=" ".join)
def test_every_sub_command_shows_an_example(name: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*name, "--help"])
    assert result.exit_code == 0
    assert f"  kbroker {' '.join(name)}" in result.output.split("Example")[1]


def test_every_sub_command_has_its_line_in_the_help() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert all(line in output for _, line in ROWS.values())


def test_help_takes_less_than_three_tenths_of_a_second() -> None:
    program = "from broker.kbroker.command import main; main()"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", program, "--help"], cwd=ROOT, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.3  # of the processor: other tests may run beside this one


@pytest.mark.parametrize(
    "args",
    [
        ["topics", "alter", "t", "--partitions", "99999999999"],
        ["topics", "create", "t", "--partitions", "99999999999"],
        ["dev", "--brokers", "3", "--port", "65534"],
        ["quotas", "alter", "--ip-default", "--add", "connection_creation_rate=0"],
    ],
)
def test_a_number_that_cannot_be_is_wrong_usage_before_anybody_is_asked(args: list[str]) -> None:
    result = CliRunner().invoke(main, args)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
