"""Write a distinguished name as Java does: X500Principal.getName(), after RFC 2253.

Principals and ACLs of Kafka have this text, to the letter: the relative names in reversed order,
nine types by their names, all others by their numbers with the value's DER in hexadecimal.
"""

from __future__ import annotations

from protocol.tls.der import read_element, read_elements, read_object_identifier

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}

# UTF8, Printable, T61, IA5, General and BMP strings. Java shows values of other types as DER.
_STRING_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})

_ESCAPED = frozenset(',=+<>#;"\\')
# These alone are escaped at both ends of a value.
_BLANKS = " \r"


def write_name(encoded: memoryview) -> str:
    """Return the text of a DER-encoded Name. Raises DerError."""
    relative_names = [
        "+".join(_write_pair(pair.content) for pair in read_elements(relative.content))
        for relative in read_elements(read_element(encoded).content)
    ]
    return ",".join(reversed(relative_names))


def _write_pair(pair: memoryview) -> str:
    """Return TYPE=value."""
    type_, value = read_elements(pair)
    number = read_object_identifier(type_.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRING_TAGS:
        return f"{keyword or number}=#{value.encoded.hex()}"

    # Java takes all strings for UTF-8, whatever their type.
    return f"{keyword}={_escape(str(value.content, 'utf-8', 'replace'))}"


def _escape(text: str) -> str:
    marked = [
        f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in text
    ]

    # Blanks at the ends.
    begin = len(text) - len(text.lstrip(_BLANKS))
    end = len(text.rstrip(_BLANKS))
    for i, char in enumerate(text):
        if i < begin or i >= end:
            marked[i] = f"\\{char}"
    return "".join(marked)
