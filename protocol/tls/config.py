"""The settings of TLS, under Kafka's names: what brokers and clients share, and what either has.

A store is told by its first bytes, whatever its `type` setting says, as Java does it: tools write
PKCS12 into files that are called JKS.
"""

from __future__ import annotations

from typing import Any

from protocol.frozen import frozen
from protocol.settings import BadWord, one_of, setting
from protocol.tls.principal_rules import DEFAULT

TLS_1_2 = "TLSv1.2"
TLS_1_3 = "TLSv1.3"
OUTDATED = ("TLSv1", "TLSv1.1")
"""Versions that are accepted in a list and never spoken (RFC 8996)."""

STORE_TYPES = ("JKS", "PKCS12", "PEM")
NONE, REQUESTED, REQUIRED = "none", "requested", "required"


def _only_in_java(value: str | None) -> str | None:
    return "names a Java class, which has no effect here: leave it out" if value else None


def _check_protocols(words: tuple[str, ...]) -> BadWord | str | None:
    for word in words:
        if word not in (TLS_1_2, TLS_1_3, *OUTDATED):
            return BadWord(word, f"versions are {TLS_1_2} and {TLS_1_3}")
    if not {TLS_1_2, TLS_1_3}.intersection(words):
        return f"needs {TLS_1_2} or {TLS_1_3}: older versions are not spoken (RFC 8996)"
    return None


def _check_store_type(value: str) -> str | None:
    known = ", ".join(STORE_TYPES)
    return None if value.upper() in STORE_TYPES else f"String must be one of: {known}"


def _store_type(name: str) -> Any:
    doc = f"{', '.join(STORE_TYPES)}; the store itself says which it is"
    return setting(name, "JKS", validator=_check_store_type, doc=doc)


def _java_class(name: str) -> Any:
    return setting(name, None, validator=_only_in_java, doc="Refused: it names a Java class")


@frozen(kw_only=True)
class TlsConfig:
    """The settings of either side. Values that are secret are left out of its repr."""

    # ---- versions and ciphers
    ssl_protocol: str = setting(
        "ssl.protocol",
        TLS_1_3,
        validator=one_of("TLS", TLS_1_2, TLS_1_3),
        doc="Newest version to speak; TLS: the newest there is",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        (TLS_1_2, TLS_1_3),
        validator=_check_protocols,
        doc="Versions to speak",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites", (), doc="Cipher suites, by Java's names or OpenSSL's; none: all"
    )

    # ---- our key and certificate
    ssl_keystore_type: str = _store_type("ssl.keystore.type")
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location", None, doc="File with our private key and certificates"
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password", None, doc="Password of that file, if it is JKS or PKCS12"
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password", None, doc="Password of the private key; JKS: the store's by default"
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key", None, aliases=("ssl.key.pem",), doc="The private key itself, in PEM"
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        aliases=("ssl.certificate.pem",),
        doc="Our certificates themselves, in PEM, our own first",
    )

    # ---- the certificates to trust
    ssl_truststore_type: str = _store_type("ssl.truststore.type")
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        aliases=("ssl.ca.location",),
        doc="File with the certificates to trust; without one, the system's",
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password", None, doc="Password of that file; without one it is not checked"
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        aliases=("ssl.ca.pem",),
        doc="The certificates to trust themselves, in PEM",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        validator=lambda value: (
            None if value.lower() in ("https", "") else "String must be https, or empty"
        ),
        doc="https: a broker's certificate must be for the name we connect to; empty: for any name",
    )

    # ---- Java's own
    ssl_keymanager_algorithm: str = setting(
        "ssl.keymanager.algorithm", "SunX509", doc="No effect: Java's"
    )
    ssl_trustmanager_algorithm: str = setting(
        "ssl.trustmanager.algorithm", "PKIX", doc="No effect: Java's"
    )
    ssl_provider: str | None = _java_class("ssl.provider")
    security_providers: str | None = _java_class("security.providers")
    ssl_secure_random_implementation: str | None = _java_class("ssl.secure.random.implementation")
    ssl_engine_factory_class: str | None = _java_class("ssl.engine.factory.class")

    @property
    def checks_host_names(self) -> bool:
        """True if a client compares the name that it connects to with the certificate."""
        return bool(self.ssl_endpoint_identification_algorithm)


@frozen(kw_only=True)
class ServerTlsConfig(TlsConfig):
    """The settings of a listener."""

    ssl_client_auth: str = setting(
        "ssl.client.auth",
        NONE,
        validator=one_of(NONE, REQUESTED, REQUIRED),
        doc="Whether clients show a certificate: none, requested, required",
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        DEFAULT,
        doc="Rules that make a user's name from a certificate's subject (KIP-371)",
    )
    ssl_allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes", False, doc="Whether a renewed certificate may have another subject"
    )
    ssl_allow_san_changes: bool = setting(
        "ssl.allow.san.changes", False, doc="Whether a renewed certificate may lack names"
    )


@frozen(kw_only=True)
class ClientTlsConfig(TlsConfig):
    """The settings of a client, with those that librdkafka has for PEM files."""

    ssl_certificate_location: str | None = setting(
        "ssl.certificate.location", None, doc="PEM file with our certificates, our own first"
    )
    ssl_key_location: str | None = setting(
        "ssl.key.location", None, doc="PEM file with our private key"
    )
