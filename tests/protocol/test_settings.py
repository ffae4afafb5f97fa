"""Settings: both spellings, notes, refusals, properties files."""

from __future__ import annotations

import attrs
import pytest

from clients.fetch_requests import Isolation
from protocol.settings import (
    SettingError,
    between,
    convert,
    each_of,
    ge,
    load,
    one_of,
    parse_properties,
    setting,
)


@attrs.frozen
class Sample:
    group_id: str = setting("group.id")
    fetch_min_bytes: int = setting("fetch.min.bytes", 1, validator=ge(1))
    ratio: float = setting("some.ratio", 0.5, validator=between(0, 1))
    auto: bool = setting("auto.commit.enable", True, aliases=("enable.auto.commit",))
    reset: str = setting("auto.offset.reset", "largest", validator=one_of("smallest", "largest"))
    policy: tuple[str, ...] = setting("policy", ("delete",), validator=each_of("delete", "compact"))
    limit: int | None = setting("limit", None)
    dirs: tuple[str, ...] | None = setting("dirs", None)


@pytest.mark.parametrize("name", ["fetch.min.bytes", "fetch_min_bytes"])
def test_dots_and_underscores_name_the_same_setting(name: str) -> None:
    made, _ = load(Sample, {"group.id": "g", name: "7"})
    assert made.fetch_min_bytes == 7


def test_an_alias_sets_the_field() -> None:
    assert load(Sample, {"group_id": "g", "enable.auto.commit": "FALSE"})[0].auto is False


def test_a_value_of_an_enumeration_is_its_name() -> None:
    assert load(Sample, {"group.id": Isolation.READ_COMMITTED})[0].group_id == "read_committed"


def test_a_list_that_may_be_absent_is_read_from_text_as_a_list() -> None:
    assert load(Sample, {"group.id": "g", "dirs": "/a, /b"})[0].dirs == ("/a", "/b")


def test_a_value_of_the_right_type_is_taken_as_it_is() -> None:
    made, _ = load(Sample, {"group.id": "g", "ratio": 0.25, "policy": ["compact"], "limit": 3})
    assert (made.ratio, made.policy, made.limit) == (0.25, ("compact",), 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fetch.min.bytes": 1}, "group.id: is required"),
        ({"group.id": "g", "fetch.min.byte": 1}, "did you mean fetch.min.bytes"),
        (
            {"group.id": "g", "fetch.min.bytes": 0},
            "Invalid value 0 for configuration fetch.min.bytes: Value must be at least 1",
        ),
        (
            {"group.id": "g", "fetch.min.bytes": "x"},
            "Invalid value x for configuration fetch.min.bytes: Not a number of type INT",
        ),
        (
            {"group.id": "g", "auto.commit.enable": "yes"},
            "Expected value to be either true or false",
        ),
        (
            {"group.id": "g", "auto.offset.reset": "none"},
            "String must be one of: smallest, largest",
        ),
        (
            {"group.id": "g", "policy": "delete,burn"},
            "Invalid value burn for configuration policy: String must be one of: delete, compact",
        ),
        ({"group.id": "g", "group_id": "h"}, "given twice"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        load(Sample, given)


@pytest.mark.fault("strangers-167")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group.id": None}, "Invalid value None for configuration group.id: Expected value to be"),
        ({"group.id": b"g"}, "Invalid value b'g' for configuration group.id: Expected value to be"),
        ({"group.id": ["g"]}, "Expected value to be a string"),
        ({"group.id": "g", "policy": b"compact"}, "Expected a comma separated list"),
        ({"group.id": "g", "policy": {"compact": 1}}, "Expected a comma separated list"),
        ({"group.id": "g", "policy": ["compact", None]}, "Expected a comma separated list"),
        ({"group.id": "g", "dirs": [b"/a"]}, "Expected a comma separated list"),
    ],
)
def test_what_is_no_text_is_not_made_one(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        load(Sample, given)


def test_settings_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^settings are a mapping of names to values, not 'a=b'$"):
        load(Sample, "a=b")  # type: ignore[arg-type]


def test_the_name_of_a_setting_is_text() -> None:
    with pytest.raises(TypeError, match=r"^the name of a setting, 5, must be a str$"):
        load(Sample, {5: 1})  # type: ignore[dict-item]


def test_an_error_shows_the_begin_of_a_long_value() -> None:
    with pytest.raises(SettingError, match=r"^Invalid value x{200}… for configuration"):
        load(Sample, {"group.id": "g", "limit": "x" * 40_000})


# Java 17: Integer.parseInt(text.trim()) and Double.parseDouble(text.trim()).
@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("+5", 5), ("-0", 0), ("010", 10), (" 5\t", 5), ("\x1f5", 5)],
)
def test_an_integer_that_kafka_takes_is_taken(text: str, number: int) -> None:
    assert load(Sample, {"group.id": "g", "limit": text})[0].limit == number


@pytest.mark.parametrize(
    "text",
    ["1_000", "--5", "+ 5", "0x10", "5.0", "1e3", "5L", "", "+", "\u00a05", "5\n6", "\U0001d7d3"],
)
def test_an_integer_that_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="Not a number of type INT"):
        load(Sample, {"group.id": "g", "limit": text})


@pytest.mark.parametrize(
    ("text", "number"),
    [(".5", 0.5), ("1.", 1.0), ("+.5", 0.5), (" 5e-1 ", 0.5), ("5E-1", 0.5), ("-0.0", 0.0)],
)
def test_a_double_that_kafka_takes_is_taken(text: str, number: float) -> None:
    assert load(Sample, {"group.id": "g", "ratio": text})[0].ratio == number


def test_javas_words_for_infinite_doubles_are_taken() -> None:
    assert convert("ratio", "+Infinity", float) == float("inf")
    assert convert("ratio", "-Infinity", float) == float("-inf")
    assert str(convert("ratio", "NaN", float)) == "nan"


@pytest.mark.parametrize(
    "text",
    [
        "0_0.5",
        "nan",
        "inf",
        "infinity",
        "0x1",
        "",
        ".",
        "e1",
        "1L",
        "\u0661.5",
        "\u00a01",
        "\uff11",
    ],
)
def test_a_double_that_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="Not a number of type DOUBLE"):
        load(Sample, {"group.id": "g", "ratio": text})


@pytest.mark.parametrize("name", ["limit", "ratio"])
def test_a_boolean_is_no_number(name: str) -> None:
    with pytest.raises(SettingError, match="Not a number of type"):
        load(Sample, {"group.id": "g", name: True})


@pytest.mark.parametrize("value", [1.5, b"1"])
def test_a_value_of_another_type_is_no_integer(value: object) -> None:
    with pytest.raises(SettingError, match="Not a number of type INT"):
        load(Sample, {"group.id": "g", "limit": value})


def test_an_accepted_name_gives_a_note_that_says_why() -> None:
    _, notes = load(Sample, {"group.id": "g", "num.threads": 3}, accepted={"num.threads": "one"})
    assert notes == ["num.threads=3: one"]


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# comment\n! too\n a = 1\nb:2\nc 3\nd=x\\\n   y\ne\\=f=g\\u0041\\n\nempty=\n"
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "xy",
        "e=f": "gA\n",
        "empty": "",
    }


# Java 17: Properties.load(new StringReader(text)).
@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b\\ ", {"a": "b "}),
        ("a=b  ", {"a": "b  "}),
        ("a=b\\  ", {"a": "b  "}),
        ("a=b\t", {"a": "b\t"}),
        ("a=b\\\\ ", {"a": "b\\ "}),
        ("a=b\\u0020 ", {"a": "b  "}),
        ("a=\\ b", {"a": " b"}),
        ("a = \\ \\ ", {"a": "  "}),
        ("a ", {"a": ""}),
        ("a=b \\\n  c", {"a": "b c"}),
        ("a=b \\", {"a": "b "}),
        ("a=b \r\nc=d \r", {"a": "b ", "c": "d "}),
        ("a=b\\\r\n c=d", {"a": "bc=d"}),
        # What Java takes neither for the end of a line nor for white space.
        ("a=b\fc=d", {"a": "b\fc=d"}),
        ("a=\f b", {"a": "b"}),
        ("a:\x0bb", {"a": "\x0bb"}),
        ("a=b\u0085c=d", {"a": "b\u0085c=d"}),
        ("a=b\u2028c=d", {"a": "b\u2028c=d"}),
        (" \u00a0x=1", {"\u00a0x": "1"}),
        ("a\u00a0b=1", {"a\u00a0b": "1"}),
    ],
)
def test_white_space_in_properties_is_javas(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_white_space_at_the_end_of_a_value_is_trimmed_when_it_is_loaded() -> None:
    made, _ = load(Sample, parse_properties("group.id=g\\ \nlimit=7 \ndirs=/a, /b \n"))
    assert (made.group_id, made.limit, made.dirs) == ("g", 7, ("/a", "/b"))


def test_a_last_line_that_is_to_be_continued_is_not_lost() -> None:
    assert parse_properties("a=1\nlog.dirs=/data\\") == {"a": "1", "log.dirs": "/data"}


@pytest.mark.fault("security-4")
@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", 'a=name="D\\user" password="p"'])
def test_an_escape_that_is_none_is_refused_without_the_value(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_properties(text)
    reason = "a \\u escape has four hexadecimal digits; a backslash is written \\\\"
    assert str(refused.value) == f"a: {reason}"


def test_an_escape_that_is_none_in_a_name_is_refused_by_its_line() -> None:
    with pytest.raises(SettingError, match=r"^line 2: a .u escape"):
        parse_properties("a=1\n\\user:password\n")
