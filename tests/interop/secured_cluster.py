"""A stock broker and one of ours in one secured cluster.

All connections to brokers are of SASL_SSL, also those between them, which log in by SCRAM. ACLs
decide. The nodes in ZooKeeper belong to the brokers, which log in there with one user.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs
import click
from click.testing import CliRunner

from benchmarks.process import Process, spawn
from broker.kbroker.command import main as kbroker
from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import Admin
from clients.kgroup.command import main as kgroup
from protocol.sasl.exchange import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tests.interop.handover import LATEST, OURS, command_of
from tests.stage.certificates import Authority, as_pkcs12
from tests.stage.sasl_broker import jaas
from tests.stage.stock_kafka import jars
from tests.stage.tool_shell import ToolShell
from tests.stage.waiting import until
from zk.embedded import EmbeddedZooKeeper
from zk.login import SaslLogin, ZkLogin
from zk.session import KazooSession

STOCK, OUR_OWN = 0, 1
MAKES = {STOCK: LATEST, OUR_OWN: OURS}

ACLS, CONFIGS = "kafka.admin.AclCommand", "kafka.admin.ConfigCommand"
"""Main classes of kafka-acls.sh and kafka-configs.sh."""

ADMIN, ADMIN_PASSWORD = "admin", "all mine"
CAROL, CAROL_PASSWORD = "carol", "c=1, d"
"""A user by PLAIN."""

OFFSETS_PARTITIONS = 2
START_S = 60.0
_STORE_PASSWORD = "store-password"
_LOGIN_TO_ZOOKEEPER = SaslLogin("kafka", "zoo keeper")
_BROKER = {"username": "broker", "password": "inside; out"}
_DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


@attrs.define(eq=False)
class SecuredCluster:
    """The brokers, their ZooKeeper, and the tools of both kinds."""

    directory: Path
    zookeeper: str
    authority: Authority
    tools: ToolShell
    ports: Mapping[int, int] = attrs.field(init=False)
    running: dict[int, Process] = attrs.field(factory=dict)

    @ports.default
    def _claim_ports(self) -> dict[int, int]:
        return dict(zip(MAKES, claim_ports(0, len(MAKES)), strict=True))

    @classmethod
    @contextlib.contextmanager
    def started(cls, directory: Path) -> Iterator[Self]:
        """Give a cluster that runs until the end of the block. Skips without Maven."""
        jars()
        login = _LOGIN_TO_ZOOKEEPER
        users = {login.username: login.password}
        server = EmbeddedZooKeeper(directory / "zookeeper", users=users)
        login_file = directory / "jaas.conf"
        login_file.write_text(f"Client {{\n  {_zookeeper_entry()}\n}};\n")
        properties = {"java.security.auth.login.config": str(login_file)}
        asyncio.run(server.start())
        try:
            with ToolShell(directory, properties) as tools:
                cluster = cls(directory, server.connect_string, Authority(directory), tools)
                try:
                    cluster._start(login_file)
                    yield cluster
                finally:
                    for process in cluster.running.values():
                        process.stop(at_once=True)
        finally:
            asyncio.run(server.stop())

    def _start(self, login_file: Path) -> None:
        """Create the first users, by a tool of each kind, and start the brokers."""
        password = f"{SCRAM_SHA_512}=[password={_BROKER['password']}]"
        self.tools.run(
            *(CONFIGS, "--zookeeper", self.zookeeper, "--alter"),
            *("--entity-type", "users", "--entity-name", _BROKER["username"]),
            *("--add-config", password),
        )
        self.kbroker(
            *("users", "create", ADMIN, "--password-stdin"),
            *("--zookeeper", self.zookeeper, "--command-config", str(self.own_properties())),
            stdin=ADMIN_PASSWORD,
        )

        settings = self._settings()
        for broker_id, make in MAKES.items():
            places = {
                "broker.id": str(broker_id),
                "listeners": f"SASL_SSL://{HOST}:{self.ports[broker_id]}",
                "log.dirs": str(self.directory / f"log-{broker_id}"),
            }
            file = self._write(f"{broker_id}.properties", settings | places)
            env = os.environ | {
                "JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={login_file}"
            }
            name = f"broker-{broker_id}-{make}"
            self.running[broker_id] = spawn(name, command_of(make, file), self.directory, env)
        asyncio.run(self._await_brokers())

    async def _await_brokers(self) -> None:
        async def know_each_other() -> bool:
            for broker_id, process in self.running.items():
                process.check_alive()
                async with Admin(self.client(broker_id)) as admin:
                    if len((await admin.describe_cluster()).brokers) < len(MAKES):
                        return False
            return True

        await until(know_each_other, "both brokers know each other", START_S)

    # ---- settings

    def _settings(self) -> dict[str, str]:
        """Return the settings of both brokers; a stock one takes no notice of ours."""
        listener = "listener.name.sasl_ssl"
        return {
            **self._own_settings(),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.set.acl": "true",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": f"{SCRAM_SHA_512},{SCRAM_SHA_256},{PLAIN}",
            "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_512,
            f"{listener}.scram-sha-512.sasl.jaas.config": jaas(SCRAM_SHA_512, **_BROKER),
            f"{listener}.scram-sha-256.sasl.jaas.config": jaas(SCRAM_SHA_256),
            f"{listener}.plain.sasl.jaas.config": jaas(PLAIN, **{f"user_{CAROL}": CAROL_PASSWORD}),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": as_pkcs12(
                self.authority.issue("broker.pem", HOST), _STORE_PASSWORD
            ),
            "ssl.keystore.password": _STORE_PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.trusted,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{_BROKER['username']};User:{ADMIN}",
            "inter.broker.protocol.version": "2.3",
            "log.message.format.version": "2.3",
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.replication.factor": "2",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _own_settings(self) -> dict[str, str]:
        """Return what our brokers and commands need to log in at ZooKeeper."""
        return {"kgroup.zookeeper.sasl.jaas.config": _zookeeper_entry()}

    def own_properties(self) -> Path:
        """Write the file by which our commands log in at ZooKeeper; return its path."""
        return self._write("zookeeper.properties", self._own_settings())

    def client(
        self,
        broker_id: int,
        user: str = ADMIN,
        password: str = ADMIN_PASSWORD,
        mechanism: str = SCRAM_SHA_512,
    ) -> dict[str, str]:
        """Return the settings of a client, as clients of either kind know them."""
        return {
            "bootstrap.servers": f"{HOST}:{self.ports[broker_id]}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.trusted,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas(mechanism, username=user, password=password),
        }

    def librdkafka(self, broker_id: int, user: str, password: str) -> dict[str, str]:
        """Return the settings of a client that logs in by SCRAM, in librdkafka's spelling."""
        return {
            "bootstrap.servers": f"{HOST}:{self.ports[broker_id]}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority.trusted,
            "sasl.mechanism": SCRAM_SHA_512,
            "sasl.username": user,
            "sasl.password": password,
        }

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        """Write a file of properties, in which a backslash is written twice."""
        file = self.directory / name
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        file.write_text("".join(lines).replace("\\", "\\\\"))
        return file

    # ---- tools

    def over(self, broker_id: int) -> tuple[str, ...]:
        """Return the options by which tools of either kind log in at a broker."""
        settings = self.client(broker_id)
        address = settings.pop("bootstrap.servers")
        file = self._write("admin.properties", settings)
        return ("--bootstrap-server", address, "--command-config", str(file))

    def kbroker(self, *args: str, stdin: str = "") -> str:
        """Run `kbroker`; return what it printed. Raises AssertionError if it fails."""
        return _run(kbroker, args, stdin)

    def kgroup(self, *args: str) -> str:
        """Run `kgroup`; return what it printed. Raises AssertionError if it fails."""
        return _run(kgroup, args)

    @contextlib.asynccontextmanager
    async def session(self, *, as_broker: bool = True) -> AsyncIterator[KazooSession]:
        """Open a session with ZooKeeper, as the brokers or as anybody."""
        login = ZkLogin(sasl=_LOGIN_TO_ZOOKEEPER) if as_broker else ZkLogin()
        session = KazooSession(self.zookeeper, login=login)
        await session.start()
        try:
            yield session
        finally:
            await session.close()


def _run(command: click.Command, args: Sequence[str], stdin: str = "") -> str:
    ran = CliRunner().invoke(command, args, input=stdin)
    assert ran.exit_code == 0, ran.output
    return ran.output


def _zookeeper_entry() -> str:
    login = _LOGIN_TO_ZOOKEEPER
    return f'{_DIGEST_MODULE} required username="{login.username}" password="{login.password}";'
