"""Kafka's rule for the names of topics."""

import re

MAX_NAME_LENGTH = 249  # a directory is named <topic>-<partition>, and may have 255 characters
LEGAL = f"one of 1 to {MAX_NAME_LENGTH} letters, digits, . _ and -"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal(name: str) -> bool:
    """Whether a topic may be called so. Any other name must not become part of a path."""
    return (
        _LEGAL_NAME.fullmatch(name) is not None
        and name not in (".", "..")
        and len(name) <= MAX_NAME_LENGTH
    )
