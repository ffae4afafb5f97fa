"""What a monitor says of groups that it has watched for long."""

from __future__ import annotations

import asyncio
from pathlib import Path

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.kgroup.health import health_of
from clients.serve.monitor import Monitor
from clients.watching.health import STOP, WINDOW_MS
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from tests.clients.kgroup.bad_input.operator import T0, T1, Operator, commit, produce, rows_of

DAY_MS = 86_400_000
LOOK_S = 300.0


def test_a_partition_that_stopped_long_ago_is_judged_beside_one_that_goes_on(
    tmp_path: Path,
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator = Operator.of(cluster)

        async def watch() -> dict[tuple[str, str], str]:
            await produce(cluster, T0, [b"x"] * 5)
            await produce(cluster, T1, [b"x"] * 20)
            settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                for offset in range(1, 5):
                    await commit(cluster, "g", {T0: offset, T1: offset})
                    await monitor.look()
                for offset in range(5, 15):
                    await asyncio.sleep(LOOK_S)
                    await commit(cluster, "g", {T1: offset})
                    await monitor.look()
                judged = await monitor.health()
                monitor.close()
            return {(i["group"], f"{i['topic']}-{i['partition']}"): i["status"] for i in judged}

        seen = await operator.run(watch)
        assert seen["g", "t-0"] == STOP
        recording = tmp_path / "history"
        listing, _ = await operator.run(
            lambda: health_of(operator.target, ["g"], WINDOW_MS, recording)
        )
        assert rows_of(listing, "status") == seen

    simulate(scene, seed=1, brokers=1, topics={"t": 2})
