"""The members of a group no longer subscribe to a topic of which it has offsets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.kgroup.health import health_of
from clients.kgroup.list import Wanted, list_groups
from clients.serve.monitor import Monitor
from clients.watching.health import DROPPED, ERR
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate, until
from tests.clients.kgroup.bad_input.operator import (
    T0,
    U0,
    Operator,
    commit,
    consume,
    produce,
    rows_of,
)

DAY_MS = 86_400_000
ALL_LAGS = Wanted(re.compile(""), (), (), (), ("lag",), only_with_lag=False)


@pytest.mark.fault("tool-F7")
def test_a_topic_that_members_have_dropped_is_shown_and_neither_summed_nor_an_error(
    tmp_path: Path,
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator, application = Operator.of(cluster), cluster.client("application")
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
        await operator.run(lambda: produce(cluster, U0, [b"x"] * 9))
        for offset in (2, 4, 6):
            await operator.run(lambda at=offset: commit(cluster, "g", {U0: at}))
            await asyncio.sleep(1)
        await operator.run(lambda: produce(cluster, T0, [b"x"]))

        async def is_level() -> bool:
            listing, _ = await operator.describe(["g"])
            return rows_of(listing, "lag").get(("g", "t-0")) == 0

        application.spawn(consume(cluster, auto_commit_interval_ms="500"))
        await until(is_level, "the member to have consumed what it subscribes to")

        async def watch() -> tuple[dict[str, Any], list[dict[str, Any]]]:
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                await monitor.look()
                ((group, _),) = await monitor.group_items()
                judged = await monitor.health()
                monitor.close()
                return group, judged

        group, judged = await operator.run(watch)
        health, _ = await operator.run(lambda: health_of(operator.target, ["g"]))
        for items in (judged, health.items):
            (dropped,) = [item for item in items if item["topic"] == "u"]
            assert (dropped["status"], dropped["lag"]) == (DROPPED, 3)
            assert dropped["verdict"] != ERR
        assert group["lag"] == 0

        listing = await operator.run(lambda: list_groups(operator.target, ALL_LAGS))
        assert [item["lag"] for item in listing.items] == [0]
        described, _ = await operator.describe(["g"])
        assert rows_of(described, "lag") == {("g", "t-0"): 0, ("g", "u-0"): 3}
        assert rows_of(described, "unsubscribed") == {("g", "t-0"): False, ("g", "u-0"): True}

    simulate(scene, seed=1, brokers=1, topics={"t": 1, "u": 1})
