"""Settings: both spellings, notes, refusals, properties files."""

from __future__ import annotations

import attrs
import pytest

from protocol.settings import (
    SettingError,
    between,
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


def test_an_accepted_name_gives_a_note_that_says_why() -> None:
    _, notes = load(Sample, {"group.id": "g", "num.threads": 3}, accepted={"num.threads": "one"})
    assert notes == ["num.threads=3: one"]


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# comment\n! too\n a = 1 \nb:2\nc 3\nd=x\\\n   y\ne\\=f=g\\u0041\\n\nempty=\n"
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "xy",
        "e=f": "gA\n",
        "empty": "",
    }


def test_a_last_line_that_is_to_be_continued_is_not_lost() -> None:
    assert parse_properties("a=1\nlog.dirs=/data\\") == {"a": "1", "log.dirs": "/data"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u"])
def test_an_escape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="four hexadecimal digits"):
        parse_properties(text)
