"""The folder that secures a cluster of `kbroker dev --secure`: made once, and used again.

    ca.pem                        certificate of an authority, which brokers and clients trust
    ca-key.pem                    its key, for brokers that are added later
    broker-N.pem                  key and certificate of broker N
    client.pem                    key and certificate of a client, for listeners that want one
    passwords.properties          the password of each user
    USER.properties               settings of a client, in Kafka's names
    USER.librdkafka.properties    the same in librdkafka's
    zookeeper.properties          those of admin and the brokers' login at ZooKeeper, for commands

The users are `admin`, who may do everything, and `alice`, who may do what ACLs allow. Their
settings are written at each start, with the addresses of then. Nobody but the owner may read the
files.
"""

from __future__ import annotations

import importlib.util
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path

import attrs

from clients.admin.descriptions import ScramUpsertion
from clients.transport.login import Login, login_by_password
from protocol.frozen import frozen
from protocol.private_file import write_private
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.sasl.jaas import SCRAM_MODULE, format_jaas
from protocol.settings import format_properties, parse_properties
from protocol.tls.config import TlsConfig
from protocol.tls.context import make_client_context
from protocol.tls.stores import load_stores
from protocol.zookeeper_security import DIGEST_MODULES, JAAS
from zk.login import SaslLogin, ZkLogin

HOSTS = ("localhost", "127.0.0.1")
"""The names of brokers in their certificates."""

LISTENER = "SASL_SSL"
BROKERS, ADMIN, ALICE = "broker", "admin", "alice"
USERS = (BROKERS, ADMIN, ALICE)
"""Those who log in at brokers; the brokers themselves are one."""
CLIENTS = (ADMIN, ALICE)
ZOOKEEPER_USER = "kafka"
"""The one who may write to ZooKeeper: the brokers, and commands with their login."""

_PACKAGES = {"cryptography": "cryptography", "puresasl": "pure-sasl"}


class SecurityUnavailable(Exception):
    """A package is missing; the text says how to install it."""


@frozen
class SecurityFolder:
    """The folder, with all that there is to be in it but the settings of clients."""

    path: Path
    passwords: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def open(cls, path: Path, brokers: int) -> SecurityFolder:
        """Make what is missing for so many brokers. Raises SecurityUnavailable, OSError."""
        missing = [
            package for name, package in _PACKAGES.items() if importlib.util.find_spec(name) is None
        ]
        if missing:
            names = " and ".join(missing)
            raise SecurityUnavailable(
                f"kbroker dev --secure needs {names}: pip install 'kgroup[security]'"
            )

        path.mkdir(mode=0o700, exist_ok=True)
        _make_certificates(path, brokers)
        return cls(path, _make_passwords(path / "passwords.properties"))

    # ---- the cluster

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return the settings of a broker, but for the address of its only listener."""
        prefix = f"listener.name.{LISTENER.lower()}.{SCRAM_SHA_512.lower()}"
        return {
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": SCRAM_SHA_512,
            "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_512,
            f"{prefix}.sasl.jaas.config": self._login_entry(BROKERS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.path / f"broker-{broker_id}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.path / "ca.pem"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKERS};User:{ADMIN}",
            "zookeeper.set.acl": "true",
            JAAS: self._zookeeper_entry(),
        }

    @property
    def zookeeper_login(self) -> ZkLogin:
        """The brokers' login at ZooKeeper; what it creates is theirs alone."""
        password = self.passwords[ZOOKEEPER_USER]
        return ZkLogin(sasl=SaslLogin(ZOOKEEPER_USER, password), keeps_nodes=True)

    @property
    def zookeeper_users(self) -> dict[str, str]:
        """Return the users who can log in at ZooKeeper, with their passwords."""
        return {ZOOKEEPER_USER: self.passwords[ZOOKEEPER_USER]}

    @property
    def credentials(self) -> list[ScramUpsertion]:
        """Return the credentials that ZooKeeper keeps of the users who log in at brokers."""
        return [ScramUpsertion(user, SCRAM_SHA_512, self.passwords[user]) for user in USERS]

    # ---- clients

    @property
    def admin_login(self) -> Login:
        """The login of `admin`."""
        return login_by_password(SCRAM_SHA_512, ADMIN, self.passwords[ADMIN])

    def client_tls(self) -> ssl.SSLContext:
        """Return what a client needs that also shows a certificate. This reads files."""
        config = TlsConfig(
            ssl_keystore_location=str(self.path / "client.pem"),
            ssl_truststore_location=str(self.path / "ca.pem"),
        )
        return make_client_context(config, load_stores(config))

    def settings_file(self, user: str) -> Path:
        """Return the file with the settings of a client in Kafka's names."""
        return self.path / f"{user}.properties"

    def librdkafka_file(self, user: str) -> Path:
        """Return the file with the settings of a client in librdkafka's names."""
        return self.path / f"{user}.librdkafka.properties"

    @property
    def zookeeper_file(self) -> Path:
        """The file with the settings of commands that write to ZooKeeper."""
        return self.path / "zookeeper.properties"

    def write_client_settings(self, bootstrap: str) -> None:
        """Write the files of all clients of the brokers at these addresses."""
        shared = {"bootstrap.servers": bootstrap, "security.protocol": LISTENER}
        trusted = str(self.path / "ca.pem")
        for user in CLIENTS:
            settings = {
                **shared,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": trusted,
                "sasl.mechanism": SCRAM_SHA_512,
                "sasl.jaas.config": self._login_entry(user),
            }
            write_private(self.settings_file(user), format_properties(settings))
            if user == ADMIN:
                settings[JAAS] = self._zookeeper_entry()
                write_private(self.zookeeper_file, format_properties(settings))

            settings = {
                **shared,
                "ssl.ca.location": trusted,
                "sasl.mechanism": SCRAM_SHA_512,
                "sasl.username": user,
                "sasl.password": self.passwords[user],
            }
            write_private(self.librdkafka_file(user), format_properties(settings))

    def _login_entry(self, user: str) -> str:
        return format_jaas(SCRAM_MODULE, username=user, password=self.passwords[user])

    def _zookeeper_entry(self) -> str:
        password = self.passwords[ZOOKEEPER_USER]
        return format_jaas(DIGEST_MODULES[0], username=ZOOKEEPER_USER, password=password)


def _make_passwords(file: Path) -> dict[str, str]:
    passwords = parse_properties(file.read_text("utf-8")) if file.exists() else {}
    missing = {user: secrets.token_hex(16) for user in (*USERS, ZOOKEEPER_USER)} | passwords
    if missing != passwords:
        write_private(file, format_properties(missing))
    return missing


def _make_certificates(path: Path, brokers: int) -> None:
    """Make the authority unless it is there, and the keys that it has not signed yet."""
    from broker.kbroker.authority import SignedKey, make_authority, sign_key

    certificate, key = path / "ca.pem", path / "ca-key.pem"
    if certificate.exists() and key.exists():
        authority = SignedKey(key.read_text(), certificate.read_text())
    else:
        # What another authority has signed is of no use.
        for file in path.glob("*.pem"):
            file.unlink()
        authority = make_authority("kbroker dev --secure")
        write_private(key, authority.key)
        write_private(certificate, authority.certificate)

    for name in (*(f"broker-{number}" for number in range(brokers)), "client"):
        file = path / f"{name}.pem"
        if not file.exists():
            signed = sign_key(authority, name, HOSTS)
            write_private(file, signed.key + signed.certificate)
