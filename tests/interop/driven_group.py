"""A group of stock consumers, seen from outside: what they say, and what the coordinator has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from clients.admin import LATEST_TIME, Admin, GroupDescription
from clients.producer.producer import Producer
from groups.coordinator.membership.state import GroupState
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    decode_key,
    decode_value,
)
from protocol.consumer_protocol import decode_assignment, decode_subscription
from protocol.java_hash import group_partition
from protocol.topic_partition import TopicPartition
from tests.interop.driven_member import DrivenMember, Message
from tests.interop.stock_consumers import Kind
from tests.stage.topic_contents import contents
from tests.stage.waiting import until

OFFSETS_TOPIC = "__consumer_offsets"
SETTLED_S = 60.0
REST_S = 1.0
POLL_S = 0.1

Owners = dict[TopicPartition, list[str]]


@attrs.define(eq=False)
class DrivenGroup:
    """The members by name. Use it as a context manager: none of them outlives it.

    `topics` has the number of partitions of each topic, `running` the members that should be in
    the group, `away` those that do nothing, `gone` those that have ended.
    """

    bootstrap: str
    group_id: str
    topics: Mapping[str, int]
    strategies: Sequence[str]
    directory: Path
    session_timeout_ms: int = 10_000
    login: Path | None = None
    """A file with ca, user and password, for members that log in over TLS by SCRAM-SHA-512."""
    security: Mapping[str, str] = attrs.field(factory=dict)
    """The same as settings of a client of ours."""
    running: dict[str, DrivenMember] = attrs.field(factory=dict)
    away: dict[str, DrivenMember] = attrs.field(factory=dict)
    gone: list[DrivenMember] = attrs.field(factory=list)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count)

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.everyone:
            member.kill()

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a client of ours."""
        return {"bootstrap.servers": self.bootstrap, **self.security}

    @property
    def partitions(self) -> list[TopicPartition]:
        """Return all partitions that the group consumes."""
        return [
            TopicPartition(topic, number)
            for topic, count in self.topics.items()
            for number in range(count)
        ]

    # ---- members

    def start(self, kind: Kind, *, instance_id: str | None = None) -> DrivenMember:
        """Start a member. Its name is that of its kind, with a number."""
        name = f"{kind}-{next(self._numbers)}"
        arguments = {
            "--bootstrap": self.bootstrap,
            "--group": self.group_id,
            "--topics": ",".join(self.topics),
            "--strategy": ",".join(self.strategies),
            "--client-id": name,
            "--session-timeout-ms": str(self.session_timeout_ms),
        }
        if instance_id is not None:
            arguments["--instance-id"] = instance_id
        if self.login is not None:
            arguments["--login"] = str(self.login)
        member = DrivenMember.start(kind, name, self.directory, arguments)
        self.running[name] = member
        return member

    async def stop(self, member: DrivenMember) -> None:
        """Have a member end in good order; return when it has."""
        self._leave_out(member)
        await asyncio.to_thread(member.stop)

    def kill(self, member: DrivenMember) -> None:
        """End a member by SIGKILL."""
        self._leave_out(member)
        member.kill()

    @contextlib.asynccontextmanager
    async def without(self, member: DrivenMember) -> AsyncIterator[None]:
        """Have a member do nothing until the end of the block: its group has to do without it."""
        del self.running[member.name]
        self.away[member.name] = member
        with member.frozen():
            yield
        self.running[member.name] = self.away.pop(member.name)

    def _leave_out(self, member: DrivenMember) -> None:
        del self.running[member.name]
        self.gone.append(member)

    @property
    def everyone(self) -> list[DrivenMember]:
        """Return all members there ever were."""
        return [*self.gone, *self.away.values(), *self.running.values()]

    # ---- what they own

    @property
    def owners(self) -> Owners:
        """Return who says that it owns each partition, of those that run."""
        owners: Owners = {partition: [] for partition in self.partitions}
        for member in self.running.values():
            for partition in member.owned:
                owners[partition].append(member.name)
        return owners

    async def settled(self, within_s: float = SETTLED_S) -> Owners:
        """Return when the group is stable, each partition has one owner, and so it stays a while.

        Every member owns something: there must be partitions enough.
        """
        loop = asyncio.get_running_loop()
        last: object = None
        since_s = loop.time()

        async def is_at_rest() -> bool:
            nonlocal last, since_s
            self._check_alive()
            now = await self._picture(admin)
            if now is None or now != last:
                last, since_s = now, loop.time()
            return now is not None and loop.time() - since_s >= REST_S

        async with Admin(self.settings) as admin:
            await self._until(is_at_rest, "a group at rest", within_s)
        return self.owners

    async def _picture(self, admin: Admin) -> object:
        """Return what must stay the same for a while; None if the group is not settled."""
        described = (await admin.describe_groups([self.group_id]))[self.group_id].group
        ids = sorted(member.member_id for member in described.members)
        owners = self.owners
        names = {name for names in owners.values() for name in names}
        is_settled = (
            described.group_state == GroupState.STABLE.value
            and len(ids) == len(self.running)
            and all(len(names) == 1 for names in owners.values())
            and names == set(self.running)
        )
        return (ids, owners) if is_settled else None

    # ---- what they consume and commit

    @property
    def messages(self) -> list[Message]:
        """Return all that any member was given."""
        return [message for member in self.everyone for message in member.messages]

    async def consumes(self, values: Collection[str], within_s: float = SETTLED_S) -> None:
        """Return when some member was given each value."""

        def is_complete() -> bool:
            self._check_alive()
            return set(values) <= {message.value for message in self.messages}

        await self._until(is_complete, f"{len(values)} values", within_s)

    async def commits_all(self, within_s: float = SETTLED_S) -> None:
        """Return when the group's offsets are the ends of all partitions."""

        async def is_at_the_end() -> bool:
            self._check_alive()
            return await self._committed(admin) == await self._ends(admin)

        async with Admin(self.settings) as admin:
            await self._until(is_at_the_end, "commits of all there is", within_s)

    async def _ends(self, admin: Admin) -> dict[TopicPartition, int]:
        listed = await admin.list_offsets(dict.fromkeys(self.partitions, LATEST_TIME))
        return {partition: found.offset for partition, found in listed.items() if found.offset}

    async def _committed(self, admin: Admin) -> dict[TopicPartition, int]:
        offsets = await admin.group_offsets(self.group_id)
        return {partition: offset.offset for partition, offset in offsets.items()}

    async def goes_on(self, within_s: float = SETTLED_S) -> None:
        """Return when each member has committed more, also beyond what is in flight now."""
        before = {name: len(member.all("committed")) for name, member in self.running.items()}

        def is_so() -> bool:
            self._check_alive()
            return all(
                len(self.running[name].all("committed")) >= count + 2
                for name, count in before.items()
            )

        await self._until(is_so, "commits of each member", within_s)

    # ---- what must hold of it all

    async def check(self) -> None:
        """Assert that no commit ever went back, and that nobody began behind one.

        A member to which the leader gave what another one still had may begin behind that one's
        last commit: Java 2.8's leader does so, for it reads the other clients' user data as the
        generation in which they owned their partitions.

        The log of the coordinator has all commits in their order, with their times, and it has
        each generation: there, no partition may have two owners.
        """
        commits, generations = await self._history()
        for partition, offsets in commits.items():
            in_order = [offset.offset for offset in offsets]
            assert in_order == sorted(in_order), f"{partition}: {in_order}"

        taken = taken_from_owners(generations)
        for member in self.everyone:
            for partition, at_ms, offset in beginnings(member):
                if (member.name, partition) in taken:
                    continue
                before = [
                    commit.offset
                    for commit in commits.get(partition, ())
                    if commit.commit_timestamp_ms < at_ms
                ]
                assert offset >= max(before, default=0), (
                    f"{member.name} began {partition} at {offset}, behind {max(before)}"
                )

        numbers = [generation.generation_id for generation in generations]
        assert numbers == sorted(numbers)
        for generation in generations:
            owned = [each for member in generation.members for each in assigned(member)]
            assert len(owned) == len(set(owned)), generation

    # ---- what the coordinator says

    async def reaches(self, state: GroupState) -> None:
        """Return when the coordinator has the group in a state."""

        async def is_so() -> bool:
            described = await self._described()
            return bool(described.group.group_state == state.value)

        await self._until(is_so, f"{self.group_id} in state {state.value}", SETTLED_S)

    async def coordinator(self) -> int:
        """Return the id of the broker that coordinates the group."""
        return (await self._described()).coordinator.node_id

    async def member_ids(self) -> list[str]:
        """Return the ids of the members."""
        return sorted(member.member_id for member in (await self._described()).group.members)

    async def _described(self) -> GroupDescription:
        async with Admin(self.settings) as admin:
            return (await admin.describe_groups([self.group_id]))[self.group_id]

    async def generation_id(self) -> int:
        """Return the last generation that was written."""
        _, generations = await self._history()
        return generations[-1].generation_id

    async def _history(
        self,
    ) -> tuple[dict[TopicPartition, list[CommittedOffset]], list[GroupMetadata]]:
        async with Admin(self.settings) as admin:
            topics = await admin.describe_topics([OFFSETS_TOPIC])
        number = group_partition(self.group_id, len(topics[OFFSETS_TOPIC].partitions))

        commits: dict[TopicPartition, list[CommittedOffset]] = defaultdict(list)
        generations: list[GroupMetadata] = []
        partition = TopicPartition(OFFSETS_TOPIC, number)
        for record in await contents(self.bootstrap, partition, **self.security):
            key = decode_key(record.key)
            value: Any = decode_value(key, record.value)
            if isinstance(key, OffsetKey) and key.group == self.group_id:
                commits[TopicPartition(key.topic, key.partition)].append(value)
            elif isinstance(key, GroupKey) and key.group == self.group_id:
                generations.append(value)
        assert commits, f"no commits in {OFFSETS_TOPIC}-{number}"
        assert generations, f"no generation in {OFFSETS_TOPIC}-{number}"
        return commits, generations

    # ---- waiting

    def _check_alive(self) -> None:
        for member in self.running.values():
            assert member.process.poll() is None, member.describe()

    async def _until(self, holds: Any, description: str, within_s: float) -> None:
        try:
            await until(holds, description, within_s, pause_s=POLL_S)
        except AssertionError as error:
            members = [member.describe() for member in self.everyone]
            raise AssertionError("\n".join([str(error), *members])) from None


def assigned(member: GroupMember) -> Sequence[TopicPartition]:
    """Return what a member was assigned in the generation of a record."""
    return decode_assignment(member.assignment).partitions if member.assignment else ()


def taken_from_owners(generations: Sequence[GroupMetadata]) -> set[tuple[str, TopicPartition]]:
    """Return what a leader gave to a member, by its client id, while another one owned it."""
    taken = set()
    for generation in generations:
        owner = {
            partition: member.client_id
            for member in generation.members
            for partition in decode_subscription(member.subscription).owned_partitions
        }
        taken |= {
            (member.client_id, partition)
            for member in generation.members
            for partition in assigned(member)
            if owner.get(partition, member.client_id) != member.client_id
        }
    return taken


def beginnings(member: DrivenMember) -> list[tuple[TopicPartition, int, int]]:
    """Return, for each time that a member got a partition: the partition, the time, and the offset
    of the first message it was given then."""
    since: dict[TopicPartition, int] = {}
    begun = []
    for event in list(member.events):
        if event.name == "assigned":
            since |= dict.fromkeys(event.partitions, event.at_ms)
        elif event.name in ("revoked", "lost"):
            since = {each: at for each, at in since.items() if each not in event.partitions}
        elif event.name == "message":
            partition = TopicPartition(event.fields["topic"], event.fields["partition"])
            at_ms = since.pop(partition, None)
            if at_ms is not None:
                begun.append((partition, at_ms, event.fields["offset"]))
    return begun


@attrs.define(eq=False)
class Writer:
    """Writes values to all partitions in turn, from `async with` on until the end of the block.

    All of them are acknowledged then; one that is not fails the block.
    """

    bootstrap: str
    partitions: Sequence[TopicPartition]
    pause_s: float = 0.01
    security: Mapping[str, str] = attrs.field(factory=dict)
    values: list[str] = attrs.field(factory=list)
    _stopping: bool = False
    _tasks: asyncio.TaskGroup = attrs.field(factory=asyncio.TaskGroup)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._write())
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self._stopping = True
        await self._tasks.__aexit__(*failure)

    async def _write(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "acks": "all", **self.security}
        places = itertools.cycle(self.partitions)
        async with Producer({**settings, "enable.idempotence": True}) as producer:
            sent = []
            while not self._stopping:
                topic, partition = next(places)
                value = f"{topic} {len(self.values)}"
                sent.append(await producer.send(topic, value.encode(), partition=partition))
                self.values.append(value)
                await asyncio.sleep(self.pause_s)
            for delivery in sent:
                await delivery
