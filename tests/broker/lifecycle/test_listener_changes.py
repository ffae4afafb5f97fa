"""Listeners are opened, shut and advertised while a broker runs, by AlterConfigs."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from clients.admin import Admin, ConfigResource
from clients.errors import ConnectionFailed
from clients.transport.connection import Connection
from protocol.messages.metadata import MetadataRequest
from tests.protocol.tls.test_context import CA, KEY
from tests.stage.broker import Site, connected
from tests.stage.waiting import until

OWN = ConfigResource.broker(1)
FIRST = "PLAINTEXT://127.0.0.1:0"
BOTH = f"{FIRST},OTHER://127.0.0.1:0"
MAP = "listener.security.protocol.map"
PLAIN_MAP = {MAP: "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}
"""Both speak it."""

pytestmark = pytest.mark.fault("outside-O3", needs_no_remedy="a setting that did not change")


@contextlib.asynccontextmanager
async def administered(broker: Broker) -> AsyncIterator[Admin]:
    async with Admin(broker.bootstrap) as admin:
        yield admin


def ports(site: Site) -> dict[str, int]:
    """The registered ports by listener."""
    registered = site.node()
    assert registered is not None
    return {endpoint.listener: endpoint.port for endpoint in registered[0].endpoints}


async def change(admin: Admin, **settings: str | None) -> str:
    """Set settings of the broker, named with underscores; return why they are refused, or ""."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    verdict = (await admin.incremental_alter_configs({OWN: named}))[OWN]
    return "" if verdict is None else str(verdict)


async def open_other(admin: Admin, site: Site) -> int:
    """Open a second listener; return its port."""
    settings = {"listeners": BOTH, **PLAIN_MAP}
    assert (await admin.incremental_alter_configs({OWN: settings}))[OWN] is None
    await until(lambda: "OTHER" in ports(site), "registered with two listeners")
    return ports(site)["OTHER"]


async def test_listener_that_is_added_serves_and_is_advertised(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        port = await open_other(admin, site)
        connection = await Connection.open("127.0.0.1", port)

        async def sees_itself() -> bool:
            answer = await connection.call(MetadataRequest(topics=[]))
            return [found.port for found in answer.brokers] == [port]

        await until(sees_itself, "metadata with the address of the listener that was asked")
        await connection.close()


async def test_listener_that_is_shut_closes_its_connections_and_no_others(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin, connected(broker) as kept:
        port = await open_other(admin, site)
        lost = await Connection.open("127.0.0.1", port)
        assert await change(admin, listeners=None) == ""
        await until(lambda: "OTHER" not in ports(site), "registered without it")
        with pytest.raises(ConnectionFailed):
            await lost.call(MetadataRequest(topics=[]))
        await lost.close()
        with pytest.raises(ConnectionFailed):
            await Connection.open("127.0.0.1", port)
        assert (await kept.call(MetadataRequest(topics=[]))).brokers


async def test_advertised_address_changes_and_stays_after_a_restart(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        assert await change(admin, advertised_listeners="PLAINTEXT://localhost:1234") == ""
        await until(lambda: ports(site) == {"PLAINTEXT": 1234}, "registered at another address")
    async with site.running():
        assert ports(site) == {"PLAINTEXT": 1234}


async def test_listener_that_was_added_is_open_after_a_restart(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        await open_other(admin, site)
    async with site.running():
        connection = await Connection.open("127.0.0.1", ports(site)["OTHER"])
        assert await connection.call(MetadataRequest(topics=[]))
        await connection.close()


async def test_port_that_is_taken_leaves_the_others_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        taken = ports(site)["PLAINTEXT"]
        settings = {"listeners": f"{FIRST},OTHER://127.0.0.1:{taken}", **PLAIN_MAP}
        assert (await admin.incremental_alter_configs({OWN: settings}))[OWN] is None
        await until(lambda: "is not opened" in caplog.text, "logged")
        assert ports(site) == {"PLAINTEXT": taken}


async def test_listener_with_tls_is_added_with_its_stores(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        store = tmp_path / "other.pem"
        store.write_text("".join(KEY.values()))
        prefix = "listener.name.other.ssl.keystore."
        settings = {
            "listeners": BOTH,
            MAP: "PLAINTEXT:PLAINTEXT,OTHER:SSL",
            prefix + "type": "PEM",
            prefix + "location": str(store),
        }
        assert (await admin.incremental_alter_configs({OWN: settings}))[OWN] is None
        await until(lambda: "OTHER" in ports(site), "registered with two listeners")
        (authority,) = CA.values()
        context = ssl.create_default_context(cadata=authority)
        context.check_hostname = False
        port = ports(site)["OTHER"]
        connection = await Connection.open("127.0.0.1", port, tls=context)
        assert await connection.call(MetadataRequest(topics=[]))
        await connection.close()


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"listeners": "OTHER"}, "is not of the form"),
        ({"listeners": "OTHER://127.0.0.1:0", **PLAIN_MAP}, "PLAINTEXT is not among"),
        ({"advertised.listeners": "OTHER://h:1", **PLAIN_MAP}, "OTHER is not among listeners"),
        ({MAP: "PLAINTEXT:SSL"}, "cannot be updated for existing listener PLAINTEXT"),
        ({"listeners": BOTH, MAP: "PLAINTEXT:PLAINTEXT,OTHER:SASL_SSL"}, "OTHER has logins"),
    ],
    ids=str,
)
async def test_listeners_that_cannot_be_are_refused(
    tmp_path: Path, settings: dict[str, str], refusal: str
) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        before = ports(site)
        verdict = (await admin.incremental_alter_configs({OWN: settings}))[OWN]
        assert refusal in str(verdict)
        assert ports(site) == before


async def test_addresses_are_those_of_one_broker(tmp_path: Path) -> None:
    async with Site(tmp_path).running() as broker, administered(broker) as admin:
        all_brokers = ConfigResource.broker_defaults()
        verdicts = await admin.incremental_alter_configs({all_brokers: {"listeners": BOTH}})
        assert "per-broker configs must be specified" in str(verdicts[all_brokers])
