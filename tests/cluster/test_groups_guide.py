"""What docs/consumer-groups.md has one type, typed."""

import asyncio
import contextlib
import re
import select
import subprocess
import sys
import textwrap
from pathlib import Path

from clients.admin import Admin, NewTopic
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import DEADLINE_S, block_until
from zk.api import NodeExists
from zk.znodes import ConsumerOffset

GUIDE = (ROOT / "docs" / "consumer-groups.md").read_text()
ABOVE = """
import asyncio
from clients.high_level.connector import ConsumerConnector
from clients.serializers import json_decoder
async def flush(): pass
class store:
    async def insert_all(values): print(list(values))
"""
"""What the guide takes for granted."""


def program(zookeeper: str, *, by_lists: bool = False) -> str:
    """Its pieces of Python, the listener set where the guide says it must be.

    `by_lists` takes the loop over lists in place of that over messages.
    """
    reading, lists, listener = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    listener, setting = listener.rsplit("\n\n\n", 1)
    before, after = reading.split(") as connector:\n")
    if by_lists:
        opening, _, _ = after.partition("    async for ")
        after = opening + textwrap.indent(lists, "    ")
    body = f"{before}) as connector:\n{textwrap.indent(setting, '    ')}{after}"
    main = f"async def main():\n{textwrap.indent(body, '    ')}"
    run = "asyncio.run(main())"
    return "\n".join([ABOVE, listener, main, run]).replace("localhost:2181", zookeeper)


def test_the_consumer_of_the_guide_is_handed_what_is_produced(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev") as cluster:  # its own: other guides use the same names
        follow(cluster)


def test_the_lists_of_the_guide_have_what_is_produced(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev") as cluster:
        assert asyncio.run(created(cluster, "flights")) == {"flights": None}
        consumer = begin(program(cluster.address("zookeeper"), by_lists=True))
        try:
            line = first_heard(cluster, consumer)
            assert re.fullmatch(r"\[\{'n': 1\}(, \{'n': 1\})*\]\n", line)
        finally:
            consumer.kill()
            consumer.communicate()


def begin(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", text],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def first_heard(cluster: DevCluster, consumer: subprocess.Popen[str]) -> str:
    """The first line that it prints of what is produced meanwhile."""

    def hears() -> bool:  # what was produced before it came is not for it
        made = cluster.run("kgroup", "produce", "--topic", "flights", stdin='{"n": 1}\n')
        assert made.returncode == 0, made.stderr
        assert consumer.poll() is None, consumer.communicate()
        return bool(select.select([consumer.stdout], [], [], 0)[0])

    block_until(hears, "a message", DEADLINE_S)
    assert consumer.stdout is not None
    return consumer.stdout.readline()


def follow(cluster: DevCluster) -> None:
    assert asyncio.run(created(cluster, "flights")) == {"flights": None}
    consumer = begin(program(cluster.address("zookeeper")))
    try:
        line = first_heard(cluster, consumer)
        assert re.fullmatch(r"[0-3] \d+ \{'n': 1\}\n", line)
        commands = re.findall(r"`kgroup (\w+ --[^`]*)`", GUIDE)
        assert commands
        for words in commands:
            done = cluster.run("kgroup", *words.split())
            assert done.returncode == 0, done.stderr
            assert "flights" in done.stdout
        asyncio.run(committed(cluster, "analytics", "flights"))
        offsets, group = commands_to_forget(cluster)
        for words, said in ((offsets, "GROUP_SUBSCRIBED_TO_TOPIC"), (group, "NON_EMPTY_GROUP")):
            refused = cluster.run(*words)
            assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    finally:
        consumer.kill()
        consumer.communicate()
    block_until(lambda: cluster.run(*offsets).returncode == 0, "its session ends", DEADLINE_S)
    assert cluster.run(*group).returncode == 0
    assert "analytics" not in cluster.run("kgroup", "list").stdout


def commands_to_forget(cluster: DevCluster) -> list[list[str]]:
    """The words of each line of its block of shell on deleting a group."""
    (block,) = re.findall(r"## Deleting a group\n+```sh\n(.*?)```", GUIDE, re.DOTALL)
    for name, place in (("zookeeper", "localhost:2181"), ("bootstrap", "localhost:9092")):
        block = block.replace(place, cluster.address(name))
    return [line.split() for line in block.splitlines()]


async def committed(cluster: DevCluster, group: str, topic: str) -> None:
    """As a member does from time to time."""
    async with cluster.zookeeper_session() as zk:
        for partition in range(4):
            path = ConsumerOffset.path(group, topic, partition)
            with contextlib.suppress(NodeExists):  # the member was faster
                await zk.create(path, b"0", make_parents=True)


async def created(cluster: DevCluster, topic: str) -> object:
    async with Admin(cluster.address("bootstrap")) as admin:
        return await admin.create_topics([NewTopic(topic, 4, 1)])
