"""The controller of this broker: one task takes events in turn and performs what `decide` returns.

Every broker has one; at most one in a cluster is active. An event is finished before the next: each
effect is performed, the event that it returns is decided, and so on, as if all of it were one call.
So nothing comes between reading a state and writing the next one, except a resignation. The end of
the session is decided at once, wherever the task stands, because another broker may be the
controller a moment later. The result that the task was waiting for is dropped then (the state's
`resignations` has changed).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import attrs

from broker.controller.channel import Channel, Connect
from broker.controller.cluster_reader import ClusterReader, EventWatch
from broker.controller.cluster_writer import ClusterWriter, EpochMoved
from broker.controller.decide import decide
from broker.controller.effects import (
    ClearNotifications,
    CloseChannel,
    CloseChannels,
    DeleteMarkers,
    DeleteNotifications,
    DeletePreferredElection,
    DeleteToolReassignments,
    DeleteTopicZnodes,
    Effect,
    Elect,
    MarkForDeletion,
    OpenChannel,
    PinTopicIds,
    ReadAssignments,
    ReadBrokers,
    ReadCluster,
    ReadDeletions,
    ReadIsrChanges,
    ReadLogDirEvents,
    ReadPartitionStates,
    ReadPreferredElection,
    ReadReassignments,
    ReadTopics,
    ReadUncleanElection,
    RefreshLeadership,
    RegisterBroker,
    Repeat,
    Reply,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    SetTimer,
    StepDown,
    WatchLeadership,
    WriteAssignments,
    WritePartitionStates,
)
from broker.controller.election import elect
from broker.controller.events import (
    ControllerMoved,
    DeletionRequested,
    Elected,
    ElectionDue,
    ElectionRulesChanged,
    Event,
    FailoverFailed,
    NewSession,
    Request,
    RetryDue,
    SessionExpired,
    TopicDeleted,
)
from broker.controller.requests import ControllerIdentity
from broker.controller.state import ControllerState, LeaderRebalance
from protocol.errors import ApiError, ErrorCode
from protocol.state_checks import STATE_CHECKS
from zk.api import SessionExpired as ZkSessionExpired
from zk.api import SessionState, ZkError, ZkSession
from zk.failures import FailureCause, find_cause
from zk.znodes import IsrChange, LogDirEvent, PreferredReplicaElection, ZnodeError

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 1.0
"""The pause before another try."""


class Controller:
    """Stands for election from `start` to `close`, and runs the cluster while it is elected.

    `register` creates the broker's node again for a new session; it is called before each election
    in a new session. The caller makes the first registration, before `start`. `connect(host, port)`
    opens a connection to a broker.
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
        controller_listener: str = "PLAINTEXT",
        delete_topic_enable: bool = True,
        unclean_leader_election_enable: bool = False,
        rebalance: LeaderRebalance | None = None,
    ) -> None:
        self._zk = zk
        self._register = register
        self._connect = connect
        self._now_ms = now_ms
        self._inter_broker_listener = inter_broker_listener
        self._controller_listener = controller_listener

        self._state = ControllerState(broker_id, delete_topic_enable, rebalance)
        self._reader = ClusterReader(zk, self._put, unclean_leader_election_enable)
        self._channels: dict[int, Channel] = {}

        # Watches, responses and requests come in here; one is decided at a time.
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._runner: asyncio.Task[None] | None = None
        self._session_id = 0

        # decide knows a request by its id; the future of its caller waits here.
        self._request_ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.refusals: Counter[str] = Counter()
        """How often ZooKeeper refused an effect that was then tried again, by kind of effect."""

    # --- what others may know and ask

    @property
    def is_active(self) -> bool:
        """True while this broker is the controller."""
        return self._state.is_active

    @property
    def controller_id(self) -> int:
        """The id of the controller, as far as this broker knows it; -1 when it does not."""
        return self._state.active_controller_id

    @property
    def epoch(self) -> int:
        """The epoch of this controller; 0 while it is not active."""
        return self._state.epoch

    @property
    def state(self) -> ControllerState:
        """The picture of the cluster, to be read alone; empty while this is not the controller."""
        return self._state

    @property
    def queued_events(self) -> int:
        """Number of events that wait to be decided."""
        return self._queue.qsize()

    @property
    def queued_requests(self) -> dict[int, int]:
        """Number of requests that wait to be sent, by the id of their broker."""
        return {broker_id: channel.queued for broker_id, channel in self._channels.items()}

    def check(self) -> None:
        """Assert the invariants of the state, between two events. For tests."""
        self._state.check()
        assert self._channels.keys() <= self._state.brokers.keys()

    def request_deletion(self, topics: Iterable[str]) -> None:
        """Start the deletion of the topics. The metadata shows when they are gone."""
        self._put(DeletionRequested(tuple(topics)))

    def allow_unclean_election(self, allowed: bool) -> None:
        """Set the broker's own `unclean.leader.election.enable`."""
        self._reader = attrs.evolve(self._reader, unclean_default=allowed)
        self._put(ElectionRulesChanged())

    def topic_config_changed(self, topic: str) -> None:
        """Call this when the topic's settings changed: they may allow elections now."""
        self._put(ElectionRulesChanged(topic))

    def denies(self, topic: str) -> bool:
        """Return whether this is the controller, and knows of no such topic.

        A broker's metadata, its own too, may show a topic longer.
        """
        return self._state.is_loaded and topic not in self._state.assignments

    def is_reassigning(self, topic: str) -> bool:
        """True if a partition of the topic is being reassigned, as far as this broker knows."""
        # A request asks it of 5,000 topics, and as many partitions may be on the move.
        state = self._state
        return any(
            partition in state.reassignments or partition in state.completed_reassignments
            for partition in state.partitions_of(topic)
        )

    def is_deleting(self, topic: str) -> bool:
        """True if the topic is to be deleted, as far as this broker knows."""
        return topic in self._state.deletions

    async def ask(self, request: Request) -> Any:
        """Decide the request and return the reply.

        Raises the ApiError that the decision replies with, and NOT_CONTROLLER when this broker is
        not the controller, or resigns before there is a reply.
        """
        if not self._state.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)

        request_id = next(self._request_ids)
        reply = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._put(attrs.evolve(request, request_id=request_id))
        try:
            return await reply
        finally:
            self._waiting.pop(request_id, None)

    # --- start and stop

    async def start(self) -> None:
        """Begin to stand for election."""
        assert self._runner is None, "a controller is started once"
        self._session_id = self._zk.session_id
        self._zk.add_state_listener(self._session_changed)
        self._runner = asyncio.create_task(self._run(), name="controller")
        self._put(ElectionDue())

    async def close(self) -> None:
        """Stop, and let another broker be elected at once.

        This broker still has its logs to close before its session ends.
        """
        if self._runner is None:
            return
        self._zk.remove_state_listener(self._session_changed)

        # Resign first, so that nothing is written while the task ends.
        state = self._state
        step_down = StepDown(state.epoch_zk_version) if state.is_active else None
        self._resign()
        self._runner.cancel()
        await asyncio.wait([self._runner])

        # Free the place now that nothing of this controller runs.
        if step_down is not None and self._zk.state is SessionState.CONNECTED:
            await self._leave(step_down)

    async def _leave(self, step_down: StepDown) -> None:
        """Delete /controller. If that fails, the end of the session deletes it."""
        try:
            async with asyncio.timeout(self._zk.session_timeout_ms / 1000):
                await self._step_down(step_down)
        except (TimeoutError, EpochMoved, ZkError) as error:
            logger.info("/controller is left to the end of the session: %r", error)

    # --- the queue

    def _put(self, event: Event) -> None:
        self._queue.put_nowait(event)

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.EXPIRED:
            # All queued events belong to the session that ended.
            self._resign()
            while not self._queue.empty():
                self._queue.get_nowait()
        elif session is SessionState.CONNECTED and self._zk.session_id != self._session_id:
            # A mere reconnection keeps the session, and /controller with it.
            self._session_id = self._zk.session_id
            self._put(NewSession())

    def _resign(self) -> None:
        # A resignation cannot wait: all of its effects are in DO.
        for effect in self._decide(SessionExpired()):
            DO[type(effect)](self, effect)
        assert not self._channels
        assert not self._waiting

    async def _run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._handle(event)
            except ZkSessionExpired as expired:
                logger.info("dropped %s: %s", event, expired)
            except ZnodeError as error:
                # A broken node is no fault of this code: its path says more than a stack.
                logger.error("%s", error)
                self._refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)
                await self._recover(event)
            except Exception:
                # The task goes on: the next change makes good what this event left.
                logger.exception("the controller failed on %s", event)
                self._refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)
                await self._recover(event)

    async def _recover(self, failed: Event) -> None:
        """Step down after a failed takeover, so that others may try; repeat a failed election."""
        if self._state.is_active and not self._state.is_loaded:
            # Elected, but the cluster could not be read.
            try:
                await self._handle(FailoverFailed())
            except Exception:
                logger.exception("the controller could not step down")
            failed = ElectionDue()

        # Without another try nobody would watch /controller.
        if isinstance(failed, ElectionDue | NewSession):
            await asyncio.sleep(RETRY_DELAY_S)
            self._put(failed)

    async def _handle(self, event: Event) -> None:
        """Decide the event, and perform everything that follows from it."""
        # Depth first: what an effect brings is decided before the next effect.
        effects = self._decide(event)
        resignations = self._state.resignations
        for effect in effects:
            result = await self._perform(effect)
            if result is not None and self._state.resignations == resignations:
                await self._handle(result)
            if self._state.resignations != resignations:
                return  # it resigned meanwhile: the rest is up to another controller

    def _decide(self, event: Event) -> list[Effect]:
        effects = decide(self._state, event, self._now_ms())
        if STATE_CHECKS.is_on:
            STATE_CHECKS.run(self._state.check)
        return effects

    async def _perform(self, effect: Effect) -> Event | None:
        # Effects without ZooKeeper are done at once.
        if type(effect) in DO:
            DO[type(effect)](self, effect)
            return None

        try:
            return await ASK[type(effect)](self, effect)
        except EpochMoved as moved:
            logger.warning("another controller has been elected: %s", moved)
            return ControllerMoved()
        except ZkError as error:
            # No other try in a session that is over, nor in a takeover: that starts over.
            is_session_over = find_cause(error) is FailureCause.SESSION
            if is_session_over or type(effect) not in RETRIED or not self._state.is_loaded:
                raise
            self.refusals[type(effect).__name__] += 1
            logger.error(
                "%s, again in %s s (refused %s times so far): %r",
                effect,
                RETRY_DELAY_S,
                self.refusals[type(effect).__name__],
                error,
            )
            self._retry_later(effect)
            return None

    def _retry_later(self, effect: Effect) -> None:
        """Put a RetryDue, unless this controller resigns before."""
        resignations = self._state.resignations

        def put() -> None:
            if self._state.resignations == resignations:
                self._put(RetryDue(effect))

        asyncio.get_running_loop().call_later(RETRY_DELAY_S, put)

    # --- requests

    def _reply(self, effect: Reply) -> None:
        reply = self._waiting.pop(effect.request_id, None)
        if reply is None or reply.done():
            return  # the caller has gone
        if isinstance(effect.value, ApiError):
            reply.set_exception(effect.value)
        else:
            reply.set_result(effect.value)

    def _refuse(self, event: Event, code: ErrorCode) -> None:
        if isinstance(event, Request):
            self._reply(Reply(event.request_id, ApiError(code)))

    # --- effects without ZooKeeper

    def _open_channel(self, effect: OpenChannel) -> None:
        # What was to be sent to the old address would be lost (fault strangers-130, was: None).
        moved = self._channels.get(effect.broker.id)
        if moved is not None:
            moved.move(effect.broker)
            return

        sender = ControllerIdentity(
            self._state.broker_id,
            self._state.epoch,
            self._inter_broker_listener,
            self._controller_listener,
        )
        channel = Channel(effect.broker, sender, self._connect, self._put)
        self._channels[effect.broker.id] = channel

    def _close_channel(self, effect: CloseChannel) -> None:
        self._channels.pop(effect.broker_id).close()

    def _close_channels(self, effect: CloseChannels) -> None:
        while self._channels:
            _, channel = self._channels.popitem()
            channel.close()

        # Their callers look for the next controller.
        for request_id in list(self._waiting):
            self._reply(Reply(request_id, ApiError(ErrorCode.NOT_CONTROLLER)))

    def _set_timer(self, effect: SetTimer) -> None:
        # Nobody cancels a timer: its event has the count of resignations, and may be void.
        asyncio.get_running_loop().call_later(effect.delay_ms / 1000, self._put, effect.event)

    def _send(self, effect: SendLeaderAndIsr | SendStopReplica) -> None:
        self._channels[effect.broker_id].send(effect)

    def _send_to_all(self, effect: SendUpdateMetadata) -> None:
        for broker_id in effect.broker_ids:
            self._channels[broker_id].send(effect)

    # --- effects in ZooKeeper

    @property
    def _writer(self) -> ClusterWriter:
        # The version changes with each election: make the writer for each write.
        return ClusterWriter(self._zk, self._state.epoch_zk_version)

    async def _register_broker(self, effect: RegisterBroker) -> None:
        await self._register()

    async def _elect(self, effect: Elect) -> Event | None:
        # Any change of /controller calls for another look.
        watch = EventWatch(self._put, ElectionDue())
        result = await elect(
            self._zk,
            self._state.broker_id,
            self._now_ms,
            watch,
            is_controller=self._state.is_active,
            beyond=effect.beyond,
        )
        if isinstance(result, Elected):
            logger.info("elected controller, epoch %s", result.epoch)
        return result

    async def _step_down(self, effect: StepDown) -> None:
        await ClusterWriter(self._zk, effect.epoch_zk_version).step_down()

    async def _clear_notifications(self, effect: ClearNotifications) -> None:
        # Watch first, so that none comes unseen after the deletion.
        await self._reader.watch_notifications()
        for directory in (LogDirEvent.directory(), IsrChange.directory()):
            await self._writer.clear(directory)

    async def _delete_topic(self, effect: DeleteTopicZnodes) -> Event:
        await self._writer.delete_topic(effect.topic)
        logger.info("topic %s is deleted", effect.topic)
        return TopicDeleted(effect.topic)

    async def _pin_topic_ids(self, effect: PinTopicIds) -> None:
        try:
            await self._writer.pin_topic_ids(effect.topics)
        except ZkSessionExpired:
            raise
        except (ZkError, ZnodeError) as error:
            # The next controller tries again; until then all derive the same ids.
            logger.warning("the ids of %d topics are not pinned: %r", len(effect.topics), error)

    async def _repeat(self, effect: Repeat) -> Event:
        # The loop's other work comes in between.
        await asyncio.sleep(0)
        return effect.event


DO: Mapping[type[Any], Callable[[Controller, Any], None]] = {
    OpenChannel: Controller._open_channel,
    CloseChannel: Controller._close_channel,
    CloseChannels: Controller._close_channels,
    SendLeaderAndIsr: Controller._send,
    SendStopReplica: Controller._send,
    SendUpdateMetadata: Controller._send_to_all,
    SetTimer: Controller._set_timer,
    Reply: Controller._reply,
}

ASK: Mapping[type[Any], Callable[[Controller, Any], Awaitable[Event | None]]] = {
    RegisterBroker: Controller._register_broker,
    Elect: Controller._elect,
    StepDown: Controller._step_down,
    ReadCluster: lambda c, e: c._reader.cluster(),
    ReadBrokers: lambda c, e: c._reader.brokers(),
    ReadTopics: lambda c, e: c._reader.topics(),
    ReadAssignments: lambda c, e: c._reader.assignments(e.topics),
    ReadDeletions: lambda c, e: c._reader.marked_for_deletion(),
    ReadPartitionStates: lambda c, e: c._reader.partition_states(e.partitions),
    ReadUncleanElection: lambda c, e: c._reader.unclean_election(e.partitions),
    RefreshLeadership: lambda c, e: c._reader.leadership(e.partitions),
    WatchLeadership: lambda c, e: c._reader.watched_leadership(e.partition),
    ReadReassignments: lambda c, e: c._reader.reassignments(),
    ReadPreferredElection: lambda c, e: c._reader.preferred_election(),
    ReadIsrChanges: lambda c, e: c._reader.isr_changes(),
    ReadLogDirEvents: lambda c, e: c._reader.log_dir_events(),
    ClearNotifications: Controller._clear_notifications,
    DeleteNotifications: lambda c, e: c._writer.delete_nodes(e.paths),
    WriteAssignments: lambda c, e: c._writer.write_assignments(e.writes),
    DeleteToolReassignments: lambda c, e: c._writer.delete_reassignments(e.partitions),
    DeletePreferredElection: lambda c, e: c._writer.delete_nodes([PreferredReplicaElection.path()]),
    WritePartitionStates: lambda c, e: c._writer.write_states(e.writes),
    PinTopicIds: Controller._pin_topic_ids,
    MarkForDeletion: lambda c, e: c._writer.mark_for_deletion(e.topics),
    DeleteMarkers: lambda c, e: c._writer.delete_markers(e.topics),
    DeleteTopicZnodes: Controller._delete_topic,
    Repeat: Controller._repeat,
}

RETRIED = frozenset(
    (
        ReadBrokers,
        ReadTopics,
        ReadAssignments,
        ReadDeletions,
        ReadPartitionStates,
        ReadUncleanElection,
        RefreshLeadership,
        WatchLeadership,
        ReadReassignments,
        ReadPreferredElection,
        ReadIsrChanges,
        ReadLogDirEvents,
        WritePartitionStates,
        WriteAssignments,
        DeleteToolReassignments,
        DeletePreferredElection,
        DeleteMarkers,
        DeleteTopicZnodes,
        DeleteNotifications,
    )
)
"""The effects that are tried again when ZooKeeper refuses them.

The watch that asked for a read is spent: without another read nothing would be seen of that node.
States are written over the version that is known, so a late write does no harm. Of the other writes
`failover.handle_retry_due` keeps those that are still wanted.

Not here: elections and failovers start over (`_recover`). MarkForDeletion is for a client whose
request times out and who asks again; a late marker would be for another topic of that name.
"""
