"""What is said of topics that were deleted, whose names may stay taken."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from broker.kbroker.topic_deletion import Deletion, follow_deletions, replicas_away
from clients.admin.descriptions import TopicDescription
from clients.cluster_view import PartitionView
from protocol.errors import ApiError, ErrorCode
from tests.stage.clock import run_in_own_time
from tests.stage.cluster import DevCluster


def test_brokers_that_are_not_alive_are_found_among_all_replicas() -> None:
    views = {0: PartitionView(0, 3, (0, 2), (0,)), 1: PartitionView(0, 3, (0, 4), (0,))}
    topic = TopicDescription("t", False, views)
    assert replicas_away(topic, {0, 1}) == [2, 4]
    assert replicas_away(topic, {0, 2, 4}) == []


@pytest.mark.parametrize(
    ("deletion", "sentence"),
    [
        (Deletion(False), "Deleted topic t."),
        (Deletion(True), "Topic t is marked for deletion."),
        (
            Deletion(True, [2]),
            "Topic t is marked for deletion; waits for broker 2, which is not alive.",
        ),
        (
            Deletion(True, [2, 3]),
            "Topic t is marked for deletion; waits for brokers 2, 3, which are not alive.",
        ),
    ],
)
def test_a_sentence_says_what_has_become_of_a_topic(deletion: Deletion, sentence: str) -> None:
    assert deletion.sentence("t") == sentence


def test_names_are_asked_for_until_they_are_free_or_the_time_is_over() -> None:
    asked: list[Sequence[str]] = []

    async def find_taken(names: Sequence[str]) -> Collection[str]:
        asked.append(names)
        return [name for name in names if name == "late" or len(asked) == 1]

    async def follow() -> dict[str, Deletion]:
        names = ["gone", "late", "waits"]
        return await follow_deletions(names, {"waits": [2]}, find_taken, 0.35)

    assert run_in_own_time(follow()) == {
        "gone": Deletion(False),
        "late": Deletion(True),
        "waits": Deletion(True, [2]),
    }
    # What waits for a broker that is away is not asked for; the others for as long as allowed.
    assert asked == [["gone", "late"], ["gone", "late"], ["late"], ["late"], ["late"]]


def test_who_may_not_ask_is_told_what_the_response_said() -> None:
    async def find_taken(names: Sequence[str]) -> Collection[str]:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    deletions = run_in_own_time(follow_deletions(["t"], {}, find_taken, 5))
    assert deletions == {"t": Deletion(False)}


def test_a_topic_that_waits_for_a_dead_broker_is_said_to_wait(tmp_path: Path) -> None:
    with DevCluster(tmp_path, ("--brokers", "2")) as cluster:
        for name, replicas in (("t", "0:1"), ("u", "0:1"), ("v", "0")):
            created = cluster.run(
                *("kbroker", "topics", "create", name, "--replica-assignment", replicas)
            )
            assert created.returncode == 0, created.stderr
        cluster.kill("broker-1")
        # Until its session ends it counts as alive.
        cluster.wait_for_brokers({0})

        deleted = cluster.run("kbroker", "topics", "delete", "t")
        assert deleted.stdout == (
            "Topic t is marked for deletion; waits for broker 1, which is not alive.\n"
        )
        # JSON says the same of several, and each is said meanwhile.
        deleted = cluster.run("kbroker", "topics", "delete", "u", "v", "none", "-o", "json")
        listing = json.loads(deleted.stdout)
        assert listing["items"] == [
            {"topic": "u", "marked": True, "waits_for": [1]},
            {"topic": "v", "marked": False, "waits_for": []},
        ]
        assert [error["what"] for error in listing["errors"]] == ["none"]
        assert deleted.stderr.splitlines() == [
            "Topic u is marked for deletion; waits for broker 1, which is not alive.",
            "Deleted topic v.",
        ]
        for option in ((), ("--if-not-exists",)):
            again = cluster.run("kbroker", "topics", "create", "t", *option, "-o", "json")
            assert again.returncode == 1
            (error,) = json.loads(again.stdout)["errors"]
            assert error["error"] == "TOPIC_ALREADY_EXISTS"
            assert "'t' is marked for deletion" in error["message"]
