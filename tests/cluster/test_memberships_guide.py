"""What docs/consumer-groups.md has one type to change a group's membership, typed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import attrs

from clients.admin import Admin, NewTopic
from tests.cluster.load import Load
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S, until

GUIDE = (ROOT / "docs" / "consumer-groups.md").read_text()
HEADING = "## From one membership to the other\n"
PARTITIONS = 4
MEMBERS = 2
MESSAGES_A_TERM = 20
PAUSE_S = 0.05

CTRL_C = signal.SIGINT
EXIT_CODES = {CTRL_C: 0, signal.SIGKILL: -signal.SIGKILL}

Command = Sequence[str]


@attrs.frozen
class Page:
    """The commands of the section: a member, the ways to the coordinator and back, and others."""

    member: Command
    forth: Sequence[Command]
    back: Sequence[Command]
    kick: Command
    roll_back: Command


def read_page() -> Page:
    """Return the words of each line of shell, and of each command between the lines."""
    section = GUIDE.split(HEADING)[1].split("\n# ")[0]
    texts = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    (member,), forth, back = [[line.split() for line in text.splitlines()] for text in texts]
    kick, roll_back = [words.split() for words in re.findall(r"`(kgroup [^`]*)`", section)]
    return Page(member, forth, back, kick, roll_back)


@attrs.define(eq=False)
class Output:
    """What members have written to their files, one message a line."""

    directory: Path
    files: list[Path] = attrs.field(factory=list)

    def new_file(self) -> Path:
        """Return a file for one more member."""
        self.files.append(self.directory / f"member-{len(self.files)}")
        return self.files[-1]

    def terms(self) -> list[set[bytes]]:
        """Return what the members of each term have consumed together."""
        consumed = [set(file.read_bytes().split(b"\n")[:-1]) for file in self.files]
        return [set().union(*term) for term in zip(*[iter(consumed)] * MEMBERS, strict=True)]

    @property
    def values(self) -> set[bytes]:
        """Return what has been consumed."""
        return set().union(*self.terms())


@attrs.define(eq=False)
class Group:
    """The group of the page on a cluster, and what its members have consumed."""

    cluster: DevCluster
    output: Output

    @contextmanager
    def members(self, command: Command, end: signal.Signals = CTRL_C) -> Iterator[None]:
        """Run members; they are sent a signal at the end of the block, and end as they should."""
        processes = []
        try:
            for _ in range(MEMBERS):
                with self.output.new_file().open("wb") as file:
                    processes.append(
                        subprocess.Popen(
                            command_line(*command),
                            cwd=ROOT,
                            env=self.cluster.env,
                            stdin=subprocess.DEVNULL,
                            stdout=file,
                        )
                    )
            yield

            for process in processes:
                process.send_signal(end)
            codes = [process.wait(DEADLINE_S) for process in processes]
            assert codes == [EXIT_CODES[end]] * MEMBERS
        finally:
            for process in processes:
                process.kill()
                process.wait()

    async def consumes(self) -> None:
        """Return when each of the last members has had messages, and all of them enough."""

        def has_consumed() -> bool:
            is_shared = all(file.stat().st_size for file in self.output.files[-MEMBERS:])
            return is_shared and len(self.output.terms()[-1]) >= MESSAGES_A_TERM

        await until(has_consumed, "messages for all members")

    async def serves_a_term(self, command: Command, end: signal.Signals = CTRL_C) -> None:
        """Have members consume, and end."""
        with self.members(command, end):
            await self.consumes()

    async def coordination(self) -> str:
        """Return the side that coordinates the group, as the list of groups has it."""
        words = ("list", "--match", "analytics", "-o", "json")
        listed = await asyncio.to_thread(self.cluster.run, "kgroup", *words)
        (item,) = json.loads(listed.stdout)["items"]
        return str(item["coordination"])

    async def run(self, *commands: Command) -> None:
        """Type commands, each of which succeeds."""
        for program, *words in commands:
            done = await asyncio.to_thread(self.cluster.run, program, *words)
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@asynccontextmanager
async def produced_topic(cluster: DevCluster) -> AsyncIterator[Load]:
    """Create the topic of the page, and write to it until the end of the block."""
    bootstrap = cluster.address("bootstrap")
    async with Admin(bootstrap) as admin:
        created = await admin.create_topics([NewTopic("flights", PARTITIONS, 1)])
    assert created == {"flights": None}
    async with Load(bootstrap, "flights", PAUSE_S) as load:
        yield load


def values_of(load: Load) -> set[bytes]:
    """Return what was produced."""
    return {b"%d" % number for number in range(load.sent)}


async def test_group_that_changes_its_membership_goes_on_where_it_stopped(tmp_path: Path) -> None:
    page, output = read_page(), Output(tmp_path)
    with DevCluster(tmp_path / "dev") as cluster:
        group = Group(cluster, output)
        async with AsyncExitStack() as producing:
            load = await producing.enter_async_context(produced_topic(cluster))
            await group.serves_a_term(page.member)
            sides = {"coordinator": page.forth, "zookeeper": page.back}
            for side, (*commands, member) in sides.items():
                await group.run(*commands)
                with group.members(member):
                    await group.consumes()
                    assert await group.coordination() == side

            *commands, member = page.forth
            await group.run(*commands)
            with group.members(member):
                await group.consumes()
                await producing.aclose()
                await until(lambda: output.values >= values_of(load), "all messages")

        # Within a term a message may come twice, as after a lost session; not across a stop.
        assert output.values == values_of(load)
        assert sum(map(len, output.terms())) == load.sent


async def test_group_whose_members_were_killed_is_kicked_and_may_turn_back(tmp_path: Path) -> None:
    page, output = read_page(), Output(tmp_path)
    *commands, member = page.forth
    describe, start, *_ = page.back
    with DevCluster(tmp_path / "dev") as cluster:
        group = Group(cluster, output)
        async with AsyncExitStack() as producing:
            load = await producing.enter_async_context(produced_topic(cluster))
            await group.serves_a_term(page.member)
            await group.run(*commands)
            await group.serves_a_term(member, signal.SIGKILL)

            _, *words = start
            refused = await asyncio.to_thread(cluster.run, "kgroup", *words)
            assert (refused.returncode, "stop them first" in refused.stderr) == (1, True)
            await group.run(page.kick, describe, start, page.roll_back)

            with group.members(member):
                await group.consumes()
                await producing.aclose()
                await until(lambda: output.values >= values_of(load), "all messages")
