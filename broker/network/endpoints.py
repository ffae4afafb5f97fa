"""Parse listeners as the settings name them: `LISTENER://host:port`, separated by commas."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from protocol.settings import SettingError

MAX_PORT = 65535
ANY_ADDRESS = ("0.0.0.0", "::")


@attrs.frozen
class Endpoint:
    """A listener: its name, host ("" binds all addresses) and port (0 binds any free port)."""

    listener: str
    host: str
    port: int


def parse_endpoints(name: str, text: str, protocol_map: str) -> tuple[Endpoint, ...]:
    """Read the value of setting `name`. Raises SettingError.

    Names and ports must be unique (port 0 may repeat), and every listener must be PLAINTEXT.
    """
    protocols = _parse_protocols(protocol_map)
    endpoints = tuple(_parse(name, part, protocols) for part in text.split(",") if part.strip())
    if not endpoints:
        raise SettingError(name, "names no listener")

    names = [endpoint.listener for endpoint in endpoints]
    ports = [endpoint.port for endpoint in endpoints if endpoint.port]
    if len(set(names)) < len(names) or len(set(ports)) < len(ports):
        raise SettingError(name, f"{text!r} has a listener name or a port twice")
    return endpoints


def _parse_protocols(protocol_map: str) -> Mapping[str, str]:
    """Map listener names to protocols, from `LISTENER:PROTOCOL,...`."""
    pairs = (pair.strip().split(":", 1) for pair in protocol_map.split(",") if ":" in pair)
    return {listener.upper(): protocol for listener, protocol in pairs}


def _parse(name: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, separator, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > MAX_PORT:
        raise SettingError(name, f"{text!r} is not of the form LISTENER://host:port")

    listener = listener.upper()
    if protocols.get(listener, listener).strip().upper() != "PLAINTEXT":
        raise SettingError(name, f"listener {listener} is not PLAINTEXT, the only protocol served")
    return Endpoint(listener, host.strip("[]"), int(port))
