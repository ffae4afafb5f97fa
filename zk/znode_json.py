"""Read and write the payloads of znodes as Kafka does: compact JSON and decimal text.

A `JsonReader` takes a JSON object apart key by key. A *kind* is a function that checks and converts
one value, such as `integer` or `array(string)`; it raises ValueError. `rest()` returns the keys
that were not taken.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import attrs

from protocol.text import explain_unsendable

T = TypeVar("T")
Extra = Mapping[str, Any]

LARGEST_INT = 2**31 - 1
LONGEST_LONG = len(str(-(2**63)))  # in characters; Python refuses to parse thousands of digits


class ZnodeError(Exception):
    """The payload of the znode at `path` is not valid; `reason` says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def write_json(keys: Mapping[str, Any]) -> bytes:
    return json.dumps(keys, ensure_ascii=False, separators=(",", ":")).encode()


def read_decimal(data: bytes | None, path: str) -> int:
    """Read a 64-bit integer. Raises ZnodeError."""
    if data is None or not re.fullmatch(rb"-?[0-9]+", data):
        raise ZnodeError(path, f"{data!r} is not a decimal number")

    if len(data) > LONGEST_LONG or not -(2**63) <= int(data) < 2**63:
        raise ZnodeError(path, f"{data[:LONGEST_LONG]!r}… is beyond 64 bits")
    return int(data)


class JsonReader:
    """The keys of a payload, which must be a JSON object. Raises ZnodeError.

    `of_object` reads an object inside another.
    """

    def __init__(self, data: bytes | None, path: str) -> None:
        if not data:
            raise ZnodeError(path, "null" if data is None else "empty")

        try:
            value = json.loads(data.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            # RecursionError: arrays inside of arrays, by the thousand.
            raise ZnodeError(path, f"not JSON: {error}") from None

        self._start(value, path)

    @classmethod
    def of_object(cls, value: Any, path: str) -> Self:
        reader = cls.__new__(cls)
        reader._start(value, path)
        return reader

    def _start(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise ZnodeError(path, f"not a JSON object: {value!r}")
        self._path = path
        self._left: dict[str, Any] = value

    def take(self, key: str, kind: Callable[[Any], T], default: Any = attrs.NOTHING) -> T:
        """Return the value of `key`, checked and converted by `kind`. Raises ZnodeError."""
        if key not in self._left:
            if default is attrs.NOTHING:
                raise ZnodeError(self._path, f"no {key!r}")
            missing_value: T = default
            return missing_value

        value = self._left.pop(key)
        try:
            return kind(value)
        except ValueError as error:
            raise ZnodeError(self._path, f"{key!r} is {value!r}: {error}") from None

    def rest(self) -> Extra:
        """Return the keys that were not taken."""
        return self._left


def _no_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python takes for JSON and no JVM member does."""
    raise ValueError(f"{name} is not a number")


# --- kinds ------------------------------------------------------------------------------------


def integer(value: Any) -> int:
    # `isinstance` would also take True and False.
    if type(value) is not int:
        raise ValueError("must be an integer")
    return value


def broker_id(value: Any) -> int:
    """Read a broker id, which is an INT32 on the wire."""
    if not 0 <= integer(value) <= LARGEST_INT:
        raise ValueError(f"must be from 0 to {LARGEST_INT}")
    return int(value)


def epoch(value: Any) -> int:
    """Read an epoch, an INT32 that can still be raised by one."""
    if not 0 <= integer(value) < LARGEST_INT:
        raise ValueError(f"must be from 0 to {LARGEST_INT - 1}")
    return int(value)


def port(value: Any) -> int:
    """Read a port, or -1; it is an INT32 on the wire."""
    if not -1 <= integer(value) <= LARGEST_INT:
        raise ValueError(f"must be from -1 to {LARGEST_INT}")
    return int(value)


def string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def sendable_string(value: Any) -> str:
    """Read a string that is sent to brokers and clients."""
    reason = explain_unsendable(string(value))
    if reason is not None:
        raise ValueError(reason)
    return str(value)


def decimal_string(value: Any) -> int:
    """Read a long that Kafka wrote as a string, for readers with 32-bit numbers.

    A number is read, too.
    """
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
