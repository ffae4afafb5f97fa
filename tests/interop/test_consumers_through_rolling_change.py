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
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import Admin, NewTopic, ScramUpsertion
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.settings import format_properties, parse_properties
from tests.cluster.restartable_cluster import RestartableCluster, create
from tests.interop.driven_group import DrivenGroup, Writer
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
    ROUND_ROBIN,
    Kind,
)
from tests.stage.certificates import Authority
from tests.stage.rolling_change import (
    INTER_BROKER,
    ONLY_SECURE,
    PASSWORDS,
    SECOND_LISTENER,
    authority_at,
    security_of_alice,
    settings_here,
)
from zk.session import KazooSession

BROKERS, TOPIC, PARTITIONS = 3, "orders", 18
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
    pytest.param(SEVERAL_KINDS, [RANGE, ROUND_ROBIN], id="several-kinds"),
]


@attrs.define(eq=False)
class ChangingCluster:
    """Three brokers as processes, that are restarted with the settings of a step."""

    cluster: RestartableCluster
    zk: KazooSession
    authority: Authority
    plain: Sequence[int]
    secure: Sequence[int] = attrs.field(factory=lambda: claim_ports(0, BROKERS))

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[ChangingCluster]:
        with RestartableCluster.running(directory / "dev", BROKERS, SETTINGS) as cluster:
            ports = [int(port) for port in re.findall(r":(\d+)", cluster.bootstrap)]
            async with cluster.dev.zookeeper_session() as zk, Admin(cluster.bootstrap) as admin:
                users = [
                    ScramUpsertion(user, SCRAM_SHA_512, password)
                    for user, password in PASSWORDS.items()
                ]
                verdicts = await admin.alter_user_scram_credentials(users)
                assert set(verdicts.values()) == {None}
                await create(admin, NewTopic(TOPIC, PARTITIONS, BROKERS))
                yield cls(cluster, zk, authority_at(directory), ports)

    @property
    def secure_bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.secure)

    async def roll(self, step: Mapping[str, str]) -> None:
        for broker_id in range(BROKERS):
            file = self.cluster.dev.directory / f"broker-{broker_id}.properties"
            ports = self.plain[broker_id], self.secure[broker_id]
            changed = settings_here(step, *ports, self.authority)
            file.write_text(format_properties(parse_properties(file.read_text()) | changed))
            await self.cluster.stop(broker_id, signal.SIGTERM)
            await self.cluster.start(broker_id)
            await self.cluster.in_sync(self.zk)


@pytest.mark.product
@pytest.mark.parametrize(("kinds", "strategies"), CASTS)
async def test_members_go_on_while_the_cluster_is_secured(
    kinds: Sequence[Kind], strategies: Sequence[str], tmp_path: Path
) -> None:
    async with ChangingCluster.running(tmp_path) as cluster:
        plain = cluster.cluster.bootstrap
        members = tmp_path / "members"
        with DrivenGroup(plain, "billing", {TOPIC: PARTITIONS}, strategies, members) as group:
            async with Writer(plain, group.partitions) as writer:
                before = [group.start(kind) for kind in kinds]
                await group.settled()
                await cluster.roll(SECOND_LISTENER)
                await group.settled()

            # From now on clients log in. Those that do not go on for a while.
            group.login = tmp_path / "login"
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
