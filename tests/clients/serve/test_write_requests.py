"""Bodies of requests that write: what they mean, and what cannot be meant."""

import json
from typing import Any

import pytest

from clients.command_line.topic_scope import TopicScope
from clients.resets.reset_plan import Named, Position, ShiftBy, ToOffset, ToTime
from clients.serve.write_requests import (
    RESET_FIELDS,
    BadRequest,
    WriteOptions,
    read_object,
    read_options,
    read_position,
    read_scopes,
)


@pytest.mark.parametrize(
    ("body", "position"),
    [
        ({"to_earliest": True}, Named.EARLIEST),
        ({"to_latest": True, "to_earliest": False}, Named.LATEST),
        ({"to_offset": 0}, ToOffset(0)),
        ({"shift_by": -100}, ShiftBy(-100)),
        ({"to_datetime": "2013-06-01T12:00:00.000"}, ToTime(1_370_088_000_000)),
    ],
)
def test_position_is_spelt_as_the_command_spells_it(
    body: dict[str, Any], position: Position
) -> None:
    assert read_position(body) == position


def test_request_that_says_nothing_of_it_is_a_dry_run() -> None:
    assert read_options({}) == WriteOptions(False, None, None)


def test_topics_may_have_partitions() -> None:
    scopes = (TopicScope("a"), TopicScope("b", frozenset({0, 2})))
    assert read_scopes({"topics": ["a", "b:0,2"]}) == scopes
    assert read_scopes({"all_topics": True}) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'{"reason": "\\ud800"}', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"to-earliest": true}', "unknown field 'to-earliest'"),
    ],
)
def test_body_that_is_no_object_of_known_fields_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        read_object(content, RESET_FIELDS)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "exactly one of"),
        ({"to_earliest": False}, "exactly one of"),
        ({"to_earliest": True, "to_offset": 3}, "exactly one of"),
        ({"to_earliest": 1}, "to_earliest is true or false"),
        ({"to_offset": True}, "to_offset is a whole number"),
        ({"to_offset": -1}, "to_offset"),
        ({"to_offset": 1 << 63}, "to_offset"),
        ({"shift_by": "5"}, "shift_by is a whole number"),
        ({"to_datetime": "latest"}, "not a time"),
        ({"by_duration": "an hour"}, "not a duration"),
        ({"by_duration": f"P{'9' * 400}D"}, "is longer than 64 bits of ms"),
        ({"by_duration": f"-P{'9' * 30}D"}, "is longer than 64 bits of ms"),
        ({"by_duration": "-P106751991167D"}, "too far away"),
    ],
)
def test_position_that_cannot_be_meant_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        read_position(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": []},
        {"topics": "flights"},
        {"topics": [""]},
        {"topics": [7]},
        {"topics": ["flights:x"]},
        {"topics": [f"flights:{'9' * 5000}"]},
        {"topics": ["flights"], "all_topics": True},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_topics_that_cannot_be_meant_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="topic"):
        read_scopes(body)


@pytest.mark.parametrize(
    "body",
    [
        {"execute": "yes"},
        {"reason": 7},
        {"reason": "x" * 1001},
        {"who": "x" * 101},
        {"who": "a\nb"},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_options_that_cannot_be_meant_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        read_options(body)
