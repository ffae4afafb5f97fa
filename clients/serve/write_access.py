"""Let those read who ask this server by its name, and those write who have the token too. Pure.

A page of another site can send requests to this server through the browser of anybody who reaches
it. They carry its `Origin`. With a name of its own that it lets resolve to this server's address
(DNS rebinding) they carry that name as `Host`, and the page may read the responses. So only names
that are known are taken. An address cannot be rebound.
"""

import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import attrs

from clients.command_line.output import Failure
from protocol.frozen import frozen

MIN_TOKEN_LENGTH = 16


class Refused(Exception):
    """A request that is refused, with the status of the response."""

    def __init__(self, status: int, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


@frozen
class WriteAccess:
    """The token, and the names by which the server is reached, in lower case."""

    token: str = attrs.field(repr=False)
    hosts: frozenset[str] = frozenset()


def is_token(text: str) -> bool:
    """Return whether a text can be sent in a header, and cannot be guessed by trying."""
    return (
        len(text) >= MIN_TOKEN_LENGTH and text.isascii() and text.isprintable() and " " not in text
    )


def check_access(access: WriteAccess | None, headers: Mapping[str, str]) -> None:
    """Raise Refused unless these headers may write. `access` is None if nobody may."""
    if access is None:
        text = "this server only reads: start `kgroup serve` with --allow-writes and a token"
        raise _refuse(403, "WritesNotAllowed", text)

    host = headers.get("host", "")
    check_host(host, access.hosts)

    origin = headers.get("origin")
    if origin is not None and origin.lower().partition("://")[2] != host.lower():
        text = f"the request is of another site: Origin {origin!r} is not that of Host {host!r}"
        raise _refuse(403, "OtherOrigin", text)

    scheme, _, token = headers.get("authorization", "").partition(" ")
    is_right = secrets.compare_digest(token.strip().encode(), access.token.encode())
    if scheme.lower() != "bearer" or not is_right:
        text = "send the token of this server as `Authorization: Bearer TOKEN`"
        raise _refuse(401, "WrongToken" if token else "NoToken", text)

    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise _refuse(415, "NotJson", "the body is to be JSON: Content-Type: application/json")


def check_host(host: str, hosts: frozenset[str]) -> None:
    """Raise Refused unless a request is for one of these names, for localhost or for an address."""
    if not _is_known(host, hosts):
        text = f"Host {host!r} is not a name of this server: give it with --allow-host"
        raise _refuse(403, "UnknownHost", text)


def _is_known(host: str, hosts: frozenset[str]) -> bool:
    try:
        address = urlsplit(f"//{host}")
        address.port  # noqa: B018 — raises ValueError where it is no number
        name = address.hostname or ""
        if name in hosts or name == "localhost":
            return True
        ip_address(name)
    except ValueError:
        return False
    return True


def _refuse(status: int, error: str, text: str) -> Refused:
    return Refused(status, Failure("request", error, text))
