"""Groups of stock consumers while brokers and members fail.

Through all of it each message is delivered at least once, no commit goes back, nobody begins behind
one, and once it is quiet each partition has one owner. `make test` runs a group of four kinds;
`make interop` groups of each kind and of all kinds, with each strategy.
"""

import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from clients.admin import Admin, NewTopic
from groups.coordinator.membership.state import GroupState
from tests.cluster.restartable_cluster import RestartableCluster, create
from tests.interop.driven_group import DrivenGroup, Writer
from tests.interop.stock_consumers import (
    AIOKAFKA,
    COOPERATIVE,
    FRANZ_GO,
    JAVA_2_8,
    KAFKA_PYTHON,
    KINDS,
    LIBRDKAFKA,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    Kind,
)

BROKERS, PARTITIONS = 3, 12
SHORT_SESSION_MS = 6000
"""The shortest that brokers allow unless they are told otherwise."""

SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@attrs.frozen
class Cast:
    """Who is in a group, and the strategies that all of them have."""

    name: str
    kinds: Sequence[Kind]
    strategies: Sequence[str]

    @property
    def statics(self) -> list[Kind]:
        """Return the kinds of which a static member restarts and nobody notices."""
        return [kind for kind in self.kinds if set(self.strategies) <= set(kind.restarts_with)]


FOUR_KINDS = Cast(
    "four-kinds", (JAVA_2_8, LIBRDKAFKA, FRANZ_GO, KAFKA_PYTHON), (RANGE, ROUND_ROBIN)
)
PATIENT_KINDS = Cast("patient-kinds", (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA), (RANGE, ROUND_ROBIN))
ALL_KINDS = [
    Cast(
        f"all-kinds-{strategy}", [kind for kind in KINDS if strategy in kind.strategies], [strategy]
    )
    for strategy in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE)
]
OF_A_KIND = [
    Cast(f"{kind}-{strategy}", [kind] * 3, [strategy])
    for kind in KINDS
    for strategy in kind.strategies
]
CASTS = [
    pytest.param(FOUR_KINDS, id=FOUR_KINDS.name),
    *(
        pytest.param(cast, id=cast.name, marks=pytest.mark.product)
        for cast in (*ALL_KINDS, *OF_A_KIND)
    ),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableCluster]:
    directory = tmp_path_factory.mktemp("failures")
    with RestartableCluster.running(directory, BROKERS, SETTINGS) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def group_of(
    cluster: RestartableCluster, cast: Cast, directory: Path, **settings: int
) -> AsyncIterator[DrivenGroup]:
    """Give an empty group, and a topic that is written to. In the end all was delivered."""
    topic, group_id = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    bootstrap = cluster.bootstrap
    async with Admin(bootstrap) as admin:
        await create(admin, NewTopic(topic, PARTITIONS, BROKERS))

    topics = {topic: PARTITIONS}
    with DrivenGroup(bootstrap, group_id, topics, cast.strategies, directory, **settings) as group:
        async with Writer(bootstrap, group.partitions) as writer:
            yield group
        await group.consumes(writer.values)
        await group.commits_all()
        await group.check()


@pytest.mark.parametrize("cast", [*CASTS, pytest.param(PATIENT_KINDS, id=PATIENT_KINDS.name)])
async def test_coordinator_that_is_killed_is_replaced_and_members_go_on(
    cluster: RestartableCluster, cast: Cast, tmp_path: Path
) -> None:
    async with group_of(cluster, cast, tmp_path) as group, cluster.dev.zookeeper_session() as zk:
        for kind in cast.kinds:
            group.start(kind)
        before = await group.settled()
        generation_id = await group.generation_id()

        async with cluster.without(await group.coordinator()):
            after = await group.settled()
        await cluster.in_sync(zk)
        if all(kind.is_patient for kind in cast.kinds):
            assert after == before == await group.settled()
            assert await group.generation_id() == generation_id


@pytest.mark.product
@pytest.mark.parametrize("cast", CASTS)
async def test_coordinator_that_is_killed_while_joins_are_parked_is_replaced(
    cluster: RestartableCluster, cast: Cast, tmp_path: Path
) -> None:
    async with group_of(cluster, cast, tmp_path) as group, cluster.dev.zookeeper_session() as zk:
        stopped, *_ = [group.start(kind) for kind in (*cast.kinds, cast.kinds[0])]
        await group.settled()

        # All wait for one that does nothing, for as long as its session lasts.
        async with group.without(stopped):
            group.start(cast.kinds[-1])
            await group.reaches(GroupState.PREPARING_REBALANCE)
            async with cluster.without(await group.coordinator()):
                await group.settled()
        await group.settled()
        await cluster.in_sync(zk)


@pytest.mark.parametrize("cast", CASTS)
async def test_rolling_restart_of_all_brokers_leaves_each_partition_with_one_owner(
    cluster: RestartableCluster, cast: Cast, tmp_path: Path
) -> None:
    async with group_of(cluster, cast, tmp_path) as group, cluster.dev.zookeeper_session() as zk:
        for kind in cast.kinds:
            group.start(kind)
        await group.settled()

        for broker_id in range(BROKERS):
            await cluster.stop(broker_id, signal.SIGTERM)
            await cluster.start(broker_id)
            await cluster.in_sync(zk)
        await group.settled()


@pytest.mark.parametrize("cast", CASTS)
async def test_member_stopped_beyond_its_session_is_replaced_and_comes_back(
    cluster: RestartableCluster, cast: Cast, tmp_path: Path
) -> None:
    settings = {"session_timeout_ms": SHORT_SESSION_MS}
    async with group_of(cluster, cast, tmp_path, **settings) as group:
        stopped, *_ = [group.start(kind) for kind in cast.kinds]
        await group.settled()

        async with group.without(stopped):
            await group.settled()
        await group.settled()


@pytest.mark.parametrize("cast", [cast for cast in CASTS if cast.values[0].statics])
async def test_static_member_that_restarts_has_its_partitions_and_nobody_else_notices(
    cluster: RestartableCluster, cast: Cast, tmp_path: Path
) -> None:
    async with group_of(cluster, cast, tmp_path) as group:
        statics = [
            group.start(kind, instance_id=f"{kind}-{number}")
            for number, kind in enumerate(cast.statics)
        ]
        await group.settled()
        generation_id = await group.generation_id()

        for number, member in enumerate(statics):
            owned, others = (
                member.owned,
                [other for other in group.running.values() if other is not member],
            )
            changes = [other.changes for other in others]
            await group.stop(member)
            again = group.start(member.kind, instance_id=f"{member.kind}-{number}")
            await group.settled()
            assert again.owned == owned
            assert [other.changes for other in others] == changes
        assert await group.generation_id() == generation_id
