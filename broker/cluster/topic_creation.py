"""Create topics in ZooKeeper, from any broker: for CreateTopics and for automatic creation.

A topic exists when its node in /brokers/topics does; the controller sees it and does the rest. Its
settings are created in the same multi. So no replica's log is ever created without them, and a
broker that loses a race for the name leaves no trace.

Nothing here blocks. `create` returns a Creation at once, whose result is set when
`touch(("topic", name))` is called.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Mapping

import attrs

from broker.cluster.internal_topics import InternalTopic
from broker.controller.replica_placement import place_replicas
from broker.controller.topic_changes import Assignment, PlannedTopic, check_count, checked_size
from broker.process.zk_retry import retry_until_connected
from protocol.errors import ApiError, ErrorCode
from zk.api import (
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    ZkError,
    ZkSession,
)
from zk.failures import describe
from zk.znodes import EntityConfig, TopicAssignment

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 100  # further creations wait
MAX_PARTITIONS_IN_FLIGHT = 20_000
"""The same in partitions; the last topic of those in flight may have more."""
MAX_PARTITIONS_WAITING = 20_000
"""Partitions of further creations; beyond, topics that clients ask about are not planned yet."""
REFUSED_AGAIN_S = 30.0
"""Time between two lines of the log on a topic that coordinators need, and that cannot be made."""


@attrs.define(eq=False)
class Creation:
    """The creation of a topic. `result` is None until its nodes are written or cannot be."""

    topic: PlannedTopic
    result: ErrorCode | None = None


class TopicCreator:
    """Writes new topics. `racks()` returns the live brokers and their racks."""

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
        self._refused_s: dict[str, float] = {}
        self._queue: asyncio.Queue[Creation] = asyncio.Queue()
        self._partitions_waiting = 0
        self._runner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write the topics in the queue."""
        assert self._runner is None, "a creator is started once"
        self._runner = asyncio.create_task(self._run(), name="topic creation")

    async def close(self) -> None:
        """Stop. Creations in flight may or may not have been written."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])

    def is_creating(self, name: str) -> bool:
        """True while this broker creates a topic of that name."""
        return name in self._in_flight

    @property
    def is_full(self) -> bool:
        """True while very many partitions wait to be written."""
        return self._partitions_waiting >= MAX_PARTITIONS_WAITING

    def place(self, partitions: int, replication_factor: int) -> Assignment:
        """Place replicas on the live brokers, from a random broker on. Raises ApiError."""
        # Two random numbers, as in Kafka: where leaders begin, and the distance of followers.
        racks = self._racks()
        start_index = self._rng.randrange(max(len(racks), 1))
        shift = self._rng.randrange(max(len(racks), 1))
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
        """Create a topic, or return the creation of it that is in flight on this broker.

        The caller has checked the name and the settings. Raises ApiError when the numbers do not
        fit the live brokers, or ZooKeeper.
        """
        # Clients that miss a topic ask again and again: one creation serves all.
        creation = self._in_flight.get(name)
        if creation is not None:
            return creation

        check_count(partitions)
        assignment = self.place(partitions, replication_factor)
        topic = PlannedTopic(name, assignment, dict(configs or {}))
        return self.create_assigned(checked_size(topic))

    def create_internal(self, topic: InternalTopic) -> Creation:
        """Create a topic that coordinators need, and say in the log why it cannot be created.

        Raises ApiError.
        """
        try:
            return self.create(
                topic.name, topic.partitions, topic.replication_factor, topic.properties
            )
        except ApiError as error:
            # Clients ask again and again.
            now_s = asyncio.get_running_loop().time()
            if now_s - self._refused_s.get(topic.name, float("-inf")) >= REFUSED_AGAIN_S:
                self._refused_s[topic.name] = now_s
                logger.error(
                    "topic %s, which coordinators need, cannot be created: %s "
                    "(%s; it passes if more brokers are starting)",
                    topic.name,
                    error.detail,
                    topic.replication_setting,
                )
            raise

    def create_assigned(self, topic: PlannedTopic) -> Creation:
        """Create a topic whose replicas are chosen already."""
        # A second creation of the name is written too, and gets TOPIC_ALREADY_EXISTS.
        creation = Creation(topic)
        self._in_flight.setdefault(topic.name, creation)
        self._queue.put_nowait(creation)
        self._partitions_waiting += len(topic.assignment)
        return creation

    async def _run(self) -> None:
        while True:
            # All that is queued is written at once, up to the bound.
            batch = [await self._queue.get()]
            room = MAX_PARTITIONS_IN_FLIGHT
            while len(batch) < MAX_IN_FLIGHT and not self._queue.empty():
                # The nodes of 100 large topics would be made in one turn (fault strangers-9).
                room -= len(batch[-1].topic.assignment)
                if room <= 0:
                    break
                batch.append(self._queue.get_nowait())
            self._partitions_waiting -= sum(len(creation.topic.assignment) for creation in batch)
            await asyncio.gather(*(self._create(creation) for creation in batch))

    async def _create(self, creation: Creation) -> None:
        name = creation.topic.name
        try:
            creation.result = await self._write(creation.topic)
        except ZkError as error:
            logger.error("topic %s cannot be created: %s", name, describe(error))
            creation.result = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(error, SessionExpired):
                # Who lost it is no controller: clients ask the next one (fault strangers-147).
                creation.result = ErrorCode.NOT_CONTROLLER
        except Exception:
            logger.exception("topic %s cannot be created", name)
            creation.result = ErrorCode.UNKNOWN_SERVER_ERROR
        finally:
            # A second creation of the name has no entry of its own.
            if self._in_flight.get(name) is creation:
                del self._in_flight[name]

        # Wake the requests that wait for it, failed or not.
        self._touch(("topic", name))

    async def _write(self, topic: PlannedTopic) -> ErrorCode:
        """Write the nodes. Settings may be there without the topic: tools can set them first."""
        path = TopicAssignment.path(topic.name)
        data = TopicAssignment(partitions=dict(topic.assignment)).encode()
        config_path = EntityConfig.path("topics", topic.name)
        config = EntityConfig(config=dict(topic.configs)).encode()
        write_config: Create | SetData = Create(config_path, config)

        # From the second try on the first one may have been carried out.
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
                # The topic exists. It may be ours, if the reply to an earlier try was lost.
                if failed.index == 0 and isinstance(failed.error, NodeExists):
                    is_ours = tries > 1 and await self._holds(path, data)
                    return ErrorCode.NONE if is_ours else ErrorCode.TOPIC_ALREADY_EXISTS

                # The settings exist, or are gone again.
                if isinstance(failed.error, NodeExists):
                    write_config = SetData(config_path, config)
                elif failed.index == 1 and isinstance(failed.error, NoNode):
                    write_config = Create(config_path, config)
                else:
                    # Not a race: /brokers/topics is missing, say.
                    raise
                tries = 0

    async def _holds(self, path: str, data: bytes) -> bool:
        try:
            node_data, _ = await retry_until_connected(self._zk, lambda: self._zk.get(path))
        except NoNode:
            # Deleted meanwhile.
            return False
        return node_data == data
