"""A group has consumed all of a topic of transactions: behind it is a marker, which is no lag."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.groups.group_lag import lag
from clients.kgroup.health import health_of
from clients.kgroup.list import Wanted, list_groups
from clients.kgroup.top import look_once
from clients.producer.producer import Producer
from clients.serve.monitor import Monitor
from clients.watching.health import OK, WARN
from clients.watching.simulation_scene import read_scene
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from spark_connector.group_offsets_options import read_offsets_options
from spark_connector.group_offsets_reader import read_group_offsets
from tests.clients.kgroup.bad_input.operator import T0, Operator, commit, rows_of

DAY_MS = 86_400_000
APART_S = 5.0
ALL_LAGS = Wanted(re.compile(""), (), (), (), ("lag",), only_with_lag=False)


@pytest.mark.fault("tool-F5")
def test_all_that_show_a_lag_say_the_same_of_one_that_is_a_marker(tmp_path: Path) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> dict[str, dict[str, int | None]]:
        operator = Operator.of(cluster)
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}

        async def prepare() -> None:
            async with Producer(settings | {"transactional.id": "p"}) as producer:
                for _ in range(3):
                    async with producer.transaction():
                        await producer.send("t", b"x")
            # Records are at 0, 2 and 4, markers at 1, 3 and 5.
            for offset in (1, 3, 5, 5):
                await commit(cluster, "level", {T0: offset})
                await commit(cluster, "behind", {T0: min(offset, 4)})

        await cluster.client("application").run(prepare)

        async def ask() -> dict[str, dict[str, int | None]]:
            said: dict[str, dict[str, int | None]] = {}
            async with Admin(settings) as admin:
                sessions = Sessions(admin)
                monitor = Monitor(sessions, tmp_path / "history", DAY_MS, 1)
                await monitor.look()
                said["serve"] = {
                    group: monitor.partitions(group)[0]["lag"] for group in ("level", "behind")
                }
                judged = {item["group"]: item for item in await monitor.health()}
                said["health of serve"] = {group: i["lag"] for group, i in judged.items()}
                assert judged["level"]["status"] == OK
                monitor.close()

                said["library"] = {
                    group: (await lag(admin, group))[T0].lag for group in ("level", "behind")
                }
                said["simulate"] = {
                    group: (await read_scene(sessions, group, with_lag=True)).lags[T0]
                    for group in ("level", "behind")
                }

            target = operator.target
            said["list"] = {
                item["group"]: item["lag"] for item in (await list_groups(target, ALL_LAGS)).items
            }
            said["top"] = {row["group"]: row["lag"] for row in (await look_once(target)).rows}

            health, _ = await health_of(target, ())
            said["health"] = {item["group"]: item["lag"] for item in health.items}
            assert [i["status"] for i in health.items if i["group"] == "level"] == [OK]

            table = read_offsets_options({"kafka.bootstrap.servers": cluster.bootstrap})
            said["Spark's table"] = {
                row.group: row.lag for row in await read_group_offsets(table, now_ms=0)
            }
            return said

        said = await operator.run(ask)
        for keys in ((), {"time_lag_ms"}):
            listing, _ = await operator.describe(["level", "behind"], keys)
            lags = rows_of(listing, "lag")
            said[f"describe {keys}"] = {group: lags[group, "t-0"] for group in ("level", "behind")}
        return said

    said = simulate(scene, seed=1, brokers=1, topics={"t": 1})
    assert said == {who: {"level": 0, "behind": 2} for who in said}


@pytest.mark.parametrize(
    ("behind", "status", "why"), [(0, OK, "none at one of"), (1, WARN, "lag went from 3 to 3")]
)
def test_a_marker_was_no_lag_at_a_commit_that_is_over(behind: int, status: str, why: str) -> None:
    """Where the log ended then is looked up by time: that is behind the marker."""

    async def scene(cluster: Cluster, faults: Faults) -> tuple[str, str]:
        operator = Operator.of(cluster)
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}

        async def prepare() -> None:
            async with Producer(settings | {"transactional.id": "p"}) as producer:
                # Records are at even offsets, markers at odd ones.
                for number in range(6):
                    async with producer.transaction():
                        await producer.send("t", b"x")
                    await asyncio.sleep(APART_S)
                    if 0 < number < 5:
                        await commit(cluster, "g", {T0: 2 * (number - behind) + 1})
                    await asyncio.sleep(APART_S)

        await cluster.client("application").run(prepare)
        listing, _ = await operator.run(lambda: health_of(operator.target, ["g"]))
        (row,) = listing.items
        assert row["lag"] == 3 + 2 * behind
        return row["status"], row["why"]

    said, reason = simulate(scene, seed=1, brokers=1, topics={"t": 1})
    assert said == status
    assert why in reason
