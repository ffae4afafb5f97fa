"""A reset that is killed at any step leaves an entry that `kgroup journal --settle` ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.clients.kgroup.killed_reset import BEGUN, ONE_PARTITION, ONE_STORE, STEPS, WRITTEN
from tests.clients.kgroup.reset_stage import ResetStage, filled_dev, running_member
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import DEADLINE_S
from zk.znodes import ConsumerOffset

OLD = {0: 5, 1: 3}
NEW = {0: 0, 1: 0}


@pytest.fixture(scope="module")
def stage(dev_cluster: DevCluster) -> ResetStage:
    """Fill the topic."""
    return filled_dev(dev_cluster)


def dual_group(stage: ResetStage) -> str:
    """Make a group whose offset of partition 0 is in both stores, the lower one in Kafka."""
    group = stage.group({stage.t0: 5, stage.t1: 3})
    stage.write({ConsumerOffset.path(group, *stage.t0): b"7"})
    return group


def kill_reset(stage: ResetStage, step: str, group: str) -> int:
    """Reset a group in a process that is killed at a step; return the id of what it has begun."""
    module = "tests.clients.kgroup.killed_reset"
    killed = subprocess.run(
        [sys.executable, "-m", module, step, group, stage.topic],
        cwd=ROOT,
        env=stage.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (entry,) = [item for item in stage.items("journal") if item["group"] == group]
    assert entry["status"] == "begun"
    number = entry["id"]
    assert isinstance(number, int)
    return number


def settle(stage: ResetStage, number: int) -> str:
    """End the entry, and return its status."""
    (entry,) = stage.items("journal", "--settle", str(number))
    return str(entry["status"])


@pytest.mark.parametrize("step", STEPS)
def test_an_entry_that_is_begun_is_settled_and_the_group_is_where_it_says(
    stage: ResetStage, step: str
) -> None:
    group = dual_group(stage)
    number = kill_reset(stage, step, group)

    # Nothing was written, or all is.
    if step == BEGUN:
        assert settle(stage, number) == "abandoned"
        assert (stage.offsets(group), stage.read(group)) == (OLD, b"7")
        (error,) = stage.run("undo", str(number)).stderr.splitlines()[-1:]
        assert "was abandoned" in error
        return
    assert settle(stage, number) == "done"
    assert (stage.offsets(group), stage.read(group)) == (NEW, b"0")

    # It can be taken back as any other.
    stage.items("undo", str(number))
    assert (stage.offsets(group), stage.read(group)) == (OLD, b"7")


@pytest.mark.fault("strangers-81")
def test_an_entry_is_settled_where_members_read_since_a_migration(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5, stage.t1: 3})
    number = kill_reset(stage, ONE_PARTITION, group)
    written = stage.offsets(group)
    assert written in ({0: 0, 1: 3}, {0: 5, 1: 0})
    stage.write({ConsumerOffset.path(group, *stage.t1): b"%d" % written[1]})
    stage.migrate(group, written[0])
    assert settle(stage, number) == "done"
    assert stage.offsets(group) == NEW
    (first, second) = stage.items("describe", group)
    assert [(item["zk_offset"], item["wins"]) for item in (first, second)] == [(0, "zookeeper")] * 2


def test_an_offset_that_was_to_stay_is_no_sign_that_anything_was_written(
    stage: ResetStage,
) -> None:
    group = stage.group({stage.t0: 5, stage.t1: 0})
    assert settle(stage, kill_reset(stage, BEGUN, group)) == "abandoned"
    assert stage.offsets(group) == {0: 5, 1: 0}


def test_before_it_is_settled_an_entry_cannot_be_undone(stage: ResetStage) -> None:
    group = dual_group(stage)
    number = kill_reset(stage, WRITTEN, group)
    result = stage.run("undo", str(number))
    assert result.exit_code == 1
    assert f"was begun and not ended: `kgroup journal --settle {number}` ends it" in result.stderr


def test_what_somebody_has_committed_since_is_left_alone(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5, stage.t1: 3})
    number = kill_reset(stage, ONE_PARTITION, group)
    stage.group({stage.t0: 2}, group)

    # Of what was written nothing is left; the other partition is where it was.
    assert settle(stage, number) == "abandoned"
    assert stage.offsets(group) == {0: 2, 1: 3}


def test_a_group_that_has_members_again_is_settled_when_they_are_gone(stage: ResetStage) -> None:
    group = stage.group({stage.t1: 3})
    stage.write({ConsumerOffset.path(group, *stage.t1): b"4"})
    number = kill_reset(stage, ONE_STORE, group)
    with running_member(stage, group):
        (error,) = stage.errors("journal", "--settle", str(number))
        assert error["error"] == "NON_EMPTY_GROUP"

    (entry,) = [item for item in stage.items("journal") if item["id"] == number]
    assert entry["status"] == "begun"
    assert settle(stage, number) == "done"


def test_a_second_reset_is_not_held_up_by_one_that_was_killed(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5, stage.t1: 3})
    number = kill_reset(stage, BEGUN, group)
    where = ("--topic", f"{stage.topic}:0", "--to-offset", "4")
    (item,) = stage.items("reset", group, *where, "--execute")
    assert item["journal_id"] > number
    assert settle(stage, number) == "abandoned"
    assert stage.offsets(group)[0] == 4
