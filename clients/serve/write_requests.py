"""Read the bodies of requests that write: JSON under the names of the commands' options. Pure."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import click

from clients.command_line.topic_scope import TopicScope
from clients.kgroup.reset import DateTime, Duration, position_of
from clients.kgroup.scope import Scope
from clients.resets.offset_export import MAX_OFFSET
from clients.resets.reset_plan import Position, ToTime
from protocol.frozen import frozen

MAX_REASON_LENGTH = 1000
MAX_NAME_LENGTH = 100

_WHERE: Mapping[str, tuple[type, click.ParamType | None]] = {  # type: ignore[type-arg]
    "to_earliest": (bool, None),
    "to_latest": (bool, None),
    "to_current": (bool, None),
    "to_offset": (int, click.IntRange(0, MAX_OFFSET)),
    "shift_by": (int, click.IntRange(-MAX_OFFSET, MAX_OFFSET)),
    "to_datetime": (str, DateTime()),
    "by_duration": (str, Duration()),
}
"""Where a reset goes to -> the type of JSON, and that of the option."""

_SCOPES = ("topics", "all_topics")
_OPTIONS = ("execute", "reason", "who")
RESET_FIELDS = (*_WHERE, *_SCOPES, *_OPTIONS)
UNDO_FIELDS = _OPTIONS

_TYPES = {bool: "true or false", int: "a whole number", str: "a string", list: "a list"}


class BadRequest(ValueError):
    """A body that cannot be meant; the text says what to correct."""


@frozen
class WriteOptions:
    """The options of every request that writes: by default it writes nothing."""

    execute: bool
    reason: str | None
    who: str | None


def read_object(content: bytes, fields: Collection[str]) -> dict[str, Any]:
    """Return a body that has no other fields than these. Raises BadRequest."""
    try:
        body = json.loads(content)
        # A lone surrogate could be stored, and never be shown.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None

    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object")
    unknown = sorted(body.keys() - set(fields))
    if unknown:
        raise BadRequest(f"unknown field {unknown[0]!r}: there are {', '.join(fields)}")
    return body


def read_options(body: Mapping[str, Any]) -> WriteOptions:
    """Return whether to write, why, and who says so. Raises BadRequest."""
    reason = _read(body, "reason", str)
    if reason is not None and len(reason) > MAX_REASON_LENGTH:
        raise BadRequest(f"reason has more than {MAX_REASON_LENGTH} characters")

    who = _read(body, "who", str)
    if who is not None and (len(who) > MAX_NAME_LENGTH or not who.isprintable()):
        raise BadRequest(f"who is not a name of up to {MAX_NAME_LENGTH} printable characters")
    return WriteOptions(bool(_read(body, "execute", bool)), reason or None, who or None)


def read_position(body: Mapping[str, Any]) -> Position:
    """Return where to. Raises BadRequest."""
    wanted: dict[str, Any] = {}
    for name, (json_type, option_type) in _WHERE.items():
        value = _read(body, name, json_type)
        if value is not None and option_type is not None:
            try:
                value = option_type.convert(value, None, None)
            except click.BadParameter as error:
                raise BadRequest(f"{name}: {error.message}") from None
        wanted[name] = value

    if sum(value is not None and value is not False for value in wanted.values()) != 1:
        raise BadRequest(f"say where to with exactly one of {', '.join(_WHERE)}")
    position = position_of(False, **wanted)
    if isinstance(position, ToTime) and position.time_ms > MAX_OFFSET:
        raise BadRequest("the time is too far away")
    return position


def read_scopes(body: Mapping[str, Any]) -> tuple[TopicScope, ...] | None:
    """Return the topics that are named; None for all that have an offset. Raises BadRequest."""
    topics = _read(body, "topics", list)
    if (topics is not None) == bool(_read(body, "all_topics", bool)):
        raise BadRequest('name topics, as ["flights", "flights:0,1"], or give all_topics')
    if topics is None:
        return None

    if not topics or not all(isinstance(topic, str) and topic for topic in topics):
        raise BadRequest('topics is a list of names, as ["flights", "flights:0,1"]')
    try:
        return tuple(Scope().convert(topic, None, None) for topic in topics)
    except click.BadParameter as error:
        raise BadRequest(f"topics: {error.message}") from None
    except ValueError:
        raise BadRequest("topics: no partition has such a number") from None


def _read(body: Mapping[str, Any], name: str, wanted: type) -> Any:
    """Return a field, None without it. A bool is no number here, as in JSON."""
    value = body.get(name)
    if value is not None and type(value) is not wanted:
        raise BadRequest(f"{name} is {_TYPES[wanted]}")
    return value
