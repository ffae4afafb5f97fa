"""A broker hangs: its requests end in time, what the other one knows is shown, and exit code 1."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import pytest

from clients.admin import Admin, NewTopic
from clients.command_line.output import Listing, show
from clients.errors import KgroupError
from clients.kgroup.list import Wanted, list_groups
from kgroup.testing.simulation import Cluster, Faults, simulate
from spark_connector.group_offsets_options import OffsetsOptions, read_offsets_options
from spark_connector.group_offsets_reader import (
    CALL_TIMEOUT_MS,
    GroupOffset,
    read_group_offsets,
)
from tests.clients.kgroup.bad_input.operator import (
    T0,
    T1,
    TIMEOUT_MS,
    TIMES,
    Operator,
    commit,
    errors_of,
    rows_of,
)

R = TypeVar("R")

SETTINGS = {"zookeeper.session.timeout.ms": "600000"}
"""Longer than a broker hangs here: nobody takes its place."""


def beside_a_hanging_broker(ask: Callable[[Operator], Awaitable[R]]) -> tuple[R, float]:
    """Ask where broker 2, which leads t-1 and coordinates the group `bad`, hangs.

    Returns the result, and the seconds that it took. Broker 1 has t-0 and the group `good`.
    """

    async def prepare(cluster: Cluster) -> None:
        async with Admin(cluster.bootstrap) as admin:
            new = NewTopic("t", assignments={0: [1], 1: [2]})
            assert await admin.create_topics([new]) == {"t": None}
            for name, broker_id in (("good", 1), ("bad", 2)):
                # Leave out names that the other broker coordinates.
                for number in range(100):
                    group = f"{name}-{number}"
                    described = await admin.describe_groups([group])
                    if described[group].coordinator.node_id == broker_id:
                        break
                await commit(cluster, group, {T0: 0, T1: 0})

    async def scene(cluster: Cluster, faults: Faults) -> tuple[R, float]:
        await cluster.client("admin").run(lambda: prepare(cluster))
        cluster.nodes[1].process.pause()
        began_s = cluster.world.now
        result = await ask(Operator.of(cluster, cluster.nodes[0].address))
        return result, cluster.world.now - began_s

    return simulate(scene, seed=1, brokers=2, settings=SETTINGS)


def ends_with_1(listing: Listing) -> bool:
    with pytest.raises(click.exceptions.Exit) as ended:
        show(listing, "json")
    return ended.value.exit_code == 1


@pytest.mark.parametrize("keys", [frozenset[str](), TIMES], ids=["plain", "times"])
def test_all_groups_of_the_other_broker_are_described(keys: frozenset[str]) -> None:
    (listing, _), took_s = beside_a_hanging_broker(lambda operator: operator.describe(None, keys))
    lags = rows_of(listing, "lag")
    assert {group.partition("-")[0] for group, _ in lags} == {"good"}
    assert [lags[key] for key in sorted(lags)] == [0, None]
    assert errors_of(listing) == {"broker 2": "RequestTimedOut", "t-1": "NETWORK_EXCEPTION"}

    # One time-out for the list of groups, one for the logs.
    assert took_s < 2.5 * TIMEOUT_MS / 1000
    assert ends_with_1(listing)


def test_a_named_group_of_the_broker_is_an_error_beside_the_others_rows() -> None:
    async def describe(operator: Operator) -> Listing:
        names = [f"{name}-{number}" for name in ("good", "bad") for number in range(8)]
        listing, _ = await operator.describe(names)
        return listing

    listing, took_s = beside_a_hanging_broker(describe)
    errors = errors_of(listing)
    assert "RequestTimedOut" in {errors[what] for what in errors if what.startswith("bad")}
    assert {group.partition("-")[0] for group, _ in rows_of(listing, "lag")} == {"good"}
    assert took_s < 2.5 * TIMEOUT_MS / 1000
    assert ends_with_1(listing)


def test_groups_of_the_other_broker_are_listed() -> None:
    wanted = Wanted(re.compile(""), set(), set(), (), set(), only_with_lag=False)
    listing, took_s = beside_a_hanging_broker(
        lambda operator: operator.run(lambda: list_groups(operator.target, wanted))
    )
    assert [item["group"].partition("-")[0] for item in listing.items] == ["good"]
    assert errors_of(listing) == {"broker 2": "RequestTimedOut"}
    assert took_s < 1.5 * TIMEOUT_MS / 1000
    assert ends_with_1(listing)


def test_groups_of_all_brokers_are_there_once_it_goes_on() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> Listing:
        operator = Operator.of(cluster)
        await operator.run(lambda: commit(cluster, "g", {T0: 0}))
        hanging = cluster.nodes[1].process
        hanging.pause()
        asking = asyncio.create_task(operator.describe(None))
        await asyncio.sleep(TIMEOUT_MS / 2000)
        hanging.resume()
        listing, _ = await asking
        return listing

    listing = simulate(scene, seed=2, brokers=2, topics={"t": 1}, settings=SETTINGS)
    assert rows_of(listing, "lag") == {("g", "t-0"): 0}
    assert listing.errors == []


# ---- Spark's table of offsets


def options_of(operator: Operator, group: str = "") -> OffsetsOptions:
    assert operator.target.bootstrap is not None
    given = {"kafka.bootstrap.servers": operator.target.bootstrap, "timeLag": "true"}
    return read_offsets_options(given | ({"group": group} if group else {}))


async def read_table(operator: Operator, group: str = "") -> list[GroupOffset]:
    options = options_of(operator, group)
    return await operator.run(lambda: read_group_offsets(options, now_ms=0))


def test_sparks_table_has_the_other_brokers_groups_and_rows_that_name_the_rest() -> None:
    rows, took_s = beside_a_hanging_broker(read_table)
    ends = {
        row.partition: (row.offset, row.log_end_offset, row.lag, row.time_lag_ms, bool(row.error))
        for row in rows
        if row.group is not None and row.group.startswith("good")
    }
    assert ends == {0: (0, 0, 0, 0, False), 1: (0, None, None, None, True)}
    (broker,) = [row for row in rows if row.group is None]
    assert str(broker.error).startswith("broker 2: ")
    assert len(rows) == 3
    assert took_s < 2.5 * CALL_TIMEOUT_MS / 1000


def test_a_named_group_of_the_broker_is_a_row_with_an_error_in_sparks_table() -> None:
    names = ",".join(f"{name}-{number}" for name in ("good", "bad") for number in range(8))
    rows, took_s = beside_a_hanging_broker(lambda operator: read_table(operator, names))
    assert {str(row.group).partition("-")[0] for row in rows if row.topic} == {"good"}
    failed = [row for row in rows if row.topic is None]
    assert any(str(row.group).startswith("bad") for row in failed)
    assert all(row.error for row in failed)
    assert took_s < 3.5 * CALL_TIMEOUT_MS / 1000


def test_sparks_table_of_a_group_that_cannot_be_read_is_an_error() -> None:
    async def read_bad(operator: Operator) -> None:
        with pytest.raises(KgroupError):
            await read_group_offsets(options_of(operator, "bad-0"), now_ms=0)

    beside_a_hanging_broker(lambda operator: operator.run(lambda: read_bad(operator)))
