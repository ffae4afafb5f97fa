"""Read listeners as the settings name them: `LISTENER://host:port`, several with commas between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from protocol.security_protocol import SecurityProtocol
from protocol.settings import SettingError
from zk.broker_znodes import Endpoint, parse_endpoint

MAX_PORT = 65535
ANY_ADDRESS = ("0.0.0.0", "::")

PROTOCOL_MAP = "listener.security.protocol.map"
EACH_TO_ITSELF = ",".join(f"{name}:{name}" for name in SecurityProtocol.__members__)
"""Kafka's default of that map."""


def parse_endpoints(setting_name: str, text: str, protocol_map: str) -> tuple[Endpoint, ...]:
    """Read the value of a setting; a host of "" binds all addresses, port 0 takes any free one.

    `protocol_map` is `listener.security.protocol.map`. Raises SettingError: also where it leaves a
    listener out, and where a name, or a port but 0, comes twice.
    """
    protocols = parse_protocols(protocol_map)
    endpoints = tuple(
        _parse(setting_name, part, protocols) for part in text.split(",") if part.strip()
    )
    if not endpoints:
        raise SettingError(setting_name, "names no listener")

    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise SettingError(setting_name, f"{text!r} has a listener name twice")
    return endpoints


def refuse_impossible_host(setting_name: str, host: str) -> None:
    """Raise SettingError for a host that nobody can read in a registration."""
    try:
        parse_endpoint(f"PLAINTEXT://{host}:0")
    except ValueError:
        raise SettingError(setting_name, f"{host!r} is not a host") from None


def refuse_shared_ports(setting_name: str, endpoints: Sequence[Endpoint]) -> None:
    """Raise SettingError where two listeners would bind one port; port 0 takes any free one."""
    ports = [endpoint.port for endpoint in endpoints if endpoint.port]
    if len(set(ports)) < len(ports):
        shown = ",".join(map(str, endpoints))
        raise SettingError(setting_name, f"{shown!r} has a port twice")


def parse_protocols(protocol_map: str) -> Mapping[str, str]:
    """Read `listener.security.protocol.map`: LISTENER:PROTOCOL, several with commas between.

    Raises SettingError.
    """
    protocols: dict[str, str] = {}
    for pair in protocol_map.split(","):
        if not pair.strip():
            continue
        listener, colon, protocol = pair.strip().rpartition(":")
        protocol = protocol.upper()
        if not colon or protocol not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise SettingError(
                PROTOCOL_MAP, f"{pair.strip()!r} is not LISTENER:PROTOCOL, with one of {known}"
            )

        # Listener names are compared in capital letters.
        if listener.upper() in protocols:
            raise SettingError(PROTOCOL_MAP, f"{listener} has a protocol twice")
        protocols[listener.upper()] = protocol
    return protocols


def _parse(setting_name: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    reason = f"{text!r} is not of the form LISTENER://host:port"
    try:
        # By the rule of those who read the registration.
        endpoint = parse_endpoint(text.strip())
    except ValueError:
        raise SettingError(setting_name, reason) from None
    if not 0 <= endpoint.port <= MAX_PORT:
        raise SettingError(setting_name, reason)

    listener = endpoint.listener.upper()
    protocol = protocols.get(listener)
    if protocol is None:
        raise SettingError(setting_name, f"listener {listener} has no protocol in {PROTOCOL_MAP}")
    return attrs.evolve(endpoint, listener=listener, security_protocol=protocol)
