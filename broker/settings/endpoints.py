"""Read listeners as the settings name them: `LISTENER://host:port`, several with commas between."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.security_protocol import SecurityProtocol
from protocol.settings import SettingError
from zk.znodes import Endpoint

MAX_PORT = 65535
ANY_ADDRESS = ("0.0.0.0", "::")
SERVED_PROTOCOLS = (SecurityProtocol.PLAINTEXT.name, SecurityProtocol.SASL_PLAINTEXT.name)


def parse_endpoints(setting_name: str, text: str, protocol_map: str) -> tuple[Endpoint, ...]:
    """Read the value of a setting; a host of "" binds all addresses, port 0 takes any free one.

    `protocol_map` is `listener.security.protocol.map`; a listener that it leaves out has the
    protocol of its own name. Raises SettingError: also where a name, or a port but 0, comes twice.
    """
    protocols = _read_protocols(protocol_map)
    endpoints = tuple(
        _parse(setting_name, part, protocols) for part in text.split(",") if part.strip()
    )
    if not endpoints:
        raise SettingError(setting_name, "names no listener")

    # Port 0 may come twice: each gets a free one.
    names = [endpoint.listener for endpoint in endpoints]
    ports = [endpoint.port for endpoint in endpoints if endpoint.port]
    if len(set(names)) < len(names) or len(set(ports)) < len(ports):
        raise SettingError(setting_name, f"{text!r} has a listener name or a port twice")
    return endpoints


def _read_protocols(protocol_map: str) -> Mapping[str, str]:
    pairs = (pair.strip().split(":", 1) for pair in protocol_map.split(",") if ":" in pair)
    return {listener.upper(): protocol for listener, protocol in pairs}


def _parse(setting_name: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, separator, address = text.strip().partition("://")
    # The last colon: an IPv6 address has others, within brackets.
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > MAX_PORT:
        raise SettingError(setting_name, f"{text!r} is not of the form LISTENER://host:port")

    listener = listener.upper()
    protocol = protocols.get(listener, listener).strip().upper()
    if protocol not in SERVED_PROTOCOLS:
        served = " and ".join(SERVED_PROTOCOLS)
        raise SettingError(
            setting_name, f"listener {listener} is {protocol}, and only {served} are served"
        )
    return Endpoint(listener, host.strip("[]"), int(port), protocol)
