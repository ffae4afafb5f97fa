"""A broker's figures over HTTP, against the names of stock Kafka 2.8.2 and the docs.

`kafka_2_8_2_names.txt` has the name, type and labels of each series of a stock 2.8.2 broker under
jmx_exporter's `example_configs/kafka-2_0_0.yml`, after a produce, a fetch and a group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from pathlib import Path

import pytest

from broker.kbroker.local_cluster import HOST, claim_ports
from broker.metrics.families import FAMILIES
from broker.metrics.metrics_server import MAX_CLIENTS, MetricsServer
from clients.errors import AuthenticationFailed
from clients.transport.connection import Connection
from clients.transport.login import login_by_password
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.sasl.exchange import PLAIN
from protocol.settings import SettingError
from tests.broker.led_partition import fetch_request, led, produce
from tests.stage.broker import Site, connected
from tests.stage.sasl_broker import PASSWORD, USER, sasl_settings

ROOT = Path(__file__).parents[3]
NAMES = Path(__file__).with_name("kafka_2_8_2_names.txt")
DOCS = ROOT / "docs" / "metrics.md"
BOARD = ROOT / "examples" / "grafana" / "brokers.json"

SAMPLE = re.compile(r"^([a-z_0-9]+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


async def ask(port: int, request: bytes) -> tuple[str, str]:
    """Send a request; return the head and the body of the response."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    response = (await reader.read()).decode()
    writer.close()
    head, _, body = response.partition("\r\n\r\n")
    return head, body


async def scrape(port: int) -> str:
    head, body = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    return body


def parse(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read all samples: a number by name and labels."""
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            key = (match[1], tuple(LABEL.findall(match[2] or "")))
            assert key not in samples, f"twice: {line}"
            samples[key] = float(match[3])
    return samples


def kinds(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


async def make_traffic(connection: Connection) -> None:
    """Produce, fetch and be refused; look for a coordinator, which creates the offsets topic."""
    await led(connection, "orders")
    await produce(connection, "orders", b"value")
    response = await connection.call(fetch_request("orders"))
    assert response.responses[0].partitions[0].records
    await connection.call(fetch_request("orders", offset=99))
    await connection.call(FindCoordinatorRequest(key="readers"))
    await led(connection, "__consumer_offsets")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_all_names_that_the_docs_call_served_are_served_with_type_and_labels(
    site: Site,
) -> None:
    (port,) = claim_ports(0, 1)
    settings = {"kgroup_metrics_port": str(port), "offsets_topic_num_partitions": "1"}
    settings["offsets_topic_replication_factor"] = "1"
    async with site.running(**settings) as broker, connected(broker) as connection:
        await make_traffic(connection)
        text = await scrape(port)

    samples = parse(text)
    series = {(name, ",".join(sorted(label for label, _ in labels))) for name, labels in samples}
    rows = ROW.findall(DOCS.read_text("utf-8"))
    served = [row for row in rows if row[3] == "served"]
    assert served
    for name, kind, labels, _ in served:
        assert (name, "" if labels == "–" else labels) in series
        assert kinds(text)[name] == kind, name

    # And none that stock Kafka has is served without a word in the docs.
    documented = {name for name, *_ in served}
    assert {name for name, _ in series if name.startswith("kafka_")} == documented

    # The numbers are those of the traffic.
    topic = (("topic", "orders"),)
    assert samples["kafka_server_brokertopicmetrics_messagesin_total", topic] == 1
    assert samples["kafka_server_brokertopicmetrics_bytesin_total", topic] > 60
    assert samples["kafka_server_brokertopicmetrics_bytesout_total", topic] > 60
    assert samples["kafka_server_brokertopicmetrics_failedfetchrequests_total", topic] == 1
    produced = (("request", "Produce"),)
    assert samples["kafka_network_requestmetrics_totaltimems_count", produced] == 1
    assert samples["kgroup_broker_request_seconds_count", produced] == 1
    refused = (("request", "FetchConsumer"), ("error", "OFFSET_OUT_OF_RANGE"))
    assert samples["kafka_network_requestmetrics_errors_total", refused] == 1
    assert samples["kafka_server_replicamanager_leadercount", ()] == 2
    assert samples["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0
    assert samples["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert samples["kafka_controller_kafkacontroller_globalpartitioncount", ()] == 2
    assert samples["kafka_log_log_logendoffset", (*topic, ("partition", "0"))] == 1


def test_the_docs_have_each_series_of_a_stock_broker_with_its_type_and_labels() -> None:
    rows = {(name, kind, labels) for name, kind, labels, _ in ROW.findall(DOCS.read_text("utf-8"))}
    stock = set()
    for line in NAMES.read_text("utf-8").splitlines():
        name, kind, labels = line.split()
        stock.add((name, kind, "–" if labels == "-" else labels))
    assert rows == stock


async def test_a_parked_fetch_is_in_the_purgatory_and_then_counted(site: Site) -> None:
    (port,) = claim_ports(0, 1)
    fetches = ("kafka_network_requestmetrics_totaltimems_count", (("request", "Fetch"),))
    parked = (
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        (("delayedOperation", "Fetch"),),
    )
    async with (
        site.running(kgroup_metrics_port=str(port)) as broker,
        connected(broker) as connection,
        connected(broker) as other,
    ):
        await led(connection, "orders")
        before = parse(await scrape(port))[fetches]

        waiting = asyncio.ensure_future(
            connection.call(fetch_request("orders", max_wait_ms=20_000))
        )
        async with asyncio.timeout(20):
            while parse(await scrape(port))[parked] == 0:
                pass
        await produce(other, "orders", b"value")
        await waiting

        samples = parse(await scrape(port))
        assert samples[parked] == 0
        assert samples[fetches] == before + 1


async def test_other_requests_are_refused_and_the_broker_goes_on(site: Site) -> None:
    (port,) = claim_ports(0, 1)
    async with site.running(kgroup_metrics_port=str(port)):
        head, body = await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 ")
        assert not body
        for request, status in (
            (b"GET /other HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x00\x01\xff\r\n\r\n", "400"),
            (b"GET /" + b"x" * 20_000, "400"),
        ):
            head, _ = await ask(port, request)
            assert head.startswith(f"HTTP/1.1 {status} "), request[:20]

        # One that leaves in the middle of its request.
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET /met")
        writer.close()
        assert await scrape(port)


@pytest.mark.fault("security-11")
async def test_clients_that_send_nothing_make_room_for_a_scrape(site: Site) -> None:
    (port,) = claim_ports(0, 1)
    async with site.running(kgroup_metrics_port=str(port)), contextlib.AsyncExitStack() as stack:
        strangers = []
        for number in range(3 * MAX_CLIENTS):
            reader, writer = await asyncio.open_connection(HOST, port)
            stack.callback(writer.close)
            # Half of them have begun.
            writer.write(b"GET /met" if number % 2 else b"")
            strangers.append(reader)

        assert await scrape(port)
        # The last ones are still there: who came first has made room.
        assert [await is_closed(reader) for reader in strangers[: 2 * MAX_CLIENTS]] == [True] * (
            2 * MAX_CLIENTS
        )
        assert not strangers[-1].at_eof()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


@pytest.mark.fault("security-11")
async def test_a_client_that_takes_no_response_makes_room_for_a_scrape() -> None:
    large = "x" * 2**24
    async with asyncio.TaskGroup() as tasks:
        server = MetricsServer(lambda: iter([large]), tasks.create_task)
        bound = socket.create_server((HOST, 0))
        await server.start(bound)
        port = bound.getsockname()[1]
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MAX_CLIENTS):
                _, writer = await asyncio.open_connection(HOST, port)
                stack.callback(writer.transport.abort)
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            for _ in range(3):
                assert len(await scrape(port)) == len(large)
        server.close()


async def test_a_taken_port_is_an_error_that_names_the_setting(site: Site) -> None:
    (port,) = claim_ports(0, 1)
    async with site.running(kgroup_metrics_port=str(port)):
        second = site.broker(2, kgroup_metrics_port=str(port))
        with pytest.raises(SettingError, match=r"kgroup\.metrics\.port"):
            await second.start()
        await second.close()


async def test_describe_configs_shows_where_the_figures_are(site: Site) -> None:
    (port,) = claim_ports(0, 1)
    async with (
        site.running(kgroup_metrics_port=str(port)) as broker,
        connected(broker) as connection,
    ):
        resource = DescribeConfigsRequestResource(
            resource_type=4, resource_name="1", configuration_keys=["kgroup.metrics.port"]
        )
        response = await connection.call(DescribeConfigsRequest(resources=[resource]))
        (setting,) = response.results[0].configs
        assert setting.value == str(port)


def test_the_dashboard_asks_only_for_names_that_are_served() -> None:
    names = {family.name + family.suffix for family in FAMILIES}
    panels = json.loads(BOARD.read_text("utf-8"))["panels"]
    asked = [
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"\b(?:kafka|kgroup)_[a-z0-9_]+", target["expr"])
    ]
    assert len(asked) >= len(panels)
    assert set(asked) <= names


async def test_logins_are_counted_by_listener_and_result(site: Site, tmp_path: Path) -> None:
    (port,) = claim_ports(0, 1)
    settings = sasl_settings(tmp_path / "jwks.json", **{"kgroup.metrics.port": str(port)})
    async with site.running(1, **settings):
        node = site.node()
        assert node is not None
        endpoint = next(e for e in node[0].endpoints if e.listener == "BASIC")
        for password in (PASSWORD, "wrong", "wrong"):
            login = login_by_password(PLAIN, USER, password)
            with contextlib.suppress(AuthenticationFailed):
                connection = await Connection.open(endpoint.host, endpoint.port, login=login)
                await connection.close()
        samples = parse(await scrape(port))

    def count(result: str) -> float:
        labels = (("listener", "BASIC"), ("result", result))
        return samples["kgroup_broker_logins_total", labels]

    results = ("success", "failure", "renewed", "not_renewed", "expired")
    assert [count(result) for result in results] == [1, 2, 0, 0, 0]
