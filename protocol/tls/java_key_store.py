"""Read a key store of Java's own format, JKS.

A file has a head (magic, version, number of entries), the entries (private keys with their chains,
or trusted certificates), and a SHA-1 over the password and all of that. A key is masked by a stream
of SHA-1s, made from its password and a salt, and checked by another.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

import attrs

from protocol.frozen import frozen
from protocol.tls.der import OCTET_STRING, DerError, read_element, read_elements

MAGIC = bytes.fromhex("feedfeed")

_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY = 1
_CERTIFICATE_ENTRY = 2


class WrongPassword(ValueError):
    """The password does not fit, or the bytes were changed."""


class KeyStoreError(ValueError):
    """The bytes are not a key store that can be read."""


@frozen
class ProtectedKey:
    """A private key, still masked, with its chain of certificates, its own first."""

    alias: str
    masked: bytes = attrs.field(repr=False)
    chain: tuple[bytes, ...] = attrs.field(repr=False)


@frozen
class JavaKeyStore:
    """The entries of a store, in the order of the file."""

    keys: tuple[ProtectedKey, ...]
    certificates: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.define
class _Reader:
    """Reads big-endian values from the front."""

    left: memoryview

    def take(self, size: int) -> memoryview:
        if size > len(self.left):
            raise KeyStoreError("ends within an entry")
        taken = self.left[:size]
        self.left = self.left[size:]
        return taken

    def number(self) -> int:
        (value,) = struct.unpack(">I", self.take(4))
        return int(value)

    def text(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        return str(self.take(size), "utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        # Version 2 says of which kind it is.
        if version > 1:
            kind = self.text()
            if kind != "X.509":
                raise KeyStoreError(f"has a certificate of the kind {kind!r}")
        return bytes(self.take(self.number()))


def read_java_key_store(content: bytes, password: str | None) -> JavaKeyStore:
    """Read a store. Without a password its integrity is not checked.

    Raises KeyStoreError, WrongPassword.
    """
    if len(content) < _DIGEST_BYTES:
        raise KeyStoreError("ends within its head")
    signed, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password is not None:
        expected = _digest(_encode(password) + _WHITENER + signed)
        if not hmac.compare_digest(expected, digest):
            raise WrongPassword("its password is wrong, or its bytes were changed")

    reader = _Reader(memoryview(signed))
    if bytes(reader.take(4)) != MAGIC:
        raise KeyStoreError("does not begin as a JKS store")
    version = reader.number()
    if version not in (1, 2):
        raise KeyStoreError(f"has version {version}; versions 1 and 2 are known")

    keys: list[ProtectedKey] = []
    certificates: list[bytes] = []
    for _ in range(reader.number()):
        tag = reader.number()
        alias = reader.text()
        reader.take(8)  # when it was made

        if tag == _KEY_ENTRY:
            masked = bytes(reader.take(reader.number()))
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(ProtectedKey(alias, masked, chain))
        elif tag == _CERTIFICATE_ENTRY:
            certificates.append(reader.certificate(version))
        else:
            raise KeyStoreError(f"has an entry of the unknown kind {tag}")
    return JavaKeyStore(tuple(keys), tuple(certificates))


def unmask_key(key: ProtectedKey, password: str) -> bytes:
    """Return a private key as PKCS#8 in DER. Raises WrongPassword, KeyStoreError."""
    try:
        protected = list(read_elements(read_element(memoryview(key.masked)).content))[1]
    except (DerError, IndexError) as error:
        raise KeyStoreError(f"has a key that cannot be read: {error}") from error
    if protected.tag != OCTET_STRING or len(protected.content) < 2 * _DIGEST_BYTES:
        raise KeyStoreError("has a key that cannot be read")

    # Salt, masked bytes, check.
    content = bytes(protected.content)
    stream = content[:_DIGEST_BYTES]
    masked = content[_DIGEST_BYTES:-_DIGEST_BYTES]
    check = content[-_DIGEST_BYTES:]

    # Each SHA-1 masks 20 bytes, and makes the next one.
    encoded = _encode(password)
    plain = bytearray()
    for start in range(0, len(masked), _DIGEST_BYTES):
        stream = _digest(encoded + stream)
        piece = masked[start : start + _DIGEST_BYTES]
        plain += bytes(a ^ b for a, b in zip(piece, stream, strict=False))

    if not hmac.compare_digest(_digest(encoded + plain), check):
        raise WrongPassword(f"the password of its key {key.alias!r} is wrong")
    return bytes(plain)


def _digest(content: bytes) -> bytes:
    # The format has no other; keys that matter are protected by the file's permissions.
    return hashlib.sha1(content, usedforsecurity=False).digest()


def _encode(password: str) -> bytes:
    return password.encode("utf-16-be")
