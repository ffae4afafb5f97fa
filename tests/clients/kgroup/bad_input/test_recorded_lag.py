"""A group falls behind, and `kgroup serve` records it at one look each ten seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.kgroup.health import health_of
from clients.producer.producer import Producer
from clients.serve.monitor import Monitor
from clients.watching.health import WARN
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from tests.clients.kgroup.bad_input.operator import Operator, consume

DAY_MS = 86_400_000
LOOKS, INTERVAL_S = 7, 10


@pytest.mark.fault("strangers-98")
def test_a_group_that_falls_behind_is_told_from_its_recording_too(tmp_path: Path) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator, application = Operator.of(cluster), cluster.client("application")
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
        data = tmp_path / "history"

        async def produce() -> None:
            async with Producer(settings) as producer:
                while True:
                    await producer.send("t", b"x", partition=0)
                    await asyncio.sleep(0.05)

        async def record() -> list[dict[str, object]]:
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), data, DAY_MS, INTERVAL_S)
                for _ in range(LOOKS):
                    await asyncio.sleep(INTERVAL_S)
                    await monitor.look()
                judged = await monitor.health()
                monitor.close()
                return judged

        application.spawn(produce())
        application.spawn(consume(cluster, pause_s=0.2, auto_commit_interval_ms="1000"))
        (judged,) = await operator.run(record)
        assert (judged["status"], str(judged["why"])[:13]) == (WARN, "lag went from")

        health, worst = await operator.run(lambda: health_of(operator.target, ["g"], data=data))
        assert (health.items[0]["status"], worst) == (WARN, WARN)

    simulate(scene, seed=1, brokers=1, topics={"t": 1})
