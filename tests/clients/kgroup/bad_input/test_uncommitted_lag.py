"""A member owns partitions and has not committed: all tools count what it will read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.kgroup.at_risk import risks_of
from clients.kgroup.describe import Wanted as Described
from clients.kgroup.describe import describe_groups
from clients.kgroup.health import health_of
from clients.kgroup.list import Wanted, list_groups
from clients.serve.monitor import Monitor
from clients.watching.health import UNKNOWN
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate, until
from tests.clients.kgroup.bad_input.operator import T0, Operator, consume, produce

DAY_MS = 86_400_000
ALL_LAGS = Wanted(re.compile(""), (), (), (), ("lag",), only_with_lag=False)


@pytest.mark.fault("strangers-102")
@pytest.mark.fault("strangers-104")
@pytest.mark.fault("strangers-157", "strangers-158")
def test_what_an_owner_will_read_is_lag_before_its_first_commit_too(tmp_path: Path) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator, application = Operator.of(cluster), cluster.client("application")
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
        await operator.run(lambda: produce(cluster, T0, [b"x"] * 9))

        async def is_owned() -> bool:
            listing, _ = await operator.describe(["g"])
            return any(item.get("consumer_id") for item in listing.items)

        application.spawn(consume(cluster, enable_auto_commit="false"))
        await until(is_owned, "the member to own its partition")

        async def watch() -> tuple[int, list[str]]:
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                await monitor.look()
                ((group, _),) = await monitor.group_items()
                judged = await monitor.health()
                monitor.close()
                return group["lag"], [item["status"] for item in judged]

        described, _ = await operator.describe(["g"])
        assert "lag 9 in 1 partition, most 9 in t-0" in described.summaries[0]
        with_lag = Described(("g",), re.compile(""), (), (), only_with_lag=True)
        shown, _ = await operator.run(lambda: describe_groups(operator.target, with_lag, "offsets"))
        assert [(item["partition"], item["lag"]) for item in shown.items] == [(0, None)]
        risks, _ = await operator.run(lambda: risks_of(operator.target, ["g"], DAY_MS))
        assert risks.verdict is not None
        assert risks.verdict.endswith("and no commit, of which nothing is known: 1")
        listing = await operator.run(lambda: list_groups(operator.target, ALL_LAGS))
        assert [item["lag"] for item in listing.items] == [9]
        assert await operator.run(watch) == (9, [UNKNOWN])

        # Whoever asks for all groups hears of it.
        for named in ((), ("g",)):
            health, worst = await operator.run(lambda g=named: health_of(operator.target, g))
            assert [(item["group"], item["status"]) for item in health.items] == [("g", UNKNOWN)]
            assert worst == UNKNOWN

    simulate(scene, seed=1, brokers=1, topics={"t": 1})
