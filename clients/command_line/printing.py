"""Print what a terminal may show: no name from outside can control it, or forge a line.

Names of groups, members, clients and topics, and metadata, are what strangers wrote. All that
commands print goes through this module, and `tests/clients/command_line/test_printing.py` holds
them to it.
"""

import json
import sys
from typing import Any

import click


def plain(value: object) -> str:
    """Return one line of text: `-` for None; characters that could control a terminal escaped."""
    text = "-" if value is None else str(value)
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def say(sentence: str = "", *, err: bool = False) -> None:
    """Print a line, whatever is in its names."""
    # A name with a line break would forge another line (fault tool-F16, was: sentence).
    line = plain(sentence)
    click.echo(line, err=err)


def print_text(text: str, *, newline: bool = True) -> None:
    """Print lines on stdout that are a table, or that programs read: these get them as they are."""
    click.echo(for_stdout(text), nl=newline)


def for_stdout(text: str) -> str:
    """Return lines as they are, or, if stdout is a terminal, as it may show them."""
    if not sys.stdout.isatty() or text.isprintable():
        return text
    return "".join(c if c in "\n\t" else _visible(c) for c in text)


def json_text(content: Any, indent: int | None = None) -> str:
    """Return JSON in which everything that could control a terminal has JSON's own escape."""
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else _escaped_json(line) for line in lines)


def _escaped_json(line: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
