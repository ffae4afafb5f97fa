"""`make scale PEER=1`: how our broker's processor time grows beside stock Kafka's, for a few rows.

    python -m tests.scale.beside_peer                100, 1,000 and 3,000
    python -m tests.scale.beside_peer 100:1000 DIR   with the jars of Kafka in DIR, not fetched

Real processes, one after the other, get the same requests. Processor time is measured, which a busy
machine changes; so growth is printed for both, and nothing is an error.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks import peer
from benchmarks.brokers import Broker, Side, make_our_side, start_broker
from benchmarks.brokers import start_our_zookeeper as start_zookeeper
from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin, NewTopic
from clients.transport.connection import Connection
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.topic_partition import TopicPartition

TIMEOUT_MS = 600_000
SIZES = (100, 1_000, 3_000)
REBALANCE_MS = 3_000


class Work:
    """What is done with one broker: `size` topics or members, with names of that size alone."""

    def __init__(self, broker: Broker, admin: Admin, size: int) -> None:
        self.broker = broker
        self.admin = admin
        self.size = size
        self.topics = [f"t-{size}-{number}" for number in range(size)]
        self.partitions = [TopicPartition(name, 0) for name in self.topics]

    async def create_topics(self) -> None:
        """Create the topics in one request, and wait until all have leaders."""
        results = await self.admin.create_topics([NewTopic(name, 1, 1) for name in self.topics])
        assert set(results.values()) == {None}
        await self.list_offsets()

    async def describe_topics(self) -> None:
        """Ask for the metadata of all topics, ten times."""
        for _ in range(10):
            assert len(await self.admin.describe_topics(self.topics)) == self.size

    async def list_offsets(self) -> None:
        """Look both ends of all partitions up."""
        for time in (EARLIEST_TIME, LATEST_TIME):
            listed = await self.admin.list_offsets(dict.fromkeys(self.partitions, time))
            assert not any(offset.error for offset in listed.values())

    async def delete_topics(self) -> None:
        """Delete the topics in one request."""
        results = await self.admin.delete_topics(self.topics)
        assert set(results.values()) == {None}

    async def join(self) -> None:
        """Have so many members join a group, each on a connection of its own, and leave it."""
        host, port = self.broker.address
        connections = [
            await Connection.open(host, port, request_timeout_ms=TIMEOUT_MS)
            for _ in range(self.size)
        ]
        group_id = f"g-{self.size}"
        joined = await asyncio.gather(*(_join(each, group_id) for each in connections))
        for connection, member_id in zip(connections, joined, strict=True):
            await connection.call(
                LeaveGroupRequest(group_id=group_id, member_id=member_id), version=1
            )
            await connection.close()


async def _join(connection: Connection, group_id: str) -> str:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    # Version 3 gives an id at once: who asks with it is in.
    response = await connection.call(request, version=3)
    assert response.error_code == 0, response
    return str(response.member_id)


ROWS: Sequence[tuple[str, Callable[[Work], Awaitable[None]]]] = (
    ("create topics", Work.create_topics),
    ("describe topics", Work.describe_topics),
    ("list offsets", Work.list_offsets),
    ("delete topics", Work.delete_topics),
    ("join a group", Work.join),
)


async def measure(broker: Broker, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Return the processor seconds of each row at each size."""
    costs: dict[str, list[float]] = {name: [] for name, _ in ROWS}
    settings = {"request.timeout.ms": TIMEOUT_MS, "default.api.timeout.ms": TIMEOUT_MS}
    async with Admin(broker.bootstrap, **settings) as admin:
        # The offsets topic is made, and its coordinators are there.
        for size in sizes:
            await admin.group_offsets(f"g-{size}")
        for size in sizes:
            work = Work(broker, admin, size)
            for name, act in ROWS:
                before_s = broker.process.cpu_s
                await act(work)
                costs[name].append(broker.process.cpu_s - before_s)
    return costs


def main(arguments: Sequence[str]) -> int:
    """Measure both, and print each row."""
    sizes = SIZES
    if arguments and arguments[0][0].isdigit():
        sizes = tuple(map(int, arguments[0].split(":")))
        arguments = arguments[1:]

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for side in _sides(directory, Path(arguments[0]) if arguments else None):
            broker = start_broker(side, directory / side.name.replace(" ", "-"), "scale")
            try:
                costs = asyncio.run(measure(broker, sizes))
            finally:
                broker.process.stop()
            for name, seconds in costs.items():
                growth = seconds[-1] / max(seconds[0], 0.01) / (sizes[-1] / sizes[0])
                figures = "  ".join(
                    f"{size:6,}: {cost:7.2f} s" for size, cost in zip(sizes, seconds, strict=True)
                )
                print(f"{side.name:12}  {name:16}  {figures}  {growth:5.2f} times linear")
            sys.stdout.flush()
    return 0


def _sides(directory: Path, jars: Path | None) -> Sequence[Side]:
    _, address = start_zookeeper(directory / "zookeeper")
    ours = make_our_side(address)
    try:
        jars = jars or peer.fetch_jars()
    except peer.PeerMissing as missing:
        print(missing)
        return [ours]
    _, address = peer.start_zookeeper(jars, directory / "peer-zookeeper")
    return [ours, peer.make_side(jars, address)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
