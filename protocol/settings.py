"""Settings as attrs fields under Kafka's own names.

A settings class declares each name once with `setting()`. `load()` makes an instance from a user's
settings, spelled as in Kafka (with dots) or in Python (with underscores). A name that the class
does not declare is accepted with a note if the caller lists it, and refused otherwise.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from protocol.errors import KgroupError
from protocol.frozen import frozen

T = TypeVar("T")
Check = Callable[[Any], "str | BadWord | None"]
REQUIRED: Any = attrs.NOTHING

_KEY = "setting"
_HEX = re.compile("[0-9a-fA-F]{4}")

# java.util.Properties: lines end with \n, \r or both, and three characters are white space. Python
# would end a line at a form feed or U+0085, too, and take a no-break space for white space.
_LINE_END = re.compile(r"\r\n?|\n")
_WHITE_SPACE = " \t\f"
# A key ends at the first `=`, `:` or white space without a backslash.
_KEY_TEXT = re.compile(r"(?:\\.|[^\\=: \t\f])*")

# Names of settings whose values are never shown.
_SECRET = re.compile(
    r"(password|encoder\.(old\.)?secret|(secret|master|keystore)\.key"
    r"|certificate\.chain|truststore\.certificates|jaas\.config|zookeeper\.digest)$"
)
HIDDEN = "[hidden]"
"""Stands for a secret value, as in Kafka."""
_MAX_SHOWN = 200
"""Characters of a value that an error shows, at most."""

# Numbers as both Java and Python read them. Python alone takes 1_000, nan and inf.
_INTEGER = re.compile("[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)")
# Java's trim() removes control characters and spaces, and no other white space.
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))


class SettingError(KgroupError, ValueError):
    """A setting is not valid; `name` is its name as the user gave it, `reason` says why.

    If its `value` is not valid, the message is that of Kafka's ConfigException.
    """

    def __init__(self, name: str, reason: str, value: str | None = None) -> None:
        subject = name
        if value is not None:
            shown = value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"
            subject = f"Invalid value {shown} for configuration {name}"
        super().__init__(f"{subject}: {reason}")
        self.name = name
        self.reason = reason
        self.value = value

    def with_name(self, name: str) -> SettingError:
        """Return the same error for the name under which the user gave the setting."""
        return type(self)(name, self.reason, self.value)


class UnknownSetting(SettingError):
    """No setting has this name."""


@frozen
class BadWord:
    """The verdict of a check on a list with one wrong word."""

    word: str
    reason: str


@frozen
class Setting:
    """The declaration of a field by `setting()`."""

    name: str
    doc: str
    validator: Check | None
    aliases: tuple[str, ...]
    when_missing: str


def setting(
    name: str,
    default: Any = REQUIRED,
    *,
    validator: Check | None = None,
    doc: str = "",
    aliases: tuple[str, ...] = (),
    when_missing: str = "is required",
) -> Any:
    """Declare the field that holds Kafka's setting `name`."""
    return attrs.field(
        default=default,
        metadata={_KEY: Setting(name, doc, validator, aliases, when_missing)},
        kw_only=True,
        repr=not is_secret(name),
    )


def declared_settings(cls: type) -> Mapping[str, Setting]:
    """Return the settings that a class declares, by the names of their fields."""
    return _declared_settings(cls)


@cache
def _declared_settings(cls: type) -> Mapping[str, Setting]:
    return {
        field.name: field.metadata[_KEY] for field in attrs.fields(cls) if _KEY in field.metadata
    }


def type_name(cls: type, field: str) -> str:
    """Return Kafka's name of the type of a setting: BOOLEAN, STRING, INT, SHORT, LONG, ..."""
    declaration = declared_settings(cls)[field]
    if isinstance(declaration.validator, Whole):
        return declaration.validator.type_name
    return _TYPE_NAMES[_kind(_hints(cls)[field])]


def load(
    cls: type[T], mapping: Mapping[str, Any], *, accepted: Mapping[str, str] | None = None
) -> tuple[T, list[str]]:
    """Make `cls` from `mapping`; return it and a note for each name that has no effect.

    `accepted` maps the names that are accepted without effect to the reason. Raises SettingError
    for an unknown name, a name given twice, a missing one, or a value outside its range.
    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"settings are a mapping of names to values, not {mapping!r:.60}")

    declaring: type = cls
    # Names are compared without regard to dots, dashes and capital letters.
    fields = _spellings(declaring)
    hints = _hints(declaring)
    required = _required(declaring)
    allowed = {_normalize(name): (name, reason) for name, reason in (accepted or {}).items()}
    values: dict[str, Any] = {}
    notes: list[str] = []

    # Convert the values that were given.
    for given_name, raw in mapping.items():
        if not isinstance(given_name, str):
            raise TypeError(f"the name of a setting, {given_name!r}, must be a str")
        field = fields.get(_normalize(given_name))
        if field is None:
            if _normalize(given_name) not in allowed:
                problem = "is not a setting known here" + _suggestion(given_name, cls, fields)
                raise UnknownSetting(given_name, problem)
            # The setting has no effect here: take note of it.
            name, reason = allowed[_normalize(given_name)]
            notes.append(f"{name}={HIDDEN if is_secret(name) else raw}: {reason}")
        elif field in values:
            raise SettingError(given_name, "is given twice, or with one of its other names")
        else:
            # Kafka's message names the type, INT or LONG.
            validator = declared_settings(cls)[field].validator
            number = validator.type_name if isinstance(validator, Whole) else "INT"
            values[field] = convert(given_name, raw, hints[field], number)

    # Check ranges, and that nothing is missing.
    for field, declaration in declared_settings(cls).items():
        if field in values and declaration.validator and values[field] is not None:
            _check(declaration.name, values[field], declaration.validator)
        if field not in values and field in required:
            raise SettingError(declaration.name, declaration.when_missing)

    return cls(**values), notes


def _check(name: str, value: Any, check: Check) -> None:
    problem = check(value)
    if isinstance(problem, BadWord):
        raise SettingError(name, problem.reason, problem.word)
    if problem:
        # A list is shown as Java shows it.
        shown = f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
        if is_secret(name):
            shown = HIDDEN
        raise SettingError(name, problem, shown)


def convert(name: str, raw: Any, hint: Any, whole_number: str = "INT") -> Any:
    """Convert a value that is text, or of the right type already.

    Raises SettingError, which names whole numbers by `whole_number`, Kafka's name of their type.
    """
    if raw is None and type(None) in get_args(hint):
        return None

    # The error says in Kafka's words what is expected, not why Python refuses the value.
    kind = _kind(hint)
    try:
        return _CONVERTERS.get(kind, lambda value: value)(raw)
    except (ValueError, TypeError) as error:
        expected = _EXPECTED.get(kind, f"Not a number of type {whole_number}")
        raise SettingError(name, expected, HIDDEN if is_secret(name) else str(raw)) from error


def _kind(hint: Any) -> Any:
    """Return the class of values whose type is X or X | None."""
    union = get_origin(hint) in (Union, UnionType)
    options = get_args(hint) if union else (hint,)
    return next(get_origin(kind) or kind for kind in options if kind is not type(None))


def is_secret(name: str) -> bool:
    """Return whether the values of a setting with this name are never shown."""
    return _SECRET.search(name) is not None


# ---- files of settings


def parse_properties(text: str) -> dict[str, str]:
    """Read java.util.Properties text: comments, `=` or `:`, continued lines, escapes.

    White space at the end of a value belongs to it; `load` trims values, as Kafka's ConfigDef does.
    Raises SettingError for an invalid escape.
    """
    properties: dict[str, str] = {}
    pending = ""
    for number, line in enumerate((*_LINE_END.split(text), ""), 1):  # the last may be continued
        # White space at the beginning of a continued line does not count.
        line = pending + line.lstrip(_WHITE_SPACE)
        pending = ""
        if not line or line[0] in "#!":
            continue

        # An odd number of backslashes at the end continues the line.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue

        # Between key and value is `=`, `:` or white space alone.
        key_end = _KEY_TEXT.match(line).end()  # type: ignore[union-attr]
        key = line[:key_end]
        rest = line[key_end:].lstrip(_WHITE_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_WHITE_SPACE)
        name = _unescape(key, f"line {number}")
        # The text of a value may be a password (fault security-4, was: _unescape(rest, rest)).
        properties[name] = _unescape(rest, name)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Format settings as java.util.Properties text, in which a backslash begins an escape."""
    escaped = {key: value.replace("\\", "\\\\") for key, value in properties.items()}
    return "".join(f"{key}={value}\n" for key, value in escaped.items())


# ---- checks of values


def ge(least: float) -> Check:
    """Make a check that a value is at least `least`."""
    return lambda value: None if value >= least else f"Value must be at least {least}"


def gt(bound: float) -> Check:
    """Make a check that a value is more than `bound`."""
    return lambda value: None if value > bound else f"Value must be more than {bound}"


def between(least: float, most: float) -> Check:
    """Make a check that a value is between `least` and `most`, both included."""

    def check(value: float) -> str | None:
        if value < least:
            return f"Value must be at least {least}"
        return None if value <= most else f"Value must be no more than {most}"

    return check


@frozen
class Whole:
    """Checks that a whole number is at least `least` and fits one of Java's types."""

    type_name: str
    least: int
    most: int

    def __call__(self, value: int) -> str | None:
        if not -self.most - 1 <= value <= self.most:
            return f"Not a number of type {self.type_name}"
        return None if value >= self.least else f"Value must be at least {self.least}"


def int16(least: int) -> Whole:
    """Make a check that a value is a SHORT of Kafka and at least `least`."""
    return Whole("SHORT", least, 2**15 - 1)


def int32(least: int) -> Whole:
    """Make a check that a value is an INT of Kafka and at least `least`."""
    return Whole("INT", least, 2**31 - 1)


def int64(least: int) -> Whole:
    """Make a check that a value is a LONG of Kafka and at least `least`."""
    return Whole("LONG", least, 2**63 - 1)


def one_of(*allowed: Any) -> Check:
    """Make a check that a value is one of `allowed`."""
    kind = "String" if all(isinstance(word, str) for word in allowed) else "Value"
    words = ", ".join(str(word) for word in allowed)
    return lambda value: None if value in allowed else f"{kind} must be one of: {words}"


def each_of(*allowed: str) -> Check:
    """Make a check that all words of a list are among `allowed`."""
    words = ", ".join(allowed)

    def check(value: tuple[str, ...]) -> BadWord | None:
        wrong = next((word for word in value if word not in allowed), None)
        return None if wrong is None else BadWord(wrong, f"String must be one of: {words}")

    return check


# ---- values from text


def _to_boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw

    word = _to_text(raw).lower()
    if word not in ("true", "false"):
        raise ValueError("neither true nor false")
    return word == "true"


def _to_integer(raw: Any) -> int:
    if isinstance(raw, str):
        return int(_match(_INTEGER, raw))

    # Python would take True for 1.
    if isinstance(raw, bool):
        raise ValueError("not an integer")
    return operator.index(raw)


def _to_float(raw: Any) -> float:
    if isinstance(raw, str):
        return float(_match(_DOUBLE, raw))

    # Python would take True for 1.0.
    if isinstance(raw, bool):
        raise ValueError("not a number")
    return float(raw)


def _match(pattern: re.Pattern[str], raw: str) -> str:
    """Return `raw` trimmed. Raises ValueError unless all of it matches."""
    text = _to_text(raw)
    if not pattern.fullmatch(text):
        raise ValueError("not a number of Kafka")
    return text


def _to_text(raw: Any) -> str:
    # An unset variable of the environment would be the group "None" (fault strangers-167).
    if raw is None or isinstance(raw, _NO_TEXT):
        raise TypeError("not a string")
    if isinstance(raw, IntEnum):
        # Isolation.READ_COMMITTED is read_committed.
        return raw.name.lower()
    return str(raw).strip(_TRIMMED)


def _to_words(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = raw.split(",")
    elif isinstance(raw, bytes | bytearray | Mapping):
        raise TypeError("not a list")
    return tuple(word for word in map(_to_text, raw) if word)


_NO_TEXT = (bytes, bytearray, memoryview, Mapping, list, tuple, set, frozenset)


_TYPE_NAMES: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "INT",
    float: "DOUBLE",
    str: "STRING",
    tuple: "LIST",
}

_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    bool: _to_boolean,
    int: _to_integer,
    float: _to_float,
    str: _to_text,
    tuple: _to_words,
}

# The words of Kafka's ConfigDef.
_EXPECTED: dict[Any, str] = {
    bool: "Expected value to be either true or false",
    float: "Not a number of type DOUBLE",
    str: "Expected value to be a string",
    tuple: "Expected a comma separated list.",
}


# ---- names


def _normalize(name: str) -> str:
    return name.replace(".", "_").replace("-", "_").lower()


_hints = cache(get_type_hints)


@cache
def _required(cls: type) -> frozenset[str]:
    """Return the names of the fields that have no default."""
    return frozenset(field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING)


@cache
def _spellings(cls: type) -> Mapping[str, str]:
    """Map all names of each setting, normalized, to its field."""
    spellings: dict[str, str] = {}
    for field, declaration in declared_settings(cls).items():
        # The name in Kafka, the name in Python, and the old names.
        for name in (declaration.name, field, *declaration.aliases):
            spelling = _normalize(name)
            assert spellings.get(spelling, field) == field, f"two settings are called {spelling}"
            spellings[spelling] = field
    return spellings


def _suggestion(given_name: str, cls: type, fields: Mapping[str, str]) -> str:
    from difflib import get_close_matches  # here, because hardly anyone needs it

    close = get_close_matches(_normalize(given_name), fields, n=1, cutoff=0.8)
    if not close:
        return ""

    field = fields[close[0]]
    return f"; did you mean {declared_settings(cls)[field].name}?"


def _unescape(text: str, what: str) -> str:
    """Replace the escapes of java.util.Properties. Raises SettingError of `what`."""
    if "\\" not in text:
        return text

    out = []
    i = 0
    plain = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    while i < len(text):
        char = text[i]
        if char == "\\" and i + 1 < len(text):
            i += 1
            if text[i] == "u":
                if not _HEX.fullmatch(text, i + 1, i + 5):
                    reason = "a \\u escape has four hexadecimal digits; a backslash is written \\\\"
                    raise SettingError(what, reason)
                out.append(chr(int(text[i + 1 : i + 5], 16)))
                i += 4
            else:
                # A backslash before any other character stands for that character.
                out.append(plain.get(text[i], text[i]))
        else:
            out.append(char)
        i += 1
    return "".join(out)
