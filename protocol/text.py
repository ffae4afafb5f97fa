"""Text on the wire: UTF-8 of at most 32,767 bytes.

Java's clients write UTF-8. Others may write what they were given, and Kafka's brokers read each
malformed sequence as U+FFFD. So does `str(…, "utf-8", REPLACE)`. U+FFFD takes three bytes: text
that would no longer fit a string, in a response or in a record of a group, is refused.
"""

from __future__ import annotations

import codecs

from protocol.bounds import MAX_STRING_BYTES

REPLACE = "kgroup-replace"
"""The name of our error handler of decoders."""

_REPLACEMENT = "\ufffd"
_MAX_REPLACED_BYTES = MAX_STRING_BYTES // len(_REPLACEMENT.encode())


def explain_unsendable(text: str) -> str | None:
    """Say why no string of the protocol can hold this text; None if one can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "has no UTF-8 form, in which it is sent"
    most = MAX_STRING_BYTES
    return None if size <= most else f"has {size} bytes, and can be sent with at most {most}"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError) or len(error.object) > _MAX_REPLACED_BYTES:
        raise error
    return replace_malformed(error)


def replace_malformed(error: UnicodeError) -> tuple[str, int]:
    """Replace malformed bytes by one U+FFFD, as Java does: an error handler for decoders.

    The three bytes of a surrogate, which UTF-8 excludes, are one sequence to Java.
    """
    assert isinstance(error, UnicodeDecodeError)
    data = error.object
    end = error.end
    # A name would have another hash than on the JVM (fault strangers-174).
    if data[error.start] == 0xED:
        while end < min(error.start + 3, len(data)) and 0x80 <= data[end] < 0xC0:
            end += 1
    return _REPLACEMENT, end


codecs.register_error(REPLACE, _replace)
