"""Make `ssl` contexts from Kafka's settings.

A context trusts exactly the certificates of the trust store, be they authorities or not, as Java
does, and never renegotiates.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from protocol.settings import SettingError
from protocol.tls.cipher_names import SETTING as CIPHER_SUITES
from protocol.tls.cipher_names import translate_suites
from protocol.tls.config import (
    NONE,
    REQUESTED,
    REQUIRED,
    TLS_1_2,
    TLS_1_3,
    ServerTlsConfig,
    TlsConfig,
)
from protocol.tls.pem import CERTIFICATE, write_block
from protocol.tls.stores import CHAIN, KEY, KEY_PASSWORD, KEY_STORE, TRUST_STORE, Stores

_VERIFY_MODES = {
    NONE: ssl.CERT_NONE,
    REQUESTED: ssl.CERT_OPTIONAL,
    REQUIRED: ssl.CERT_REQUIRED,
}


_MOST_FLIGHTS = 5
"""Messages of a handshake that go each way, TLS 1.2's with a certificate of the client included."""


def make_server_context(config: ServerTlsConfig, stores: Stores) -> ssl.SSLContext:
    """Make the context of a listener. Raises SettingError."""
    if stores.key is None:
        raise SettingError(
            KEY_STORE, f"is missing: a listener with TLS needs a key; or set {KEY} and {CHAIN}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY_MODES[config.ssl_client_auth]
    _configure(context, config, stores)
    return context


def make_client_context(config: TlsConfig, stores: Stores) -> ssl.SSLContext:
    """Make the context of a client. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The chain is verified in any case.
    context.check_hostname = config.checks_host_names
    _configure(context, config, stores)
    return context


def _configure(context: ssl.SSLContext, config: TlsConfig, stores: Stores) -> None:
    # A peer that renegotiates makes us compute as often as it likes.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION

    _set_versions(context, config)
    if stores.key is not None:
        _load_key(context, stores)

    # Java takes any listed certificate for an anchor, and is not strict about its extensions.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if stores.trusted is None:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH
            if isinstance(config, ServerTlsConfig)
            else ssl.Purpose.SERVER_AUTH
        )
        return
    try:
        context.load_verify_locations(cadata=b"".join(stores.trusted))
    except ssl.SSLError as error:
        raise SettingError(TRUST_STORE, f"a certificate cannot be read: {error}") from error


def _set_versions(context: ssl.SSLContext, config: TlsConfig) -> None:
    enabled = set(config.ssl_enabled_protocols)
    if config.ssl_protocol == TLS_1_2:
        enabled.discard(TLS_1_3)

    # A version without a suite is not offered.
    if config.ssl_cipher_suites:
        suites = translate_suites(config.ssl_cipher_suites)
        if not suites.has_tls_1_3:
            enabled.discard(TLS_1_3)
        if not suites.has_tls_1_2:
            enabled.discard(TLS_1_2)
        else:
            _set_ciphers(context, suites.openssl)

    versions = [
        version
        for name, version in (
            (TLS_1_2, ssl.TLSVersion.TLSv1_2),
            (TLS_1_3, ssl.TLSVersion.TLSv1_3),
        )
        if name in enabled
    ]
    if not versions:
        raise SettingError(
            "ssl.enabled.protocols", f"no version is left: see ssl.protocol and {CIPHER_SUITES}"
        )
    context.minimum_version = versions[0]
    context.maximum_version = versions[-1]


def _set_ciphers(context: ssl.SSLContext, names: str) -> None:
    try:
        context.set_ciphers(names)
    except ssl.SSLError:
        raise SettingError(CIPHER_SUITES, "this OpenSSL has none of them", names) from None

    # OpenSSL takes a list of which it knows a part.
    known = {cipher["name"] for cipher in context.get_ciphers()}
    unknown = [name for name in names.split(":") if name not in known]
    if unknown:
        raise SettingError(CIPHER_SUITES, "this OpenSSL does not have it", unknown[0])


def _load_key(context: ssl.SSLContext, stores: Stores) -> None:
    key = stores.key
    assert key is not None
    text = key.pem + "".join(write_block(CERTIFICATE, certificate) for certificate in key.chain)
    # The function takes no password of None for an encrypted key: it would ask the terminal.
    password = key.password or ""
    try:
        with _as_file(text.encode()) as path:
            context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingError(KEY_STORE, "the key is not that of the first certificate") from error
        if key.password is not None:
            raise SettingError(KEY_PASSWORD, "does not open the private key") from error
        raise SettingError(
            KEY_STORE, f"the key or a certificate cannot be read: {error}"
        ) from error


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give bytes a path for as long as the block lasts: OpenSSL reads keys from files only."""
    # In memory where the system can: a key that was never on a disk need not be removed from it.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return

    # This file has the mode 0600.
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def try_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Let two contexts shake hands in memory. Raises ssl.SSLError.

    The client's must not check names: there is no name to connect to.
    """
    # Bytes that leave one side come in at the other.
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server),
    ]

    # Each turn moves one flight of messages; a side that has finished does nothing more.
    for _ in range(_MOST_FLIGHTS):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
