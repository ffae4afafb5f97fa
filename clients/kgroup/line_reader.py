"""How `kgroup produce` reads a line: as Kafka's LineMessageReader.

Properties (the names are Kafka's): `parse.key`, `key.separator` (tab; cut at its first
occurrence), `ignore.error` (a line without the separator is a value without key, not an error).
"""

from collections.abc import Mapping

import attrs

from clients.kgroup.formatter import is_true


class LineError(Exception):
    """A line that cannot be made a message; the text names its number."""


LINE_READER_NAMES = {"parse.key", "key.separator", "ignore.error"}
"""The properties that go to the reader; all others go to the client."""


@attrs.frozen
class LineReader:
    """Cuts lines into keys and values."""

    separator: bytes | None
    """None: a line is a value."""
    ignore_error: bool

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "LineReader":
        """Read the properties."""
        keyed = is_true(properties.get("parse.key", "false"))
        separator = properties.get("key.separator", "\t").encode()
        return cls(separator if keyed else None, is_true(properties.get("ignore.error", "false")))

    def read(self, line: bytes, number: int) -> tuple[bytes | None, bytes]:
        """(key, value) of a line, whose end does not count. Raises LineError.

        An empty line is an empty message, and so is the value after a separator at the end.
        """
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if self.separator is None:
            return None, line
        key, found, value = line.partition(self.separator)
        if found:
            return key, value
        if self.ignore_error:
            return None, line
        raise LineError(f"no key separator in line {number}")
