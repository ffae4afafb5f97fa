"""Find keys and certificates in PEM text (RFC 7468).

In a setting, the text may have spaces for its line ends, as a properties file has one line for it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

import attrs

from protocol.frozen import frozen

CERTIFICATE = "CERTIFICATE"
PRIVATE_KEY = "PRIVATE KEY"

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARS = 64


class PemError(ValueError):
    """The text is not the PEM that is needed."""


@frozen
class Block:
    """A block of a text; `body` is what stands between its first and last line."""

    label: str
    body: str = attrs.field(repr=False)

    @property
    def content(self) -> bytes:
        """The bytes that the body encodes. Raises PemError."""
        try:
            return base64.b64decode("".join(self.body.split()), validate=True)
        except binascii.Error as error:
            raise PemError(f"{self.label}: is not base64: {error}") from error

    @property
    def text(self) -> str:
        """The block with line ends where OpenSSL wants them. Raises PemError."""
        # An old encrypted key has headers, which say how it is encrypted: it needs its own lines.
        if ":" in self.body:
            return f"-----BEGIN {self.label}-----{self.body}-----END {self.label}-----\n"
        return write_block(self.label, self.content)


def read_blocks(text: str) -> Iterator[Block]:
    """Find the blocks of a text; what stands around them is ignored."""
    for match in _BLOCK.finditer(text):
        yield Block(match[1], match[2])


def write_block(label: str, content: bytes) -> str:
    """Write bytes as a block."""
    encoded = base64.b64encode(content).decode()
    lines = [encoded[i : i + _LINE_CHARS] for i in range(0, len(encoded), _LINE_CHARS)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
