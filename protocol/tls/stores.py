"""Read key stores and trust stores: PEM, PKCS12 and JKS, told by their first bytes.

Java keeps PKCS12 in files that are called JKS, so the setting of the type is not asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from protocol.frozen import frozen
from protocol.settings import SettingError
from protocol.tls.config import ClientTlsConfig, TlsConfig
from protocol.tls.java_key_store import (
    MAGIC,
    KeyStoreError,
    WrongPassword,
    read_java_key_store,
    unmask_key,
)
from protocol.tls.pem import CERTIFICATE, PRIVATE_KEY, PemError, read_blocks, write_block

KEY_STORE = "ssl.keystore.location"
KEY_STORE_PASSWORD = "ssl.keystore.password"
KEY_PASSWORD = "ssl.key.password"
KEY = "ssl.keystore.key"
CHAIN = "ssl.keystore.certificate.chain"
TRUST_STORE = "ssl.truststore.location"
TRUST_STORE_PASSWORD = "ssl.truststore.password"
TRUSTED = "ssl.truststore.certificates"
KEY_FILE = "ssl.key.location"
CHAIN_FILE = "ssl.certificate.location"

_JCEKS_MAGIC = bytes.fromhex("cececece")
_DER_SEQUENCE = b"\x30"
_PEM_MARK = b"-----BEGIN"

_CONVERT_JCEKS = (
    "is a JCEKS store, which cannot be read here; convert it with: keytool -importkeystore "
    "-srckeystore {0} -srcstoretype JCEKS -destkeystore {0}.p12 -deststoretype PKCS12"
)
_CRYPTOGRAPHY_MISSING = (
    "is a PKCS12 store, which needs the package cryptography: pip install 'kgroup[security]'"
)


@frozen
class PrivateKey:
    """A private key in PEM, encrypted if there is a password, with its certificates in DER.

    The first certificate of the chain is the key's own.
    """

    pem: str = attrs.field(repr=False)
    password: str | None = attrs.field(repr=False)
    chain: tuple[bytes, ...] = attrs.field(repr=False)


@frozen
class Stores:
    """The stores of a config; `trusted` is None where the system's certificates are trusted."""

    key: PrivateKey | None
    trusted: tuple[bytes, ...] | None = attrs.field(repr=False)


def load_stores(config: TlsConfig) -> Stores:
    """Read the stores of a config. This reads files. Raises SettingError."""
    return Stores(_load_key(config), _load_trusted(config))


def store_files(config: TlsConfig) -> tuple[str, ...]:
    """Return the files that the stores of a config are read from."""
    files = [config.ssl_keystore_location, config.ssl_truststore_location]
    if isinstance(config, ClientTlsConfig):
        files += [config.ssl_certificate_location, config.ssl_key_location]
    return tuple(file for file in files if file)


# ---- the private key


def _load_key(config: TlsConfig) -> PrivateKey | None:
    key = _given_text(config, KEY, config.ssl_keystore_key)
    chain = _given_text(config, CHAIN, config.ssl_keystore_certificate_chain)
    if isinstance(config, ClientTlsConfig):
        key = _one_of(key, _file_text(KEY_FILE, config.ssl_key_location))
        chain = _one_of(chain, _file_text(CHAIN_FILE, config.ssl_certificate_location))

    # In settings, or in a file each.
    location = config.ssl_keystore_location
    if key or chain:
        if not key or not chain:
            missing = CHAIN if key else KEY
            raise SettingError(missing, "is missing: a key and its certificates are set together")
        if location:
            raise SettingError(KEY_STORE, f"is given beside {key.setting}: set only one of them")
        _refuse_store_password(config)
        return _read_pem_key(key, chain, config.ssl_key_password)

    # In a store, or nowhere.
    if not location:
        if config.ssl_keystore_password is not None:
            raise SettingError(KEY_STORE, f"is missing beside {KEY_STORE_PASSWORD}")
        return None
    return _read_key_store(location, config)


def _read_key_store(location: str, config: TlsConfig) -> PrivateKey:
    content = _read_file(KEY_STORE, location)
    kind = _kind_of(KEY_STORE, location, content)
    if kind == "PEM":
        _refuse_store_password(config)
        text = _Text(KEY_STORE, location, _decode(KEY_STORE, location, content))
        return _read_pem_key(text, text, config.ssl_key_password)

    password = config.ssl_keystore_password
    if password is None:
        raise SettingError(KEY_STORE_PASSWORD, f"is missing: {location} is a {kind} store")
    if kind == "PKCS12":
        return _read_pkcs12_key(location, content, password)

    try:
        store = read_java_key_store(content, password)
        if not store.keys:
            raise SettingError(KEY_STORE, f"{location}: has no private key")
        # Java takes the first that suits, too.
        key = store.keys[0]
        plain = unmask_key(key, config.ssl_key_password or password)
    except WrongPassword as error:
        hint = f"{KEY_STORE_PASSWORD}, {KEY_PASSWORD}"
        raise SettingError(KEY_STORE, f"{location}: {error} ({hint})") from error
    except KeyStoreError as error:
        raise SettingError(KEY_STORE, f"{location}: {error}") from error
    return PrivateKey(write_block(PRIVATE_KEY, plain), None, key.chain)


def _refuse_store_password(config: TlsConfig) -> None:
    if config.ssl_keystore_password is not None:
        raise SettingError(
            KEY_STORE_PASSWORD, f"PEM has no store password: an encrypted key has {KEY_PASSWORD}"
        )


@frozen
class _Text:
    """PEM text, with the setting that has it or names its file."""

    setting: str
    source: str
    text: str = attrs.field(repr=False)

    def error(self, reason: str) -> SettingError:
        where = f"{self.source}: " if self.source else ""
        return SettingError(self.setting, where + reason)


def _given_text(config: TlsConfig, setting: str, text: str | None) -> _Text | None:
    return _Text(setting, "", text) if text else None


def _file_text(setting: str, location: str | None) -> _Text | None:
    if not location:
        return None
    return _Text(setting, location, _decode(setting, location, _read_file(setting, location)))


def _one_of(first: _Text | None, second: _Text | None) -> _Text | None:
    if first and second:
        raise second.error(f"is given beside {first.setting}: set only one of them")
    return first or second


def _read_pem_key(key: _Text, chain: _Text, password: str | None) -> PrivateKey:
    keys = [block for block in read_blocks(key.text) if block.label.endswith(PRIVATE_KEY)]
    if len(keys) != 1:
        raise key.error(f"has {len(keys)} private keys in PEM, and must have one")
    try:
        pem = keys[0].text
    except PemError as error:
        raise key.error(str(error)) from error

    # A password that nothing needs is no error, as in Java.
    is_encrypted = "ENCRYPTED" in keys[0].label or "ENCRYPTED" in keys[0].body
    if is_encrypted and password is None:
        raise SettingError(KEY_PASSWORD, "is missing: the private key is encrypted")
    return PrivateKey(pem, password if is_encrypted else None, _read_certificates(chain))


def _read_certificates(text: _Text) -> tuple[bytes, ...]:
    try:
        certificates = tuple(
            block.content for block in read_blocks(text.text) if block.label == CERTIFICATE
        )
    except PemError as error:
        raise text.error(str(error)) from error
    if not certificates:
        raise text.error("has no certificate in PEM")
    return certificates


# ---- trusted certificates


def _load_trusted(config: TlsConfig) -> tuple[bytes, ...] | None:
    location = config.ssl_truststore_location
    password = config.ssl_truststore_password
    if config.ssl_truststore_certificates:
        if location:
            raise SettingError(TRUST_STORE, f"is given beside {TRUSTED}: set only one of them")
        return _read_certificates(_Text(TRUSTED, "", config.ssl_truststore_certificates))
    if not location:
        if password is not None:
            raise SettingError(TRUST_STORE, f"is missing beside {TRUST_STORE_PASSWORD}")
        return None

    content = _read_file(TRUST_STORE, location)
    kind = _kind_of(TRUST_STORE, location, content)
    if kind == "PEM":
        return _read_certificates(
            _Text(TRUST_STORE, location, _decode(TRUST_STORE, location, content))
        )
    if kind == "PKCS12":
        certificates = _read_pkcs12_certificates(location, content, password)
    else:
        try:
            store = read_java_key_store(content, password)
            # Java trusts the certificates of its own keys, too.
            certificates = (*store.certificates, *(key.chain[0] for key in store.keys))
        except WrongPassword as error:
            reason = f"{location}: {error} ({TRUST_STORE_PASSWORD})"
            raise SettingError(TRUST_STORE, reason) from error
        except KeyStoreError as error:
            raise SettingError(TRUST_STORE, f"{location}: {error}") from error
    if not certificates:
        raise SettingError(TRUST_STORE, f"{location}: has no trusted certificate")
    return certificates


# ---- PKCS12


def _read_pkcs12_key(location: str, content: bytes, password: str) -> PrivateKey:
    store = _open_pkcs12(KEY_STORE, location, content, password, KEY_STORE_PASSWORD)
    if store.key is None or store.cert is None:
        raise SettingError(KEY_STORE, f"{location}: has no private key with a certificate")

    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    certificates = (store.cert, *store.additional_certs)
    chain = tuple(entry.certificate.public_bytes(Encoding.DER) for entry in certificates)
    return PrivateKey(pem, None, chain)


def _read_pkcs12_certificates(
    location: str, content: bytes, password: str | None
) -> tuple[bytes, ...]:
    store = _open_pkcs12(TRUST_STORE, location, content, password, TRUST_STORE_PASSWORD)

    from cryptography.hazmat.primitives.serialization import Encoding

    # Java trusts the certificate of its own key, too.
    entries = (*store.additional_certs, *([store.cert] if store.cert else []))
    return tuple(entry.certificate.public_bytes(Encoding.DER) for entry in entries)


def _open_pkcs12(
    setting: str, location: str, content: bytes, password: str | None, password_setting: str
) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise SettingError(setting, f"{location}: {_CRYPTOGRAPHY_MISSING}") from None

    encoded = None if password is None else password.encode()
    try:
        return load_pkcs12(content, encoded)
    except ValueError as error:
        reason = f"cannot be opened: {error} ({password_setting})"
        raise SettingError(setting, f"{location}: {reason}") from error


# ---- files


def _read_file(setting: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise SettingError(setting, f"{location}: cannot be read: {error.strerror}") from error


def _decode(setting: str, location: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SettingError(setting, f"{location}: is not text: {error}") from error


def _kind_of(setting: str, location: str, content: bytes) -> str:
    """Return PEM, JKS or PKCS12. Raises SettingError for anything else."""
    if content.startswith(MAGIC):
        return "JKS"
    if content.startswith(_JCEKS_MAGIC):
        raise SettingError(setting, f"{location}: {_CONVERT_JCEKS.format(location)}")
    if content.startswith(_DER_SEQUENCE):
        return "PKCS12"
    if _PEM_MARK in content:
        return "PEM"
    raise SettingError(setting, f"{location}: is no store of PEM, PKCS12 or JKS")
