"""Golden transcripts: scenarios in a text file, and below each line what came of it.

    == a member alone in its group
    SessionEstablished(7)
        Abandon
        ResumeDelivery
        Register(session_id=7)
        => REGISTERING

A line that begins in the first column is an expression: an event, built of the names that the
machine under test offers. The indented lines below it are the effects, in order, and after `=>` a
summary of the state where it changed. A line whose value is None prepares the scene. `==` begins a
scenario with a new machine; `#` is a comment.

`retell` replays the lines and writes the indented ones anew. A test compares that with the file;
`pytest --update-transcripts` replaces the file, and the change is reviewed as a diff.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol

import attrs

from protocol.topic_partition import TopicPartition

WIDTH = 100
STEP = "    "
NOTHING = "nothing"


class Machine(Protocol):
    """What a scenario drives: a state, and the function that decides."""

    shorthands: ClassVar[Shorthands]

    def names(self) -> Mapping[str, Any]:
        """Return what the lines of a scenario may use: events and shorthands of this machine."""

    def take(self, event: Any) -> Iterable[Any]:
        """Decide an event. Return its effects, or lines of text, in order."""

    def summary(self) -> str:
        """Return the state in a few words."""


def compare(path: Path, new_machine: Callable[[], Machine], *, is_update: bool = False) -> None:
    """Replay the scenarios of a file. Raises AssertionError, with a diff, if anything differs."""
    expected = path.read_text("utf-8")
    actual = retell(expected, new_machine)
    if is_update:
        path.write_text(actual, "utf-8")
        return

    difference = difflib.unified_diff(
        expected.splitlines(), actual.splitlines(), str(path), "what happens now", lineterm=""
    )
    if actual != expected:
        hint = "if this is right: pytest --update-transcripts, and review the diff"
        raise AssertionError("\n".join([*difference, hint]))


def retell(text: str, new_machine: Callable[[], Machine]) -> str:
    """Replay all scenarios of a text; return it with what comes of each line now."""
    told: list[str] = []
    machine: Machine | None = None
    summary = ""

    for line in text.splitlines():
        if line.startswith(" "):
            continue  # the outcome of an earlier run

        told.append(line)
        if line.startswith("== "):
            machine = new_machine()
            summary = machine.summary()
        elif line and not line.startswith("#"):
            assert machine is not None, f"no scenario has begun at {line!r}"
            told += _outcome(machine, line, summary)
            summary = machine.summary()

    return "\n".join(told) + "\n"


def _outcome(machine: Machine, line: str, summary_before: str) -> list[str]:
    """Return the indented lines below a line of the scenario."""
    event = eval(line, {"__builtins__": {}}, {"frozenset": frozenset, **machine.names()})
    effects = () if event is None else machine.take(event)

    writer = Writer(machine.shorthands)
    lines = [
        STEP + part
        for effect in effects
        for part in (effect if isinstance(effect, str) else writer.write(effect)).splitlines()
    ]
    summary = machine.summary()
    if summary != summary_before:
        lines.append(f"{STEP}=> {summary}")
    if event is not None and not lines:
        lines.append(STEP + NOTHING)
    return lines


# ---- values in words


Shorthands = Mapping[type, Callable[[Any], str]]


@attrs.frozen
class Writer:
    """Values as text. `shorthands` has, by type, how a family of tests writes its own values."""

    shorthands: Shorthands = attrs.field(factory=dict)

    def write(self, value: Any, width: int = WIDTH - len(STEP)) -> str:
        """Return a value as text: on one line if it fits, else a field or an item a line."""
        whole = self.flat(value)
        inner = width - len(STEP) - 1
        if len(whole) <= width or type(value) in self.shorthands:
            return whole

        if is_record(value):
            items = [
                f"{name}={self.write(item, inner - len(name) - 1)}" for name, item in fields(value)
            ]
            opening, closing = f"{type(value).__name__}(", ")"
        elif isinstance(value, Mapping):
            items = [
                f"{self.flat(key)}: {self.write(value[key], inner - len(self.flat(key)) - 2)}"
                for key in self._in_order(value)
            ]
            opening, closing = "{", "}"
        elif isinstance(value, Set):
            items = [self.write(item, inner) for item in self._in_order(value)]
            opening, closing = "{", "}"
        elif is_list(value):
            items = [self.write(item, inner) for item in value]
            opening, closing = brackets(value)
        else:
            return whole

        body = "\n".join(STEP + part for item in items for part in f"{item},".splitlines())
        return f"{opening}\n{body}\n{closing}"

    def flat(self, value: Any) -> str:
        """Return a value on one line."""
        if type(value) in self.shorthands:
            return self.shorthands[type(value)](value)
        if isinstance(value, TopicPartition | BaseException):
            return str(value)
        if isinstance(value, Enum):
            return value.name
        if is_record(value):
            inside = ", ".join(f"{name}={self.flat(item)}" for name, item in fields(value))
            return f"{type(value).__name__}({inside})" if inside else type(value).__name__
        if isinstance(value, Mapping):
            pairs = (f"{self.flat(key)}: {self.flat(value[key])}" for key in self._in_order(value))
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, Set):
            return "{" + ", ".join(map(self.flat, self._in_order(value))) + "}"
        if is_list(value):
            opening, closing = brackets(value)
            return opening + ", ".join(map(self.flat, value)) + closing
        return repr(value)

    def _in_order(self, items: Iterable[Any]) -> list[Any]:
        """Sort what has no order of its own: by value, or by its words where values have none."""
        try:
            return sorted(items)
        except TypeError:
            return sorted(items, key=self.flat)


def is_record(value: Any) -> bool:
    """Return whether a value has named fields: an attrs object or a named tuple."""
    return attrs.has(type(value)) or hasattr(value, "_fields")


def is_list(value: Any) -> bool:
    """Return whether a value is a sequence of items, and no text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def brackets(items: Sequence[Any]) -> tuple[str, str]:
    """Return what stands around a sequence."""
    return ("(", ")") if isinstance(items, tuple) else ("[", "]")


def fields(record: Any) -> list[tuple[str, Any]]:
    """Return the fields of a record that differ from their defaults."""
    if hasattr(record, "_fields"):
        defaults = record._field_defaults
        pairs = zip(record._fields, record, strict=True)
        return [(name, item) for name, item in pairs if item != defaults.get(name, attrs.NOTHING)]

    different = []
    for field in attrs.fields(type(record)):
        item, default = getattr(record, field.name), field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = default.factory()
        if item != default:
            different.append((field.name, item))
    return different
