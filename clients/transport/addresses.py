"""The addresses of a broker's name, of which some may be dead.

A name may have several: those of one broker in several networks, or of many brokers, as a bootstrap
name does. All are tried, as with Kafka's `client.dns.lookup=use_all_dns_ips` (KIP-302). One that
does not refuse but says nothing costs time; so the next attempt begins with the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import attrs

from clients.errors import AuthenticationFailed, ConnectionFailed, ConnectionRefused, NoSuchAddress

T = TypeVar("T")

MOST_SHARES = 4
"""Silent addresses that an attempt waits for, one after the other; the others are for the next."""


@attrs.define(eq=False)
class Addresses:
    """The addresses of names, and which of them failed."""

    _failed: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """By name and address, in the order of the failures."""
    _count: Iterator[int] = attrs.field(factory=itertools.count)

    async def try_each(
        self,
        host: str,
        port: int,
        timeout_ms: int,
        attempt: Callable[[str, int], Awaitable[T]],
    ) -> T:
        """Return what `attempt(address, timeout_ms)` returns of the first address that answers.

        Several share the time. Raises as `attempt`, of the last address, and NoSuchAddress.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        addresses = await self._find(host, port, timeout_ms)
        if len(addresses) == 1:
            return await attempt(addresses[0], timeout_ms)

        # What failed last comes last (fault strangers-22).
        addresses.sort(key=lambda address: self._failed.get((host, address), -1))
        share_ms = timeout_ms // min(len(addresses), MOST_SHARES)
        for address in addresses:
            self._failed[host, address] = next(self._count)
            try:
                made = await attempt(address, share_ms)
            except AuthenticationFailed:
                raise
            except ConnectionFailed as failure:
                # The next attempt goes on where this one has no time left.
                if address == addresses[-1] or loop.time() >= deadline_s:
                    reason = f"{failure.reason} ({address})"
                    raise type(failure)(host, port, reason) from failure
            else:
                del self._failed[host, address]
                return made
        raise AssertionError("a name has an address")

    async def _find(self, host: str, port: int, timeout_ms: int) -> list[str]:
        """Return the addresses of a name. Raises ConnectionFailed and NoSuchAddress."""
        if _is_address(host):
            return [host]
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except RuntimeError:
            # The process ends, and starts no thread any more that would ask (fault users-13).
            return self._ask_here(host, port)
        except TimeoutError:
            reason = f"the name was not resolved within {timeout_ms} ms"
            raise ConnectionFailed(host, port, reason) from None
        except (OSError, ValueError) as error:
            raise failure_of(host, port, error) from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def _ask_here(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name, and keep the loop waiting. Raises NoSuchAddress."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise failure_of(host, port, error) from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


def failure_of(host: str, port: int, error: Exception) -> ConnectionFailed:
    """Return the failure for what a resolver, or connecting, has raised."""
    reason = getattr(error, "strerror", None) or str(error)
    # asyncio's own text has the address, which the error names already.
    if isinstance(error, ConnectionRefusedError):
        return ConnectionRefused(host, port, "connection refused: nobody listens there")
    # UnicodeError, a ValueError: no resolver takes the name. OverflowError: the port.
    is_bad_address = not isinstance(error, OSError) or isinstance(error, socket.gaierror)
    return (NoSuchAddress if is_bad_address else ConnectionFailed)(host, port, reason)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
