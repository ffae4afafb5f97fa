"""A secured cluster of a stock broker and one of ours: whatever is set at one holds at both.

The tools of Kafka 2.8.2 and ours set and show the same users, ACLs, quotas and settings, over
either broker and over ZooKeeper, whose nodes both keep to themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial

import confluent_kafka
import pytest

from broker.kbroker.local_cluster import HOST
from clients.admin import Admin, ConfigResource, NewTopic
from clients.errors import AuthenticationFailed, BrokerError
from kgroup import ConsumerConnector, Producer
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ErrorCode
from protocol.java_hash import group_partition
from protocol.sasl.exchange import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tests.cluster.restartable_cluster import controller
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import elect
from tests.interop.secured_cluster import (
    ACLS,
    CAROL,
    CAROL_PASSWORD,
    CONFIGS,
    OFFSETS_PARTITIONS,
    OUR_OWN,
    STOCK,
    SecuredCluster,
)
from tests.stage.waiting import until, until_equal
from zk.acls import ALL, CREATOR_ALL, EVERYBODY_ALL, ROOTS, Permission, secure_acl
from zk.api import NoAuth, NoNode, children_if_there
from zk.session import KazooSession

EITHER = pytest.mark.parametrize(
    "broker_id", [pytest.param(OUR_OWN, id="ours"), pytest.param(STOCK, id="stock")]
)
OTHER = {OUR_OWN: STOCK, STOCK: OUR_OWN}
PASSWORD = "secret = 7"
TIMEOUT_S = 30.0
RATE = "connection_creation_rate"
OUR_ROOT = "/kgroup"
QUEUES = ("/isr_change_notification", "/log_dir_event_notification")
"""What is in them comes and goes while a test looks."""
MIGRATOR = "kafka.admin.ZkSecurityMigrator"
"""The main class of zookeeper-security-migration.sh."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster.started(tmp_path_factory.mktemp("secured")) as running:
        yield running


async def tool(cluster: SecuredCluster, main: str, *args: str) -> str:
    """Run a tool of Kafka's."""
    return await asyncio.to_thread(cluster.tools.run, main, *args)


async def ours(cluster: SecuredCluster, *args: str, stdin: str = "") -> str:
    """Run `kbroker`."""
    return await asyncio.to_thread(partial(cluster.kbroker, *args, stdin=stdin))


async def create_user(cluster: SecuredCluster, mechanism: str = SCRAM_SHA_512) -> str:
    """Create a user with PASSWORD, by our command at the stock broker."""
    user = unique("user")
    options = ("--mechanism", mechanism, "--password-stdin")
    await ours(cluster, "users", "create", user, *options, *cluster.over(STOCK), stdin=PASSWORD)
    return user


async def create_topic(cluster: SecuredCluster) -> str:
    """Create a topic whose partition N is led by the broker N, and kept by both."""
    name = unique("t")
    replicas = {STOCK: (STOCK, OUR_OWN), OUR_OWN: (OUR_OWN, STOCK)}
    configs = {"min.insync.replicas": "2"}
    async with Admin(cluster.client(OUR_OWN)) as admin:
        topic = NewTopic(name, configs=configs, assignments=replicas)
        assert await admin.create_topics([topic]) == {name: None}
    return name


def group_at(partition_id: int) -> str:
    """Return the id of a new group that this partition of the offsets topic keeps."""
    while True:
        group_id = unique("g")
        if group_partition(group_id, OFFSETS_PARTITIONS) == partition_id:
            return group_id


# ---- brokers and clients of both kinds


@EITHER
async def test_brokers_replicate_over_sasl_ssl_under_a_controller_of_either_kind(
    cluster: SecuredCluster, broker_id: int
) -> None:
    async with cluster.session() as zk:
        await elect(zk, cluster.running, broker_id)
        topic = await create_topic(cluster)
        assert await controller(zk) == broker_id

    # What both have is acknowledged; either coordinates a group.
    client = cluster.client(OUR_OWN)
    async with Producer(client | {"acks": "all"}) as producer:
        for partition_id in (STOCK, OUR_OWN):
            await producer.send_and_wait(topic, b"%d" % partition_id, partition=partition_id)
    for partition_id in range(OFFSETS_PARTITIONS):
        group = {"group.id": group_at(partition_id), "auto.offset.reset": "smallest"}
        settings = client | group | {"membership": "coordinator"}
        async with ConsumerConnector(settings) as connector, asyncio.timeout(TIMEOUT_S):
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            values = {(await anext(stream)).value for _ in (STOCK, OUR_OWN)}
            assert values == {b"0", b"1"}
            await connector.commit_offsets()
        async with Admin(client) as admin:
            offsets = await admin.group_offsets(group["group.id"])
        # The message that was read last is not done with.
        assert sorted(offset.offset for offset in offsets.values()) == [0, 1]


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_512, SCRAM_SHA_256, PLAIN])
async def test_our_clients_log_in_at_a_stock_broker(
    cluster: SecuredCluster, mechanism: str
) -> None:
    topic, group_id = unique("t"), unique("g")
    user, password = CAROL, CAROL_PASSWORD
    if mechanism != PLAIN:
        user, password = await create_user(cluster, mechanism), PASSWORD
    may = ("--allow-principal", f"User:{user}", "--topic", topic)
    over = cluster.over(STOCK)
    await ours(cluster, "acls", "add", *may, "--producer", *over)
    await ours(cluster, "acls", "add", *may, "--consumer", "--group", group_id, *over)
    async with Admin(cluster.client(STOCK)) as admin:
        only_there = NewTopic(topic, assignments={0: (STOCK,)})
        assert await admin.create_topics([only_there]) == {topic: None}

    client = partial(cluster.client, STOCK, user, mechanism=mechanism)
    async with Producer(client(password)) as producer:
        await producer.send_and_wait(topic, b"v")
    settings = client(password) | {"group.id": group_id, "auto.offset.reset": "smallest"}
    async with (
        ConsumerConnector(settings | {"membership": "coordinator"}) as connector,
        asyncio.timeout(TIMEOUT_S),
    ):
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        assert (await anext(stream)).value == b"v"
        await connector.commit_offsets()
    described = await asyncio.to_thread(cluster.kgroup, "describe", group_id, *over)
    assert topic in described

    with pytest.raises(AuthenticationFailed, match="nvalid"):
        async with Admin(client(f"{password}.")) as admin:
            await admin.describe_cluster()


# ---- users


@EITHER
async def test_users_that_a_stock_tool_creates_log_in_at_both_brokers(
    cluster: SecuredCluster, broker_id: int
) -> None:
    user = unique("user")
    entity = ("--entity-type", "users", "--entity-name", user)
    over = cluster.over(broker_id)
    password = f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]"
    await tool(cluster, CONFIGS, *over, "--alter", *entity, "--add-config", password)
    for at in (STOCK, OUR_OWN):
        await logs_in(cluster, at, user, True)
        listed = json.loads(await ours(cluster, "users", "list", "-o", "json", *cluster.over(at)))
        mine = [row for row in listed["items"] if row["user"] == user]
        assert mine == [{"user": user, "mechanism": SCRAM_SHA_512, "iterations": 4096}]

    described = await tool(cluster, CONFIGS, *cluster.over(OTHER[broker_id]), "--describe", *entity)
    assert "SCRAM-SHA-512=iterations=4096" in described
    gone = ("--delete-config", SCRAM_SHA_512)
    await tool(cluster, CONFIGS, *over, "--alter", *entity, *gone)
    for at in (STOCK, OUR_OWN):
        await logs_in(cluster, at, user, False)


async def logs_in(cluster: SecuredCluster, broker_id: int, user: str, expected: bool) -> None:
    """Wait until a user can log in at a broker, or cannot any more: brokers follow ZooKeeper."""

    async def can_log_in() -> bool:
        try:
            async with Admin(cluster.client(broker_id, user, PASSWORD)) as admin:
                await admin.describe_cluster()
        except AuthenticationFailed:
            return False
        return True

    await until_equal(can_log_in, expected)


# ---- ACLs


@EITHER
async def test_acls_of_either_tool_are_obeyed_by_both_brokers(
    cluster: SecuredCluster, broker_id: int
) -> None:
    user, topic = await create_user(cluster), await create_topic(cluster)
    for at in (STOCK, OUR_OWN):
        await logs_in(cluster, at, user, True)
        await is_refused(cluster, at, user, topic, True)

    # Kafka's tool adds at one broker; ours shows it at the other, and removes it there.
    may = ("--allow-principal", f"User:{user}", "--producer", "--topic", topic)
    await tool(cluster, ACLS, *cluster.over(broker_id), "--add", *may)
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, user, topic, False)
    over = cluster.over(OTHER[broker_id])
    listed = json.loads(await ours(cluster, "acls", "list", "--topic", topic, "-o", "json", *over))
    assert {(acl["principal"], acl["operation"]) for acl in listed["items"]} == {
        (f"User:{user}", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")
    }
    await ours(cluster, "acls", "remove", *may, "--force", *over)
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, user, topic, True)

    # And the reverse.
    await ours(cluster, "acls", "add", *may, *over)
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, user, topic, False)
    printed = await tool(cluster, ACLS, *cluster.over(broker_id), "--list", "--topic", topic)
    assert f"principal=User:{user}, host=*, operation=WRITE, permissionType=ALLOW" in printed
    await tool(cluster, ACLS, *cluster.over(broker_id), "--remove", *may, "--force")
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, user, topic, True)


async def is_refused(
    cluster: SecuredCluster, broker_id: int, user: str, topic: str, expected: bool
) -> None:
    """Wait until a user may not, or may, write to the partition that a broker leads."""

    async def tries() -> bool:
        client = cluster.client(broker_id, user, PASSWORD)
        try:
            async with Producer(client) as producer:
                await producer.send_and_wait(topic, b"v", partition=broker_id)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return True
        return False

    await until_equal(tries, expected)


def acl(
    kind: ResourceType, name: str, operation: Operation, pattern: PatternType = PatternType.LITERAL
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AclEntry("User:dora", operation))


SPELLINGS = [
    acl(ResourceType.TOPIC, "t", Operation.READ),
    acl(ResourceType.TOPIC, "p-", Operation.WRITE, PatternType.PREFIXED),
    acl(ResourceType.TRANSACTIONAL_ID, "x", Operation.WRITE),
    acl(ResourceType.TRANSACTIONAL_ID, "y-", Operation.DESCRIBE, PatternType.PREFIXED),
]
"""ACLs of literal and prefixed names, of types that are spelled in one word and in two."""


async def test_brokers_follow_each_others_acls_of_every_spelling(cluster: SecuredCluster) -> None:
    dora = AclFilter(principal="User:dora")
    async with Admin(cluster.client(STOCK)) as theirs, Admin(cluster.client(OUR_OWN)) as our_own:
        for writer in (theirs, our_own):
            assert set((await writer.create_acls(SPELLINGS)).values()) == {None}
            for reader in (theirs, our_own):
                await until_equal(partial(known_acls, reader, dora), set(SPELLINGS))
            await writer.delete_acls([AclFilter.exactly(binding) for binding in SPELLINGS])
            for reader in (theirs, our_own):
                await until_equal(partial(known_acls, reader, dora), set())


async def known_acls(admin: Admin, wanted: AclFilter) -> set[AclBinding]:
    return set(await admin.describe_acls(wanted))


# ---- quotas and settings


@pytest.mark.parametrize(
    ("entity", "quota", "row"),
    [
        (("users", "u"), "consumer_byte_rate", {"user": "u"}),
        (("users", None), "request_percentage", {"user": "<default>"}),
        (("clients", "etl"), "producer_byte_rate", {"client_id": "etl"}),
        (("ips", "192.0.2.1"), RATE, {"ip": "192.0.2.1"}),
    ],
)
@EITHER
async def test_quotas_of_either_tool_are_shown_by_the_other(
    cluster: SecuredCluster,
    broker_id: int,
    entity: tuple[str, str | None],
    quota: str,
    row: dict[str, str],
) -> None:
    kind, name = entity
    named = ("--entity-type", kind, *(("--entity-name", name) if name else ("--entity-default",)))
    here, there = cluster.over(broker_id), cluster.over(OTHER[broker_id])
    add, remove = ("--add-config", f"{quota}=5000"), ("--delete-config", quota)

    async def shown(over: tuple[str, ...]) -> list[object]:
        printed = await ours(cluster, "quotas", "describe", *named, "-o", "json", *over)
        return list(json.loads(printed)["items"])

    expected = {"user": None, "client_id": None, "ip": None, **row, "quota": quota, "value": 5000}
    await tool(cluster, CONFIGS, *here, "--alter", *named, *add)
    assert await shown(here) == await shown(there) == [expected]
    await ours(cluster, "quotas", "alter", *named, *remove, *there)
    assert quota not in await tool(cluster, CONFIGS, *here, "--describe", *named)

    await ours(cluster, "quotas", "alter", *named, *add, *there)
    assert f"{quota}=5000" in await tool(cluster, CONFIGS, *here, "--describe", *named)
    await tool(cluster, CONFIGS, *here, "--alter", *named, *remove)
    assert await shown(there) == []


@pytest.mark.parametrize(
    ("command", "kind", "broker_id"),
    [
        pytest.param("kafka-configs --bootstrap-server", "users", OUR_OWN, id="stock tool"),
        pytest.param("kafka-configs --zookeeper", "clients", OUR_OWN, id="stock tool, ZooKeeper"),
        pytest.param("kbroker quotas", "users", STOCK, id="ours"),
    ],
)
async def test_quotas_of_a_tool_slow_clients_of_the_other_broker_down(
    cluster: SecuredCluster, command: str, kind: str, broker_id: int
) -> None:
    topic, user, client_id = await create_topic(cluster), await create_user(cluster), unique("c")
    everybody = ("--allow-principal", f"User:{user}", "--producer", "--topic", topic)
    await ours(cluster, "acls", "add", *everybody, *cluster.over(OUR_OWN))
    await logs_in(cluster, broker_id, user, True)
    await is_refused(cluster, broker_id, user, topic, False)

    named = ("--entity-type", kind, "--entity-name", user if kind == "users" else client_id)
    change = (*named, "--add-config", "producer_byte_rate=1000")
    over = cluster.over(OTHER[broker_id])
    if command == "kbroker quotas":
        await ours(cluster, "quotas", "alter", *change, *over)
    else:
        where = over if "bootstrap" in command else ("--zookeeper", cluster.zookeeper)
        await tool(cluster, CONFIGS, *where, "--alter", *change)

    # A stock client tells how long it is to wait.
    waits: list[float] = []
    settings = cluster.librdkafka(broker_id, user, PASSWORD) | {
        "client.id": client_id,
        "throttle_cb": lambda event: waits.append(event.throttle_time),
    }
    producer = confluent_kafka.Producer(settings)

    async def is_slowed_down() -> bool:
        producer.produce(topic, b"x" * 5000, partition=broker_id)
        await asyncio.to_thread(producer.poll, 0.1)
        return bool(waits)

    await until(is_slowed_down, "a client that is told to wait")


@pytest.mark.parametrize(
    ("command", "address", "broker_id"),
    [
        pytest.param("kafka-configs --bootstrap-server", "127.0.0.2", OUR_OWN, id="stock tool"),
        pytest.param("kafka-configs --zookeeper", "127.0.0.3", OUR_OWN, id="stock, ZooKeeper"),
        pytest.param("kbroker quotas", "127.0.0.4", STOCK, id="ours"),
    ],
)
async def test_an_address_whose_rate_a_tool_sets_to_nothing_is_kept_out_by_the_other_broker(
    cluster: SecuredCluster, command: str, address: str, broker_id: int
) -> None:
    named = ("--entity-type", "ips", "--entity-name", address)
    add, remove = ("--add-config", f"{RATE}=0"), ("--delete-config", RATE)
    over = cluster.over(OTHER[broker_id])
    where = ("--zookeeper", cluster.zookeeper) if "--zookeeper" in command else over
    is_let_in = partial(asyncio.to_thread, shake_hands, cluster, broker_id, address)
    assert await is_let_in()

    if command == "kbroker quotas":
        await ours(cluster, "quotas", "alter", *named, *add, *where)
    else:
        await tool(cluster, CONFIGS, *where, "--alter", *named, *add)
    await until_equal(is_let_in, False)
    assert f"{RATE}=0" in await tool(cluster, CONFIGS, *where, "--describe", *named)
    shown = await ours(cluster, "quotas", "describe", *named, "-o", "json", *over)
    assert [(row["quota"], row["value"]) for row in json.loads(shown)["items"]] == [(RATE, 0)]

    # The tool of the other kind ends it.
    if command == "kbroker quotas":
        await tool(cluster, CONFIGS, *where, "--alter", *named, *remove)
    else:
        await ours(cluster, "quotas", "alter", *named, *remove, *over)
    await until_equal(is_let_in, True)


def shake_hands(cluster: SecuredCluster, broker_id: int, address: str) -> bool:
    """Return whether a broker lets a client at a local address go on to TLS."""
    context = ssl.create_default_context(cafile=cluster.authority.trusted)
    place = (HOST, cluster.ports[broker_id])
    with socket.create_connection(place, TIMEOUT_S, (address, 0)) as plain:
        try:
            context.wrap_socket(plain, server_hostname=HOST).close()
        except (ConnectionError, ssl.SSLEOFError):
            return False
    return True


@EITHER
async def test_settings_of_topics_are_the_same_for_either_tool(
    cluster: SecuredCluster, broker_id: int
) -> None:
    topic = await create_topic(cluster)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    here, there = cluster.over(broker_id), cluster.over(OTHER[broker_id])
    await tool(cluster, CONFIGS, *here, "--alter", *entity, "--add-config", "retention.ms=77")
    resource = ConfigResource.topic(topic)
    for at in (STOCK, OUR_OWN):
        async with Admin(cluster.client(at)) as admin:

            async def value(admin: Admin = admin) -> str | None:
                configs = (await admin.describe_configs([resource]))[resource]
                return {config.name: config.value for config in configs}["retention.ms"]

            await until_equal(value, "77")
    await ours(cluster, "configs", "alter", "--topic", topic, "--add", "segment.ms=88", *there)
    described = partial(tool, cluster, CONFIGS, *here, "--describe", *entity)

    async def is_described() -> bool:
        printed = await described()
        return "segment.ms=88" in printed and "retention.ms=77" in printed

    await until(is_described, "both settings")


# ---- ZooKeeper


async def test_tools_write_to_a_zookeeper_that_belongs_to_the_brokers(
    cluster: SecuredCluster,
) -> None:
    """What either tool creates there belongs to the brokers too, and both brokers obey it."""
    topic, users = await create_topic(cluster), (unique("theirs"), unique("ours"))
    directly = ("--zookeeper", cluster.zookeeper)
    entity = ("--entity-type", "users", "--entity-name", users[0])
    password = f"SCRAM-SHA-512=[password={PASSWORD}]"
    await tool(cluster, CONFIGS, *directly, "--alter", *entity, "--add-config", password)
    login = ("--command-config", str(cluster.own_properties()))
    create = ("users", "create", users[1], "--password-stdin", *directly, *login)
    await ours(cluster, *create, stdin=PASSWORD)
    for user in users:
        for at in (STOCK, OUR_OWN):
            await logs_in(cluster, at, user, True)

    may = ("--allow-principal", "User:*", "--operation", "Write", "--topic", topic)
    prefixed = (*may[:-1], topic[:-1], "--resource-pattern-type", "prefixed")
    properties = ("--authorizer-properties", f"zookeeper.connect={cluster.zookeeper}")
    await tool(cluster, ACLS, *properties, "--add", *may)
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, users[1], topic, False)
    await tool(cluster, ACLS, *properties, "--remove", *may, "--force")
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, users[1], topic, True)
    await ours(cluster, "acls", "add", *prefixed, *directly, *login)
    for at in (STOCK, OUR_OWN):
        await is_refused(cluster, at, users[1], topic, False)

    change = ("--add-config", "retention.ms=99")
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    await tool(cluster, CONFIGS, *directly, "--alter", *of_topic, *change)
    printed = await ours(cluster, "configs", "describe", "--topic", topic, *directly, *login)
    assert "retention.ms=99" in printed

    # Whoever has created it: nobody else may change it, nor read what is secret.
    async with cluster.session() as session, cluster.session(as_broker=False) as stranger:
        await assert_acls(session, brokers_own)
        with pytest.raises(NoAuth):
            await stranger.set(f"/config/topics/{topic}", b"{}")
        with pytest.raises(NoAuth):
            await stranger.get(f"/config/users/{users[1]}")


async def test_tools_that_open_and_secure_zookeeper_do_the_same(cluster: SecuredCluster) -> None:
    login = ("--command-config", str(cluster.own_properties()))
    where = ("--zookeeper", cluster.zookeeper, *login)
    connect = f"--zookeeper.connect={cluster.zookeeper}"
    async with cluster.session() as session:
        await tool(cluster, MIGRATOR, "--zookeeper.acl=unsecure", connect)
        await assert_acls(session, everybodys)
        await ours(cluster, "zookeeper", "secure", *where)
        await assert_acls(session, brokers_own)
        await ours(cluster, "zookeeper", "open", *where)
        await assert_acls(session, everybodys)
        await tool(cluster, MIGRATOR, "--zookeeper.acl=secure", connect)
        await assert_acls(session, brokers_own)


def brokers_own(path: str) -> set[Permission]:
    """Return who may do what to a node that brokers keep to themselves."""
    owner = Permission(ALL, "sasl", "kafka")
    return {owner if each == CREATOR_ALL else each for each in secure_acl(path)}


def everybodys(path: str) -> set[Permission]:
    return {EVERYBODY_ALL}


async def assert_acls(session: KazooSession, expected: Callable[[str], set[Permission]]) -> None:
    """Assert who may do what to each node that brokers of either kind have."""
    left = [path for path in ROOTS if path != OUR_ROOT]
    while left:
        path = left.pop()
        with contextlib.suppress(NoNode):
            assert await session.get_acl(path) == expected(path), path
        if path not in QUEUES:
            left += [f"{path}/{name}" for name in await children_if_there(session, path)]
