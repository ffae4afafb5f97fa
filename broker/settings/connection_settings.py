"""The settings that limit connections (`broker.network.connection_quotas`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.network.connection_quotas import Limits
from broker.settings.listener_settings import find_listener_setting
from protocol.settings import SettingError, convert, ge

MAX_CONNECTIONS = "max.connections"
MAX_CREATION_RATE = "max.connection.creation.rate"
MAX_PER_IP = "max.connections.per.ip"
PER_IP_OVERRIDES = "max.connections.per.ip.overrides"

LISTENER_LIMITS = frozenset({MAX_CONNECTIONS, MAX_CREATION_RATE})
"""Those that a listener may have for itself, also where they are set for all brokers."""


def limits_of_listener(given: Mapping[str, str], listener: str, broker: Limits) -> Limits:
    """Return a listener's limits: its own, or those of the broker. Raises SettingError."""

    def limit(setting_name: str, default: int) -> int:
        own = find_listener_setting(given, listener, setting_name)
        return default if own is None else convert_limit(*own, least=0)

    return Limits(
        limit(MAX_CONNECTIONS, broker.connections),
        limit(MAX_CREATION_RATE, broker.creation_rate),
    )


def convert_limit(name: str, value: str, *, least: int) -> int:
    """Return a limit of a listener as a number. Raises SettingError.

    As in Kafka it may be 0 in a file, and not while the broker runs.
    """
    number: int = convert(name, value, int)
    verdict = ge(least)(number)
    if verdict is not None:
        raise SettingError(name, str(verdict), value)
    return number


def refuse_impossible_limits(per_ip: int, overrides: Sequence[str]) -> None:
    """Raise SettingError for limits of addresses that cannot be."""
    for pair in overrides:
        if not pair.rpartition(":")[2].isdigit():
            raise SettingError(PER_IP_OVERRIDES, f"{pair!r} is not host:number")
    if per_ip == 0 and not overrides:
        raise SettingError(
            MAX_PER_IP, f"can be set to zero only if {PER_IP_OVERRIDES} property is set."
        )
