"""Write log lines that no text from outside can forge.

Names of groups, topics and clients come from strangers and may have line breaks. A line that goes
on begins with a tab, so none of them looks like the beginning of another record, and all that a
terminal might obey is escaped. They may have 32 KB each, too, and fill the disk: a long message is
cut, and its traceback is not.
"""

from __future__ import annotations

import logging
import re

from protocol.printable import visible

MOST_CHARACTERS = 8000
"""Characters of a message."""

_LINE_BREAK = "\n"
_NOT_PLAIN = re.compile("[^ -~]")


class SafeFormatter(logging.Formatter):
    """Formats a record with its traceback, if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines of which only the first begins without a tab."""
        return _NOT_PLAIN.sub(_make_safe, super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message with what stands before it."""
        more = len(record.message) - MOST_CHARACTERS
        if more > 0:
            # 1,000 rebalances with long reasons were 147 MB (fault strangers-34).
            record.message = f"{record.message[:MOST_CHARACTERS]}… ({more} more characters)"
        return super().formatMessage(record)


def _make_safe(match: re.Match[str]) -> str:
    character = match[0]
    if character == _LINE_BREAK:
        return "\n\t"
    if character == "\t":
        return character
    # Signs that turn the direction of a line forge it, too (fault security-12, was: character).
    return visible(character)
