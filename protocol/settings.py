"""Settings as attrs fields under Kafka's own names.

A settings class declares each name once with `setting()`; `load()` makes an instance from what a
user wrote, in Kafka's spelling (dots) or Python's (underscores). Every name is either declared,
in the table of names that are accepted with a note, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from protocol.errors import KgroupError

T = TypeVar("T")
Check = Callable[[Any], "str | BadWord | None"]
REQUIRED: Any = attrs.NOTHING

_KEY = "setting"
_HEX = re.compile("[0-9a-fA-F]{4}")
_KEY_TEXT = re.compile(r"(?:\\.|[^\\=:\s])*")


class SettingError(KgroupError, ValueError):
    """A setting that cannot be: `name` says which, the text says why.

    With a `value` it is the value that cannot be, said in the words of Kafka's ConfigException.
    """

    def __init__(self, name: str, reason: str, value: str | None = None) -> None:
        told = name if value is None else f"Invalid value {value} for configuration {name}"
        super().__init__(f"{told}: {reason}")
        self.name = name
        self.reason = reason
        self.value = value

    def renamed(self, name: str) -> SettingError:
        """The same of a setting that goes by another name where it was given."""
        return type(self)(name, self.reason, self.value)


class UnknownSetting(SettingError):
    """A name that no setting has."""


@attrs.frozen
class BadWord:
    """What a check says of a list in which one word is wrong."""

    word: str
    reason: str


@attrs.frozen
class Setting:
    """What `setting()` said of a field."""

    name: str
    doc: str
    validator: Check | None
    aliases: tuple[str, ...]


def setting(
    name: str,
    default: Any = REQUIRED,
    *,
    validator: Check | None = None,
    doc: str = "",
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare the field that holds Kafka's setting `name`."""
    return attrs.field(
        default=default, metadata={_KEY: Setting(name, doc, validator, aliases)}, kw_only=True
    )


def declared(cls: type) -> Mapping[str, Setting]:
    """Field name → setting, of every setting a class declares."""
    return _declared(cls)


@cache
def _declared(cls: type) -> Mapping[str, Setting]:
    return {a.name: a.metadata[_KEY] for a in attrs.fields(cls) if _KEY in a.metadata}


def load(
    cls: type[T], mapping: Mapping[str, Any], *, accepted: Mapping[str, str] | None = None
) -> tuple[T, list[str]]:
    """Make `cls` from `mapping`; return it and a note for each name that has no effect here.

    `accepted` maps names that are taken without effect to the reason. Raises SettingError for an
    unknown name, a name given twice, a missing one, or a value outside its range.
    """
    declaring: type = cls
    names, hints, required = _spellings(declaring), _hints(declaring), _required(declaring)
    allowed = {_plain(name): (name, reason) for name, reason in (accepted or {}).items()}
    values: dict[str, Any] = {}
    notes: list[str] = []
    for given, raw in mapping.items():
        field = names.get(_plain(given))
        if field is None:
            if _plain(given) not in allowed:
                why = "is not a setting known here" + _near(given, cls, names)
                raise UnknownSetting(given, why)
            name, reason = allowed[_plain(given)]
            notes.append(f"{name}={raw}: {reason}")
        elif field in values:
            raise SettingError(given, "is given twice, or with one of its other names")
        else:
            validator = declared(cls)[field].validator
            number = validator.type_name if isinstance(validator, Whole) else "INT"
            values[field] = convert(given, raw, hints[field], number)
    for field, declaration in declared(cls).items():
        if field in values and declaration.validator and values[field] is not None:
            _check(declaration.name, values[field], declaration.validator)
        if field not in values and field in required:
            raise SettingError(declaration.name, "is required")
    return cls(**values), notes


def _check(name: str, value: Any, check: Check) -> None:
    problem = check(value)
    if isinstance(problem, BadWord):
        raise SettingError(name, problem.reason, problem.word)
    if problem:
        shown = f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
        raise SettingError(name, problem, shown)


def convert(name: str, raw: Any, hint: Any, whole_number: str = "INT") -> Any:
    """Read a value given as text, or as the right type already. Raises SettingError, which calls
    whole numbers by Kafka's name of their type."""
    union = get_origin(hint) in (Union, UnionType)
    options = get_args(hint) if union else (hint,)
    kinds = [get_origin(kind) or kind for kind in options if kind is not type(None)]
    optional = len(kinds) < len(options)
    if raw is None and optional:
        return None
    kind = kinds[0]
    try:
        return _CONVERTERS.get(kind, lambda value: value)(raw)
    except (ValueError, TypeError) as error:
        expected = _EXPECTED.get(kind, f"Not a number of type {whole_number}")
        raise SettingError(name, expected, str(raw)) from error


def parse_properties(text: str) -> dict[str, str]:
    """Read java.util.Properties text: comments, `=` or `:`, continued lines, escapes.

    Raises SettingError for an escape that is none.
    """
    found: dict[str, str] = {}
    pending = ""
    for line in (*text.splitlines(), ""):  # a last line may ask for one more
        line = pending + line.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        cut = _KEY_TEXT.match(line).end()  # type: ignore[union-attr]
        key, rest = line[:cut], line[cut:].lstrip()
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip()
        found[_unescape(key)] = _unescape(rest.rstrip())
    return found


def ge(least: float) -> Check:
    """At least `least`."""
    return lambda value: None if value >= least else f"Value must be at least {least}"


def gt(bound: float) -> Check:
    """More than `bound`."""
    return lambda value: None if value > bound else f"Value must be more than {bound}"


def between(least: float, most: float) -> Check:
    """From `least` to `most`, both included."""

    def check(value: float) -> str | None:
        if value < least:
            return f"Value must be at least {least}"
        return None if value <= most else f"Value must be no more than {most}"

    return check


@attrs.frozen
class Whole:
    """A whole number, at least `least`, that Kafka keeps in one of Java's types."""

    type_name: str
    least: int
    most: int

    def __call__(self, value: int) -> str | None:
        if not -self.most - 1 <= value <= self.most:
            return f"Not a number of type {self.type_name}"
        return None if value >= self.least else f"Value must be at least {self.least}"


def int32(least: int) -> Whole:
    """An INT of Kafka's, at least `least`."""
    return Whole("INT", least, 2**31 - 1)


def int64(least: int) -> Whole:
    """A LONG of Kafka's, at least `least`."""
    return Whole("LONG", least, 2**63 - 1)


def one_of(*allowed: Any) -> Check:
    """One of the values given."""
    kind = "String" if all(isinstance(a, str) for a in allowed) else "Value"
    words = ", ".join(str(a) for a in allowed)
    return lambda value: None if value in allowed else f"{kind} must be one of: {words}"


def each_of(*allowed: str) -> Check:
    """A list of the values given."""
    words = ", ".join(allowed)

    def check(value: tuple[str, ...]) -> BadWord | None:
        wrong = next((word for word in value if word not in allowed), None)
        return None if wrong is None else BadWord(wrong, f"String must be one of: {words}")

    return check


def _boolean(raw: Any) -> bool:
    words = {"true": True, "false": False}
    if isinstance(raw, bool):
        return raw
    return words[str(raw).strip().lower()] if str(raw).strip().lower() in words else _refuse()


def _refuse() -> bool:
    raise ValueError("neither true nor false")


def _integer(raw: Any) -> int:
    if isinstance(raw, bool | float):
        raise ValueError("not an integer")
    return int(raw)


def _words(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = raw.split(",")
    return tuple(word.strip() for word in raw if word.strip())


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    bool: _boolean,
    int: _integer,
    float: float,
    str: lambda raw: str(raw).strip(),
    tuple: _words,
}

_EXPECTED: dict[Any, str] = {
    bool: "Expected value to be either true or false",
    float: "Not a number of type DOUBLE",
    str: "Expected value to be a string",
    tuple: "Expected a comma separated list.",
}


def _plain(name: str) -> str:
    return name.replace(".", "_").replace("-", "_").lower()


_hints = cache(get_type_hints)


@cache
def _required(cls: type) -> frozenset[str]:
    """The fields that have no default."""
    return frozenset(a.name for a in attrs.fields(cls) if a.default is attrs.NOTHING)


@cache
def _spellings(cls: type) -> Mapping[str, str]:
    spellings: dict[str, str] = {}
    for field, declaration in declared(cls).items():
        for name in (declaration.name, field, *declaration.aliases):
            spellings[_plain(name)] = field
    return spellings


def _near(given: str, cls: type, names: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(_plain(given), names, n=1, cutoff=0.8)
    return f"; did you mean {declared(cls)[names[close[0]]].name}?" if close else ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, i = [], 0
    plain = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    while i < len(text):
        char = text[i]
        if char == "\\" and i + 1 < len(text):
            i += 1
            if text[i] == "u":
                if not _HEX.fullmatch(text, i + 1, i + 5):
                    raise SettingError(text, "a \\u escape has four hexadecimal digits")
                out.append(chr(int(text[i + 1 : i + 5], 16)))
                i += 4
            else:
                out.append(plain.get(text[i], text[i]))
        else:
            out.append(char)
        i += 1
    return "".join(out)
