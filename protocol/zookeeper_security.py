"""The settings by which a session with ZooKeeper is secured, of brokers, clients and commands.

TLS has Kafka's names (KIP-515). For logins Kafka has none: Java takes them from the section
`Client` of a JAAS file that its command line names. Here the entry of that section is a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.frozen import frozen
from protocol.settings import SettingError, setting
from protocol.tls.config import TlsConfig

JAAS = "kgroup.zookeeper.sasl.jaas.config"
DIGEST = "kgroup.zookeeper.digest"
DIGEST_MODULES = (
    "org.apache.zookeeper.server.auth.DigestLoginModule",
    "org.apache.kafka.common.security.plain.PlainLoginModule",
)
PREFIX = "zookeeper."


@frozen(kw_only=True, slots=False)  # one of two bases of consumers' configs
class ZooKeeperSecurity:
    """The identity of a session, and its encryption. Secrets are left out of its repr."""

    zookeeper_sasl_jaas_config: str | None = setting(
        JAAS,
        None,
        doc="Login to ZooKeeper by SASL DIGEST-MD5: the entry of a JAAS section Client",
    )
    zookeeper_digest: str | None = setting(
        DIGEST, None, doc="USER:PASSWORD for ZooKeeper's own scheme digest"
    )
    zookeeper_ssl_client_enable: bool = setting(
        "zookeeper.ssl.client.enable", False, doc="Whether to connect to ZooKeeper with TLS"
    )
    zookeeper_client_cnxn_socket: str | None = setting(
        "zookeeper.clientCnxnSocket", None, doc="No effect: Java's"
    )
    zookeeper_ssl_keystore_location: str | None = setting(
        "zookeeper.ssl.keystore.location", None, doc="Our key and certificate for ZooKeeper"
    )
    zookeeper_ssl_keystore_password: str | None = setting("zookeeper.ssl.keystore.password", None)
    zookeeper_ssl_keystore_type: str | None = setting("zookeeper.ssl.keystore.type", None)
    zookeeper_ssl_truststore_location: str | None = setting(
        "zookeeper.ssl.truststore.location", None, doc="The certificates of ZooKeeper to trust"
    )
    zookeeper_ssl_truststore_password: str | None = setting(
        "zookeeper.ssl.truststore.password", None
    )
    zookeeper_ssl_truststore_type: str | None = setting("zookeeper.ssl.truststore.type", None)
    zookeeper_ssl_protocol: str = setting(
        "zookeeper.ssl.protocol", "TLS", doc="Newest version to speak; TLS: the newest there is"
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = setting(
        "zookeeper.ssl.enabled.protocols", ()
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = setting("zookeeper.ssl.cipher.suites", ())
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        doc="HTTPS: ZooKeeper's certificate must be for the name we connect to; empty: for any",
    )

    def zookeeper_sasl_login(self) -> tuple[str, str] | None:
        """Return user and password of the login by SASL. Raises SettingError."""
        if self.zookeeper_sasl_jaas_config is None:
            return None

        # It is imported where there is an entry: most sessions begin without.
        from protocol.sasl.jaas import JaasError, parse_jaas

        try:
            entry = parse_jaas(self.zookeeper_sasl_jaas_config)
        except JaasError as error:
            raise SettingError(JAAS, str(error)) from error
        if entry.module not in DIGEST_MODULES:
            raise SettingError(JAAS, f"ZooKeeper needs {DIGEST_MODULES[0]}", entry.module)
        if "username" not in entry.options or "password" not in entry.options:
            raise SettingError(JAAS, "username and password are missing")
        return entry.options["username"], entry.options["password"]

    def zookeeper_tls(self) -> TlsConfig | None:
        """Return the settings of TLS as listeners have them; None without TLS."""
        if not self.zookeeper_ssl_client_enable:
            return None
        given: dict[str, Any] = {
            "ssl_keystore_location": self.zookeeper_ssl_keystore_location,
            "ssl_keystore_password": self.zookeeper_ssl_keystore_password,
            "ssl_truststore_location": self.zookeeper_ssl_truststore_location,
            "ssl_truststore_password": self.zookeeper_ssl_truststore_password,
            "ssl_protocol": self.zookeeper_ssl_protocol,
            "ssl_cipher_suites": self.zookeeper_ssl_cipher_suites,
            "ssl_endpoint_identification_algorithm": (
                self.zookeeper_ssl_endpoint_identification_algorithm
            ),
        }
        if self.zookeeper_ssl_enabled_protocols:
            given["ssl_enabled_protocols"] = self.zookeeper_ssl_enabled_protocols
        return TlsConfig(**given)


def names_of(error: SettingError) -> SettingError:
    """Return the error of a setting of TLS by its name for ZooKeeper."""
    return error.with_name(f"{PREFIX}{error.name}") if error.name.startswith("ssl.") else error


def security_in(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of a client's settings that are about security with ZooKeeper."""
    return {
        name: value
        for name, value in settings.items()
        if name.startswith(("zookeeper.ssl.", "kgroup.zookeeper."))
    }
