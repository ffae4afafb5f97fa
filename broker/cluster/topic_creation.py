"""Creating topics in ZooKeeper, from any broker: for CreateTopics and for automatic creation.

A topic exists when its node in /brokers/topics does; the controller sees it and does the rest.
Its settings are created in the same multi, so that no replica's log is ever made without them
and whoever loses a race for the name leaves no trace.

Nothing here blocks: `create` returns at once, and the outcome is found in what it returned when
`touch(("topic", name))` is called.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Mapping

import attrs

from broker.controller.replica_placement import place_replicas
from broker.controller.topic_changes import Assignment, PlannedTopic, check_count, checked_size
from broker.zk_retry import retry_until_connected
from protocol.errors import ErrorCode
from zk.api import Create, MultiFailed, NodeExists, NoNode, SetData, ZkError, ZkSession
from zk.znodes import EntityConfig, TopicAssignment

logger = logging.getLogger(__name__)

MAX_AT_ONCE = 100  # creations in flight; the others wait for them


@attrs.define(eq=False)
class Creation:
    """A topic under way. `result` is None until its nodes are written or cannot be."""

    topic: PlannedTopic
    result: ErrorCode | None = None


class TopicCreator:
    """Writes new topics. `racks()` gives the live brokers and their racks."""

    def __init__(
        self,
        zk: ZkSession,
        *,
        racks: Callable[[], Mapping[int, str | None]],
        touch: Callable[[Hashable], None],
        rng: random.Random,
    ) -> None:
        self._zk = zk
        self._racks = racks
        self._touch = touch
        self._rng = rng
        self._in_flight: dict[str, Creation] = {}
        self._queue: asyncio.Queue[Creation] = asyncio.Queue()
        self._runner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write what is asked for."""
        assert self._runner is None, "it is started once"
        self._runner = asyncio.create_task(self._run(), name="topic creation")

    async def close(self) -> None:
        """Stop; what is under way may or may not have been written."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])

    def is_creating(self, name: str) -> bool:
        """Whether this broker is creating a topic of that name now."""
        return name in self._in_flight

    def place(self, partitions: int, replication_factor: int) -> Assignment:
        """Replicas on the live brokers, begun at a broker by chance. Raises ApiError."""
        racks = self._racks()
        start_index, shift = (self._rng.randrange(max(len(racks), 1)) for _ in range(2))
        return place_replicas(
            racks, partitions, replication_factor, start_index=start_index, shift=shift
        )

    def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str] | None = None,
    ) -> Creation:
        """Create a topic; the one under way, if this broker is creating it already.

        The name and the settings have been checked. Raises ApiError when the numbers do not fit
        the live brokers, or ZooKeeper.
        """
        creation = self._in_flight.get(name)
        if creation is not None:
            return creation
        check_count(partitions)
        assignment = self.place(partitions, replication_factor)
        return self.create_assigned(
            checked_size(PlannedTopic(name, assignment, dict(configs or {})))
        )

    def create_assigned(self, topic: PlannedTopic) -> Creation:
        """Create a topic whose replicas are chosen already."""
        creation = Creation(topic)
        self._in_flight.setdefault(topic.name, creation)
        self._queue.put_nowait(creation)
        return creation

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < MAX_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await asyncio.gather(*(self._create(creation) for creation in batch))

    async def _create(self, creation: Creation) -> None:
        name = creation.topic.name
        try:
            creation.result = await self._write(creation.topic)
        except ZkError as error:
            logger.error("topic %s cannot be created: %s", name, error)
            creation.result = ErrorCode.UNKNOWN_SERVER_ERROR
        except Exception:
            logger.exception("topic %s cannot be created", name)
            creation.result = ErrorCode.UNKNOWN_SERVER_ERROR
        finally:
            if self._in_flight.get(name) is creation:
                del self._in_flight[name]
        self._touch(("topic", name))

    async def _write(self, topic: PlannedTopic) -> ErrorCode:
        """Write the nodes. Settings may be there without the topic: tools set them beforehand."""
        path, data = TopicAssignment.path(topic.name), _assignment(topic).encode()
        config_path = EntityConfig.path("topics", topic.name)
        config = EntityConfig(config=dict(topic.configs)).encode()
        write_config: Create | SetData = Create(config_path, config)
        tries = 0

        async def write() -> None:
            nonlocal tries
            tries += 1
            await self._zk.multi([Create(path, data), write_config])

        while True:
            try:
                await retry_until_connected(self._zk, write)
                return ErrorCode.NONE
            except MultiFailed as failed:
                if failed.index == 0 and isinstance(failed.error, NodeExists):
                    is_ours = tries > 1 and await self._holds(path, data)
                    return ErrorCode.NONE if is_ours else ErrorCode.TOPIC_ALREADY_EXISTS
                if isinstance(failed.error, NodeExists):
                    write_config = SetData(config_path, config)
                elif failed.index == 1 and isinstance(failed.error, NoNode):
                    write_config = Create(config_path, config)
                else:
                    raise
                tries = 0

    async def _holds(self, path: str, data: bytes) -> bool:
        """Whether the answer to the try before the last was lost, and the node is ours."""
        try:
            stored, _ = await retry_until_connected(self._zk, lambda: self._zk.get(path))
        except NoNode:
            return False
        return stored == data


def _assignment(topic: PlannedTopic) -> TopicAssignment:
    return TopicAssignment(partitions=dict(topic.assignment))
