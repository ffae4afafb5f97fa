"""A broker that ends under load, and what is there when it is back.

`kill -9` ends a process, not the machine: bytes that were written are kept by the operating
system. So acknowledged means written here; that they survive a loss of power is the matter of
`fsync`, and of the tests of the log.
"""

import asyncio
import contextlib
import re
import signal
from pathlib import Path

from clients.admin import Admin, NewTopic
from tests.cluster.load import Load
from tests.stage.cluster import DevCluster

TOPIC, PARTITIONS = "load", 3
OFFSETS_PARTITIONS = 50
RECOVERED = "with recovery"


def loads(cluster: DevCluster) -> list[tuple[int, str]]:
    """How many logs each start of the broker found, and how it opened them."""
    said = re.findall(r"loading (\d+) logs (.+) \(", cluster.log())
    return [(int(number), how) for number, how in said]


def test_kill_9_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async def scenario(cluster: DevCluster, ends: contextlib.ExitStack) -> None:
        bootstrap = cluster.address("bootstrap")
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]) == {TOPIC: None}
        async with Load(bootstrap, TOPIC) as load:
            await load.acknowledges(5000, 20)
            await asyncio.to_thread(cluster.kill, "broker-0")
            again = await asyncio.to_thread(ends.enter_context, cluster.started_again())
            await load.acknowledges(5000, 20)
            again.kill()
            await asyncio.to_thread(again.wait)
            await asyncio.to_thread(ends.enter_context, cluster.started_again())
            await load.acknowledges(5000, 20)
        await load.assert_kept()

    short_session = ("--set", "zookeeper.session.timeout.ms=2000")
    with DevCluster(tmp_path, short_session) as cluster, contextlib.ExitStack() as ends:
        asyncio.run(scenario(cluster, ends))
        stored = PARTITIONS + OFFSETS_PARTITIONS
        assert loads(cluster) == [(0, RECOVERED), (stored, RECOVERED), (stored, RECOVERED)]


def test_a_clean_stop_is_marked_and_the_next_start_recovers_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "broker-0" / ".kafka_cleanshutdown"
    with DevCluster(tmp_path) as cluster:
        cluster.run("kgroup", "produce", "--topic", TOPIC, "--acks", "all", stdin="a\nb\n")
        cluster.kill("broker-0", signal.SIGTERM)
        assert mark.exists()
        with cluster.started_again():
            assert not mark.exists()
            offsets = cluster.run("kgroup", "offsets", "--topic", TOPIC, "-o", "csv").stdout
        assert offsets.splitlines()[1:] == [f"{TOPIC},0,2"]
        assert loads(cluster) == [(0, RECOVERED), (1, "after a clean stop")]
