"""What brokers answer for administrators while ZooKeeper is silent: what they know, or that it is.

Commands wait for 5 s. A broker that waits for longer is taken for the silent one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.admin import Admin, ConfigResource
from clients.errors import DeadlineExceeded
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from kgroup.testing.simulation.zookeeper import HOST as ZK_HOST

T = ConfigResource.topic("t")


def with_silent_zookeeper(ask: Callable[[Admin], Awaitable[Any]]) -> Any:
    """Ask the only broker, which knows the settings of topic t, while ZooKeeper is silent."""

    async def scene(cluster: Cluster, faults: Faults) -> Any:
        async def administer() -> Any:
            settings = {"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": 5_000}
            async with Admin({**CLIENT, "request.timeout.ms": 5_000, **settings}) as admin:
                await admin.incremental_alter_configs({T: {"retention.ms": "7"}})
                await admin.describe_configs([T])
                faults.cut("silence", cluster.nodes[0].host, ZK_HOST, (60.0, 60.0))
                return await ask(admin)

        return await cluster.client("administrator").run(administer)

    return simulate(scene, seed=5, brokers=1, topics={"t": 1})


def test_settings_in_effect_are_described() -> None:
    async def ask(admin: Admin) -> dict[str, str | None]:
        configs = await admin.describe_configs([T])
        return {config.name: config.value for config in configs[T]}

    assert with_silent_zookeeper(ask)["retention.ms"] == "7"


@pytest.mark.parametrize(
    "call", [Admin.describe_client_quotas, Admin.describe_user_scram_credentials]
)
def test_what_zookeeper_alone_knows_is_refused_in_its_name(
    call: Callable[[Admin], Awaitable[Any]],
) -> None:
    async def ask(admin: Admin) -> None:
        with pytest.raises(DeadlineExceeded, match="REQUEST_TIMED_OUT: ZooKeeper does not answer"):
            await call(admin)

    with_silent_zookeeper(ask)
