"""`kgroup serve` on a real cluster: metrics, JSON, and the page in a real browser."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import urllib.error
import urllib.parse
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from protocol.topic_partition import TopicPartition
from tests.clients.serve.serve_stage import ask, commit, get, run_apart, serving, shown
from tests.stage.cluster import DevCluster
from tests.stage.network import Link
from tests.stage.processes import first_line
from tests.stage.waiting import DEADLINE_S, block_until
from zk.znodes import ConsumerOffset

MANY = 1000


def test_metrics_have_a_group_until_it_is_deleted(dev_cluster: DevCluster, tmp_path: Path) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f'"é\n{uuid4().hex[:8]}'
    bootstrap = dev_cluster.address("bootstrap")
    commit(bootstrap, topic, [group])
    assert dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\nb\n").returncode == 0
    label = group.replace('"', '\\"').replace("\n", "\\n")
    compat = [f"--compat={name}" for name in ("lag-exporter", "kminion", "burrow")]
    with serving(dev_cluster, tmp_path / "h", *compat) as address:
        lag = f'kgroup_group_lag{{group="{label}"}} 2.0'
        block_until(lambda: "kgroup_up 1.0" in get(address, "metrics"), "the first look")
        text = get(address, "metrics")
        for line in (
            f'kgroup_partition_lag{{client_id="",group="{label}",host="",partition="0",'
            f'topic="{topic}"}} 2.0',
            f'kgroup_log_end_offset{{partition="0",topic="{topic}"}} 2.0',
            f'kgroup_group_status{{group="{label}"}} 0.0',
            f'kminion_kafka_consumer_group_members{{group_id="{label}"}} 0.0',
            lag,
        ):
            assert line in text
        assert "burrow_kafka_consumer_lag_total" in text
        assert "kafka_consumergroup_group_sum_lag" in text

        quoted = urllib.parse.quote(group)
        (item,) = ask(address, f"group/{quoted}")["items"]
        assert (item["current_offset"], item["lag"], item["status"]) == (0, 2, "UNKNOWN")
        assert item["time_lag_ms"] is not None
        assert ask(address, "health")["kind"] == "health"
        assert ask(address, f"at-risk?group={quoted}")["items"] == []
        assert ask(address, f"journal?group={quoted}")["items"] == []
        for path in ("group/", "health?group=", "events?group="):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(address, f"api/v1/{path}no-such-group")
        both = ask(address, f"health?group={quoted}&group=no-such-group")
        assert [item["group"] for item in both["items"]] == [group]
        assert [error["what"] for error in both["errors"]] == ["no-such-group"]

        # A group in ZooKeeper cannot have such a name.
        deleted = dev_cluster.run("kgroup", "delete", group, "--zookeeper", "")
        assert deleted.returncode == 0, deleted.stderr
        block_until(lambda: label not in get(address, "metrics"), "series that are gone")


def test_page_shows_a_group_its_partitions_and_its_rebalances(
    dev_cluster: DevCluster, tmp_path: Path, page: Page
) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"page-{uuid4().hex[:8]}"
    assert dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\nb\n").returncode == 0
    consumer = dev_cluster.begin(
        *("kgroup", "consume", "--topic", topic, "--group", group, "--from-beginning"),
        *("--membership", "coordinator", "--property", "client.id=reader"),
    )
    try:
        assert first_line(consumer)
        with serving(dev_cluster, tmp_path / "h") as address:
            page.goto(address)
            page.get_by_role("searchbox").fill(group)  # other tests' groups fill the first page
            page.get_by_role("link", name=group).click()
            expect(page.locator("#partitions tbody")).to_contain_text("reader")
            expect(page.locator("#events")).to_contain_text("member joined by reader")
            expect(page.locator("#journal")).to_contain_text("None in the journal")

            # The member leaves, and the page says so of itself.
            consumer.send_signal(signal.SIGTERM)
            consumer.communicate(timeout=DEADLINE_S)
            expect(page.locator("#events")).to_contain_text("member left by reader")
            expect(page.locator("#partitions tbody")).not_to_contain_text("reader")
    finally:
        consumer.kill()
        consumer.communicate()


def test_group_in_zookeeper_is_shown_with_its_owner(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"zk-{uuid4().hex[:8]}"
    assert dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\n").returncode == 0
    consumer = dev_cluster.begin(
        *("kgroup", "consume", "--topic", topic, "--group", group, "--from-beginning"),
        *("--autocommit.interval.ms", "100"),
    )
    try:
        assert first_line(consumer)
        with serving(dev_cluster, tmp_path / "h") as address:
            start = f'kgroup_partition_current_offset{{client_id="",group="{group}"'
            block_until(
                lambda: any(
                    line.startswith(start) and line.endswith(" 1.0")
                    for line in get(address, "metrics").splitlines()
                ),
                "its commit",
            )
            (item,) = ask(address, f"group/{group}")["items"]
            assert (item["current_offset"], item["lag"]) == (1, 0)
            assert item["consumer_id"].startswith(f"{group}_")
            assert item["committed_at_ms"] is not None
            (shown,) = [i for i in ask(address, "groups")["items"] if i["group"] == group]
            assert (shown["coordination"], shown["state"], shown["members"]) == (
                "zookeeper",
                "Stable",
                1,
            )
    finally:
        consumer.kill()
        consumer.communicate()


def test_page_with_a_thousand_groups_outlives_its_cluster(tmp_path: Path, page: Page) -> None:
    with DevCluster(tmp_path / "cluster") as cluster:
        bootstrap = cluster.address("bootstrap")
        commit(bootstrap, "flights", [f"group-{n:04}" for n in range(MANY)])
        lines = "a\n" * 9
        assert cluster.run("kgroup", "produce", "--topic", "flights", stdin=lines).returncode == 0
        commit(bootstrap, "flights", ["group-0500"], 7)
        with serving(cluster, tmp_path / "h", warns="warning: cluster: ") as address:
            block_until(lambda: len(shown(address)) == MANY, "all groups")
            page.goto(address)
            rows = page.locator("#groups tbody tr")
            expect(page.locator("#count")).to_have_text("1,000 of 1,000 groups")
            expect(rows).to_have_count(100)
            expect(page.locator("#where")).to_have_text("Page 1 of 10")

            lag = page.get_by_role("columnheader", name="Lag", exact=True)
            expect(lag).to_have_attribute("aria-sort", "descending")
            page.get_by_role("button", name="Lag", exact=True).press("Enter")
            expect(lag).to_have_attribute("aria-sort", "ascending")
            expect(rows.first).to_contain_text("group-0500")
            if directory := os.environ.get("KGROUP_SCREENSHOTS"):
                expect(page.locator("#groups svg")).to_have_count(100)
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                    page.screenshot(path=f"{directory}/kgroup-serve-{scheme}.png")

            page.get_by_role("searchbox").fill("group-01")
            expect(page.locator("#count")).to_have_text("100 of 1,000 groups")

            # The cluster goes away: what was read stays, and the page says what does not answer.
            cluster.kill("broker-0")
            expect(page.locator("#problem")).to_contain_text("Does not answer")
            assert len(shown(address)) == MANY
            block_until(lambda: "kgroup_up 0.0" in get(address, "metrics"), "a look that fails")

            with cluster.started_again():
                expect(page.locator("#problem")).to_be_hidden()
                block_until(lambda: "kgroup_up 1.0" in get(address, "metrics"), "its return")


def with_group_in_zookeeper(cluster: DevCluster) -> str:
    group = f"zk-{uuid4().hex[:8]}"
    path = ConsumerOffset.path(group, *TopicPartition(f"t-{group}", 0))

    async def write() -> None:
        async with cluster.zookeeper_session() as zk:
            await zk.create(path, b"0", make_parents=True)

    run_apart(write())
    return group


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_zookeeper_that_is_away_at_the_start_is_taken_up_when_it_comes(
    dev_cluster: DevCluster, tmp_path: Path, page: Page
) -> None:
    in_zookeeper, in_kafka = with_group_in_zookeeper(dev_cluster), f"g-{uuid4().hex[:8]}"
    commit(dev_cluster.address("bootstrap"), f"t-{in_kafka}", [in_kafka])
    with Link(port_of(dev_cluster.address("zookeeper"))) as link, contextlib.ExitStack() as ends:
        with link.cut():
            away = ("--zookeeper", f"127.0.0.1:{link.port}", "--timeout", "500")
            address = ends.enter_context(
                serving(dev_cluster, tmp_path / "h", *away, warns="warning: ZooKeeper: no session")
            )
            block_until(lambda: in_kafka in shown(address), "the groups in Kafka")
            (error,) = ask(address, "groups")["errors"]
            assert error["what"] == "ZooKeeper"
            metrics = get(address, "metrics")
            assert "kgroup_up 1.0" in metrics
            assert "kgroup_zookeeper_up 0.0" in metrics
            page.goto(address)
            expect(page.locator("#problem")).to_contain_text("ZooKeeper: no session")

        block_until(lambda: in_zookeeper in shown(address), "the groups in ZooKeeper")
        assert "kgroup_zookeeper_up 1.0" in get(address, "metrics")
        assert ask(address, "groups")["errors"] == []
        expect(page.locator("#problem")).to_be_hidden()


def test_brokers_that_are_away_at_the_start_are_taken_up_when_they_come(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    commit(dev_cluster.address("bootstrap"), f"t-{group}", [group])
    with Link(port_of(dev_cluster.address("bootstrap"))) as link, contextlib.ExitStack() as ends:
        with link.cut():
            away = ("-b", f"127.0.0.1:{link.port}", "--timeout", "500")
            address = ends.enter_context(
                serving(dev_cluster, tmp_path / "h", *away, warns="warning: cluster: ")
            )
            block_until(lambda: str(link.port) in get(address, "api/v1/groups"), "the failure")
            assert "kgroup_up 0.0" in get(address, "metrics")
        block_until(lambda: group in shown(address), "the groups")


def test_zookeeper_alone_is_away_at_the_start_and_names_the_brokers_later(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    commit(dev_cluster.address("bootstrap"), f"t-{group}", [group])
    with Link(port_of(dev_cluster.address("zookeeper"))) as link, contextlib.ExitStack() as ends:
        with link.cut():
            away = ("-b", "", "--zookeeper", f"127.0.0.1:{link.port}", "--timeout", "500")
            address = ends.enter_context(
                serving(dev_cluster, tmp_path / "h", *away, warns="no session with ZooKeeper")
            )
            block_until(lambda: "no session" in get(address, "api/v1/groups"), "the failure")
            assert "ZooKeeper" in get(address, f"api/v1/events?group={group}")
        block_until(lambda: group in shown(address), "the groups")


def test_port_that_is_taken_is_refused_in_one_line(dev_cluster: DevCluster, tmp_path: Path) -> None:
    with serving(dev_cluster, tmp_path / "h") as address:
        port = str(urllib.parse.urlsplit(address).port)
        refused = dev_cluster.run("kgroup", "serve", "--port", port)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "stop it, or take another port (--port, --host)" in refused.stderr


def test_recording_that_breaks_is_said_while_the_last_figures_stay(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"broken-{uuid4().hex[:8]}"
    commit(dev_cluster.address("bootstrap"), topic, [group])
    data = tmp_path / "h"
    process = dev_cluster.begin(
        "kgroup", "serve", "--port", "0", "--data", str(data), "--interval", "0.2"
    )
    try:
        address = first_line(process).removeprefix("serving ").strip()
        block_until(lambda: "kgroup_up 1.0" in get(address, "metrics"), "the first look")
        with sqlite3.connect(data) as other:
            other.execute("drop table recordings")

        block_until(lambda: "kgroup_up 0.0" in get(address, "metrics"), "a look that failed")
        assert "no such table: recordings" in str(ask(address, "groups")["errors"])
        assert group in shown(address)
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert "a look at the cluster failed: no such table: recordings" in errors
    assert "Traceback" not in errors


def test_a_second_ctrl_c_ends_it_as_the_first_does(dev_cluster: DevCluster, tmp_path: Path) -> None:
    process = dev_cluster.begin("kgroup", "serve", "--port", "0", "--data", str(tmp_path / "h"))
    get(first_line(process).removeprefix("serving ").strip(), "metrics")
    process.send_signal(signal.SIGINT)
    # The server takes signals one by one, and needs a tenth of a second for its end.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert errors == ""
