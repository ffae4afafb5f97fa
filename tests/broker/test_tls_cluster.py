"""Brokers that speak TLS among themselves and with our clients, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

from broker.lifecycle import housekeeping
from broker.server import Broker
from clients.admin import Admin, ConfigResource, NewTopic
from clients.errors import AuthenticationFailed, DeadlineExceeded
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.settings import SettingError
from tests.stage.broker import Site
from tests.stage.certificates import Authority
from tests.stage.waiting import until, until_equal
from zk.znodes import EntityConfig

LISTENERS = {
    "listeners": "CLIENT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "CLIENT:SSL,INSIDE:SSL",
    "inter_broker_listener_name": "INSIDE",
    "advertised_listeners": "CLIENT://localhost:0,INSIDE://127.0.0.1:0",
}


@attrs.frozen
class Secured:
    """Where brokers with certificates live, and what their clients set."""

    site: Site
    authority: Authority

    @classmethod
    def at(cls, path: Path) -> Secured:
        return cls(Site(path), Authority(path))

    def settings(self, **more: str) -> dict[str, str]:
        """Brokers require certificates of each other, and none of clients."""
        return {
            **LISTENERS,
            "ssl_keystore_location": self.issue("broker.pem"),
            "ssl_truststore_location": self.authority.trusted,
            "listener_name_inside_ssl_client_auth": "required",
            **more,
        }

    def issue(self, file_name: str, *names: str) -> str:
        # Both names: brokers find each other by the address, clients by the name.
        return self.authority.issue(
            file_name, *(names or ("localhost", "127.0.0.1")), common_name="broker"
        )

    def client(self, broker: Broker, **more: str) -> dict[str, str]:
        settings = {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SSL",
            "ssl_truststore_location": self.authority.trusted,
            **more,
        }
        return {name.replace("_", "."): value for name, value in settings.items()}

    @contextlib.asynccontextmanager
    async def admin(self, broker: Broker, **more: str) -> AsyncIterator[Admin]:
        async with Admin(self.client(broker, **more)) as admin:
            yield admin


async def test_records_are_replicated_and_read_over_tls(tmp_path: Path) -> None:
    secured = Secured.at(tmp_path)
    values = [os.urandom(60_000) for _ in range(20)]

    async with (
        secured.site.running(1, **secured.settings()) as broker,
        secured.site.running(2, **secured.settings()),
        secured.admin(broker) as admin,
    ):
        assert await admin.create_topics([NewTopic("t", 1, 2, {"min.insync.replicas": "2"})]) == {
            "t": None
        }
        async with Producer({**secured.client(broker), "acks": "all"}) as producer:
            for value in values:
                await producer.send_and_wait("t", value)

        settings = {**secured.client(broker), "ssl.endpoint.identification.algorithm": "https"}
        async with await SimpleConsumer.for_leader(settings, "t", 0) as consumer:
            records = []
            while len(records) < len(values):
                records += await consumer.fetch(FetchRequest("t", 0, len(records), 1_000_000))
    assert [record.value for record in records] == values


@pytest.mark.parametrize(
    ("more", "error", "reason"),
    [
        ({"ssl_truststore_location": ""}, AuthenticationFailed, "certificate is not trusted"),
        ({"security_protocol": "PLAINTEXT"}, DeadlineExceeded, "or one with TLS"),
        ({"ssl_ca_location": "/nowhere"}, SettingError, "given twice"),
        (
            {"ssl_keystore_location": "/nowhere"},
            SettingError,
            "ssl.keystore.location: /nowhere: cannot be read",
        ),
    ],
)
async def test_a_client_that_is_set_wrongly_says_in_a_line_what_to_set(
    more: dict[str, str], error: type[Exception], reason: str, tmp_path: Path
) -> None:
    secured = Secured.at(tmp_path)
    async with secured.site.running(1, **secured.settings()) as broker:
        with pytest.raises(error, match=reason) as raised:
            async with secured.admin(broker, default_api_timeout_ms="500", **more) as admin:
                await admin.list_topics()
    assert "\n" not in str(raised.value)


async def test_a_required_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    secured = Secured.at(tmp_path)
    settings = secured.settings(listener_name_client_ssl_client_auth="required")
    async with secured.site.running(1, **settings) as broker:
        with pytest.raises(AuthenticationFailed, match="requires a client certificate: set") as no:
            async with secured.admin(broker) as admin:
                await admin.list_topics()
        assert str(no.value).startswith(broker.bootstrap)

        # librdkafka's spelling, for a key and its certificate in one file.
        mine = secured.issue("client.pem", "client.example")
        given = {"ssl_certificate_location": mine, "ssl_key_location": mine}
        async with secured.admin(broker, **given) as admin:
            assert await admin.list_topics() == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ssl_keystore_location": ""}, "a listener with TLS needs a key"),
        ({"ssl_keystore_location": "/nowhere"}, "/nowhere: cannot be read"),
        ({"ssl_truststore_location": ""}, "brokers could not connect to each other"),
        ({"listener_name_client_ssl_keystore_location": "/x"}, "listener.name.client.ssl.keystore"),
    ],
)
async def test_a_broker_does_not_start_with_stores_that_cannot_work(
    more: dict[str, str], reason: str, tmp_path: Path
) -> None:
    secured = Secured.at(tmp_path)
    with pytest.raises(SettingError, match=reason):
        async with secured.site.running(1, **secured.settings(**more)):
            pass


async def certificate(broker: Broker) -> str:
    """Return the certificate that a new connection gets."""
    host, _, port = broker.bootstrap.rpartition(":")
    return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))


async def test_a_changed_file_is_taken_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "CERTIFICATES_MS", 20)
    secured = Secured.at(tmp_path)
    async with secured.site.running(1, **secured.settings()) as broker:
        before = await certificate(broker)
        async with secured.admin(broker) as admin:
            secured.issue("broker.pem")

            async def is_new() -> bool:
                return await certificate(broker) != before

            await until(is_new, "new connections get the new certificate")
            # The connection that is open goes on.
            assert await admin.list_topics() == []


async def test_a_file_that_cannot_take_its_place_is_refused_once_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(housekeeping, "CERTIFICATES_MS", 20)
    secured = Secured.at(tmp_path)
    async with secured.site.running(1, **secured.settings()) as broker:
        before = await certificate(broker)
        secured.authority.issue("broker.pem", "localhost", "127.0.0.1", common_name="other")
        reason = "keeps its earlier stores: ssl.keystore.location: the certificate is for CN=other"
        await until(lambda: caplog.text.count(reason) == 2, "both listeners say so")
        assert await certificate(broker) == before

        secured.issue("broker.pem", "localhost")
        reason = "the certificate lacks names that the old one has"
        await until(lambda: caplog.text.count(reason) == 2, "both listeners say so")
        assert await certificate(broker) == before

        # A good one ends it.
        secured.issue("broker.pem")

        async def is_new() -> bool:
            return await certificate(broker) != before

        await until(is_new, "new connections get the new certificate")


async def test_a_stores_setting_is_changed_at_the_broker_and_its_password_kept_encrypted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secured = Secured.at(tmp_path)
    prefix = "listener.name.client."
    resource = ConfigResource.broker(1)

    async with (
        secured.site.running(1, **secured.settings(password_encoder_secret="s")) as broker,
        secured.admin(broker) as admin,
    ):
        before = await certificate(broker)
        renewed = secured.issue("renewed.pem")
        changes = {
            f"{prefix}ssl.keystore.location": renewed,
            f"{prefix}ssl.key.password": "hush-hush",
        }
        assert await admin.incremental_alter_configs({resource: changes}) == {resource: None}
        assert await certificate(broker) != before

        # Encrypted in ZooKeeper, and never shown.
        stored = secured.site.zookeeper.tree[EntityConfig.path("brokers", "1")].data
        assert stored is not None
        assert b"encryptedPassword:" in stored
        assert b"hush-hush" not in stored
        described = (await admin.describe_configs([resource]))[resource]
        password = next(c for c in described if c.name == f"{prefix}ssl.key.password")
        assert (password.value, password.is_sensitive, password.read_only) == (None, True, False)

        # What cannot work is refused before it is written.
        for name, value, reason in (
            (f"{prefix}ssl.keystore.location", "/nowhere", "/nowhere: cannot be read"),
            (f"{prefix}ssl.client.auth", "none", "Cannot update these configs dynamically"),
            ("ssl.keystore.location", renewed, "only per-listener using the listener prefix"),
        ):
            verdicts = await admin.incremental_alter_configs({resource: {name: value}})
            assert reason in str(verdicts[resource])
        everybody = ConfigResource.broker_defaults()
        verdicts = await admin.incremental_alter_configs(
            {everybody: {f"{prefix}ssl.keystore.location": renewed}}
        )
        assert "at default cluster level" in str(verdicts[everybody])
        assert secured.site.zookeeper.tree[EntityConfig.path("brokers", "1")].data == stored
    assert "hush-hush" not in caplog.text


async def test_a_password_without_a_secret_is_not_stored(tmp_path: Path) -> None:
    secured = Secured.at(tmp_path)
    resource = ConfigResource.broker(1)
    async with (
        secured.site.running(1, **secured.settings()) as broker,
        secured.admin(broker) as admin,
    ):
        changes = {resource: {"listener.name.client.ssl.key.password": "p"}}
        verdicts = await admin.incremental_alter_configs(changes)
    assert "Password encoder secret not configured" in str(verdicts[resource])


async def test_metadata_names_the_listener_that_was_asked(tmp_path: Path) -> None:
    secured = Secured.at(tmp_path)
    listeners = {
        "listeners": "CLIENT://127.0.0.1:0,INSIDE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener_security_protocol_map": "CLIENT:SSL,INSIDE:SSL,PLAINTEXT:PLAINTEXT",
        "advertised_listeners": "CLIENT://localhost:0,INSIDE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    }
    async with (
        secured.site.running(1, **secured.settings(**listeners)) as broker,
        secured.site.running(2, **secured.settings()),
        secured.admin(broker) as admin,
    ):
        node = secured.site.node(1)
        assert node is not None
        plaintext = next(e for e in node[0].endpoints if e.listener == "PLAINTEXT")
        assert (node[0].host, node[0].port) == (plaintext.host, plaintext.port)

        async def brokers() -> list[tuple[int, str]]:
            return [(b.node_id, b.host) for b in (await admin.describe_cluster()).brokers]

        await until_equal(brokers, [(1, "localhost"), (2, "localhost")])

        # The other broker has no such listener, and its partitions no leader there.
        address = f"{plaintext.host}:{plaintext.port}"
        async with Admin({"bootstrap.servers": address}) as outside:

            async def seen() -> list[tuple[int, str]]:
                return [(b.node_id, b.host) for b in (await outside.describe_cluster()).brokers]

            await until_equal(seen, [(1, "127.0.0.1")])
