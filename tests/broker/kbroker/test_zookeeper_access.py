"""A broker on a ZooKeeper that it keeps to itself: by a login, by a certificate; and opened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from clients.admin import Admin, NewTopic
from protocol.settings import SettingError
from tests.stage.certificates import Authority, as_java_reads_it
from tests.stage.processes import command_line
from zk.acls import ALL, EVERYBODY_ALL, EVERYBODY_READS, Permission
from zk.api import NoAuth
from zk.embedded import EmbeddedZooKeeper, find_port
from zk.login import login_of
from zk.session import KazooSession

JAAS = (
    "org.apache.zookeeper.server.auth.DigestLoginModule required "
    'username="kafka" password="secret";'
)
LOGIN = {"kgroup.zookeeper.sasl.jaas.config": JAAS}
KAFKA_ALL = Permission(ALL, "sasl", "kafka")


@contextlib.asynccontextmanager
async def broker_at(
    zookeeper: str, directory: Path, settings: Mapping[str, str]
) -> AsyncIterator[Broker]:
    """A broker with these settings, and a topic `t`."""
    given = {
        "broker.id": "1",
        "zookeeper.connect": zookeeper,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / "logs"),
        "zookeeper.set.acl": "true",
        **settings,
    }
    broker = Broker(load_broker_config(given)[0])
    try:
        await broker.start()
        async with Admin(broker.bootstrap) as admin:
            assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        yield broker
    finally:
        await broker.close()


async def run_kbroker(*args: str, stdin: bytes = b"") -> tuple[int | None, str]:
    """Run the command; return its exit code, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command_line("kbroker", *args),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate(stdin)
    return process.returncode, printed.decode()


async def test_login_of_brokers_keeps_their_nodes_until_they_are_opened(tmp_path: Path) -> None:
    admin = tmp_path / "admin.properties"
    admin.write_text("".join(f"{name}={value}\n" for name, value in LOGIN.items()))

    async with EmbeddedZooKeeper(tmp_path / "zk", users={"kafka": "secret"}) as server:
        where = ("--zookeeper", server.connect_string)
        stranger = KazooSession(server.connect_string)
        await stranger.start()
        async with broker_at(server.connect_string, tmp_path, LOGIN):
            # What the broker and its controller have created.
            for path in ("/controller", "/brokers/ids/1", "/brokers/topics/t"):
                assert await stranger.get_acl(path) == {KAFKA_ALL, EVERYBODY_READS}
            with pytest.raises(NoAuth):
                await stranger.set("/controller", b"mine")
            await stranger.create("/consumers/a-group", None)

            # Commands say what a login would need.
            for forbidden in (
                ("users", "create", "alice", "--password-stdin"),
                ("topics", "delete", "t"),
                ("topics", "create", "u", "--partitions", "1", "--replication-factor", "1"),
                ("configs", "alter", "--topic", "t", "--add", "retention.ms=1"),
            ):
                code, printed = await run_kbroker(*forbidden, *where, stdin=b"secret")
                assert code == 1, printed
                assert "ACLs of ZooKeeper forbid " in printed
                assert ": log in as somebody who may, by kgroup.zookeeper.sasl.jaas.conf" in printed

            # An operator without the login can do nothing, with it everything.
            code, printed = await run_kbroker("zookeeper", "secure", *where)
            assert code == 2
            assert "a login is needed" in printed
            options = (*where, "--command-config", str(admin))
            code, printed = await run_kbroker("zookeeper", "open", *options)
            assert (code, printed.split()[1:]) == (0, ["nodes", "are", "open."])
            assert await stranger.get_acl("/brokers/topics/t") == {EVERYBODY_ALL}
            code, printed = await run_kbroker("zookeeper", "secure", *options)
            assert (code, printed.split()[1:]) == (0, ["nodes", "belong", "to", "the", "brokers."])
            assert await stranger.get_acl("/brokers/topics/t") == {KAFKA_ALL, EVERYBODY_READS}

            # What the operator's command creates belongs to the login too.
            create = ("users", "create", "alice", "--password-stdin", *options)
            assert (await run_kbroker(*create, stdin=b"secret"))[0] == 0
            with pytest.raises(NoAuth):
                await stranger.get("/config/users/alice")

            # What the operator creates is the brokers' too.
            new = ("topics", "create", "u", "--partitions", "1", "--replication-factor", "1")
            code, printed = await run_kbroker(*new, *options)
            assert code == 0, printed
            assert await stranger.get_acl("/brokers/topics/u") == {KAFKA_ALL, EVERYBODY_READS}
        await stranger.close()


async def test_certificate_is_an_identity_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    key = authority.issue("broker.pem", "localhost", common_name="broker")
    tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": key,
        "zookeeper.ssl.truststore.location": authority.trusted,
    }
    served = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        "ssl.keyStore.location": as_java_reads_it(key),
        "ssl.trustStore.location": authority.trusted,
    }
    secure_port = find_port("127.0.0.1", 0)
    served["secureClientPort"] = str(secure_port)
    server = EmbeddedZooKeeper(tmp_path / "zk", settings=served)
    async with server, broker_at(f"localhost:{secure_port}", tmp_path, tls):
        stranger = KazooSession(server.connect_string)
        await stranger.start()
        (owner,) = await stranger.get_acl("/brokers/topics/t") - {EVERYBODY_READS}
        assert owner.scheme == "x509"
        assert "CN=broker" in owner.identity
        await stranger.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a login to ZooKeeper"),
        ({"kgroup.zookeeper.sasl.jaas.config": "x.Y required;"}, "DigestLoginModule"),
        ({"kgroup.zookeeper.sasl.jaas.config": JAAS.replace("password", "p")}, "are missing"),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.keystore.location": "/nowhere.pem",
            },
            "zookeeper.ssl.keystore.location",
        ),
    ],
)
def test_settings_that_give_no_login_are_refused(settings: dict[str, str], message: str) -> None:
    given = {"zookeeper.connect": "zk:1", "zookeeper.set.acl": "true", **settings}
    config, _ = load_broker_config(given)
    with pytest.raises(SettingError, match=message):
        login_of(config, keeps_nodes=config.zookeeper_set_acl)


def test_secrets_are_in_no_repr() -> None:
    config, _ = load_broker_config(
        {
            "zookeeper.connect": "zk:1",
            "kgroup.zookeeper.digest": "me:xyzzy",
            "kgroup.zookeeper.sasl.jaas.config": JAAS.replace("secret", "xyzzy"),
        }
    )
    assert "xyzzy" not in repr(config)
    assert "xyzzy" not in repr(login_of(config))
