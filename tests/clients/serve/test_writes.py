"""Resets and undos through a real `kgroup serve --allow-writes`, by HTTP and by its page."""

import http.client
import json
import signal
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.clients.serve.serve_stage import ask, commit, get, serving, shown
from tests.stage.cluster import DevCluster
from tests.stage.processes import first_line
from tests.stage.waiting import DEADLINE_S, block_until

TOKEN = "a-token-of-the-tests"
EARLIEST = {"to_earliest": True, "all_topics": True}


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture(scope="module")
def address(
    dev_cluster: DevCluster, token_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server that allows writes."""
    data = tmp_path_factory.mktemp("history") / "h"
    options = ("--allow-writes", "--token-file", str(token_file))
    with serving(dev_cluster, data, *options) as address:
        yield address


def post(
    address: str, path: str, body: object, token: str = TOKEN, **headers: str
) -> tuple[int, Any]:
    """The status, and the envelope."""
    netloc = urllib.parse.urlsplit(address).netloc
    connection = http.client.HTTPConnection(netloc, timeout=DEADLINE_S)
    sent = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", f"/api/v1/{path}", content, sent | headers)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    assert TOKEN not in text
    return response.status, json.loads(text)


def errors(envelope: Any) -> list[str]:
    return [error["error"] for error in envelope["errors"]]


def group_at(cluster: DevCluster, offset: int) -> tuple[str, str]:
    """A topic of four messages, and a group that stands at an offset of it."""
    topic, group = f"t-{uuid4().hex[:8]}", f"w-{uuid4().hex[:8]}"
    bootstrap = cluster.address("bootstrap")
    commit(bootstrap, topic, [])
    produced = cluster.run("kgroup", "produce", "--topic", topic, stdin="a\nb\nc\nd\n")
    assert produced.returncode == 0, produced.stderr
    commit(bootstrap, topic, [group], offset)
    return topic, group


def offset_of(cluster: DevCluster, group: str) -> int:
    described = cluster.run("kgroup", "describe", group, "-o", "json")
    (item,) = json.loads(described.stdout)["items"]
    return int(item["current_offset"])


def test_reset_and_undo_write_only_when_asked_to_and_the_journal_says_who(
    dev_cluster: DevCluster, address: str
) -> None:
    topic, group = group_at(dev_cluster, 3)
    path = f"group/{group}/reset"
    status, dry = post(address, path, EARLIEST)
    assert (status, dry["executed"], dry["kind"], dry["version"]) == (200, False, "reset", 1)
    (row,) = dry["items"]
    assert (row["topic"], row["old_offset"], row["new_offset"]) == (topic, 3, 0)
    assert (row["skips"], row["repeats"], row["journal_id"]) == (0, 3, None)
    assert offset_of(dev_cluster, group) == 3
    assert ask(address, f"journal?group={group}")["items"] == []

    order = EARLIEST | {"execute": True, "reason": "bad deploy", "who": "ann"}
    status, done = post(address, path, order)
    assert (status, done["executed"]) == (200, True)
    assert offset_of(dev_cluster, group) == 0
    (entry,) = ask(address, f"journal?group={group}")["items"]
    assert (entry["who"], entry["reason"]) == ("ann@127.0.0.1", "bad deploy")
    assert (entry["action"], entry["status"]) == ("reset", "done")
    assert entry["id"] == done["items"][0]["journal_id"]
    assert path in entry["command"]
    assert TOKEN not in json.dumps(entry)

    undo = f"journal/{entry['id']}/undo"
    status, dry = post(address, undo, {})
    assert (status, dry["executed"]) == (200, False)
    assert [(row["old_offset"], row["new_offset"]) for row in dry["items"]] == [(0, 3)]
    assert offset_of(dev_cluster, group) == 0

    status, undone = post(address, undo, {"execute": True})
    assert (status, undone["executed"]) == (200, True)
    assert offset_of(dev_cluster, group) == 3
    assert post(address, undo, {"execute": True})[0] == 409
    entries = ask(address, f"journal?group={group}")["items"]
    assert [(e["status"], e["who"]) for e in entries] == [
        ("undone", "ann@127.0.0.1"),
        ("done", "127.0.0.1"),
    ]


def test_undo_that_no_longer_fits_says_what_moved(dev_cluster: DevCluster, address: str) -> None:
    topic, group = group_at(dev_cluster, 3)
    _, done = post(address, f"group/{group}/reset", EARLIEST | {"execute": True})
    commit(dev_cluster.address("bootstrap"), topic, [group], 2)

    undo = f"journal/{done['items'][0]['journal_id']}/undo"
    status, answer = post(address, undo, {"execute": True})
    assert (status, errors(answer), answer["executed"]) == (409, ["OffsetMoved"], False)
    assert "moved by +2" in answer["errors"][0]["message"]
    assert offset_of(dev_cluster, group) == 2


def test_group_with_members_is_shown_and_not_reset(dev_cluster: DevCluster, address: str) -> None:
    topic, group = group_at(dev_cluster, 0)
    consumer = dev_cluster.begin(
        *("kgroup", "consume", "--topic", topic, "--group", group),
        *("--membership", "coordinator"),
    )
    try:
        assert first_line(consumer)
        status, answer = post(address, f"group/{group}/reset", EARLIEST | {"execute": True})
        assert (status, errors(answer), answer["executed"]) == (409, ["NON_EMPTY_GROUP"], False)
        status, answer = post(address, f"group/{group}/reset", EARLIEST)
        assert (status, len(answer["items"])) == (409, 1)
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.communicate(timeout=DEADLINE_S)


def test_group_in_zookeeper_is_reset_and_undone_in_its_store(
    dev_cluster: DevCluster, address: str
) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"z-{uuid4().hex[:8]}"
    commit(dev_cluster.address("bootstrap"), topic, [])
    produced = dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\nb\nc\nd\n")
    assert produced.returncode == 0, produced.stderr
    consumed = dev_cluster.run(
        *("kgroup", "consume", "--topic", topic, "--group", group, "--from-beginning"),
        *("--membership", "zookeeper", "--max-messages", "3"),
    )
    assert consumed.returncode == 0, consumed.stderr

    def offsets() -> tuple[object, object]:
        described = dev_cluster.run("kgroup", "describe", group, "-o", "json")
        (item,) = json.loads(described.stdout)["items"]
        return item["zk_offset"], item["kafka_offset"]

    assert offsets() == (3, None)
    path = f"group/{group}/reset"
    status, dry = post(address, path, {"shift_by": -1, "all_topics": True})
    assert (status, dry["executed"]) == (200, False)
    assert [(row["old_offset"], row["new_offset"]) for row in dry["items"]] == [(3, 2)]
    assert offsets() == (3, None)

    status, done = post(address, path, EARLIEST | {"execute": True, "who": "ann"})
    assert (status, done["executed"], done["errors"]) == (200, True, [])
    assert offsets() == (0, None)

    undo = f"journal/{done['items'][0]['journal_id']}/undo"
    status, undone = post(address, undo, {"execute": True})
    assert (status, undone["executed"], undone["errors"]) == (200, True, [])
    assert offsets() == (3, None)
    entries = ask(address, f"journal?group={group}")["items"]
    assert [(e["status"], e["who"]) for e in entries] == [
        ("undone", "ann@127.0.0.1"),
        ("done", "127.0.0.1"),
    ]


def test_group_in_zookeeper_with_a_member_is_not_reset(
    dev_cluster: DevCluster, address: str
) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"z-{uuid4().hex[:8]}"
    commit(dev_cluster.address("bootstrap"), topic, [])
    produced = dev_cluster.run("kgroup", "produce", "--topic", topic, stdin="a\n")
    assert produced.returncode == 0, produced.stderr
    consumer = dev_cluster.begin(
        *("kgroup", "consume", "--topic", topic, "--group", group, "--from-beginning"),
        *("--membership", "zookeeper"),
    )
    try:
        assert first_line(consumer)
        # Its first commit comes by a timer, and a topic that is named needs none.
        order = {"to_latest": True, "topics": [topic], "execute": True}
        status, answer = post(address, f"group/{group}/reset", order)
        assert (status, errors(answer), answer["executed"]) == (409, ["NON_EMPTY_GROUP"], False)
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.communicate(timeout=DEADLINE_S)


def test_write_is_a_bad_gateway_while_the_cluster_is_away(tmp_path: Path, token_file: Path) -> None:
    options = ("--allow-writes", "--token-file", str(token_file), "--timeout", "3000")
    with DevCluster(tmp_path / "dev") as cluster:
        _, group = group_at(cluster, 3)
        with serving(cluster, tmp_path / "h", *options, warns="warning: cluster: ") as address:
            path = f"group/{group}/reset"
            _, done = post(address, path, EARLIEST | {"execute": True})
            undo = f"journal/{done['items'][0]['journal_id']}/undo"

            cluster.kill("broker-0")
            requests = (
                (path, EARLIEST),
                (path, EARLIEST | {"execute": True}),
                (undo, {}),
                (undo, {"execute": True}),
            )
            for asked, body in requests:
                status, answer = post(address, asked, body)
                assert (status, answer["executed"]) == (502, False), answer
                assert answer["errors"][0]["message"]

            # Nothing of that was written, and what is asked again is done.
            with cluster.started_again():
                block_until(lambda: post(address, undo, {})[0] == 200, "the cluster")
                status, undone = post(address, undo, {"execute": True})
                assert (status, undone["executed"]) == (200, True)
                assert offset_of(cluster, group) == 3


def test_one_topic_that_is_not_there_keeps_the_others_as_they_are(
    dev_cluster: DevCluster, address: str
) -> None:
    topic, group = group_at(dev_cluster, 3)
    body = {"to_earliest": True, "topics": [topic, "no-such-topic"], "execute": True}
    status, answer = post(address, f"group/{group}/reset", body)
    assert (status, errors(answer)) == (404, ["UNKNOWN_TOPIC_OR_PARTITION"])
    assert offset_of(dev_cluster, group) == 3


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("group/G/reset", EARLIEST, {"token": "not-the-token-of-it"}, 401),
        ("journal/1/undo", {}, {"token": ""}, 401),
        ("group/G/reset", EARLIEST, {"origin": "http://evil.example.org"}, 403),
        ("group/G/reset", EARLIEST, {"host": "evil.example.org"}, 403),
        ("group/no-such-group/reset", EARLIEST, {}, 404),
        ("group/no%2Fsuch%0Agroup/reset", EARLIEST, {}, 400),
        ("journal/999999/undo", {}, {}, 404),
        (f"journal/{'9' * 5000}/undo", {}, {}, 404),
        ("journal/x/undo", {}, {}, 404),
        ("group/G/reset", {}, {}, 400),
        ("group/G/reset", b"{", {}, 400),
        ("journal/1/undo", {"force": True}, {}, 400),
        ("group/G/reset", EARLIEST, {"content-type": "text/plain"}, 415),
        ("group/G/reset", b" " * 70_000, {}, 413),
    ],
)
def test_request_that_is_refused_gets_an_envelope_with_its_status(
    address: str, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    # Headers that http.client adds by itself are replaced by ours.
    got, answer = post(address, path, body, **headers)
    assert (got, answer["items"], len(answer["errors"])) == (status, [], 1)
    assert answer["errors"][0]["message"]


def test_server_without_the_option_only_reads(dev_cluster: DevCluster, tmp_path: Path) -> None:
    _, group = group_at(dev_cluster, 3)
    with serving(dev_cluster, tmp_path / "h") as address:
        status, answer = post(address, f"group/{group}/reset", EARLIEST | {"execute": True})
        assert (status, errors(answer)) == (403, ["WritesNotAllowed"])
        assert ask(address, "groups")["allows_writes"] is False
    assert offset_of(dev_cluster, group) == 3


def test_writes_without_a_token_are_wrong_usage(dev_cluster: DevCluster, tmp_path: Path) -> None:
    short = tmp_path / "token"
    short.write_text("guess-me\n")
    for options in ((), ("--token-file", str(short))):
        refused = dev_cluster.run("kgroup", "serve", "--allow-writes", "--port", "0", *options)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "token_urlsafe" in refused.stderr
        assert "guess-me" not in refused.stderr


def test_page_resets_a_group_after_a_dry_run_and_undoes_it(
    dev_cluster: DevCluster, address: str, page: Page
) -> None:
    topic, group = group_at(dev_cluster, 3)
    block_until(lambda: group in shown(address), "the group")
    page.goto(f"{address}#{group}")
    page.get_by_role("button", name="Reset…").press("Enter")
    dialog = page.get_by_role("dialog", name=f"Reset {group}")
    expect(dialog).to_be_visible()
    write = dialog.get_by_role("button", name="Write 1 offset")

    # A wrong token is asked for again.
    dialog.get_by_label("Token").fill("not-the-token-of-it")
    dialog.get_by_label("Reason").fill("bad deploy")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_label("Reason").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("send the token")
    expect(write).to_be_hidden()
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_label("Token").press("Enter")
    expect(dialog.get_by_role("row", name=f"{topic} 0 3 0 0 3")).to_be_visible()
    assert offset_of(dev_cluster, group) == 3

    # What was changed since it was shown is not written.
    dialog.get_by_label("To", exact=True).select_option("shift_by")
    expect(write).to_be_hidden()
    dialog.get_by_label("Messages").fill("-1")
    dialog.get_by_role("button", name="Show what").click()
    expect(dialog.get_by_role("row", name=f"{topic} 0 3 2 0 1")).to_be_visible()
    expect(write).to_be_focused()
    write.press("Enter")
    expect(dialog.get_by_role("status")).to_contain_text("Written, as entry")
    assert offset_of(dev_cluster, group) == 2
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Reset…")).to_be_focused()

    # The token is known by now, and the undo is a dry run at first too.
    expect(page.locator("#journal")).to_contain_text("done, by ann@127.0.0.1: bad deploy")
    page.get_by_role("button", name="Undo entry").click()
    dialog = page.get_by_role("dialog", name="Undo entry")
    expect(dialog.get_by_label("Token")).to_be_hidden()
    dialog.get_by_role("button", name="Show what").click()
    expect(dialog.get_by_role("row", name=f"{topic} 0 2 3")).to_be_visible()
    assert offset_of(dev_cluster, group) == 2
    dialog.get_by_role("button", name="Write 1 offset").click()
    expect(dialog.get_by_role("status")).to_contain_text("Written, as entry")
    assert offset_of(dev_cluster, group) == 3
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("#journal")).to_contain_text("reset, undone, by ann@127.0.0.1")


def test_page_of_a_server_that_only_reads_offers_no_writes(
    dev_cluster: DevCluster, tmp_path: Path, page: Page
) -> None:
    topic, group = group_at(dev_cluster, 3)
    reset = dev_cluster.run("kgroup", "reset", group, "--all-topics", "--to-earliest", "--execute")
    assert reset.returncode == 0, reset.stderr
    with serving(dev_cluster, tmp_path / "h") as address:
        block_until(lambda: group in get(address, "api/v1/groups"), "the group")
        page.goto(f"{address}#{group}")
        expect(page.locator("#partitions tbody")).to_contain_text(topic)
        expect(page.locator("#journal")).to_contain_text("reset, done")
        expect(page.locator("#change-open")).to_be_hidden()
        expect(page.locator("#journal button")).to_have_count(0)
