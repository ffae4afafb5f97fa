"""Stock consumers while a cluster goes from PLAINTEXT to SASL_SSL, step by step, as
docs/security.md says.

Members that do not log in, and members that do, are one group for a while. No member ends by
itself, each message is delivered, no commit goes back, and nobody begins behind one. `make interop`
has them; `make test` has the same with our own clients (tests/broker/test_rolling_change.py).
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import Admin, NewTopic, ScramUpsertion
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.settings import format_properties, parse_properties
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import RestartableCluster, create
from tests.interop.driven_group import DrivenGroup, Writer
from tests.interop.handover import LATEST
from tests.interop.handover import OURS as OUR_BROKER
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import MixedCluster
from tests.interop.stock_consumers import (
    AIOKAFKA,
    FRANZ_GO,
    JAVA_2_8,
    JAVA_3_9,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    OURS,
    RANGE,
    Kind,
)
from tests.stage.certificates import Authority
from tests.stage.rolling_change import (
    INTER_BROKER,
    ONLY_SECURE,
    PASSWORDS,
    SECOND_LISTENER,
    STOCK_STORES,
    authority_at,
    security_of_alice,
    settings_here,
)
from tests.stage.waiting import until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import children_if_there
from zk.znodes import BrokerId

BROKERS, TOPIC, PARTITIONS = 3, "orders", 18
STOCK = 0
"""The id of the stock broker, where there is one."""
CALM_MS = 20_000
"""The test's own session with ZooKeeper, which a busy machine must not end."""
SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}

# Java clients read PEM from 2.7 on; sarama has no SCRAM of its own.
SEVERAL_KINDS = (JAVA_2_8, JAVA_3_9, LIBRDKAFKA, FRANZ_GO, AIOKAFKA, OURS)
CASTS = [
    *(
        pytest.param([kind] * 2, kind.strategies[:1], id=kind.name)
        for kind in (*SEVERAL_KINDS, KAFKA_PYTHON, KAFKAJS)
    ),
    # One strategy: aiokafka joins once for each, first with one alone and then with more, so that
    # two of its members may end each other's rebalances for ever.
    pytest.param(SEVERAL_KINDS, [RANGE], id="several-kinds"),
]


@attrs.define(eq=False)
class ChangingCluster:
    """Three brokers as processes, that are restarted with the settings of a step.

    `restart(broker_id, changed)` restarts a broker with settings beyond those it has, and returns
    when all replicas are in sync.
    """

    plain: Sequence[int]
    authority: Authority
    restart: Callable[[int, Mapping[str, str]], Awaitable[None]]
    secure: Sequence[int] = attrs.field(factory=lambda: claim_ports(0, BROKERS))

    @property
    def plain_bootstrap(self) -> str:
        return _join(self.plain)

    @property
    def secure_bootstrap(self) -> str:
        return _join(self.secure)

    async def prepare(self) -> None:
        """Create the users and the topic."""
        async with Admin(self.plain_bootstrap) as admin:
            users = [
                ScramUpsertion(user, SCRAM_SHA_512, password)
                for user, password in PASSWORDS.items()
            ]
            verdicts = await admin.alter_user_scram_credentials(users)
            assert set(verdicts.values()) == {None}
            await create(admin, NewTopic(TOPIC, PARTITIONS, BROKERS))

    async def roll(self, step: Mapping[str, str]) -> None:
        for broker_id in range(BROKERS):
            ports = self.plain[broker_id], self.secure[broker_id]
            await self.restart(broker_id, settings_here(step, *ports, self.authority))


def _join(ports: Iterable[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


@contextlib.asynccontextmanager
async def cluster_of_ours(directory: Path) -> AsyncIterator[ChangingCluster]:
    with RestartableCluster.running(directory / "dev", BROKERS, SETTINGS) as cluster:
        ports = [int(port) for port in re.findall(r":(\d+)", cluster.bootstrap)]
        async with cluster.dev.zookeeper_session() as zk:

            async def restart(broker_id: int, changed: Mapping[str, str]) -> None:
                file = cluster.dev.directory / f"broker-{broker_id}.properties"
                file.write_text(format_properties(parse_properties(file.read_text()) | changed))
                await cluster.stop(broker_id, signal.SIGTERM)
                await cluster.start(broker_id)
                await cluster.in_sync(zk)

            changing = ChangingCluster(ports, authority_at(directory), restart)
            await changing.prepare()
            yield changing


@contextlib.asynccontextmanager
async def mixed_cluster(directory: Path, zookeeper: str) -> AsyncIterator[ChangingCluster]:
    """Run two brokers of ours beside a stock one."""
    makes = {STOCK: LATEST, 1: OUR_BROKER, 2: OUR_BROKER}
    authority = authority_at(directory)
    stores = settings_here(STOCK_STORES, 0, 0, authority)
    where = f"{zookeeper}/{unique('mixed')}"
    with MixedCluster.of(makes, where, directory) as cluster:
        for broker_id in makes:
            cluster.settings[broker_id] = {"min.insync.replicas": "2"}
        await cluster.start_missing()
        partitions = [
            *(TopicPartition(TOPIC, number) for number in range(PARTITIONS)),
            TopicPartition(OFFSETS_TOPIC, 0),
        ]
        async with zookeeper_session(where, session_timeout_ms=CALM_MS) as zk:

            async def are_there() -> set[int]:
                return {int(name) for name in await children_if_there(zk, BrokerId.directory())}

            async def restart(broker_id: int, changed: Mapping[str, str]) -> None:
                cluster.settings[broker_id] |= changed
                if broker_id == STOCK:
                    # The guide names its stores beside the first step.
                    cluster.settings[broker_id] |= stores
                await cluster.stop(broker_id)
                cluster.start(broker_id)
                await until_equal(are_there, set(makes))
                await cluster.in_sync(zk, partitions)

            await until_equal(are_there, set(makes))
            changing = ChangingCluster([*cluster.ports.values()], authority, restart)
            await changing.prepare()
            yield changing


@pytest.mark.product
@pytest.mark.parametrize(("kinds", "strategies"), CASTS)
async def test_members_go_on_while_the_cluster_is_secured(
    kinds: Sequence[Kind], strategies: Sequence[str], tmp_path: Path
) -> None:
    async with cluster_of_ours(tmp_path) as cluster:
        await secure_step_by_step(cluster, kinds, strategies, tmp_path)


@pytest.mark.product
async def test_members_go_on_while_a_cluster_with_a_stock_broker_is_secured(
    zookeeper: str, tmp_path: Path
) -> None:
    async with mixed_cluster(tmp_path, zookeeper) as cluster:
        await secure_step_by_step(cluster, (JAVA_2_8, LIBRDKAFKA, OURS), [RANGE], tmp_path)


async def secure_step_by_step(
    cluster: ChangingCluster, kinds: Sequence[Kind], strategies: Sequence[str], directory: Path
) -> None:
    plain, members = cluster.plain_bootstrap, directory / "members"
    with DrivenGroup(plain, "billing", {TOPIC: PARTITIONS}, strategies, members) as group:
        async with Writer(plain, group.partitions) as writer:
            before = [group.start(kind) for kind in kinds]
            await group.settled()
            await cluster.roll(SECOND_LISTENER)
            await group.settled()

        # From now on clients log in. Those that do not go on for a while.
        group.login = directory / "login"
        group.login.write_text(
            f"ca={cluster.authority.trusted}\nuser=alice\npassword={PASSWORDS['alice']}\n"
        )
        group.bootstrap = cluster.secure_bootstrap
        group.security = security_of_alice(cluster.authority)
        secure = Writer(
            group.bootstrap, group.partitions, security=group.security, values=writer.values
        )
        async with secure:
            for kind in kinds:
                group.start(kind)
            await group.settled()
            await cluster.roll(INTER_BROKER)
            await group.settled()
            for member in before:
                await group.stop(member)
            await group.settled()
            await cluster.roll(ONLY_SECURE)
            await group.settled()

        await group.consumes(secure.values)
        await group.commits_all()
        await group.check()
