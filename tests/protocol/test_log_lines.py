"""Names from outside forge no log lines."""

from __future__ import annotations

import logging
import sys

import pytest

from broker.kbroker.start import LOG_LINE
from protocol.log_lines import MOST_CHARACTERS, SafeFormatter


def formatted(message: str, *args: object, exc_info: object = None) -> str:
    record = logging.LogRecord(
        "broker.x", logging.INFO, "x.py", 1, message, args, exc_info and sys.exc_info()
    )
    return SafeFormatter(LOG_LINE).format(record)


def test_a_name_with_a_line_break_begins_no_line_of_its_own() -> None:
    text = formatted("group %s: removed", "g\n[2026-01-01 00:00:00,000] ERROR forged (broker.y)")
    first, second = text.splitlines()
    assert first.startswith("[")
    assert second.startswith("\t[2026")


@pytest.mark.fault("security-12")
def test_a_sign_that_turns_the_direction_is_escaped() -> None:
    assert r"topic \u202eowt\u2069 is" in formatted("topic %s is unknown", "\u202eowt\u2069")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("\x1b[2J", r"\x1b[2J"), ("a\rb", r"a\rb"), ("\x85", r"\x85"), ("\u2028", r"\u2028")],
)
def test_a_character_that_steers_a_terminal_is_escaped(name: str, shown: str) -> None:
    assert f"topic {shown} is" in formatted("topic %s is unknown", name)


def test_other_characters_stay_as_they_are() -> None:
    assert "é\t€ \U0001f600" in formatted("%s", "é\t€ \U0001f600")


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        text = formatted("failed", exc_info=True)
    lines = text.splitlines()
    assert lines[0].endswith("failed (broker.x)")
    assert all(line.startswith("\t") for line in lines[1:])
    assert lines[-2:] == ["\tValueError: first", "\tsecond"]


@pytest.mark.fault("strangers-34")
def test_a_long_message_is_cut_and_what_stands_around_it_is_not() -> None:
    try:
        raise ValueError("x" * MOST_CHARACTERS)
    except ValueError:
        text = formatted("reason %s", "r" * MOST_CHARACTERS, exc_info=True)
    first, *traceback = text.splitlines()
    assert first.endswith("rrr… (7 more characters) (broker.x)")
    assert traceback[-1] == "\tValueError: " + "x" * MOST_CHARACTERS
    assert "more characters" not in formatted("%s", "r" * MOST_CHARACTERS)
