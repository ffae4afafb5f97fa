"""Stock clients over TLS: one each, on listeners that differ in what they ask of a client."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import aiokafka  # type: ignore[import-untyped]
import attrs
import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from broker.kbroker.command import main as kbroker
from broker.network.authorization import Resource
from broker.network.session import Principal
from kgroup import ConsumerConnector, Producer
from protocol.acls import Operation, ResourceType
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.broker import Site
from tests.stage.certificates import Authority

TIMEOUT_S = 30
VALUES = [b"a", b"b" * 50_000, b"c"]


@attrs.define(eq=False)
class Secured:
    """A broker in a thread of its own, with a listener for each value of ssl.client.auth."""

    authority: Authority
    ports: dict[str, int] = attrs.field(factory=dict)
    users: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))  # by topic
    client_pem: str = ""

    def address(self, client_auth: str) -> str:
        return f"localhost:{self.ports[client_auth.upper()]}"

    def allow(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if resource.kind == ResourceType.TOPIC:
            self.users[resource.name].add(str(principal))
        return True


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    path = tmp_path_factory.mktemp("secured")
    made = Secured(Authority(path))
    made.client_pem = made.authority.issue("client.pem", "client.example", common_name="alice")
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        site = Site(path)
        site.authorizer = AskingAuthorizer(made.allow)
        settings = {
            "listeners": "NONE://localhost:0,REQUESTED://localhost:0,REQUIRED://localhost:0",
            "listener_security_protocol_map": "NONE:SSL,REQUESTED:SSL,REQUIRED:SSL",
            "inter_broker_listener_name": "REQUIRED",
            "ssl_keystore_location": made.authority.issue("broker.pem", "localhost"),
            "ssl_truststore_location": made.authority.trusted,
            "offsets_topic_replication_factor": "1",
            "offsets_topic_num_partitions": "1",
            **{
                f"listener_name_{name}_ssl_client_auth": name
                for name in ("none", "requested", "required")
            },
        }
        async with site.running(1, **settings):
            node = site.node()
            assert node is not None
            made.ports.update({e.listener: e.port for e in node[0].endpoints})
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(TIMEOUT_S), "the broker does not start"
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT_S)
        loop.close()


ALICE = r"User:CN=alice,OU=Tests,O=Acme\, Inc"
ANONYMOUS = "User:ANONYMOUS"


def test_kafka_python_shows_the_certificate_that_is_required(secured: Secured) -> None:
    settings = {
        "bootstrap_servers": secured.address("required"),
        "security_protocol": "SSL",
        "ssl_cafile": secured.authority.trusted,
        "ssl_certfile": secured.client_pem,
        "ssl_keyfile": secured.client_pem,
    }
    with contextlib.closing(kafka.KafkaProducer(**settings, acks="all")) as producer:
        for value in VALUES:
            producer.send("of-kafka-python", value).get(TIMEOUT_S)

    consumer = kafka.KafkaConsumer(
        "of-kafka-python",
        **settings,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    with contextlib.closing(consumer):
        read = [m.value for _, m in zip(VALUES, consumer, strict=False)]
    assert read == VALUES
    assert secured.users["of-kafka-python"] == {ALICE}


async def test_aiokafka_may_show_a_certificate_where_one_is_requested(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.authority.trusted)
    context.load_cert_chain(secured.client_pem)
    settings = {
        "bootstrap_servers": secured.address("requested"),
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    async with aiokafka.AIOKafkaProducer(**settings, acks="all") as producer:
        for value in VALUES:
            await producer.send_and_wait("of-aiokafka", value)

    consumer = aiokafka.AIOKafkaConsumer(
        "of-aiokafka", **settings, group_id="h", auto_offset_reset="earliest"
    )
    async with consumer, asyncio.timeout(TIMEOUT_S):
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES
    assert secured.users["of-aiokafka"] == {ALICE}


def test_librdkafka_needs_no_certificate_where_none_is_asked_for(secured: Secured) -> None:
    settings = {
        "bootstrap.servers": secured.address("none"),
        "security.protocol": "SSL",
        "ssl.ca.location": secured.authority.trusted,
        "ssl.certificate.location": secured.client_pem,
        "ssl.key.location": secured.client_pem,
    }
    producer = confluent_kafka.Producer({**settings, "acks": "all"})
    for value in VALUES:
        producer.produce("of-librdkafka", value)
    assert producer.flush(TIMEOUT_S) == 0

    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "i", "auto.offset.reset": "earliest"}
    )
    with contextlib.closing(consumer):
        consumer.subscribe(["of-librdkafka"])
        read = consumer.consume(len(VALUES), TIMEOUT_S)
    assert [message.value() for message in read] == VALUES
    # It has a certificate, and nobody has looked at it.
    assert secured.users["of-librdkafka"] == {ANONYMOUS}


def test_a_client_that_is_refused_learns_that_it_lacks_a_certificate(secured: Secured) -> None:
    """Its own error names the alert, and no loss of a connection."""
    errors: list[str] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": secured.address("required"),
            "security.protocol": "SSL",
            "ssl.ca.location": secured.authority.trusted,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    for _ in range(TIMEOUT_S * 10):
        producer.poll(0.1)
        if errors:
            break
    assert "certificate required" in errors[0]


def test_our_commands_take_kafkas_file_of_settings(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={secured.authority.trusted}\n"
        f"ssl.keystore.location={secured.client_pem}\n"
    )
    address = ("--bootstrap-server", secured.address("required"))
    run = CliRunner().invoke(
        kbroker, ["cluster", "describe", *address, "--command-config", str(file)]
    )
    assert run.exit_code == 0, run.output
    assert "localhost" in run.output

    # Without its certificate: one line, no trace.
    file.write_text("\n".join(file.read_text().splitlines()[:2]))
    run = CliRunner().invoke(
        kbroker, ["cluster", "describe", *address, "--command-config", str(file)]
    )
    assert run.exit_code == 1
    assert "the broker requires a client certificate: set ssl.keystore.location" in run.stderr
    assert len(run.stderr.splitlines()) == 1


async def test_our_member_of_a_group_reads_over_tls_what_our_producer_wrote(
    secured: Secured,
) -> None:
    """Its heartbeats have a thread and a connection of their own."""
    settings = {
        "bootstrap.servers": secured.address("required"),
        "security.protocol": "SSL",
        "ssl.ca.location": secured.authority.trusted,
        "ssl.keystore.location": secured.client_pem,
    }
    async with Producer({**settings, "acks": "all"}) as producer:
        for value in VALUES:
            await producer.send_and_wait("of-ours", value)

    member = {"group.id": "j", "membership": "coordinator", "auto.offset.reset": "smallest"}
    async with ConsumerConnector({**settings, **member}) as connector, asyncio.timeout(TIMEOUT_S):
        (stream,) = (await connector.create_message_streams({"of-ours": 1}))["of-ours"]
        read = []
        async for message in stream:
            read.append(message.value)
            if len(read) == len(VALUES):
                break
    assert read == VALUES
    assert secured.users["of-ours"] == {ALICE}
