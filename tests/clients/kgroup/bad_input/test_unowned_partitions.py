"""A topic gets partitions that the members of a group have not heard of yet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from clients.admin import Admin
from clients.admin.descriptions import NewPartitions
from clients.command_line.sessions import Sessions
from clients.kgroup.at_risk import risks_of
from clients.kgroup.health import health_of
from clients.serve.monitor import Monitor
from clients.watching.health import WARN
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate, until
from protocol.topic_partition import TopicPartition
from tests.clients.kgroup.bad_input.operator import T0, Operator, consume, produce, rows_of

DAY_MS = 86_400_000
T1, T2 = TopicPartition("t", 1), TopicPartition("t", 2)


@pytest.mark.fault("strangers-96")
def test_partitions_that_nobody_owns_are_named_until_the_members_have_heard_of_them(
    tmp_path: Path,
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator, application = Operator.of(cluster), cluster.client("application")
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
        await operator.run(lambda: produce(cluster, T0, [b"x"] * 9))

        async def lags() -> dict[tuple[str, str], int | None]:
            listing, _ = await operator.describe(["g"])
            found: dict[tuple[str, str], int | None] = rows_of(listing, "lag")
            return found

        async def is_level() -> bool:
            return (await lags()).get(("g", "t-0")) == 0

        application.spawn(
            consume(cluster, auto_commit_interval_ms="500", metadata_max_age_ms="60000")
        )
        await until(is_level, "the member to have consumed the topic")

        async def add_partitions() -> None:
            async with Admin(settings) as admin:
                await admin.create_partitions({"t": NewPartitions(3)})

        await operator.run(add_partitions)
        await operator.run(lambda: produce(cluster, T1, [b"x"] * 5))

        described, notes = await operator.describe(["g"])
        assert rows_of(described, "unowned") == {
            ("g", "t-0"): False,
            ("g", "t-1"): True,
            ("g", "t-2"): True,
        }
        assert "no lag in 3 partitions, 2 of them without an owner" in described.summaries[0]
        assert any("No member of consumer group 'g' owns t-1 and 1 more" in note for note in notes)

        async def watch() -> list[dict[str, Any]]:
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                await monitor.look()
                judged = await monitor.health()
                monitor.close()
                return judged

        health, worst = await operator.run(lambda: health_of(operator.target, ["g"]))
        assert worst == WARN
        for items in (health.items, await operator.run(watch)):
            (unowned,) = [item for item in items if item["partition"] == T1.partition]
            assert (unowned["status"], unowned["verdict"]) == (WARN, WARN)
            assert "it has records, and no member owns it" in unowned["why"]
            # What is empty loses nothing.
            assert T2.partition not in {item["partition"] for item in items}

        risks, _ = await operator.run(lambda: risks_of(operator.target, ["g"], DAY_MS))
        assert [(risk["partition"], risk["risk"]) for risk in risks.items] == [(1, "no-owner")]
        assert re.match("no-owner now: g on t-1: members hear of", risks.verdict or "")

        # The member hears of them, and consumes from the beginning.
        async def is_all_consumed() -> bool:
            return (await lags()).get(("g", "t-1")) == 0

        await until(is_all_consumed, "the member to consume what was added", 120)
        described, notes = await operator.describe(["g"])
        assert not any(rows_of(described, "unowned").values())
        assert not any("No member" in note for note in notes)

    simulate(scene, seed=1, brokers=1, topics={"t": 1})
