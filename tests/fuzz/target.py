"""The broker that is fuzzed: a cluster of its own, with short waits and small limits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from broker.kbroker.local_cluster import claim_ports
from clients.admin import Admin, ScramUpsertion
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256
from protocol.sasl.jaas import MODULE_OF
from tests.fuzz.login_frames import MECHANISMS, PASSWORD, USER
from tests.stage.certificates import Authority
from tests.stage.cluster import DevCluster

HOST = "127.0.0.1"

MINUTE_MS = 60_000
CENTURIES_MS = 10**13

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "3",
    "socket.request.max.bytes": "1000000",
    # So that requests about ACLs are served, too.
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{USER}",
    # Logins. By PLAIN a session has no end, by the others it has one.
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SSL:SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.server.max.receive.size": "20000",
    "connection.failed.authentication.delay.ms": "1",
    "listener.name.login.plain.sasl.jaas.config": (
        f'{MODULE_OF[PLAIN]} required user_{USER}="{PASSWORD}";'
    ),
    "listener.name.login.scram-sha-256.connections.max.reauth.ms": str(MINUTE_MS),
    # Tokens are accepted that have expired long ago: their sessions are over at once.
    "listener.name.login.oauthbearer.sasl.jaas.config": (
        f"{MODULE_OF[OAUTHBEARER]} required "
        f'unsecuredValidatorAllowableClockSkewMs="{CENTURIES_MS}";'
    ),
}


@attrs.frozen
class Target:
    """A broker that runs: its ports, its process, its log, and the authority of its certificate."""

    plaintext: int
    login: int
    tls: int
    pid: int
    log: Path
    trusted: str

    @property
    def bootstrap(self) -> str:
        """The address of the listener without logins."""
        return f"{HOST}:{self.plaintext}"

    async def create_user(self) -> None:
        """Give USER a password for SCRAM; the other mechanisms have it in the settings."""
        async with Admin(self.bootstrap) as admin:
            change = ScramUpsertion(USER, SCRAM_SHA_256, PASSWORD)
            assert await admin.alter_user_scram_credentials([change]) == {USER: None}


@contextlib.contextmanager
def fuzzed_cluster(
    directory: Path, others: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[DevCluster, Target]]:
    """Run a cluster of one broker in a directory for the block; `others` are more settings."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority(directory)
    ports = plaintext, login, tls = claim_ports(0, 3)
    listeners = zip(("PLAINTEXT", "LOGIN", "SSL"), ports, strict=True)
    settings = {
        **SETTINGS,
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners),
        "ssl.keystore.location": authority.issue("broker.pem", "localhost"),
        **others,
    }
    options = [
        option for name, value in settings.items() for option in ("--set", f"{name}={value}")
    ]

    # The last of two ports counts: the probe of the cluster has to know it.
    with DevCluster(directory, (*options, "--port", str(plaintext))) as cluster:
        yield (
            cluster,
            Target(
                plaintext,
                login,
                tls,
                cluster.pid("broker-0"),
                directory / "broker-0.log",
                authority.trusted,
            ),
        )
