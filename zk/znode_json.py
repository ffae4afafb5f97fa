"""The payloads of znodes as Kafka writes them: compact JSON, decimal text; and their reading.

A `Reader` takes a JSON object apart key by key, each by its kind; `rest()` is what nobody took.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import attrs

T = TypeVar("T")
Extra = Mapping[str, Any]

LARGEST_INT = 2**31 - 1
LONGEST_LONG = len(str(-(2**63)))  # in characters; Python refuses to read a few thousand digits


class ZnodeError(Exception):
    """The znode at `path` doesn't hold what it should, for `reason`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def write_json(keys: Mapping[str, Any]) -> bytes:
    return json.dumps(keys, ensure_ascii=False, separators=(",", ":")).encode()


def read_decimal(data: bytes | None, path: str) -> int:
    if data is None or not re.fullmatch(rb"-?[0-9]+", data):
        raise ZnodeError(path, f"{data!r} is not a decimal number")
    if len(data) > LONGEST_LONG or not -(2**63) <= int(data) < 2**63:
        raise ZnodeError(path, f"{data[:LONGEST_LONG]!r}… is beyond 64 bits")
    return int(data)


class Reader:
    """A payload that must be a JSON object; `of_object` reads one inside another."""

    def __init__(self, data: bytes | None, path: str) -> None:
        if not data:
            raise ZnodeError(path, "null" if data is None else "empty")
        try:
            value = json.loads(data.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ZnodeError(path, f"not JSON: {error}") from None
        self._take_apart(value, path)

    @classmethod
    def of_object(cls, value: Any, path: str) -> Self:
        reader = cls.__new__(cls)
        reader._take_apart(value, path)
        return reader

    def _take_apart(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise ZnodeError(path, f"not a JSON object: {value!r}")
        self._path = path
        self._left: dict[str, Any] = value

    def take(self, key: str, kind: Callable[[Any], T], default: Any = attrs.NOTHING) -> T:
        """The value of `key`, checked and converted by `kind`. Raises ZnodeError."""
        if key not in self._left:
            if default is attrs.NOTHING:
                raise ZnodeError(self._path, f"no {key!r}")
            found: T = default
            return found
        value = self._left.pop(key)
        try:
            return kind(value)
        except ValueError as error:
            raise ZnodeError(self._path, f"{key!r} is {value!r}: {error}") from None

    def rest(self) -> Extra:
        return self._left


def _no_constant(name: str) -> None:
    """NaN and Infinity: JSON to Python, and to no JVM member."""
    raise ValueError(f"{name} is no number")


# Kinds. bool is an int to Python, and not to us.


def integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("must be an integer")
    return value


def broker_id(value: Any) -> int:
    """What goes over the wire as an INT32."""
    if not 0 <= integer(value) <= LARGEST_INT:
        raise ValueError(f"must be from 0 to {LARGEST_INT}")
    return int(value)


def epoch(value: Any) -> int:
    """An INT32 too, with room for the next."""
    if not 0 <= integer(value) < LARGEST_INT:
        raise ValueError(f"must be from 0 to {LARGEST_INT - 1}")
    return int(value)


def string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def decimal_string(value: Any) -> int:
    """A long as Kafka writes it for readers with 32-bit numbers; a number will do too."""
    if type(value) is int:
        return value
    if not (isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value)):
        raise ValueError("must be a decimal number in a string")
    return int(value)


def optional(kind: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else kind(value)


def array(kind: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    def check(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError("must be an array")
        return tuple(map(kind, value))

    return check


def mapping(kind: Callable[[Any], T]) -> Callable[[Any], dict[str, T]]:
    def check(value: Any) -> dict[str, T]:
        if not isinstance(value, dict):
            raise ValueError("must be an object")
        return {key: kind(item) for key, item in value.items()}

    return check
