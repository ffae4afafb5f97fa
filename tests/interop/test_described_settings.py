"""DescribeConfigs of a topic and of a broker, beside stock 2.8.2: a difference has its reason here.

Compared are the names, and of each setting its default, its type, whether it is secret, and
whether it can change while a broker runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from uuid import uuid4

import attrs
import pytest

from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponseConfig,
)
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import stock_broker

TOPIC, BROKER = 2, 4
FROM_DEFAULT = 5
RESOURCES = {"topic": TOPIC, "broker": BROKER}


@attrs.frozen
class Described:
    """A setting, without the values that a file or an administrator gave it."""

    default: str | None
    type: int
    is_sensitive: bool
    read_only: bool

    @classmethod
    def of(cls, config: DescribeConfigsResponseConfig) -> Described:
        defaults = [s.value for s in config.synonyms if s.source == FROM_DEFAULT]
        # A topic's setting may have a default that is none of the broker's.
        if not defaults and config.config_source == FROM_DEFAULT:
            defaults = [config.value]
        default = defaults[0] if defaults else None
        return cls(default, config.config_type, config.is_sensitive, config.read_only)


_SET = "a cluster of `kbroker dev` keeps its records, so this is no default"
_IDS = "brokers of 2.3 may be in the cluster: topic ids are not served yet"
_FLEXIBLE = "the kernel's own sizes: docs/differences.md"
_SECURITY = "who may log in, and how, is not taken without effect"
_KEPT = "a file of Kafka is read, and this is refused in it where it asks for something"

OTHERWISE: Mapping[str, str] = {
    "retention.ms": _SET,
    "log.retention.ms": _SET,
    "message.format.version": _IDS,
    "log.message.format.version": _IDS,
    "inter.broker.protocol.version": _IDS,
    "socket.receive.buffer.bytes": _FLEXIBLE,
    "socket.send.buffer.bytes": _FLEXIBLE,
    "principal.builder.class": _KEPT,
    "sasl.enabled.mechanisms": _SECURITY,
    "sasl.jaas.config": _SECURITY,
    "sasl.mechanism.inter.broker.protocol": _SECURITY,
    "ssl.cipher.suites": _SECURITY,
    "ssl.client.auth": _SECURITY,
    "ssl.enabled.protocols": _SECURITY,
    "ssl.endpoint.identification.algorithm": _SECURITY,
    "ssl.protocol": _SECURITY,
    "ssl.engine.factory.class": "Java's",
    "ssl.keymanager.algorithm": "Java's",
    "ssl.provider": "Java's",
    "ssl.secure.random.implementation": "Java's",
    "ssl.trustmanager.algorithm": "Java's",
    "zookeeper.ssl.protocol": "TLS 1.3 is spoken too: docs/differences.md",
}
"""Settings that ours describes in another way, and why."""

OURS_ALONE = (
    # Stock brokers describe these where the file, or an administrator, has set them.
    "allow.everyone.if.no.acl.found",
    "authorizer.zookeeper.connection.timeout.ms",
    "authorizer.zookeeper.session.timeout.ms",
    "authorizer.zookeeper.url",
    "super.users",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    # Those of later versions of Kafka.
    "sasl.oauthbearer.",
    "ssl.allow.",
    "transaction.partition.verification.enable",
    # Our own.
    "kgroup.",
)
"""Names, and beginnings of names, that 2.8.2 does not describe."""


@pytest.fixture(scope="module")
def stock(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tree = f"{zookeeper}/settings-{uuid4().hex[:8]}"
    with stock_broker(tree, tmp_path_factory.mktemp("stock")) as bootstrap:
        yield bootstrap


async def describe(bootstrap: str) -> dict[str, dict[str, Described]]:
    """Describe a topic without settings of its own, and the broker 0."""
    topic = f"t-{uuid4().hex[:8]}"
    host, _, port = bootstrap.rpartition(":")
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
    connection = await Connection.open(host, int(port))
    try:
        described = {}
        for kind, number in RESOURCES.items():
            resource = DescribeConfigsRequestResource(
                resource_type=number,
                resource_name=topic if number == TOPIC else "0",
                configuration_keys=None,
            )
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
            (result,) = (await connection.call(request)).results
            described[kind] = {config.name: Described.of(config) for config in result.configs}
        return described
    finally:
        await connection.close()


@pytest.mark.fault("broker-10", needs_no_remedy="a comparison of all settings")
@pytest.mark.fault("outside-O3", needs_no_remedy="a comparison of all settings")
@pytest.mark.fault("outside-O8", needs_no_remedy="a comparison of all settings")
@pytest.mark.fault("outside-O14", needs_no_remedy="a comparison of all settings")
def test_ours_are_those_of_a_stock_broker_or_differ_for_a_reason(
    stock: str, dev_cluster: DevCluster
) -> None:
    ours = asyncio.run(describe(dev_cluster.address("bootstrap")))
    stocks = asyncio.run(describe(stock))

    for kind in RESOURCES:
        missing = stocks[kind].keys() - ours[kind].keys()
        added = {n for n in ours[kind].keys() - stocks[kind].keys() if not n.startswith(OURS_ALONE)}
        differing = {
            name: (described, stocks[kind][name])
            for name, described in ours[kind].items()
            if name in stocks[kind] and described != stocks[kind][name] and name not in OTHERWISE
        }
        assert (missing, added, differing) == (set(), set(), {})

    # A reason for what is the same by now goes.
    same = {
        name
        for name in OTHERWISE
        if all(ours[kind].get(name) == stocks[kind].get(name) for kind in RESOURCES)
    }
    assert same == set()
