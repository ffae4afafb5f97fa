"""Encrypt the passwords that ZooKeeper keeps among a broker's settings, as Kafka does (KIP-226).

A text is a list of name:value: how the key is derived from `password.encoder.secret`, the salt, the
initialization vector, and the encrypted password in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import attrs

from protocol.frozen import frozen
from protocol.settings import SettingError

SECRET = "password.encoder.secret"

CIPHER = "AES/CBC/PKCS5Padding"
KEY_FACTORIES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA512": "sha512",
}
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"

_SALT_BYTES = 256
_BLOCK_BYTES = 16
_BLOCK_BITS = 128
_MOST_ITERATIONS = 10_000_000


class PasswordError(ValueError):
    """A stored password cannot be decrypted."""


@frozen
class PasswordEncoder:
    """Encrypts with the first secret; decrypts with any of them, so that the secret can change."""

    passphrases: Sequence[str] = attrs.field(repr=False)
    iterations: int = 4096
    key_bits: int = 128
    key_factory: str = DEFAULT_KEY_FACTORY

    def encode(self, password: str) -> str:
        """Return the text for ZooKeeper. Raises SettingError without a secret."""
        if not self.passphrases:
            raise SettingError(SECRET, "Password encoder secret not configured")

        salt, vector = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_BLOCK_BYTES)
        key = self._derive(
            self.passphrases[0], self.key_factory, salt, self.iterations, self.key_bits
        )
        padder = _padding().padder()
        padded = padder.update(password.encode()) + padder.finalize()
        encryptor = _cipher(key, vector).encryptor()
        encrypted = encryptor.update(padded) + encryptor.finalize()

        fields = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": CIPHER,
            "keyLength": str(self.key_bits),
            "salt": _write(salt),
            "iterations": str(self.iterations),
            "encryptedPassword": _write(encrypted),
            # As Java counts characters: in units of UTF-16.
            "passwordLength": str(_length(password)),
            "initializationVector": _write(vector),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password of a text. Raises PasswordError."""
        try:
            return self._decode(text)
        except (KeyError, ValueError, binascii.Error, SettingError) as error:
            raise PasswordError(f"cannot be decrypted by {SECRET}: {error}") from error

    def _decode(self, text: str) -> str:
        fields = dict(item.split(":", 1) for item in text.split(","))
        if fields["cipherAlgorithm"] != CIPHER:
            raise ValueError(f"the cipher {fields['cipherAlgorithm']} is not known")
        iterations = int(fields["iterations"])
        if not 0 < iterations <= _MOST_ITERATIONS:
            raise ValueError(f"{iterations} iterations are too many")

        for passphrase in self.passphrases:
            key = self._derive(
                passphrase,
                fields["keyFactoryAlgorithm"],
                base64.b64decode(fields["salt"]),
                iterations,
                int(fields["keyLength"]),
            )
            decryptor = _cipher(key, base64.b64decode(fields["initializationVector"])).decryptor()
            encrypted = base64.b64decode(fields["encryptedPassword"])
            padded = decryptor.update(encrypted) + decryptor.finalize()
            try:
                unpadder = _padding().unpadder()
                password = bytes(unpadder.update(padded) + unpadder.finalize()).decode()
            except ValueError:
                continue
            if _length(password) == int(fields["passwordLength"]):
                return password
        raise ValueError("it was encrypted with another secret")

    def _derive(
        self, passphrase: str, key_factory: str, salt: bytes, iterations: int, key_bits: int
    ) -> bytes:
        digest = KEY_FACTORIES[key_factory]
        return hashlib.pbkdf2_hmac(digest, passphrase.encode(), salt, iterations, key_bits // 8)


def _cipher(key: bytes, vector: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import CBC
    except ImportError:
        raise SettingError(
            SECRET, "needs the package cryptography: pip install 'kgroup[security]'"
        ) from None
    return Cipher(AES(key), CBC(vector))


def _padding() -> Any:
    from cryptography.hazmat.primitives.padding import PKCS7

    return PKCS7(_BLOCK_BITS)


def _write(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _length(password: str) -> int:
    return len(password.encode("utf-16-le")) // 2
