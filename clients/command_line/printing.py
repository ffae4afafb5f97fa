"""Print what a terminal may show: no name from outside can control it, or forge a line.

Names of groups, members, clients and topics, and metadata, are what strangers wrote. All that
commands print goes through this module, and `tests/clients/command_line/test_printing.py` holds
them to it. It does not matter where it is printed to: what a file or a pipe gets is shown later.
"""

import json
import sys
from typing import Any

import click

from protocol.printable import one_line, visible

HAS_PRINTED = f"{__name__}.has_printed"
"""The key in click's `meta` that says that a command has printed lines on stdout."""


def plain(value: object) -> str:
    """Return one line of text: `-` for None; characters that could control a terminal escaped."""
    return "-" if value is None else one_line(str(value))


def say(sentence: str = "", *, err: bool = False) -> None:
    """Print a line, whatever is in its names."""
    # A name with a line break would forge another line (fault tool-F16, was: sentence).
    line = plain(sentence)
    click.echo(line, err=err)


def print_text(text: str, *, newline: bool = True) -> None:
    """Print lines on stdout: a table, or what programs read."""
    # A pipe may lead to a terminal, as that of ssh does (fault security-12, was: text).
    lines = _shown(text)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[HAS_PRINTED] = True
    click.echo(lines, nl=newline)


def for_stdout(text: str) -> str:
    """Return lines with records in them: as they are, or as a terminal may show them."""
    return _shown(text) if sys.stdout.isatty() else text


def _shown(text: str) -> str:
    """Return lines in which nothing but a tab has an effect."""
    return "\n".join(
        line if line.isprintable() else "".join(c if c == "\t" else visible(c) for c in line)
        for line in text.split("\n")
    )


def json_text(content: Any, indent: int | None = None, *, compact: bool = False) -> str:
    """Return JSON in which everything that could control a terminal has JSON's own escape."""
    separators = (",", ":") if compact else None
    text = json.dumps(content, indent=indent, ensure_ascii=False, separators=separators)
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else _escaped_json(line) for line in lines)


def _escaped_json(line: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
