"""`message.format.version`: the record format of a topic's log.

Kafka names formats by the release, or the internal version of one, that came with them:
up to 0.9 format 0, from 0.10.0 format 1 (KIP-31, KIP-32), from 0.11.0 format 2 (KIP-98).
"""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(
    r"0\.(?:8\.[0-2]|9\.0|10\.[0-2](?:-IV[0-2])?|11\.0(?:-IV[0-2])?)(?:\.\d+)*"
    r"|[12]\.[0-8](?:-IV[0-2])?(?:\.\d+)*"
)
_MINOR: Final = re.compile(r"0\.(\d+)\.")


def magic_of(version: str) -> int:
    """Return the format's magic byte. Raises ValueError for a version that Kafka does not have."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is no version of Kafka up to 2.8")
    before_1 = _MINOR.match(version)
    # From 1.0 on formats are those of 0.11.
    minor = int(before_1[1]) if before_1 else 11
    return 0 if minor < 10 else 1 if minor < 11 else 2


def check_version(version: str) -> str | None:
    """Say what is wrong with a setting's value, for `protocol.settings`; None if it is valid."""
    try:
        magic_of(version)
    except ValueError:
        return f"Version `{version}` is not a valid version"
    return None
