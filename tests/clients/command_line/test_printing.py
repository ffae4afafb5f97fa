"""No name from outside controls a terminal, or forges a line; programs read what is."""

import ast
import json
import logging
import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import broker.kbroker
import clients
from clients.command_line.command_group import CommandFailed, CommandGroup
from clients.command_line.interrupts import Interrupts
from clients.command_line.output import Column, Failure, Listing, show
from clients.command_line.printing import for_stdout, json_text, print_text, say
from clients.groups.group_facts import CoordinatorFacts, GroupFacts
from clients.groups.group_view import remark, unknown_group
from clients.kgroup.command import OneLine

EVIL = "\x1b]0;owned\x07\nerror: everything is lost\x9b2J\u202e"
SAFE = r"\x1b]0;owned\x07\nerror: everything is lost\x9b2J\u202e"


def listing() -> Listing:
    columns = (Column("GROUP"), Column("LATE", text=lambda names: ", ".join(names)))
    item = {"group": EVIL, "late": [EVIL]}
    return Listing("events", columns, [item], [Failure(EVIL, "X", EVIL)], verdict=EVIL)


@pytest.mark.fault("tool-F16")
def test_every_line_of_a_listing_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit):
        show(listing(), "table")
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == [f"{SAFE} {SAFE}", "", SAFE]
    assert printed.err == f"error: {SAFE}: {SAFE}\n"


def test_json_has_the_names_as_they_are_in_escapes_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(click.exceptions.Exit):
        show(listing(), "json")
    out = capsys.readouterr().out
    assert json.loads(out)["items"] == [{"group": EVIL, "late": [EVIL]}]
    assert re.sub("[ -~\n]", "", out) == ""


def test_json_keeps_what_a_terminal_shows() -> None:
    assert json_text({"group": "flüge"}) == '{"group": "flüge"}'


@pytest.mark.fault("security-12")
def test_csv_has_the_names_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    field = '"' + json_text([EVIL]).replace('"', '""') + '"'
    with pytest.raises(click.exceptions.Exit):
        show(listing(), "csv")
    assert capsys.readouterr().out.splitlines() == ["group,late", f"{SAFE},{field}"]


@pytest.mark.fault("security-12")
def test_a_line_for_a_pipe_is_as_safe_as_one_for_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_text("Topic: a\t\x1b[2J\u202e\nb")
    assert capsys.readouterr().out == "Topic: a\t\\x1b[2J\\u202e\nb\n"


def test_records_go_to_programs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert for_stdout("a\t\x1b[2J\nb") == "a\t\x1b[2J\nb"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert for_stdout("a\t\x1b[2J\nb") == "a\t\\x1b[2J\nb"


def test_a_warning_of_a_command_without_a_log_of_its_own_forges_no_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def command() -> None:
        record = logging.LogRecord("x", logging.WARNING, "", 0, "host %s", (EVIL,), None)
        assert logging.lastResort is not None
        print(logging.lastResort.format(record))

    group = CommandGroup("group", rows={"warn": (__name__, "")}, expected=tuple)
    group.get_command = lambda ctx, name: command  # type: ignore[method-assign]
    printed = CliRunner().invoke(group, ["warn"]).stdout
    assert printed == f"WARNING: host {SAFE}\n".replace(r"\n", "\n\t")


@pytest.mark.fault("tool-F16")
def test_remarks_and_errors_of_groups_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    facts = GroupFacts(EVIL, coordinator=CoordinatorFacts("Empty", "", 0))
    say(str(remark(facts)), err=True)
    Interrupts(several=True).say(f"deleted: {unknown_group(EVIL).message}")
    assert capsys.readouterr().err.splitlines() == [
        f"Consumer group '{SAFE}' has no active members.",
        f"deleted: Consumer group '{SAFE}' does not exist.",
    ]


@pytest.mark.parametrize("error", [CommandFailed(EVIL), click.UsageError(EVIL)])
def test_what_ends_a_command_is_one_line(error: click.ClickException) -> None:
    @click.command()
    def command() -> None:
        raise error

    rows = {"fail": (__name__, "")}
    group = CommandGroup("group", rows=rows, expected=tuple)
    group.get_command = lambda ctx, name: command  # type: ignore[method-assign]
    last = CliRunner().invoke(group, ["fail"]).stderr.splitlines()[-1]
    assert last.lower() == f"error: {SAFE}".lower()


def test_log_records_of_libraries_are_one_line() -> None:
    record = logging.LogRecord("kazoo", logging.WARNING, "", 0, "group %s", (EVIL,), None)
    assert OneLine().format(record) == rf"warning: group {SAFE}".replace(r"\n", " ")


def test_commands_print_through_one_module() -> None:
    # Blanks and lines over lines, the shell's own code: nothing of these comes from outside.
    raw = {"printing.py", "progress.py", "completion_script.py"}
    # Values of records are data, and a body that was sent is only looked at.
    raw |= {"serializers.py", "write_requests.py"}
    folders = [Path(str(package.__file__)).parent for package in (clients, broker.kbroker)]
    calls = [
        f"{file}:{node.lineno}"
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        if file.name not in raw
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "JSONResponse"))
        or (isinstance(node, ast.Name) and node.id in ("print", "JSONResponse"))
        # Of all JSON only what json_text makes has other characters than ASCII.
        or (isinstance(node, ast.keyword) and node.arg == "ensure_ascii")
    ]
    assert calls == []
