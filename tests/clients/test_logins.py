"""Our clients log in, are refused, and log in again: against a broker with a listener for each
mechanism."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import click.testing
import pytest

from broker.kbroker.command import main as kbroker
from clients.admin import LATEST_TIME, Admin, NewTopic, ScramDeletion, ScramUpsertion
from clients.cluster import Cluster
from clients.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DeadlineExceeded,
    UnsupportedApi,
)
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.command import main as kgroup
from clients.producer.producer import Producer
from clients.simple_consumer import SimpleConsumer
from clients.transport.connection import Connection
from clients.transport.login import Login, login_by_password
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from protocol.sasl.exchange import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
)
from protocol.topic_partition import TopicPartition
from tests.broker.produce_requests import request
from tests.broker.replication.replicas import batch
from tests.stage.sasl_broker import (
    PASSWORD,
    USER,
    SaslBroker,
    jaas,
    signed_token,
)
from tests.stage.waiting import DEADLINE_S, until
from zk.memory import MemorySession, MemoryZooKeeper

SECRETS = (PASSWORD, "wrong-sesame")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as running:
        yield running


def new_name() -> str:
    return f"logins-{uuid4().hex[:8]}"


def settings_of(broker: SaslBroker, mechanism: str) -> dict[str, str]:
    """The settings of a client that logs in: by a file for OAUTHBEARER."""
    settings = broker.client(mechanism)
    if mechanism == OAUTHBEARER:
        del settings["sasl.username"], settings["sasl.password"]
        token = broker.directory / "token"
        token.write_text(signed_token() + "\n")
        settings["sasl.oauthbearer.token.endpoint.url"] = f"file://{token}"
    return settings


def in_kafkas_spelling(broker: SaslBroker, mechanism: str) -> dict[str, str]:
    settings = broker.client(mechanism)
    del settings["sasl.username"], settings["sasl.password"]
    entry = jaas(mechanism, username=USER, password=PASSWORD)
    return settings | {"sasl.jaas.config": entry}


async def send(settings: dict[str, str], topic: str, *values: bytes) -> None:
    async with Producer(settings) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


# ---- every client, every mechanism


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_logs_in_by_each_mechanism(broker: SaslBroker, mechanism: str) -> None:
    async with Admin(settings_of(broker, mechanism)) as admin:
        cluster = await admin.describe_cluster()
    # The client is sent on to the listener that it came to.
    (node,) = cluster.brokers
    assert f"{node.host}:{node.port}" == settings_of(broker, mechanism)["bootstrap.servers"]


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_SHA_256, SCRAM_SHA_512])
async def test_a_client_logs_in_by_a_jaas_entry(broker: SaslBroker, mechanism: str) -> None:
    async with Admin(in_kafkas_spelling(broker, mechanism)) as admin:
        assert (await admin.describe_cluster()).controller_id == 1


async def test_records_go_through_producer_consumer_and_simple_consumer(
    broker: SaslBroker,
) -> None:
    topic = new_name()
    settings = settings_of(broker, SCRAM_SHA_512)
    await send(settings, topic, b"a", b"b")

    group = settings | {
        "group.id": topic,
        "membership": "coordinator",
        "auto.offset.reset": "smallest",
    }
    async with asyncio.timeout(DEADLINE_S), ConsumerConnector(group) as connector:
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        messages = [await anext(stream) for _ in range(2)]
        assert [message.value for message in messages] == [b"a", b"b"]
        await connector.commit(messages[-1])

    async with await SimpleConsumer.for_leader(settings, topic, 0) as consumer:
        partition = TopicPartition(topic, 0)
        assert await consumer.get_offsets_before(topic, 0, LATEST_TIME, 1) == [2]
        offsets = await consumer.fetch_offsets(topic, [partition])
        assert offsets[partition].offset == 2


async def zookeeper_of(broker: SaslBroker) -> MemorySession:
    """A ZooKeeper with the registrations and topics of the broker, for this loop."""
    session = MemoryZooKeeper().session()
    await session.start()
    nodes = dict(broker.site.zookeeper.tree)
    for path in sorted(path for path in nodes if path.startswith("/brokers")):
        await session.create(path, nodes[path].data)
    return session


async def test_a_consumer_in_zookeeper_logs_in_at_the_listeners_of_its_protocol(
    tmp_path: Path,
) -> None:
    settings = {
        "listeners": "ONLY://127.0.0.1:0",
        "listener.security.protocol.map": "ONLY:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ONLY",
        "listener.name.only.plain.sasl.jaas.config": jaas(
            PLAIN, username="broker", password="inside", user_broker="inside"
        ),
    }
    with SaslBroker(tmp_path, settings, is_alone=True) as alone:
        login = alone.client(PLAIN, "ONLY") | {"sasl.username": "broker", "sasl.password": "inside"}
        await send(login, "t", b"a")
        del login["bootstrap.servers"]
        group = {
            "group.id": "g",
            "zookeeper.connect": "memory:1",
            "auto.offset.reset": "smallest",
            **login,
        }
        session = await zookeeper_of(alone)
        async with asyncio.timeout(DEADLINE_S), ConsumerConnector(group, zk=session) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert (await anext(stream)).value == b"a"

        refused = group | {"group.id": "h", "sasl.password": "wrong-sesame"}
        session = await zookeeper_of(alone)
        async with asyncio.timeout(10), ConsumerConnector(refused, zk=session) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
                await anext(stream)


async def test_a_simple_consumer_logs_in_by_its_own_settings(broker: SaslBroker) -> None:
    settings = settings_of(broker, PLAIN)
    host, port = settings.pop("bootstrap.servers").split(":")
    async with SimpleConsumer(host, int(port), security=settings) as consumer:
        coordinator = await consumer.find_coordinator("g")
        assert (coordinator.host, coordinator.port) == (host, int(port))


def test_both_commands_log_in_by_the_settings_of_their_file(
    broker: SaslBroker, tmp_path: Path
) -> None:
    topic = new_name()
    file = tmp_path / "client.properties"
    lines = [
        f"{name}={value}".replace("\\", "\\\\")
        for name, value in in_kafkas_spelling(broker, SCRAM_SHA_256).items()
    ]
    file.write_text("\n".join(lines), "utf-8")

    def run(program: Any, *args: str) -> str:
        result = click.testing.CliRunner().invoke(program, [*args, "--command-config", str(file)])
        assert result.exit_code == 0, result.output
        return result.stdout

    run(kbroker, "topics", "create", topic, "--partitions", "1", "--replication-factor", "1")
    asyncio.run(send(settings_of(broker, PLAIN), topic, b"a", b"b"))
    consumed = run(
        kgroup,
        *("consume", "--topic", topic, "--group", topic, "--membership", "coordinator"),
        *("--from-beginning", "--max-messages", "2"),
    )
    assert consumed.split() == ["a", "b"]
    assert topic in run(kgroup, "describe", topic)
    assert topic in run(kgroup, "list")


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_SHA_256, SCRAM_SHA_512])
async def test_a_client_logs_in_at_a_broker_that_takes_tokens_without_headers(
    broker: SaslBroker, mechanism: str
) -> None:
    """As brokers before 1.0 do: ours take both."""
    host, port = broker.client(mechanism)["bootstrap.servers"].split(":")
    old: dict[str, Any] = {"negotiate": False, "broker_version": "0.10.2"}
    login = login_by_password(mechanism, USER, PASSWORD)
    connection = await Connection.open(host, int(port), login=login, **old)
    assert (await connection.call(ListGroupsRequest(), version=0)).error_code == 0
    await connection.close()

    wrong = login_by_password(mechanism, USER, "wrong-sesame")
    with pytest.raises(AuthenticationFailed, match="are the credentials right"):
        await Connection.open(host, int(port), login=wrong, **old)


async def test_a_client_of_older_releases_has_no_login(broker: SaslBroker) -> None:
    host, port = broker.client(PLAIN)["bootstrap.servers"].split(":")
    login = login_by_password(PLAIN, USER, PASSWORD)
    with pytest.raises(UnsupportedApi, match="SASL_HANDSHAKE"):
        await Connection.open(host, int(port), login=login, negotiate=False, broker_version="0.9.0")


# ---- refusals


async def find_coordinator(settings: dict[str, str]) -> object:
    bootstrap = settings["bootstrap.servers"]
    host, port = bootstrap.split(":")
    security = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
    async with SimpleConsumer(host, int(port), security=security) as consumer:
        return await consumer.find_coordinator("g")


async def describe_cluster(settings: dict[str, str]) -> object:
    async with Admin(settings) as admin:
        return await admin.describe_cluster()


async def produce(settings: dict[str, str]) -> object:
    async with Producer(settings) as producer:
        return await producer.send_and_wait("t", b"v")


async def consume(settings: dict[str, str]) -> object:
    async with ConsumerConnector(
        settings | {"group.id": "g", "membership": "coordinator"}
    ) as connector:
        (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
        return await anext(stream)


@pytest.mark.parametrize("use", [find_coordinator, describe_cluster, produce, consume])
async def test_every_client_says_at_once_why_it_cannot_log_in(
    broker: SaslBroker,
    use: Callable[[dict[str, str]], Awaitable[object]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = settings_of(broker, SCRAM_SHA_256) | {"sasl.password": "wrong-sesame"}
    async with asyncio.timeout(10):
        with pytest.raises(AuthenticationFailed) as refused:
            await use(settings)
    assert str(refused.value) == (
        f"{settings['bootstrap.servers']}: login by SCRAM-SHA-256 failed: Authentication failed "
        "during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert not any(secret in caplog.text for secret in SECRETS)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl.mechanism": SCRAM_SHA_256}, "the broker enables only PLAIN"),
        ({"sasl.username": "nobody"}, "Invalid username or password"),
        ({"bootstrap.servers": "OPEN"}, "takes no logins (security.protocol)"),
    ],
)
async def test_a_refusal_names_what_is_wrong(
    broker: SaslBroker, changes: dict[str, str], reason: str
) -> None:
    settings = settings_of(broker, PLAIN) | changes
    if settings["bootstrap.servers"] == "OPEN":
        settings["bootstrap.servers"] = broker.address("OPEN")
    with pytest.raises(AuthenticationFailed) as refused:
        await describe_cluster(settings)
    assert reason in str(refused.value)


async def test_a_client_without_a_login_is_asked_whether_one_is_expected(
    broker: SaslBroker,
) -> None:
    settings = {
        "bootstrap.servers": broker.address("BASIC"),
        "default.api.timeout.ms": "500",
    }
    with pytest.raises(DeadlineExceeded, match="does it expect a login or TLS"):
        await describe_cluster(settings)


async def test_an_expired_token_is_refused_with_the_brokers_error(
    broker: SaslBroker, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(signed_token(lifetime_s=-60))
    settings = settings_of(broker, OAUTHBEARER) | {
        "sasl.oauthbearer.token.endpoint.url": f"file://{file}"
    }
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        await describe_cluster(settings)


async def test_a_token_that_cannot_be_read_is_named(broker: SaslBroker, tmp_path: Path) -> None:
    settings = settings_of(broker, OAUTHBEARER) | {
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/none"
    }
    with pytest.raises(AuthenticationFailed, match="the token cannot be read"):
        await describe_cluster(settings)


async def test_the_same_client_connects_once_its_user_is_created(broker: SaslBroker) -> None:
    user = new_name()
    settings = settings_of(broker, SCRAM_SHA_512) | {"sasl.username": user}
    async with Admin(settings) as admin, Admin(broker.client(PLAIN, "INSIDE")) as inside:
        with pytest.raises(AuthenticationFailed):
            await admin.describe_cluster()
        created = ScramUpsertion(user, SCRAM_SHA_512, PASSWORD)
        assert await inside.alter_user_scram_credentials([created]) == {user: None}

        async def connects() -> bool:
            try:
                await admin.describe_cluster()
            except AuthenticationFailed:
                return False  # the backoff of the last attempt
            return True

        assert await until(connects, "the user is let in")

        # An open connection stays when the user is deleted; a new one is refused.
        assert await inside.alter_user_scram_credentials([ScramDeletion(user, SCRAM_SHA_512)]) == {
            user: None
        }
        assert (await admin.describe_cluster()).controller_id == 1
    with pytest.raises(AuthenticationFailed):
        await describe_cluster(settings)


# ---- sessions that end


@pytest.fixture
def brief(tmp_path: Path) -> Iterator[SaslBroker]:
    """A broker whose sessions last ten minutes: tests say when they are renewed."""
    with SaslBroker(tmp_path, {"connections.max.reauth.ms": "600000"}) as running:
        yield running


async def test_requests_wait_while_a_session_is_renewed(brief: SaslBroker) -> None:
    host, port = brief.address("BASIC").split(":")
    connection = await Connection.open(
        host, int(port), login=login_by_password(PLAIN, USER, PASSWORD)
    )
    async with Admin(brief.client(PLAIN)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
    loop = asyncio.get_running_loop()
    assert connection._renew_at is not None
    lasts_s = connection._renew_at - loop.time()
    assert 600 * 0.85 - 5 < lasts_s < 600 * 0.95

    # Requests before, during and after it: with responses in order, and one without any.
    connection._renew_at = None
    before = connection.send(ListGroupsRequest())
    connection._renew_at = loop.time()
    during = [connection.send(ListGroupsRequest()) for _ in range(3)]
    unanswered = connection.send(request(("t", 0, batch(b"v")), acks=0))
    assert connection.in_flight == 1
    responses = await asyncio.gather(before, *during)
    assert [response.error_code for response in responses] == [0, 0, 0, 0]
    assert await unanswered is None
    assert connection._renew_at is not None
    assert (await connection.call(ListGroupsRequest())).error_code == 0
    assert brief.count("successful_reauthentications_total", "BASIC") == 1
    await connection.close()


async def test_a_user_that_is_gone_ends_the_connection_when_its_session_is_renewed(
    brief: SaslBroker,
) -> None:
    host, port = brief.address("SALTED").split(":")
    login = login_by_password(SCRAM_SHA_256, USER, PASSWORD)
    connection = await Connection.open(host, int(port), login=login)
    await delete_user(brief)
    connection._renew_at = asyncio.get_running_loop().time()
    with pytest.raises(AuthenticationFailed, match="failed during re-authentication"):
        await connection.call(ListGroupsRequest())
    assert connection.closed
    with pytest.raises(ConnectionFailed):
        connection.send(ListGroupsRequest())
    assert brief.count("failed_reauthentications_total", "SALTED") == 1
    assert brief.count("successful_authentications_total", "SALTED") == 1


async def delete_user(broker: SaslBroker) -> None:
    async with Admin(broker.client(PLAIN, "INSIDE")) as inside:
        deletion = ScramDeletion(USER, SCRAM_SHA_256)
        assert await inside.alter_user_scram_credentials([deletion]) == {USER: None}


def let_sessions_end(cluster: Cluster) -> None:
    """Let all connections of a client renew their sessions with the next request."""
    for slots in cluster._connections._slots.values():
        for slot in slots.values():
            if slot.connection is not None:
                slot.connection._renew_at = asyncio.get_running_loop().time()


@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_producer_whose_user_is_gone_fails_what_it_has_at_once(
    brief: SaslBroker, is_idempotent: bool
) -> None:
    settings = brief.client(SCRAM_SHA_256) | {"enable.idempotence": str(is_idempotent)}
    async with asyncio.timeout(DEADLINE_S), Producer(settings) as producer:
        await producer.send_and_wait("t", b"1")
        await delete_user(brief)
        let_sessions_end(producer._cluster)
        with pytest.raises(AuthenticationFailed, match="login by SCRAM-SHA-256 failed"):
            await producer.send_and_wait("t", b"2")


async def test_a_consumer_whose_user_is_gone_ends_with_the_refusal(brief: SaslBroker) -> None:
    settings = brief.client(SCRAM_SHA_256)
    await send(settings, "t", b"1")
    group = {"group.id": "g", "membership": "coordinator", "auto.offset.reset": "smallest"}
    async with asyncio.timeout(DEADLINE_S), ConsumerConnector(settings | group) as connector:
        (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
        assert (await anext(stream)).value == b"1"
        await delete_user(brief)
        let_sessions_end(connector._cluster)
        with pytest.raises(AuthenticationFailed, match="login by SCRAM-SHA-256 failed"):
            await anext(stream)


# ---- users


async def test_users_are_described_without_salts_and_keys(broker: SaslBroker) -> None:
    async with Admin(broker.client(PLAIN, "INSIDE")) as admin:
        users = await admin.describe_user_scram_credentials([USER, "nobody"])
        assert {
            name: [(info.mechanism, info.iterations) for info in infos]
            for name, infos in users.items()
        } == {USER: [(SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 4096)]}
        verdicts = await admin.alter_user_scram_credentials(
            [ScramDeletion("nobody", SCRAM_SHA_256)]
        )
        (error,) = verdicts.values()
        assert error is not None
        assert error.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_quota_of_a_user_holds_for_whoever_logs_in_as_it(broker: SaslBroker) -> None:
    """It is kept beside the user's passwords, and leaves them as they are."""
    topic = new_name()

    async def throttle_ms(listener: str, login: Login) -> int:
        host, _, port = broker.address(listener).partition(":")
        connection = await Connection.open(host, int(port), login=login)
        try:
            response = await connection.call(request((topic, 0, batch(bytes(10_000)))))
        finally:
            await connection.close()
        assert response.responses[0].partition_responses[0].error_code == 0
        return int(response.throttle_time_ms)

    user = login_by_password(SCRAM_SHA_512, USER, PASSWORD)
    other = login_by_password(PLAIN, "broker", "inside")
    async with Admin(broker.client(PLAIN, "INSIDE")) as admin:
        assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        assert await throttle_ms("SALTED", user) == 0

        quota = (("user", USER),)
        await admin.alter_client_quotas({quota: {"producer_byte_rate": 100.0}})
        try:

            async def is_throttled() -> bool:
                return await throttle_ms("SALTED", user) > 0

            await until(is_throttled, "the quota holds")
            assert await throttle_ms("INSIDE", other) == 0
        finally:
            await admin.alter_client_quotas({quota: {"producer_byte_rate": None}})
