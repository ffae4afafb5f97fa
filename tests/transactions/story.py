"""A story of transactions: movers and copiers in a simulated cluster, faults, and the judgement."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

import attrs

from clients.fetch_requests import Isolation
from kgroup.testing.simulation.cluster import CLIENT, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.story import Violation
from tests.stage.story_totals import seeds_of
from tests.transactions.checker import Finding, judge
from tests.transactions.history import History
from tests.transactions.producing import ProducingClient
from tests.transactions.reckoning import reckon
from tests.transactions.repeated_requests import RepeatedRequests
from tests.transactions.workload import (
    ACCOUNTS,
    ALL_PARTITIONS,
    COPIED,
    COPIES,
    PARTITIONS,
    Copier,
    Mover,
    Onlooker,
    Part,
    Reader,
    StableOnlooker,
    Stage,
)

MOVERS = 2
RIVALS = 2
"""Copiers of one partition with one transactional id, as an instance and its zombie have."""
SETTLE_S = 40.0
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.segment.bytes": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "request.timeout.ms": "5000",
}


@attrs.frozen
class Told:
    """A story that was told.

    `copies`: requests that came late too; `lost`: lost responses; `held`: requests that came late
    by a lost connection.
    """

    history: History
    findings: list[Finding]
    copies: int
    lost: int
    held: int
    transcript: str


def tell(seed: int) -> Told:
    """Tell the story of a seed. Raises Violation if a client or a broker fails unexpectedly."""
    topics = {ACCOUNTS: PARTITIONS, COPIES: PARTITIONS}
    return simulate(_scene, seed=seed, topics=topics, settings=SETTINGS)


async def _scene(cluster: Cluster, faults: Faults) -> Told:
    stage = Stage(cluster.bootstrap, CLIENT, cluster.story.tell)
    rng = Random(cluster.rng.random())
    repeated = RepeatedRequests(cluster, Random(rng.random()))

    # A client that was killed begins with nothing but its name.
    def run(name: str, make: Callable[[Random], Part]) -> None:
        def live() -> Coroutine[Any, Any, None]:
            own = Random(rng.random())
            return ProducingClient(stage, name, make(own), own).live()

        cluster.run_client(name, live)

    for number in range(MOVERS):
        run(f"m{number}", partial(Mover, stage, f"mover-{number}"))
    for partition in COPIED:
        number = partition.partition
        copier = partial(Copier, stage, f"copier-{number}", partition=partition)
        for rival in "ab"[:RIVALS]:
            run(f"c{number}{rival}", copier)
    _begin_readers(cluster, stage)
    onlooker = Onlooker(stage, COPIED)
    cluster.client("o").spawn(onlooker.live())
    cluster.client("s").spawn(StableOnlooker(stage).live())

    repeated.begin()
    await faults.strike()
    stage.tell("nature", "peace")
    repeated.end()
    faults.heal()
    for process in cluster.clients:
        process.resume()
    stage.is_over = True

    async def end() -> None:
        # The clients end theirs, and what they leave open times out.
        await asyncio.sleep(SETTLE_S)
        await reckon(stage, onlooker)

    await cluster.client("judge").run(end)
    return Told(
        stage.history,
        judge(stage.history),
        repeated.copies,
        repeated.lost,
        repeated.held,
        cluster.story.transcript(),
    )


def _begin_readers(cluster: Cluster, stage: Stage) -> None:
    for isolation in Isolation:
        name = "rc" if isolation is Isolation.READ_COMMITTED else "ru"
        process = cluster.client(name)
        for partition in ALL_PARTITIONS:
            process.spawn(Reader(stage, name, partition, isolation).live())


def main(arguments: Sequence[str]) -> int:
    """Tell stories, one after the other; exit code 1 at the first that has a finding.

    python -m tests.transactions.story 0:100
    python -m tests.transactions.story --tell 42    prints the whole story
    """
    if arguments[0] == "--tell":
        print(tell(int(arguments[1])).transcript)
        return 0

    for seed in seeds_of(arguments[-1]):
        try:
            told = tell(seed)
        except Violation as violation:
            print(f"seed {seed}\n{violation}\n{violation.story}")
            return 1
        if told.findings:
            print(f"seed {seed}\n" + "\n".join(map(str, told.findings)))
            return 1
        committed = sum(len(rows) for rows in told.history.committed.values())
        print(
            f"{seed}: {len(told.history.attempts)} transactions, {committed} values, "
            f"{told.lost} responses lost, {told.copies} requests late too, {told.held} held up",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
