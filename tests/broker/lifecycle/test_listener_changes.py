"""Listeners are opened, shut and advertised while a broker runs, by AlterConfigs."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.kbroker.local_cluster import claim_ports
from broker.server import Broker
from clients.admin import Admin, ConfigResource, NewTopic
from clients.admin.requests import incremental_alter_configs_request
from clients.errors import ConnectionFailed, KgroupError
from clients.transport.connection import Connection
from protocol.messages.metadata import MetadataRequest
from protocol.topic_partition import TopicPartition
from tests.protocol.tls.test_context import CA, KEY
from tests.stage.broker import Site, connected
from tests.stage.waiting import until
from zk.znodes import EntityConfig

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
        await until(lambda: lost.closed, "its connections are closed")
        await lost.close()
        with pytest.raises(ConnectionFailed):
            await Connection.open("127.0.0.1", port)
        assert (await kept.call(MetadataRequest(topics=[]))).brokers


@pytest.mark.fault("strangers-142")
async def test_clients_of_a_listener_that_is_shut_get_their_last_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has it shut may have asked by it."""
    monkeypatch.setattr("broker.network.listener.LAST_RESPONSES_S", 600.0)
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        last = await Connection.open("127.0.0.1", await open_other(admin, site))
        assert await change(admin, listeners=None) == ""
        await until(lambda: "OTHER" not in ports(site), "registered without it")
        assert (await last.call(MetadataRequest(topics=[]))).cluster_id
        await last.close()


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


@pytest.mark.fault("strangers-141")
@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"listeners": "OTHER"}, "is not of the form"),
        ({"listeners": ""}, "names no listener"),
        ({"advertised.listeners": ""}, "names no listener"),
        ({"advertised.listeners": "PLAINTEXT://ho st:1"}, "is not of the form"),
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


# ---- what strangers found


async def move(admin: Admin, **settings: str) -> None:
    """Set settings of the broker, named with underscores."""
    assert await change(admin, **settings) == ""


def free_port() -> int:
    (port,) = claim_ports(0, 1)
    return port


async def test_registration_has_host_and_port_of_the_new_address(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        await move(admin, advertised_listeners="PLAINTEXT://localhost:1234")
        await until(lambda: ports(site) == {"PLAINTEXT": 1234}, "registered at another address")
        registered = site.node()
        assert registered is not None
        assert (registered[0].host, registered[0].port) == ("localhost", 1234)


@pytest.mark.fault("strangers-134")
async def test_listener_that_cannot_move_stays_and_is_tried_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    caplog.set_level("INFO", "broker.lifecycle.listener_changes")
    async with site.running() as broker, administered(broker) as admin:
        await open_other(admin, site)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            busy = taken.getsockname()[1]
            await move(admin, listeners=f"{FIRST},OTHER://127.0.0.1:{busy}")
            await until(lambda: f"OTHER://127.0.0.1:{busy} is not opened" in caplog.text, "logged")
            await until(lambda: caplog.text.count("listener OTHER://") == 3, "open again")
            connection = await Connection.open("127.0.0.1", ports(site)["OTHER"])
            assert await connection.call(MetadataRequest(topics=[]))
            await connection.close()

            # It is not tried again when something else changes.
            await move(admin, log_retention_ms="86400000")
            assert caplog.text.count("is not opened") == 1
        assert ports(site).keys() == {"PLAINTEXT", "OTHER"}


async def test_listeners_may_swap_their_ports(tmp_path: Path) -> None:
    site = Site(tmp_path)
    a, b = free_port(), free_port()
    three = "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT"
    async with site.running() as broker, administered(broker) as admin:
        for first, second in ((a, b), (b, a)):
            settings = {
                "listeners": f"{FIRST},A://127.0.0.1:{first},B://127.0.0.1:{second}",
                MAP: three,
            }
            assert (await admin.incremental_alter_configs({OWN: settings}))[OWN] is None
            wanted = {"A": first, "B": second}
            await until(
                lambda wanted=wanted: wanted.items() <= ports(site).items(), "open at both ports"
            )


@pytest.mark.fault("strangers-135")
async def test_address_that_was_moved_does_not_need_the_one_of_the_file(tmp_path: Path) -> None:
    site = Site(tmp_path)
    old, new = free_port(), free_port()
    file = {"listeners": f"PLAINTEXT://127.0.0.1:{old}"}
    async with site.running(**file) as broker, administered(broker) as admin:
        await move(admin, listeners=f"PLAINTEXT://127.0.0.1:{new}")
        await until(lambda: ports(site) == {"PLAINTEXT": new}, "moved")
    with socket.create_server(("127.0.0.1", old)):
        async with site.running(**file) as broker:
            assert broker.bootstrap == f"127.0.0.1:{new}"
            assert ports(site) == {"PLAINTEXT": new}


@pytest.mark.fault("strangers-132")
async def test_setting_that_is_not_understood_shuts_no_listener(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        await open_other(admin, site)
        node = EntityConfig.path("brokers", "1")
        stored = EntityConfig.decode(site.zookeeper.tree[node].data or b"")
        # In the order in which none of the listeners' is valid by itself.
        names = ["advertised.listeners", "listeners", MAP]
        config = {name: stored.config[name] for name in names if name in stored.config}
        changed = EntityConfig({**config, "log.cleaner.threads": "abc"})
        await site.session.set(node, changed.encode())
    async with site.running():
        assert ports(site).keys() == {"PLAINTEXT", "OTHER"}


@pytest.mark.fault("strangers-133")
async def test_protocol_of_a_listener_that_was_added_stays(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin:
        await open_other(admin, site)
        refusal = (
            await admin.incremental_alter_configs({OWN: {MAP: "PLAINTEXT:PLAINTEXT,OTHER:SSL"}})
        )[OWN]
        assert "cannot be updated for existing listener OTHER" in str(refusal)


async def test_address_of_another_broker_is_not_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    async with site.running() as broker, administered(broker) as admin, site.running(2):
        other = site.node(2)
        assert other is not None
        taken = other[0].endpoints[0].port
        before = ports(site)
        await move(admin, advertised_listeners=f"PLAINTEXT://127.0.0.1:{taken}")
        await until(lambda: "which broker 1 advertises too" in caplog.text, "logged")
        assert ports(site) == before


@pytest.mark.fault("strangers-130")
async def test_what_the_controller_had_to_send_reaches_a_broker_at_its_new_address(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    dead = free_port()
    async with (
        site.running(2) as other,
        site.running() as broker,
        connected(broker) as own,
        connected(other) as controller,
    ):
        right = ports(site)["PLAINTEXT"]

        def knows_of(port: int) -> Callable[[], Awaitable[bool]]:
            async def knows() -> bool:
                answer = await controller.call(MetadataRequest(topics=[]))
                return port in [found.port for found in answer.brokers]

            return knows

        async def advertise(port: int) -> None:
            settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            await own.call(incremental_alter_configs_request({OWN: settings}, validate_only=False))
            await until(knows_of(port), "the controller knows of it")

        settings = {"bootstrap.servers": other.bootstrap, "request.timeout.ms": "2000"}
        async with Admin(settings) as admin:
            # Nobody hears of its replicas until the slip is mended.
            await advertise(dead)
            with contextlib.suppress(KgroupError):
                await admin.create_topics([NewTopic("slip", 2, 2)])
            await advertise(right)

            replicas = {TopicPartition("slip", 0), TopicPartition("slip", 1)}
            await until(lambda: replicas <= broker.partitions.keys(), "it has its replicas")
