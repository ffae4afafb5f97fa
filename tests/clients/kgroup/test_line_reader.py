"""Lines to messages."""

import pytest

from clients.kgroup.line_reader import FieldReader, LineError, LineReader

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


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({}, (b"1", b"2")),
        ({"value.serializer": "a.b.LongSerializer"}, (b"1", 2)),
        (
            {"value_serializer": "DoubleSerializer", "key.serializer": "StringSerializer"},
            ("1", 2.0),
        ),
        ({"serializer.class": "kafka.serializer.StringEncoder"}, ("1", "2")),
        ({"key.serializer.class": "kafka.serializer.StringEncoder"}, ("1", b"2")),
        ({"producer.type": "sync", "value.serializer": "StringEncoder"}, ("1", "2")),
        ({"value.serializer": "mine:Encoder"}, (b"1", b"2")),
    ],
)
def test_key_and_value_are_what_their_serializers_take(
    settings: dict[str, str], read: tuple[object, object]
) -> None:
    assert FieldReader.of(settings).read(b"1", b"2", 1) == read


def test_no_key_is_none_whatever_the_serializer() -> None:
    assert FieldReader.of({"key.serializer": "LongSerializer"}).read(None, b"2", 1) == (None, b"2")


@pytest.mark.parametrize("name", ["IntegerSerializer", "UUIDSerializer", "StringSerializer"])
def test_a_value_that_is_not_what_its_serializer_takes_is_refused_by_number(name: str) -> None:
    with pytest.raises(LineError, match="line 12: "):
        FieldReader.of({"value.serializer": name}).read(None, b"\xff", 12)
