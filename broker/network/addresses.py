"""Find the addresses of hosts, as accepted connections have them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

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
    found = look_up(host.strip("[]"), None, flags)
    return [plain_address(str(address[0])) for *_, address in found]


def own_host_name(full_name: Callable[[], str] = socket.getfqdn) -> str:
    """Return the address for clients where the settings name none.

    This is the machine's full name, or the loopback address if that name cannot be resolved.
    """
    # Clients have to resolve what a broker registers.
    name = full_name()
    try:
        look_up(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def look_up(host: str, port: int | None, flags: int = 0) -> list[tuple[Any, ...]]:
    """Return what `getaddrinfo` finds for TCP; raise OSError for a host that nobody knows."""
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except ValueError as error:
        # UnicodeError: a part of the name is empty or too long. One bad name must not take the
        # others along (fault strangers-25).
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
