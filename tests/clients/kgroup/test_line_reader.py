"""Lines to messages."""

import pytest

from clients.kgroup.line_reader import LineError, LineReader

KEYED = LineReader.of({"parse.key": "true", "key.separator": "::"})


def test_without_keys_a_line_is_a_value_whatever_it_holds() -> None:
    assert LineReader.of({}).read(b"a\tb\n", 1) == (None, b"a\tb")


def test_the_key_ends_at_the_first_separator() -> None:
    assert KEYED.read(b"a::b::c\n", 1) == (b"a", b"b::c")


def test_the_separator_is_a_tab_unless_said() -> None:
    assert LineReader.of({"parse.key": "TRUE"}).read(b"a\tb", 1) == (b"a", b"b")


def test_a_separator_at_the_end_gives_an_empty_value() -> None:
    assert KEYED.read(b"a::\n", 1) == (b"a", b"")


def test_an_empty_line_is_an_empty_message() -> None:
    assert LineReader.of({}).read(b"\n", 1) == (None, b"")


def test_a_windows_line_end_does_not_count() -> None:
    assert LineReader.of({}).read(b"a\r\n", 1) == (None, b"a")


def test_a_line_without_separator_is_refused_by_number() -> None:
    with pytest.raises(LineError, match="line 12"):
        KEYED.read(b"oops\n", 12)


def test_a_line_without_separator_is_a_value_if_errors_are_ignored() -> None:
    reader = LineReader.of({"parse.key": "true", "ignore.error": "true"})
    assert reader.read(b"oops\n", 12) == (None, b"oops")
