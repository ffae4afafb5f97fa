"""Kafka's rules for the names of topics."""

import re

MAX_NAME_LENGTH = 249  # a directory is named <topic>-<partition>, and may have 255 characters

LEGAL = f"one of 1 to {MAX_NAME_LENGTH} letters, digits, . _ and -"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal(name: str) -> bool:
    """Return whether a topic may have this name. No other name may become part of a path."""
    return explain_illegal(name) is None


def explain_illegal(name: str) -> str | None:
    """Say in Kafka's words why no topic may have this name; None if one may."""
    if not name:
        return "Topic name is illegal, it can't be empty"
    if name in (".", ".."):
        return 'Topic name cannot be "." or ".."'
    if len(name) > MAX_NAME_LENGTH:
        most = f"{MAX_NAME_LENGTH} characters"
        return f"Topic name is illegal, it can't be longer than {most}, topic name: {name}"
    if not _LEGAL_NAME.fullmatch(name):
        culprit = "a character other than ASCII alphanumerics, '.', '_' and '-'"
        return f'Topic name "{name}" is illegal, it contains {culprit}'
    return None
