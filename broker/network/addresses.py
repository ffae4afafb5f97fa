"""Find the addresses of hosts, as accepted connections have them."""

from __future__ import annotations

import socket

MAPPED = "::ffff:"
"""Begins an address of IPv4 on a socket of IPv6."""


def plain_address(address: str) -> str:
    """Return an address of IPv4 as itself, by whatever socket it came."""
    return address.removeprefix(MAPPED) if "." in address else address


def resolve(host: str, *, asks: bool = True) -> list[str]:
    """Return the addresses of a host, which may be one already, of IPv6 also in brackets.

    This waits for a name server, unless `asks` is False: then names are unknown. Raises OSError for
    an unknown host.
    """
    flags = 0 if asks else socket.AI_NUMERICHOST
    found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM, flags=flags)
    return [plain_address(str(address[0])) for *_, address in found]
