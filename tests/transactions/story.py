"""A story of transactions: movers and copiers in a simulated cluster, faults, and the judgement."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from clients.fetching import Isolation
from kgroup.testing.simulation.cluster import Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.story import Violation
from protocol.topic_partition import TopicPartition
from tests.stage.story_totals import seeds_of
from tests.transactions.checker import Finding, judge
from tests.transactions.history import History
from tests.transactions.workload import (
    ACCOUNTS,
    COPIES,
    FAILURES,
    PARTITIONS,
    Copier,
    Mover,
    Onlooker,
    Reader,
    Stage,
    TransactionalClient,
    _client_of,
    _consumer_of,
    read,
)

MOVERS = 2
RIVALS = 2
"""Copiers of one partition with one transactional id, as an instance and its zombie have."""
SETTLE_S = 40.0
QUIET_S = 60.0
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.segment.bytes": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "request.timeout.ms": "5000",
}


def tell(seed: int) -> tuple[History, list[Finding]]:
    """Tell the story of a seed. Raises Violation if a client or a broker fails unexpectedly."""
    topics = {ACCOUNTS: PARTITIONS, COPIES: PARTITIONS}
    return simulate(_scene, seed=seed, topics=topics, settings=SETTINGS)


async def _scene(cluster: Cluster, faults: Faults) -> tuple[History, list[Finding]]:
    stage = Stage(cluster)
    rng = Random(cluster.rng.random())
    copied = [TopicPartition(ACCOUNTS, number) for number in range(2)]

    # A client that was killed begins with nothing but its name.
    def run(name: str, make: Callable[[Random], TransactionalClient]) -> None:
        cluster.run_client(name, lambda: make(Random(rng.random())).live())

    for number in range(MOVERS):
        name = f"m{number}"
        run(name, partial(Mover, stage, name, f"mover-{number}"))
    for partition in copied:
        for rival in range(RIVALS):
            name = f"c{partition.partition}{'ab'[rival]}"
            run(name, partial(_copier, stage, name, partition))
    _begin_readers(stage)
    onlooker = Onlooker(stage, "o", copied)
    cluster.client("o").spawn(onlooker.live())

    await faults.strike()
    stage.tell("nature", "peace")
    faults.heal()
    for process in cluster.clients:
        process.resume()
    stage.is_over = True
    await cluster.client("judge").run(lambda: _reckon(stage, onlooker))
    return stage.history, judge(stage.history)


def _copier(stage: Stage, name: str, partition: TopicPartition, rng: Random) -> Copier:
    return Copier(stage, name, f"copier-{partition.partition}", rng, partition=partition)


def _partitions() -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic in (ACCOUNTS, COPIES)
        for number in range(PARTITIONS)
    ]


def _begin_readers(stage: Stage) -> None:
    for isolation in Isolation:
        name = "rc" if isolation is Isolation.READ_COMMITTED else "ru"
        process = stage.cluster.client(name)
        for partition in _partitions():
            process.spawn(Reader(stage, name, partition, isolation).live())


async def _reckon(stage: Stage, onlooker: Onlooker) -> None:
    """Read all that is there, once every transaction is decided and every reader is at the end."""
    # The clients end theirs, and what they leave open times out.
    await asyncio.sleep(SETTLE_S)
    loop = asyncio.get_running_loop()
    history = stage.history
    for partition in _partitions():
        deadline = loop.time() + QUIET_S
        everything, end = await _read_to_end(stage, partition, Isolation.READ_UNCOMMITTED, deadline)
        committed, stable = await _read_to_end(
            stage, partition, Isolation.READ_COMMITTED, deadline, end
        )
        history.everything[partition] = everything
        history.committed[partition] = committed
        if stable < end:
            history.stuck.append(f"{partition} is stable to {stable}, and ends at {end}")

    deadline = loop.time() + QUIET_S
    while _behind(stage) and loop.time() < deadline:
        await asyncio.sleep(0.5)
    history.stuck += _behind(stage)
    client = _client_of(stage)
    async with asyncio.timeout(QUIET_S):
        while True:
            try:
                await onlooker.look(client)
                break
            except FAILURES:
                await asyncio.sleep(0.5)
    await client.close()


def _behind(stage: Stage) -> list[str]:
    return [
        f"{reading.reader} stands at {reading.position} of {reading.partition}"
        for reading in stage.history.readings
        if reading.rows[-1:] != sorted(stage.history.committed[reading.partition].items())[-1:]
        and reading.is_committed
    ]


async def _read_to_end(
    stage: Stage,
    partition: TopicPartition,
    isolation: Isolation,
    deadline: float,
    end: int | None = None,
) -> tuple[dict[int, bytes], int]:
    """Read a partition until nothing comes, or up to `end`; return the rows, and where that was."""
    rows: dict[int, bytes] = {}
    position = quiet = 0
    loop = asyncio.get_running_loop()
    while loop.time() < deadline:
        try:
            async with await _consumer_of(stage, partition) as consumer:
                while loop.time() < deadline:
                    found, next_offset = await read(consumer, partition, position, isolation)
                    rows.update(found)
                    quiet = 0 if next_offset > position else quiet + 1
                    position = max(position, next_offset)
                    if (end is None and quiet > 3) or (end is not None and position >= end):
                        return rows, position
        except FAILURES:
            await asyncio.sleep(0.5)
    return rows, position


def main(arguments: Sequence[str]) -> int:
    """Tell stories, one after the other; exit code 1 at the first that has a finding.

    python -m tests.transactions.story 0:100
    """
    for seed in seeds_of(arguments[-1]):
        try:
            history, findings = tell(seed)
        except Violation as violation:
            print(f"seed {seed}\n{violation}\n{violation.story}")
            return 1
        if findings:
            print(f"seed {seed}\n" + "\n".join(map(str, findings)))
            return 1
        committed = sum(len(rows) for rows in history.committed.values())
        print(f"{seed}: {len(history.attempts)} transactions, {committed} values", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
