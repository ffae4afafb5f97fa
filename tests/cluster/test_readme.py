"""What README.md has one type on members at the coordinator, typed."""

from __future__ import annotations

import re

import pytest

from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import block_until


def commands() -> list[list[str]]:
    """Return the words of each line of its block about the coordinator."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "--membership coordinator" in block]
    lines = [re.sub(r" +#.*| &", "", line) for line in block.splitlines()]
    return [line.removeprefix("$ ").split() for line in lines]


def test_member_at_the_coordinator_is_kicked_and_the_events_say_why(
    dev_cluster: DevCluster,
) -> None:
    consume, events, kick = commands()
    topic = consume[consume.index("--topic") + 1]
    created = dev_cluster.run("kbroker", "topics", "create", topic, "--partitions", "4")
    assert created.returncode == 0, created.stderr

    consumer = dev_cluster.begin(*consume)
    try:
        block_until(lambda: "member_joined" in dev_cluster.run(*events).stdout, "it joins")
        kicked = dev_cluster.run(*kick)
        assert kicked.returncode == 0, kicked.stderr
        block_until(lambda: "upgrade" in dev_cluster.run(*events).stdout, "the reason")
    finally:
        consumer.kill()
        consumer.communicate()


def text() -> str:
    return (ROOT / "README.md").read_text()


@pytest.mark.fault("users-11", needs_no_remedy="a line of README.md")
def test_no_job_in_the_background_is_said_to_end_by_ctrl_c() -> None:
    jobs = [line for line in text().splitlines() if re.search(r" &( +#|$)", line)]
    assert len(jobs) >= 3
    assert [line for line in jobs if "Ctrl-C" in line] == []


@pytest.mark.fault("users-15", needs_no_remedy="a line of README.md")
def test_the_group_whose_offsets_are_shown_has_consumed_at_the_coordinator() -> None:
    (shown,) = re.findall(r'group_offsets\("(\w+)"\)', text())
    consume, *_ = commands()
    assert consume[consume.index("--group") + 1] == shown
    assert "--from-beginning" in consume


@pytest.mark.fault("users-16", needs_no_remedy="a line of README.md")
def test_the_election_behind_the_start_of_a_broker_waits_until_it_has_all() -> None:
    lines = text().splitlines()
    (at,) = [number for number, line in enumerate(lines) if "elect preferred" in line]
    waiting = '$ while [ -n "$(kbroker topics describe --under-replicated)" ]; do sleep 1; done'
    assert lines[at - 1].startswith(waiting)
    killed = next(number for number, line in enumerate(lines) if "kill -9" in line)
    # At once its death is not known yet, and nothing is under-replicated.
    assert lines[killed + 1].startswith(waiting.replace("-n", "-z"))
