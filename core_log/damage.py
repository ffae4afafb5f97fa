"""The bad end of a log: a torn tail, or damage.

After an unclean stop the bytes at or above the recovery point may be half written: a torn tail,
which recovery removes, and logs. Bytes that were on disk by then, which after a clean stop are all
of them, are never removed silently. A log whose bytes there cannot be read is damaged. It is left
as it is and serves nobody, until a leader can give the data again or an operator has it truncated.
"""

from __future__ import annotations

from protocol.frozen import frozen

EVERYTHING = 2**63 - 1
"""The recovery point of a log that was closed, if no checkpoint tells its end."""


@frozen
class BadTail:
    """The bad end of a log: `size_bytes` from `position` of `file` on, where `offset` should be.

    `last_offset` is the last one that is known to have been there. `reason` says what is wrong.
    """

    file: str
    position: int
    offset: int
    last_offset: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        why = f"{self.reason} (at position {self.position} of {self.file})"
        # How many offsets are lost is not always known.
        if self.last_offset < self.offset:
            return f"{self.size_bytes} bytes from offset {self.offset} on: {why}"
        return f"offsets {self.offset} to {self.last_offset}, {self.size_bytes} bytes: {why}"

    def is_damage(self, recovery_point: int) -> bool:
        """Return whether bytes are lost that were on disk."""
        return self.offset < recovery_point
