"""The small files of values beside logs: one `name: value` a line.

A power loss may leave such a file empty, torn, or with zeros behind what was written.
"""

from __future__ import annotations

from collections.abc import Mapping


def decode_values(data: bytes) -> dict[str, str]:
    """Return the values by name. Raises ValueError, which says what is wrong with the file."""
    if not data:
        raise ValueError("it is empty")
    if not data.endswith(b"\n"):
        raise ValueError("it is torn, its last line has no end")
    try:
        lines = [line.partition(": ") for line in data.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError("it is not text") from error
    return {name: value for name, _, value in lines}


def get_text(values: Mapping[str, str], name: str) -> str:
    """Return a value. Raises ValueError."""
    if name not in values:
        raise ValueError(f"it has no {name}")
    return values[name]


def get_number(values: Mapping[str, str], name: str) -> int:
    """Return a value that is a number. Raises ValueError."""
    text = get_text(values, name)
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"its {name} is {text!r}, which is no number") from error


def require_version(values: Mapping[str, str], version: int) -> None:
    """Raise ValueError unless the file is of this version."""
    if get_text(values, "version") != str(version):
        raise ValueError(f"its version is {values['version']}, which is unknown")
