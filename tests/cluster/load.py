"""Producing and committing without pause, and a book of all that was acknowledged."""

import asyncio
from collections import defaultdict, deque
from types import TracebackType
from typing import Self

import attrs

from clients.admin import Admin
from clients.errors import BrokerError
from clients.producer.deliveries import RecordMetadata
from clients.producer.producer import Producer
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.topic_contents import contents

IN_FLIGHT = 1000
DEADLINE_S = 60


@attrs.define(eq=False)
class Load:
    """Records with acks=all to a topic, and commits of an idle group; both from `async with` on.

    At the end of the block everything that was sent has been answered. A record or commit that
    fails for good fails the block.
    """

    bootstrap: str
    topic: str
    pause_s: float = 0.0
    """After each record and each commit; 0 is as fast as it goes."""
    group: str = "committer-under-load"
    records: dict[TopicPartition, dict[int, bytes]] = attrs.field(factory=lambda: defaultdict(dict))
    """What was acknowledged: the value by its offset."""
    sent: int = 0
    count: int = 0
    commits_tried: int = 0
    commits: int = 0
    _stopping: bool = False
    _tasks: asyncio.TaskGroup = attrs.field(factory=asyncio.TaskGroup)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._produce())
        self._tasks.create_task(self._commit())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping = True
        async with asyncio.timeout(DEADLINE_S):
            await self._tasks.__aexit__(kind, error, trace)

    async def acknowledges(self, records: int, commits: int) -> None:
        """Return when so many more of each have been sent *and* acknowledged."""
        records, commits = self.sent + records, self.commits_tried + commits
        async with asyncio.timeout(DEADLINE_S):
            while self.count < records or self.commits < commits:
                await asyncio.sleep(0.01)

    async def assert_kept(self) -> None:
        """All that was acknowledged is there: each value at its offset, and the last commit."""
        for partition, acknowledged in self.records.items():
            stored = {r.offset: r.value for r in await contents(self.bootstrap, partition)}
            assert {offset: stored.get(offset) for offset in acknowledged} == acknowledged
        async with Admin(self.bootstrap) as admin:
            committed = (await admin.group_offsets(self.group))[TopicPartition(self.topic, 0)]
        assert self.commits <= committed.offset <= self.commits_tried
        assert committed.metadata == f"commit {committed.offset}"

    async def _produce(self) -> None:
        sent: deque[tuple[bytes, asyncio.Future[RecordMetadata]]] = deque()
        async with Producer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=2) as producer:
            while not self._stopping:
                value = b"%d" % self.sent
                self.sent += 1
                sent.append((value, await producer.send(self.topic, value, key=value)))
                while sent and (len(sent) > IN_FLIGHT or sent[0][1].done()):
                    await self._enter(*sent.popleft())
                await self._pause()
            for value, delivery in sent:
                await self._enter(value, delivery)

    async def _enter(self, value: bytes, delivery: asyncio.Future[RecordMetadata]) -> None:
        at = await delivery
        self.records[TopicPartition(at.topic, at.partition)][at.offset] = value
        self.count += 1

    async def _commit(self) -> None:
        async with Admin(self.bootstrap) as admin:
            while not self._stopping:
                self.commits_tried = number = self.commits + 1
                offset = OffsetAndMetadata(number, f"commit {number}")
                try:
                    await admin.commit_group_offsets(
                        self.group, {TopicPartition(self.topic, 0): offset}
                    )
                    self.commits = number
                except BrokerError as error:
                    # A coordinator may hear of a new topic late.
                    if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                await self._pause()

    async def _pause(self) -> None:
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
