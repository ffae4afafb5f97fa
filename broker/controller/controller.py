"""The controller of this broker: one task takes events in turn and does what `decide` says.

Every broker has one; at most one in a cluster is active. An event is taken to its end before the
next: each effect is performed, what came of it is decided, and so on down, as if the whole were one
call. So nothing else can come between reading a state and writing the next, except a resignation:
when the session ends, that is decided at once, wherever the task stands, because another broker may
be the controller a moment later. Whatever the task was waiting for then is dropped (the state's
`reign` has changed).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from broker.controller.channel import Channel, Connect
from broker.controller.cluster_reader import ClusterReader, EventWatch
from broker.controller.cluster_writer import ClusterWriter, EpochMoved
from broker.controller.decide import decide
from broker.controller.effects import (
    CloseChannel,
    CloseChannels,
    DeleteMarkers,
    DeleteTopicZnodes,
    Effect,
    Elect,
    MarkForDeletion,
    OpenChannel,
    ReadAssignments,
    ReadBrokers,
    ReadCluster,
    ReadDeletions,
    ReadPartitionStates,
    ReadTopics,
    ReadUncleanElection,
    RegisterBroker,
    Repeat,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StepDown,
    WritePartitionStates,
)
from broker.controller.election import elect
from broker.controller.events import (
    ControllerMoved,
    DeletionRequested,
    Elected,
    ElectionDue,
    Event,
    FailoverFailed,
    NewSession,
    SessionExpired,
    TopicDeleted,
)
from broker.controller.requests import Sender
from broker.controller.state import ControllerState
from zk.api import SessionExpired as ZkSessionExpired
from zk.api import SessionState, ZkSession

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Before another try to register, to be elected or to take over, after one that failed."""


class Controller:
    """Stands for election from `start` to `close`, and runs the cluster while it is elected.

    `register` puts the broker's node back for a new session and is called before each election in
    one; the first registration is the caller's, before `start`. `connect(host, port)` gives a
    connection to a broker.
    """

    def __init__(
        self,
        zk: ZkSession,
        *,
        broker_id: int,
        register: Callable[[], Awaitable[Any]],
        connect: Connect,
        now_ms: Callable[[], int],
        inter_broker_listener: str = "PLAINTEXT",
        delete_topic_enable: bool = True,
        unclean_leader_election_enable: bool = False,
    ) -> None:
        self._zk = zk
        self._register = register
        self._connect = connect
        self._now_ms = now_ms
        self._listener = inter_broker_listener
        self._state = ControllerState(broker_id, delete_topic_enable)
        self._reader = ClusterReader(zk, self._put, unclean_leader_election_enable)
        self._channels: dict[int, Channel] = {}
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._runner: asyncio.Task[None] | None = None
        self._session_id = 0

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._state.is_active

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, as far as this one knows; -1 when it does not."""
        return self._state.active_controller_id

    @property
    def epoch(self) -> int:
        """The epoch of this controller; 0 while it is not active."""
        return self._state.epoch

    def request_deletion(self, topics: Iterable[str]) -> None:
        """Have the topics deleted. That they are gone is to be seen in the metadata."""
        self._put(DeletionRequested(tuple(topics)))

    async def start(self) -> None:
        """Begin to stand for election."""
        assert self._runner is None, "a controller is started once"
        self._session_id = self._zk.session_id
        self._zk.add_state_listener(self._session_changed)
        self._runner = asyncio.create_task(self._run(), name="controller")
        self._put(ElectionDue())

    async def close(self) -> None:
        """Stop. The session, closed later, takes /controller with it."""
        if self._runner is None:
            return
        self._zk.remove_state_listener(self._session_changed)
        self._resign()
        self._runner.cancel()
        await asyncio.wait([self._runner])

    # --- the queue

    def _put(self, event: Event) -> None:
        self._queue.put_nowait(event)

    def _session_changed(self, session: SessionState) -> None:
        """What is queued belongs to the session it was queued in."""
        if session is SessionState.EXPIRED:
            self._resign()
            while not self._queue.empty():
                self._queue.get_nowait()
        elif session is SessionState.CONNECTED and self._zk.session_id != self._session_id:
            self._session_id = self._zk.session_id
            self._put(NewSession())

    def _resign(self) -> None:
        for effect in decide(self._state, SessionExpired()):
            DO[type(effect)](self, effect)

    async def _run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._take(event)
            except ZkSessionExpired as expired:
                logger.info("dropped %s: %s", event, expired)
            except Exception:
                logger.exception("the controller failed on %s", event)
                await self._recover(event)

    async def _recover(self, failed: Event) -> None:
        """Let others try to take over what this broker could not; try again what must be."""
        if self._state.is_active and not self._state.is_loaded:
            try:
                await self._take(FailoverFailed())
            except Exception:
                logger.exception("the controller could not step down")
            failed = ElectionDue()
        if isinstance(failed, ElectionDue | NewSession):
            await asyncio.sleep(RETRY_SECONDS)
            self._put(failed)

    async def _take(self, event: Event) -> None:
        """Decide the event, and do all that follows from it."""
        effects = decide(self._state, event)
        reign = self._state.reign
        for effect in effects:
            outcome = await self._perform(effect)
            if outcome is not None and self._state.reign == reign:
                await self._take(outcome)
            if self._state.reign != reign:
                return  # it resigned meanwhile: the rest would be another controller's to do

    async def _perform(self, effect: Effect) -> Event | None:
        if type(effect) in DO:
            DO[type(effect)](self, effect)
            return None
        try:
            return await ASK[type(effect)](self, effect)
        except EpochMoved as moved:
            logger.warning("another controller has been elected: %s", moved)
            return ControllerMoved()

    # --- effects that are done at once

    def _open_channel(self, effect: OpenChannel) -> None:
        sender = Sender(self._state.broker_id, self._state.epoch, self._listener)
        channel = Channel(effect.broker, sender, self._connect, self._put)
        self._channels[effect.broker.id] = channel

    def _close_channel(self, effect: CloseChannel) -> None:
        self._channels.pop(effect.broker_id).close()

    def _close_channels(self, effect: CloseChannels) -> None:
        while self._channels:
            self._channels.popitem()[1].close()

    def _send(self, effect: SendLeaderAndIsr | SendStopReplica) -> None:
        self._channels[effect.broker_id].send(effect)

    def _send_to_each(self, effect: SendUpdateMetadata) -> None:
        for broker_id in effect.broker_ids:
            self._channels[broker_id].send(effect)

    # --- effects that ask ZooKeeper

    @property
    def _writer(self) -> ClusterWriter:
        return ClusterWriter(self._zk, self._state.epoch_zk_version)

    async def _register_broker(self, effect: RegisterBroker) -> None:
        await self._register()

    async def _elect(self, effect: Elect) -> Event | None:
        watch = EventWatch(self._put, ElectionDue())
        outcome = await elect(
            self._zk,
            self._state.broker_id,
            self._now_ms,
            watch,
            reigning=self._state.is_active,
        )
        if isinstance(outcome, Elected):
            logger.info("elected controller, epoch %s", outcome.epoch)
        return outcome

    async def _step_down(self, effect: StepDown) -> None:
        await ClusterWriter(self._zk, effect.epoch_zk_version).step_down()

    async def _read_cluster(self, effect: ReadCluster) -> Event:
        return await self._reader.cluster()

    async def _read_brokers(self, effect: ReadBrokers) -> Event:
        return await self._reader.brokers()

    async def _read_topics(self, effect: ReadTopics) -> Event:
        return await self._reader.topics()

    async def _read_assignments(self, effect: ReadAssignments) -> Event:
        return await self._reader.assignments(effect.topics)

    async def _read_deletions(self, effect: ReadDeletions) -> Event:
        return await self._reader.marked_for_deletion()

    async def _read_partition_states(self, effect: ReadPartitionStates) -> Event:
        return await self._reader.partition_states(effect.partitions)

    async def _read_unclean_election(self, effect: ReadUncleanElection) -> Event:
        return await self._reader.unclean_election(effect.partitions)

    async def _write_partition_states(self, effect: WritePartitionStates) -> Event:
        return await self._writer.write_states(effect.writes)

    async def _mark_for_deletion(self, effect: MarkForDeletion) -> None:
        await self._writer.mark_for_deletion(effect.topics)

    async def _delete_markers(self, effect: DeleteMarkers) -> None:
        await self._writer.delete_markers(effect.topics)

    async def _delete_topic(self, effect: DeleteTopicZnodes) -> Event:
        await self._writer.delete_topic(effect.topic)
        logger.info("topic %s is deleted", effect.topic)
        return TopicDeleted(effect.topic)

    async def _repeat(self, effect: Repeat) -> Event:
        return effect.event


DO: Mapping[type[Any], Callable[[Controller, Any], None]] = {
    OpenChannel: Controller._open_channel,
    CloseChannel: Controller._close_channel,
    CloseChannels: Controller._close_channels,
    SendLeaderAndIsr: Controller._send,
    SendStopReplica: Controller._send,
    SendUpdateMetadata: Controller._send_to_each,
}

ASK: Mapping[type[Any], Callable[[Controller, Any], Awaitable[Event | None]]] = {
    RegisterBroker: Controller._register_broker,
    Elect: Controller._elect,
    StepDown: Controller._step_down,
    ReadCluster: Controller._read_cluster,
    ReadBrokers: Controller._read_brokers,
    ReadTopics: Controller._read_topics,
    ReadAssignments: Controller._read_assignments,
    ReadDeletions: Controller._read_deletions,
    ReadPartitionStates: Controller._read_partition_states,
    ReadUncleanElection: Controller._read_unclean_election,
    WritePartitionStates: Controller._write_partition_states,
    MarkForDeletion: Controller._mark_for_deletion,
    DeleteMarkers: Controller._delete_markers,
    DeleteTopicZnodes: Controller._delete_topic,
    Repeat: Controller._repeat,
}
