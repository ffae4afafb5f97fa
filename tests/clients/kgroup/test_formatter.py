"""Messages to lines."""

import json

import attrs

from clients.kgroup.formatter import Headers, json_line, line_formatter


@attrs.frozen
class Record:
    topic: str = "flights"
    partition: int = 1
    offset: int = 7
    timestamp_ms: int = 1_418_710_530_123
    timestamp_type: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Headers = ()


def test_by_default_a_line_is_the_value() -> None:
    assert line_formatter({})(Record()) == b"v\n"


def test_columns_stand_in_kafkas_order() -> None:
    wanted = ["timestamp", "key", "partition", "offset", "headers"]
    line = line_formatter({f"print.{name}": "true" for name in wanted})
    expected = b"CreateTime:1418710530123\tPartition:1\tOffset:7\ta:1,b:null\tk\tv\n"
    assert line(Record(headers=(("a", b"1"), ("b", None)))) == expected


def test_separators_and_the_word_for_null_are_settable() -> None:
    line = line_formatter(
        {"print.key": "true", "key.separator": " = ", "line.separator": ";", "null.literal": "~"}
    )
    assert line(Record(key=None)) == b"~ = v;"


def test_a_message_without_timestamp_says_so() -> None:
    line = line_formatter({"print.timestamp": "true", "print.value": "false"})
    assert line(Record(timestamp_ms=-1)) == b"NO_TIMESTAMP\n"


def test_a_flag_is_set_by_the_word_true_alone() -> None:
    line = line_formatter({"print.key": " TRUE ", "print.value": "yes"})
    assert line(Record()) == b"k\n"


def test_bytes_pass_through_a_line_untouched() -> None:
    assert line_formatter({})(Record(value=b"\xff\x00")) == b"\xff\x00\n"


def test_a_json_line_is_one_object_with_base64_for_what_is_not_text() -> None:
    line = json_line(Record(key=b"\xff", value=None, headers=(("h", "é".encode()),)))
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "flights",
        "partition": 1,
        "offset": 7,
        "timestamp": 1_418_710_530_123,
        "key_base64": "/w==",
        "value": None,
        "headers": [{"key": "h", "value": "é"}],
    }


def test_a_json_line_has_nothing_that_a_terminal_obeys() -> None:
    line = json_line(Record(value="\x9b2J\u202e".encode()))
    assert line.isascii()
    assert json.loads(line)["value"] == "\x9b2J\u202e"


def test_a_line_break_in_a_value_stays_inside_its_json_line() -> None:
    assert json_line(Record(value=b"a\nb")).count(b"\n") == 1
