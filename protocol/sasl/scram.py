"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password (RFC 5802, 7677).

As in Kafka there is no channel binding, and names and passwords are their UTF-8 bytes, without
SASLprep. The server keeps keys that are made from the password, and cannot be used in its place.

The final nonce is the server's whole nonce, or the client's before it: librdkafka before 2.6.1
sends that. Anything else would let a recorded login be repeated (CVE-2024-56128).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from protocol.frozen import frozen
from protocol.sasl.exchange import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Challenge,
    LoggedIn,
    LoginRefused,
    ServerRefused,
)
from protocol.sasl.iterations import MAX_ITERATIONS, MIN_ITERATIONS
from protocol.sasl.plain import OTHER_AUTHORIZATION_ID

MAX_FIRST_BYTES: Final = 4096
"""Longest first message of a client: the server keeps all of it until the proof has come."""

# In Kafka's clients a nonce has 130 random bits, in base 36.
NONCE_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@frozen
class ScramMechanism:
    """One of the two mechanisms: its name, its hash, and its number on the wire (KIP-554)."""

    name: str
    hash_name: str
    wire_number: int

    @property
    def digest_bytes(self) -> int:
        """The size of the hash, and so of all keys."""
        return hashlib.new(self.hash_name).digest_size

    def hmac(self, key: bytes, text: bytes) -> bytes:
        """Return HMAC(key, text)."""
        return hmac.digest(key, text, self.hash_name)

    def hash(self, text: bytes) -> bytes:
        """Return H(text)."""
        return hashlib.new(self.hash_name, text).digest()

    def salt_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return Hi(password, salt, iterations). This computes for milliseconds."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


SHA_256 = ScramMechanism(SCRAM_SHA_256, "sha256", 1)
SHA_512 = ScramMechanism(SCRAM_SHA_512, "sha512", 2)
SCRAM_MECHANISMS: Mapping[str, ScramMechanism] = {
    mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)
}


# ---- credentials


class BadCredential(ValueError):
    """The text of a stored credential cannot be read."""


@frozen
class ScramCredential:
    """A user's password as a server keeps it; `salt` and `iterations` are sent to clients."""

    salt: bytes = attrs.field(repr=False)
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)
    iterations: int

    def as_text(self) -> str:
        """Return the text that Kafka keeps in ZooKeeper."""
        return (
            f"salt={_encode(self.salt)},stored_key={_encode(self.stored_key)}"
            f",server_key={_encode(self.server_key)},iterations={self.iterations}"
        )


def parse_credential(text: str) -> ScramCredential:
    """Read a credential as Kafka keeps it. Raises BadCredential, which shows nothing of it."""
    pairs = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if pairs.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise BadCredential("a SCRAM credential has salt, stored_key, server_key and iterations")
    try:
        return ScramCredential(
            _decode(pairs["salt"]),
            _decode(pairs["stored_key"]),
            _decode(pairs["server_key"]),
            int(pairs["iterations"]),
        )
    except ValueError:
        raise BadCredential("a part of the SCRAM credential cannot be read") from None


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return what a server keeps of a salted password."""
    client_key = mechanism.hmac(salted_password, b"Client Key")
    return ScramCredential(
        salt,
        mechanism.hash(client_key),
        mechanism.hmac(salted_password, b"Server Key"),
        iterations,
    )


def unknown_credential(
    mechanism: ScramMechanism, secret: bytes, user: str, iterations: int
) -> ScramCredential:
    """Return the credential of a user that there is not: always the same, and no password fits.

    A client cannot tell it from a real one, unless it knows `secret`.
    """

    def derive(purpose: bytes) -> bytes:
        return mechanism.hmac(secret, purpose + mechanism.name.encode() + b"\0" + user.encode())

    salt = nonce_of(int.from_bytes(derive(b"salt"), "big")).encode()
    return ScramCredential(salt, derive(b"stored key"), derive(b"server key"), iterations)


def nonce_of(number: int) -> str:
    """Return a nonce, or a salt, as Kafka writes them: the lowest 130 bits in base 36."""
    number &= (1 << NONCE_BITS) - 1
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)) or "0"


# ---- messages

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"

_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>(?:m=[^,\0]+,)?n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE})"
    rf"(?P<extensions>{_EXTENSIONS}))",
    re.DOTALL,
)
_SERVER_FIRST = re.compile(
    rf"(?:m=[^,\0]+,)?r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64})"
    rf",i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})",
    re.DOTALL,
)
_SERVER_FINAL = re.compile(
    rf"(?:e=(?P<error>[^,\0]+)|v=(?P<signature>{_BASE64}){_EXTENSIONS})", re.DOTALL
)


def _match(pattern: re.Pattern[str], token: bytes) -> re.Match[str] | None:
    try:
        return pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        return None


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# ---- the server


@frozen
class ScramServer:
    """The server's side before the client's first message.

    `find(user)` returns the credential, or one that no password fits (`unknown_credential`): an
    unknown user is refused as late as a wrong password. `nonce` is random and of this login alone.
    """

    mechanism: ScramMechanism
    find: Callable[[str], ScramCredential]
    nonce: str = attrs.field(repr=False)

    def receive(self, token: bytes) -> Challenge:
        """Take the client's first message. Raises LoginRefused."""
        if len(token) > MAX_FIRST_BYTES:
            raise LoginRefused(None, f"the client's first message has {len(token)} bytes")
        first = _match(_CLIENT_FIRST, token)
        if first is None:
            raise LoginRefused(None, "the client's first message is not SCRAM's")
        if ",tokenauth=true" in first["extensions"].lower():
            raise LoginRefused("Authentication failed: delegation tokens are not served")

        user = _unescape(first["user"])
        authorization_id = first["authorization_id"]
        if authorization_id is not None and _unescape(authorization_id) != user:
            raise LoginRefused(OTHER_AUTHORIZATION_ID)

        credential = self.find(user)
        nonce = first["nonce"] + self.nonce
        challenge = f"r={nonce},s={_encode(credential.salt)},i={credential.iterations}"
        return Challenge(
            challenge.encode(),
            _ScramProof(
                self.mechanism,
                user,
                credential,
                channel=_encode(first["gs2"].encode()),
                nonces=(nonce, first["nonce"] + nonce),
                messages=f"{first['bare']},{challenge}",
            ),
        )


@frozen
class _ScramProof:
    """The server's side before the client's proof."""

    mechanism: ScramMechanism
    user: str
    credential: ScramCredential
    channel: str
    nonces: tuple[str, str] = attrs.field(repr=False)
    messages: str = attrs.field(repr=False)

    def receive(self, token: bytes) -> LoggedIn:
        """Check the proof, and prove the server's knowledge. Raises LoginRefused."""
        final = _match(_CLIENT_FINAL, token)
        if final is None:
            raise LoginRefused(None, "the client's final message is not SCRAM's")
        if final["channel"] != self.channel:
            raise LoginRefused(None, "the client's final message is of another channel")
        if final["nonce"] not in self.nonces:
            raise LoginRefused(None, "the client's final message is of another login")

        # The proof is the client's key, which only the password gives, under a signature.
        mechanism = self.mechanism
        signed = f"{self.messages},{final['unproved']}".encode()
        signature = mechanism.hmac(self.credential.stored_key, signed)
        try:
            client_key = _xor(_decode(final["proof"]), signature)
        except ValueError:
            raise LoginRefused(None, "the client's proof has not the size of a key") from None
        if not hmac.compare_digest(mechanism.hash(client_key), self.credential.stored_key):
            raise LoginRefused(None, "invalid credentials")

        proof = mechanism.hmac(self.credential.server_key, signed)
        return LoggedIn(self.user, f"v={_encode(proof)}".encode())


# ---- the client


@attrs.define(eq=False)
class ScramClient:
    """The client's side. `nonce` is random and of this login alone."""

    mechanism: ScramMechanism
    user: str
    password: str = attrs.field(repr=False)
    nonce: str = attrs.field(repr=False)
    _server_signature: bytes | None = attrs.field(default=None, init=False, repr=False)

    def begin(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    @property
    def _bare(self) -> str:
        return f"n={_escape(self.user)},r={self.nonce}"

    def receive(self, token: bytes) -> bytes | None:
        """Prove the knowledge of the password, then check the server's. Raises ServerRefused."""
        if self._server_signature is None:
            return self._prove(token)
        self._check_server(token, self._server_signature)
        return None

    def _prove(self, token: bytes) -> bytes:
        first = _match(_SERVER_FIRST, token)
        if first is None:
            raise ServerRefused("the server's first message is not SCRAM's")
        nonce = first["nonce"]
        if not nonce.startswith(self.nonce) or len(nonce) <= len(self.nonce):
            raise ServerRefused("the server's nonce does not begin with the client's")
        iterations = int(first["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ServerRefused(
                f"the server asks for {iterations} iterations, allowed are {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS}"
            )
        try:
            salt = _decode(first["salt"])
        except binascii.Error:
            raise ServerRefused("the server's salt is not base64") from None

        # What both sides sign: all messages up to here, without the proof.
        mechanism = self.mechanism
        unproved = f"c={_encode(b'n,,')},r={nonce}"
        signed = f"{self._bare},{token.decode()},{unproved}".encode()

        salted = mechanism.salt_password(self.password, salt, iterations)
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), signed)
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{unproved},p={_encode(_xor(client_key, signature))}".encode()

    def _check_server(self, token: bytes, signature: bytes) -> None:
        final = _match(_SERVER_FINAL, token)
        if final is None:
            raise ServerRefused("the server's final message is not SCRAM's")
        if final["error"] is not None:
            raise ServerRefused(f"the server refuses: {final['error']}")
        if not hmac.compare_digest(final["signature"].encode(), _encode(signature).encode()):
            raise ServerRefused("the server does not know the password: it is another one")
