"""Settings of a single listener: `listener.name.<listener>.<setting>` (KIP-103).

Such a value is for this listener alone, and wins over the one without the prefix. The name of a
mechanism may stand between: `listener.name.<listener>.<mechanism>.<setting>` (KIP-86). Both are
written in lower case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

PREFIX = "listener.name."


def name_of_listener_setting(listener: str, setting_name: str, mechanism: str = "") -> str:
    """Return the name of a setting of one listener, or of one mechanism at it."""
    middle = f"{mechanism.lower()}." if mechanism else ""
    return f"{PREFIX}{listener.lower()}.{middle}{setting_name}"


def find_listener_setting(
    given: Mapping[str, str], listener: str, setting_name: str, mechanism: str = ""
) -> tuple[str, str] | None:
    """Return name and value of a setting of one listener; None if it has none of its own.

    The value for the mechanism wins over the one for the whole listener.
    """
    names = [name_of_listener_setting(listener, setting_name)]
    if mechanism:
        names.insert(0, name_of_listener_setting(listener, setting_name, mechanism))
    return next(((name, given[name]) for name in names if name in given), None)


def is_listener_setting(name: str, setting_names: Collection[str]) -> bool:
    """Return whether `name` is one of these settings for a single listener."""
    return name.startswith(PREFIX) and any(
        name.endswith(f".{setting_name}") for setting_name in setting_names
    )


def listener_of_setting(name: str) -> str:
    """Return the listener whose setting this is."""
    return name.removeprefix(PREFIX).partition(".")[0].upper()
