"""Members whose strategies differ, at a coordinator of a simulated cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kgroup import ConsumerConnector
from kgroup.errors import MemberFailed
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate


def test_who_has_no_strategy_in_common_with_the_group_is_told_what_to_set() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        async def join(strategies: str) -> None:
            config: dict[str, Any] = CLIENT | {
                "group.id": "g",
                "membership": "coordinator",
                "bootstrap.servers": cluster.bootstrap,
                "partition.assignment.strategy": strategies,
            }
            connector = ConsumerConnector(config)
            streams = (await connector.create_message_streams({"orders": 1}))["orders"]
            async for _ in streams[0]:
                pass

        async def join_in_vain() -> None:
            said = "its members support no partition.assignment.strategy of range, sticky, or are"
            with pytest.raises(MemberFailed, match=said):
                await join("range,sticky")

        cluster.run_client("first", lambda: join("roundrobin"))
        await asyncio.sleep(10)
        await cluster.client("second").run(join_in_vain)

    simulate(scene, seed=0, topics={"orders": 1})
