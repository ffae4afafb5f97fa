"""The clock of the machine that runs kgroup and those of the brokers are minutes apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from clients.admin import Admin
from clients.command_line.point_in_time import timestamp
from clients.command_line.sessions import Sessions
from clients.kgroup.as_of import offsets_as_of
from clients.kgroup.at_risk import risks_of
from clients.kgroup.health import health_of
from clients.kgroup.history import history_of
from clients.producer.producer import Producer
from clients.serve.monitor import Monitor
from clients.watching.health import OK, REWIND, STALL, STOP, UNKNOWN
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from spark_connector.behind_latest import find_behind_latest
from spark_connector.group_offsets_options import read_offsets_options
from spark_connector.group_offsets_reader import read_group_offsets
from spark_connector.options import read_options
from spark_connector.query_listener import SourceState, read_time_lag
from tests.clients.kgroup.bad_input.operator import (
    T0,
    TIMES,
    Operator,
    commit,
    commit_as_old_client,
    produce,
    rows_of,
)

R = TypeVar("R")

MINUTE_MS = 60_000
QUARTER_MS = 15 * MINUTE_MS
DAY_MS = 24 * 60 * MINUTE_MS
COMMIT_S = 5.0
NEAR_MS = 5000
"""What the story itself takes, and the brokers' own differences."""


def beside_wrong_clock(
    ask: Callable[[Cluster, Operator], Awaitable[R]], ahead_ms: int, *, commits: int = 4
) -> R:
    """Ask on a machine whose clock is behind the broker's by `ahead_ms`.

    Group g has committed each 5 s, the last time just now, and is one record behind.
    """

    async def scene(cluster: Cluster, faults: Faults) -> R:
        operator = Operator.of(cluster)
        operator.process.skew_ms = -ahead_ms
        writer = cluster.client("writer")
        await writer.run(lambda: produce(cluster, T0, [b"%d" % n for n in range(commits + 1)]))
        for offset in range(1, commits + 1):
            await asyncio.sleep(COMMIT_S)
            await writer.run(lambda at=offset: commit(cluster, "g", {T0: at}))
        return await ask(cluster, operator)

    return simulate(scene, seed=1, brokers=1, topics={"t": 1})


def test_age_of_a_commit_in_the_future_is_unknown_and_the_remark_says_why() -> None:
    listing, remarks = beside_wrong_clock(
        lambda cluster, operator: operator.describe(["g"], TIMES), QUARTER_MS
    )
    assert rows_of(listing, "age_ms") == {("g", "t-0"): None}
    assert rows_of(listing, "time_lag_ms") == {("g", "t-0"): None}
    (said,) = [remark for remark in remarks if "clocks differ" in remark]
    assert "dated 14m" in said
    assert "NTP" in said


@pytest.mark.fault("strangers-2")
@pytest.mark.parametrize(
    ("ahead_ms", "is_believed"), [(MINUTE_MS // 2, True), (DAY_MS, False), (-DAY_MS, True)]
)
def test_all_that_show_a_lag_in_time_believe_a_producers_clock_alike(
    tmp_path: Path, ahead_ms: int, is_believed: bool
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> dict[str, int | None]:
        operator = Operator.of(cluster)
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}

        async def prepare() -> None:
            async with Producer(settings) as producer:
                at_ms = cluster.nodes[0].process.now_ms() + ahead_ms
                await producer.send_and_wait("t", b"unread", timestamp_ms=at_ms)
            await commit(cluster, "g", {T0: 0})

        await cluster.client("application").run(prepare)

        async def ask() -> dict[str, int | None]:
            said: dict[str, int | None] = {}
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                await monitor.look()
                ((item, (row,)),) = await monitor.group_items()
                said["serve"], said["serve, of a group"] = row["time_lag_ms"], item["time_lag_ms"]
                monitor.close()
            now_ms = cluster.nodes[0].process.now_ms()
            given = {"kafka.bootstrap.servers": cluster.bootstrap}
            table = read_offsets_options(given | {"timeLag": "true"})
            (offset,) = await read_group_offsets(table, now_ms)
            said["Spark's table"] = offset.time_lag_ms
            query = read_options(given | {"subscribe": "t"}, streaming=True)
            source = SourceState(query, {T0: 0}, find_behind_latest({T0: 0}, {T0: 1}))
            said["Spark's listener"] = (await read_time_lag(source, now_ms)).get(T0)
            return said

        said = await operator.run(ask)
        listing, _ = await operator.describe(["g"], TIMES)
        return said | {"describe": rows_of(listing, "time_lag_ms")["g", "t-0"]}

    said = simulate(scene, seed=1, brokers=1, topics={"t": 1})
    lags_ms = [lag_ms for lag_ms in said.values() if lag_ms is not None]
    assert len(lags_ms) == (5 if is_believed else 0), said
    assert all(max(-ahead_ms, 0) <= lag_ms < max(-ahead_ms, 0) + NEAR_MS for lag_ms in lags_ms)


def test_time_left_is_wrong_by_the_difference_and_no_more() -> None:
    def expires_in_ms(ahead_ms: int) -> int:
        listing, _ = beside_wrong_clock(
            lambda cluster, operator: operator.describe(["g"], TIMES), ahead_ms
        )
        (left_ms,) = rows_of(listing, "expires_in_ms").values()
        return int(left_ms)

    right_ms = expires_in_ms(0)
    assert 7 * DAY_MS - NEAR_MS < right_ms <= 7 * DAY_MS
    assert abs(expires_in_ms(-QUARTER_MS) - (right_ms - QUARTER_MS)) < NEAR_MS
    assert abs(expires_in_ms(QUARTER_MS) - (right_ms + QUARTER_MS)) < NEAR_MS


@pytest.mark.parametrize("ahead_ms", [0, MINUTE_MS // 2, -QUARTER_MS])
def test_nothing_is_said_of_clocks_where_no_commit_is_in_the_future(ahead_ms: int) -> None:
    _, remarks = beside_wrong_clock(
        lambda cluster, operator: operator.describe(["g"], TIMES), ahead_ms
    )
    assert not [remark for remark in remarks if "clocks" in remark]


def test_at_risk_doubts_its_verdict_while_clocks_differ() -> None:
    async def find(cluster: Cluster, operator: Operator) -> tuple[str | None, list[str]]:
        listing, doubts = await operator.run(lambda: risks_of(operator.target, ["g"], DAY_MS))
        return listing.verdict, doubts

    verdict, doubts = beside_wrong_clock(find, QUARTER_MS)
    assert verdict == "nothing is lost within 1d 0h, as far as it can be told"
    assert "clocks differ" in doubts[0]


@pytest.mark.parametrize(
    ("ahead_ms", "silent_s", "status"),
    [
        (QUARTER_MS, 0, OK),
        (0, 60, STOP),
        # What is ahead is no silence: the newest commit of any group is not after now.
        (QUARTER_MS, 60, STOP),
    ],
)
def test_health_counts_silence_by_the_brokers_clock_where_that_is_ahead(
    ahead_ms: int, silent_s: float, status: str
) -> None:
    async def judge(cluster: Cluster, operator: Operator) -> tuple[str, str | None]:
        await asyncio.sleep(silent_s)
        await cluster.client("other").run(lambda: commit(cluster, "other", {T0: 5}))
        listing, _ = await operator.run(lambda: health_of(operator.target, ["g", "other"]))
        (row,) = [item for item in listing.items if item["group"] == "g"]
        return row["status"], listing.verdict

    judged, verdict = beside_wrong_clock(judge, ahead_ms)
    assert judged == status
    assert ("clocks differ" in str(verdict)) == (ahead_ms > 0)


def test_since_and_the_times_of_history_are_the_brokers() -> None:
    async def read(cluster: Cluster, operator: Operator) -> list[tuple[int, int]]:
        # The broker's time of 12 s ago: before the last three commits.
        since_ms = cluster.nodes[0].process.now_ms() - 12_000
        listing = await operator.run(lambda: history_of(operator.target, "g", (), since_ms, None))
        return [(item["at_ms"] >= since_ms, item["offset"]) for item in listing.items]

    for ahead_ms in (QUARTER_MS, -QUARTER_MS):
        assert beside_wrong_clock(read, ahead_ms) == [(True, 2), (True, 3), (True, 4)]


@pytest.mark.parametrize("ahead_ms", [-QUARTER_MS, 0, QUARTER_MS])
def test_serve_measures_the_difference_and_shows_what_it_would_without(
    tmp_path: Path, ahead_ms: int
) -> None:
    """So it is with ages, verdicts, lags at commits and lag over time."""

    async def watch(cluster: Cluster) -> None:
        async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
            monitor = Monitor(Sessions(admin), tmp_path / f"{ahead_ms}", DAY_MS, 1)
            await monitor.look()
            for offset in range(5, 9):
                await asyncio.sleep(COMMIT_S)
                await produce(cluster, T0, [b"more"])
                await commit(cluster, "g", {T0: offset})
                await monitor.look()

            (row,) = monitor.partitions("g")
            assert 0 <= row["age_ms"] < NEAR_MS
            (judged,) = await monitor.health()
            assert judged["status"] not in (STOP, UNKNOWN)
            assert judged["commits"] >= 3
            assert monitor.recorder is not None
            recorded = [c for c in monitor.recorder.file.commits("g") if c.end_offset is not None]
            assert [commit.lag for commit in recorded[-3:]] == [1, 1, 1]
            lags = monitor.lag_items("g", monitor.brokers_time_ms - MINUTE_MS // 4)
            assert lags[-1]["lag"] == 1
            assert timestamp(lags[-1]["at_ms"])[:13] == timestamp(row["committed_at_ms"])[:13]
            monitor.close()

    async def ask(cluster: Cluster, operator: Operator) -> None:
        await operator.run(lambda: watch(cluster))

    beside_wrong_clock(ask, ahead_ms)


def test_a_brokers_clock_that_is_set_back_makes_no_commit_an_earlier_one(tmp_path: Path) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator, writer = Operator.of(cluster), cluster.client("writer")
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
        broker = cluster.nodes[0].process
        await writer.run(lambda: produce(cluster, T0, [b"%d" % n for n in range(10)]))

        async def watch() -> list[dict[str, Any]]:
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                for offset in range(1, 9):
                    await commit(cluster, "g", {T0: offset})
                    await monitor.look()
                    await asyncio.sleep(COMMIT_S)
                    broker.skew_ms = -QUARTER_MS if offset >= 4 else 0
                judged = await monitor.health()
                monitor.close()
            return judged

        (judged,) = await operator.run(watch)
        assert (judged["lag"], judged["status"]) == (2, OK), judged

        listing, _ = await operator.run(lambda: health_of(operator.target, ["g"]))
        (row,) = listing.items
        assert (row["lag"], row["commits"]) == (2, 4)
        assert row["status"] not in (REWIND, STALL)

        history = await operator.run(lambda: history_of(operator.target, "g", (), 0, None))
        assert [item["offset"] for item in history.items] == list(range(1, 9))
        assert [item["moved"] for item in history.items[1:]] == [1] * 7
        now_ms = operator.process.now_ms()
        shown = await operator.run(
            lambda: offsets_as_of(operator.target, ["g"], (), now_ms, tmp_path / "history")
        )
        assert [item["offset"] for item in shown.items] == [8]

    simulate(scene, seed=1, brokers=1, topics={"t": 1})


# Clocks of clients, with OffsetCommit 1: a week ahead, a day behind, and in another unit.
CLIENTS_MS: list[Callable[[int], int]] = [
    lambda now_ms: now_ms + 7 * DAY_MS,
    lambda now_ms: now_ms - DAY_MS,
    lambda now_ms: now_ms * 1000,
]


@pytest.mark.fault("tool-F2")
@pytest.mark.parametrize("clients_ms", CLIENTS_MS)
def test_the_clock_of_one_client_moves_no_age_and_no_verdict_of_others_in_serve(
    tmp_path: Path, clients_ms: Callable[[int], int]
) -> None:
    async def watch(cluster: Cluster) -> None:
        async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
            monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
            await monitor.look()

            at_ms = clients_ms(cluster.nodes[0].process.now_ms())
            await commit_as_old_client(cluster, "old", T0, 1, at_ms)
            await asyncio.sleep(COMMIT_S)
            await monitor.look()

            (row,) = monitor.partitions("g")
            assert 0 <= row["age_ms"] < 2 * NEAR_MS
            assert 0 <= row["time_lag_ms"] < MINUTE_MS
            verdicts = {item["group"]: item["status"] for item in await monitor.health()}
            assert verdicts["g"] == OK
            monitor.close()

    async def ask(cluster: Cluster, operator: Operator) -> None:
        await operator.run(lambda: watch(cluster))

    beside_wrong_clock(ask, 0)


@pytest.mark.fault("tool-F2")
@pytest.mark.parametrize("clients_ms", CLIENTS_MS)
def test_the_clock_of_one_client_is_neither_shown_nor_judged(
    clients_ms: Callable[[int], int],
) -> None:
    async def ask(cluster: Cluster, operator: Operator) -> None:
        now_ms = cluster.nodes[0].process.now_ms()
        await commit_as_old_client(cluster, "old", T0, 1, clients_ms(now_ms))

        listing, remarks = await operator.describe(["old"], TIMES)
        assert abs(rows_of(listing, "committed_at_ms")["old", "t-0"] - now_ms) < NEAR_MS
        assert not [remark for remark in remarks if "clocks differ" in remark]
        # It expires by the client's own time, as Kafka's rule has it.
        expires_in_ms = rows_of(listing, "expires_in_ms")["old", "t-0"]
        assert abs(expires_in_ms - (clients_ms(now_ms) + 7 * DAY_MS - now_ms)) < NEAR_MS

        history = await operator.run(lambda: history_of(operator.target, "old", (), 0, None))
        assert [abs(item["at_ms"] - now_ms) < NEAR_MS for item in history.items] == [True]

        judged, _ = await operator.run(lambda: health_of(operator.target, ["g", "old"]))
        (row,) = [item for item in judged.items if item["group"] == "g"]
        assert row["status"] == OK
        assert "clocks differ" not in str(judged.verdict)

    beside_wrong_clock(ask, 0)
