"""What README.md has one type on members at the coordinator, typed."""

from __future__ import annotations

import re

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
