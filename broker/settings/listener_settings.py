"""The settings as they apply to one listener (KIP-103).

The prefix `listener.name.<listener>.`, with the name in small letters, makes a setting one of that
listener alone. Settings of a mechanism of SASL have its name, in small letters too, after the
listener's: `listener.name.internal.scram-sha-512.sasl.jaas.config`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

PREFIX = "listener.name."


def prefix_of(listener: str) -> str:
    """Return the prefix of the settings of one listener."""
    return f"{PREFIX}{listener.lower()}."


def select_for_listener(given: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the settings of one listener, by their names without prefix.

    A setting with the listener's prefix comes before the one without. The settings of other
    listeners are left out.
    """
    prefix = prefix_of(listener)
    general = {name: value for name, value in given.items() if not name.startswith(PREFIX)}
    own = {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
    return general | own


def is_listener_setting(name: str, setting_names: Collection[str]) -> bool:
    """Return whether `name` is one of these settings for a single listener."""
    return name.startswith(PREFIX) and any(
        name.endswith(f".{setting_name}") for setting_name in setting_names
    )


def split_listener_setting(name: str) -> tuple[str, str]:
    """Return the listener, in capital letters, and the name without prefix.

    The listener is "" for a name without the prefix.
    """
    if not name.startswith(PREFIX):
        return "", name
    listener, _, setting_name = name[len(PREFIX) :].partition(".")
    return listener.upper(), setting_name


def name_of_mechanism_setting(listener: str, mechanism: str, setting_name: str) -> str:
    """Return the name of a setting of one mechanism at one listener."""
    return f"{prefix_of(listener)}{mechanism.lower()}.{setting_name}"


def find_listener_setting(
    given: Mapping[str, str], listener: str, setting_name: str, mechanism: str = ""
) -> tuple[str, str] | None:
    """Return name and value of a setting of one listener; None if it has none of its own.

    The value for the mechanism wins over the one for the whole listener.
    """
    names = [prefix_of(listener) + setting_name]
    if mechanism:
        names.insert(0, name_of_mechanism_setting(listener, mechanism, setting_name))
    return next(((name, given[name]) for name in names if name in given), None)
