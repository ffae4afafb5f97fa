"""A group whose members are processes of ours and of the JVM, seen from outside: files and znodes.

Ours are `kgroup consume`, the others `tests/jvm/OldConsumer.java` on a release of Kafka. Both write
a line of JSON for each message, and what is asked of a member is asked of either kind alike.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import attrs

from groups.zookeeper.assignment import ASSIGNORS, NO_LEADERS
from groups.zookeeper.filters import Whitelist, allowed_topics
from groups.zookeeper.registration import thread_ids
from protocol.topic_partition import TopicPartition
from tests.stage.old_kafka import program
from tests.stage.processes import ROOT, command_line
from zk.api import NoNode, ZkSession
from zk.consumer_znodes import ConsumerGroup, PartitionOwner

EXIT_S = 20.0
POLL_S = 0.05
REST_S = 1.5

STRATEGY = "partition.assignment.strategy"

WATCHFUL = {"rebalance_backoff_ms": "60000"}
AT_ONCE_S = 8.0
"""A member of ours that hears at once of what others release is settled by then; it would be later
if it had to wait until it tries again, being WATCHFUL, or until it looks whether all is well."""

Owners = dict[TopicPartition, str]
Wanted = tuple[str, str]
"""What a member asks for: ("topic", its name) or ("whitelist", a regex)."""


class Heard(NamedTuple):
    """A message, and the member that had it."""

    name: str
    partition: TopicPartition
    offset: int
    value: str


Messages = set[tuple[TopicPartition, int, str]]
"""Where each is, and its value."""


def values_of(messages: Messages) -> set[str]:
    """What was said, wherever it is."""
    return {value for _, _, value in messages}


@attrs.frozen
class Member:
    """A process, and how many streams it has of each topic. One on the JVM leaves in good order
    when its standard input ends, one of ours at SIGTERM."""

    process: subprocess.Popen[bytes]
    streams: int
    wanted: Wanted
    on_jvm: bool


@attrs.define(eq=False)
class MixedGroup:
    """The members by name. Use it as a context manager: none of them outlives it."""

    zookeeper: str
    group: str
    directory: Path
    """For a file of each member with what it has consumed, and one with what it has to say."""
    topics: dict[str, int]
    """The partitions of each topic that is consumed."""
    wanted: Wanted
    """What a member asks for if nothing else is said."""
    settings: Mapping[str, str] = attrs.field(factory=dict)
    is_named: bool = True
    """Whether members have their names in ZooKeeper too, else ids as they make them."""
    running: dict[str, Member] = attrs.field(factory=dict)
    stopped: dict[str, Member] = attrs.field(factory=dict)

    def __enter__(self) -> "MixedGroup":
        self.directory.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for member in [*self.running.values(), *self.stopped.values()]:
            member.process.kill()
            member.process.communicate()

    def start_ours(
        self, name: str, *, streams: int = 1, wanted: Wanted | None = None, **settings: str
    ) -> None:
        """A new member of ours. Underscores in names of settings are dots."""
        pairs = (("--consumer-property", pair) for pair in self._settings(name, settings))
        kind, pattern = wanted = wanted or self.wanted
        command = command_line(
            "kgroup",
            *("consume", "--zookeeper", self.zookeeper, "--group", self.group, "-o", "json"),
            *(f"--{kind}", pattern, "--streams", str(streams)),
            *(word for pair in pairs for word in pair),
        )
        self.running[name] = Member(self._process(name, command), streams, wanted, on_jvm=False)

    def start_jvm(
        self,
        version: str,
        name: str,
        *,
        streams: int = 1,
        wanted: Wanted | None = None,
        **settings: str,
    ) -> None:
        """A new member on the JVM, of a release of Kafka."""
        at = (f"zookeeper.connect={self.zookeeper}", f"group.id={self.group}")
        pairs = (*at, *self._settings(name, settings))
        wanted = wanted or self.wanted
        command = program(version, "OldConsumer", *wanted, str(streams), *pairs)
        self.running[name] = Member(self._process(name, command), streams, wanted, on_jvm=True)

    def _settings(self, name: str, settings: Mapping[str, str]) -> list[str]:
        own = {name.replace("_", "."): value for name, value in settings.items()}
        common = {"auto.offset.reset": "smallest"}
        common |= {"consumer.id": name} if self.is_named else {}
        return ["=".join(pair) for pair in {**common, **self.settings, **own}.items()]

    def _process(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (
            (self.directory / f"{name}.messages").open("ab") as messages,
            (self.directory / f"{name}.log").open("ab") as log,
        ):
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=messages, stderr=log
            )

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        process = self.running.pop(name).process
        process.kill()
        process.communicate()

    def stop(self, name: str) -> None:
        """As SIGSTOP does: in time it loses its session, and does not know."""
        self.stopped[name] = member = self.running.pop(name)
        member.process.send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """As SIGCONT does."""
        self.running[name] = member = self.stopped.pop(name)
        member.process.send_signal(signal.SIGCONT)

    async def leave(self, name: str) -> None:
        """Have a member leave in good order; return when it has."""
        member = self.running.pop(name)
        if not member.on_jvm:
            member.process.send_signal(signal.SIGTERM)
        assert member.process.stdin is not None
        member.process.stdin.close()
        code = await asyncio.to_thread(member.process.wait, EXIT_S)
        assert code == 0, self.log(name)

    def log(self, name: str) -> str:
        """The last of what a member has said of itself."""
        return f"{name}: …{(self.directory / f'{name}.log').read_text()[-3000:]}"

    @property
    def shares(self) -> Owners:
        """Who should own what, by the rule of partition.assignment.strategy."""
        assign = ASSIGNORS[self.settings.get(STRATEGY, "range")]
        threads: dict[str, list[str]] = {}
        for name, member in self.running.items():
            for topic in self._topics_of(member.wanted):
                own = thread_ids(f"{self.group}_{name}", member.streams)
                threads.setdefault(topic, []).extend(own)
        return assign(threads, {t: range(n) for t, n in self.topics.items()}, NO_LEADERS)

    def _topics_of(self, wanted: Wanted) -> Collection[str]:
        kind, pattern = wanted
        if kind == "topic":
            return {pattern} & self.topics.keys()
        return allowed_topics(Whitelist(pattern), tuple(self.topics), True)

    async def settled(self, zk: ZkSession, within_s: float) -> None:
        """Return when those that run, and no others, are registered, and own their shares."""
        ends = asyncio.get_running_loop().time() + within_s
        while difference := await self._difference(zk):
            self._check_alive()
            late = f"after {within_s} s {difference}"
            assert asyncio.get_running_loop().time() < ends, "\n".join([late, *self._logs()])
            await asyncio.sleep(POLL_S)

    async def at_rest(self, zk: ZkSession, within_s: float) -> Owners:
        """Return when all has been settled for a while, and with it who owns what.

        A member on the JVM rebalances once more for what happened in the last one, and that is to
        give up all it has and take it again.
        """
        begins = rests = asyncio.get_running_loop().time()
        while rests + REST_S > (now := asyncio.get_running_loop().time()):
            if await self._difference(zk):
                await self.settled(zk, begins + within_s - now)
                rests = asyncio.get_running_loop().time()
            await asyncio.sleep(POLL_S)
        return self.shares

    async def _difference(self, zk: ZkSession) -> str:
        """What ZooKeeper has that it should not have yet, or any longer; "" for nothing."""
        registered, owners = await self._registered(zk), await self._owners(zk)
        wanted = {f"{self.group}_{name}" for name in self.running}
        if registered != wanted:
            return f"{registered} are registered, not {wanted}"
        return "" if owners == self.shares else f"{owners} are owners, not {self.shares}"

    async def _registered(self, zk: ZkSession) -> set[str]:
        try:
            names, _ = await zk.children(ConsumerGroup.ids_path(self.group))
        except NoNode:
            return set()
        return set(names)

    async def _owners(self, zk: ZkSession) -> Owners:
        """The thread that owns each partition, of all there are owner nodes of."""
        owners = {}
        for topic in self.topics:
            try:
                names, _ = await zk.children(ConsumerGroup.topic_owners_path(self.group, topic))
                for partition in map(int, names):
                    path = PartitionOwner.path(self.group, topic, partition)
                    content, _ = await zk.get(path)
                    thread = PartitionOwner.decode(content).consumer_thread_id
                    owners[TopicPartition(topic, partition)] = thread
            except NoNode:
                continue  # not yet, or no longer
        return owners

    async def hears(self, values: Collection[str], within_s: float) -> None:
        """Return when some member has heard each value."""
        ends = asyncio.get_running_loop().time() + within_s
        while missing := set(values) - {heard.value for heard in self.heard()}:
            self._check_alive()
            late = f"{len(missing)} missing: {sorted(missing)[:10]}"
            assert asyncio.get_running_loop().time() < ends, "\n".join([late, *self._logs()])
            await asyncio.sleep(POLL_S)

    def heard(self) -> list[Heard]:
        """All that all members have heard so far, also those that have gone."""
        return [
            Heard(file.stem, TopicPartition(m["topic"], m["partition"]), m["offset"], m["value"])
            for file in self.directory.glob("*.messages")
            for m in map(json.loads, file.read_bytes().split(b"\n")[:-1])
        ]

    def heard_by(self, messages: Messages) -> dict[TopicPartition, str]:
        """The id of the one consumer that heard what there is of these in each partition."""
        consumers: dict[TopicPartition, set[str]] = {}
        for name, *message in self.heard():
            if tuple(message) in messages:
                consumers.setdefault(message[0], set()).add(f"{self.group}_{name}")
        return {partition: found for partition, (found,) in consumers.items()}

    def _check_alive(self) -> None:
        for name, member in self.running.items():
            assert member.process.poll() is None, self.log(name)

    def _logs(self) -> list[str]:
        return [self.log(name) for name in self.running]
