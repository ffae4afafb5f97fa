"""How many requests a look at the cluster takes: as many for a thousand groups as for ten."""

import asyncio
import re
import urllib.request
from pathlib import Path

from clients.admin import Admin, NewTopic
from clients.command_line.sessions import Sessions
from clients.serve.monitor import Monitor
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S

REQUESTS = re.compile(
    r'^kafka_network_requestmetrics_totaltimems_count\{request="(\w+)",?\} (\S+)$', re.MULTILINE
)
KEPT_MS = 3_600_000


def requests_of(url: str) -> dict[str, float]:
    """Return how many requests of each kind the broker has served."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
        return {name: float(count) for name, count in REQUESTS.findall(response.read().decode())}


async def requests_of_a_look(bootstrap: str, url: str, data: Path) -> dict[str, float]:
    """Return the requests of a look after the first one, which reads everything."""
    async with Admin(bootstrap) as admin:
        monitor = Monitor(Sessions(admin), data, KEPT_MS, 1)
        try:
            await monitor.look()
            before = await asyncio.to_thread(requests_of, url)
            await monitor.look()
            after = await asyncio.to_thread(requests_of, url)
        finally:
            monitor.close()
    return {name: after[name] - before[name] for name in after if after[name] > before[name]}


async def commit(bootstrap: str, names: list[str]) -> None:
    committed = {TopicPartition("t", 0): OffsetAndMetadata(0)}
    async with Admin(bootstrap) as admin:
        if "t" not in await admin.list_topics():
            assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        for begin in range(0, len(names), 100):
            part = names[begin : begin + 100]
            await asyncio.gather(*(admin.commit_group_offsets(n, committed) for n in part))


def test_a_thousand_groups_take_the_requests_of_ten(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev", ("--metrics-port", "0")) as cluster:
        assert cluster.process.stderr is not None
        _, url = cluster.process.stderr.readline().split()
        bootstrap = cluster.address("bootstrap")
        counted = []
        for number in (10, 1000):
            asyncio.run(commit(bootstrap, [f"g-{index:04}" for index in range(number)]))
            look = asyncio.run(requests_of_a_look(bootstrap, url, tmp_path / str(number)))
            counted.append(look)

    assert counted[0], "a look asks something"
    assert counted[0] == counted[1]
