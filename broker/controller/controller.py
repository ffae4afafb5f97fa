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
    Answer,
    ClearNotifications,
    CloseChannel,
    CloseChannels,
    DeleteMarkers,
    DeleteNotifications,
    DeletePreferredElection,
    DeleteTopicZnodes,
    DropReassignments,
    Effect,
    Elect,
    MarkForDeletion,
    OpenChannel,
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
from broker.controller.requests import Sender
from broker.controller.state import ControllerState, LeaderRebalance
from protocol.errors import ApiError, ErrorCode
from zk.api import SessionExpired as ZkSessionExpired
from zk.api import SessionState, ZkError, ZkSession
from zk.failures import FailureCause, find_cause
from zk.znodes import IsrChange, LogDirEvent, PreferredReplicaElection, ZnodeError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Before another try of what failed."""


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
        rebalance: LeaderRebalance | None = None,
    ) -> None:
        self._zk = zk
        self._register = register
        self._connect = connect
        self._now_ms = now_ms
        self._listener = inter_broker_listener
        self._state = ControllerState(broker_id, delete_topic_enable, rebalance)
        self._reader = ClusterReader(zk, self._put, unclean_leader_election_enable)
        self._channels: dict[int, Channel] = {}
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._runner: asyncio.Task[None] | None = None
        self._session_id = 0
        self._request_ids = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.refusals: Counter[str] = Counter()
        """How often ZooKeeper refused what was then tried again, by the kind of effect."""

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

    def allow_unclean_election(self, allowed: bool) -> None:
        """This is the broker's own `unclean.leader.election.enable` from now on."""
        self._reader = attrs.evolve(self._reader, unclean_default=allowed)
        self._put(ElectionRulesChanged())

    def topic_config_changed(self, topic: str) -> None:
        """Try again to elect leaders for what has none: the topic's settings decide whether."""
        self._put(ElectionRulesChanged(topic))

    def is_reassigning(self, topic: str) -> bool:
        """Whether a partition of the topic is on the move, as far as this controller knows."""
        moving = (*self._state.reassignments, *self._state.arrived)
        return any(each.topic == topic for each in moving)

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic is to be deleted, as far as this controller knows."""
        return topic in self._state.deletions

    async def ask(self, request: Request) -> Any:
        """What the request comes to. Raises ApiError: NOT_CONTROLLER when this broker does not
        reign, or ceases to before there is an answer."""
        if not self._state.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        request_id = next(self._request_ids)
        answer = self._asked[request_id] = asyncio.get_running_loop().create_future()
        self._put(attrs.evolve(request, request_id=request_id))
        try:
            return await answer
        finally:
            self._asked.pop(request_id, None)

    async def start(self) -> None:
        """Begin to stand for election."""
        assert self._runner is None, "a controller is started once"
        self._session_id = self._zk.session_id
        self._zk.add_state_listener(self._session_changed)
        self._runner = asyncio.create_task(self._run(), name="controller")
        self._put(ElectionDue())

    async def close(self) -> None:
        """Stop, and let another broker be elected at once: this one has its logs to close before
        its session ends."""
        if self._runner is None:
            return
        self._zk.remove_state_listener(self._session_changed)
        state = self._state
        step_down = StepDown(state.epoch_zk_version) if state.is_active else None
        self._resign()
        self._runner.cancel()
        await asyncio.wait([self._runner])
        if step_down is not None and self._zk.state is SessionState.CONNECTED:
            await self._leave(step_down)

    async def _leave(self, step_down: StepDown) -> None:
        """Delete /controller. What cannot be done while the session lasts, its end does."""
        try:
            async with asyncio.timeout(self._zk.session_timeout_ms / 1000):
                await self._step_down(step_down)
        except (TimeoutError, EpochMoved, ZkError) as error:
            logger.info("/controller is left to the end of the session: %r", error)

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
            except ZnodeError as error:
                logger.error("%s", error)
                self._refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)
                await self._recover(event)
            except Exception:
                logger.exception("the controller failed on %s", event)
                self._refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)
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
        except ZkError as error:
            is_over = find_cause(error) is FailureCause.SESSION
            if is_over or type(effect) not in TRIED_AGAIN or not self._state.is_loaded:
                raise
            self.refusals[type(effect).__name__] += 1
            logger.error(
                "%s, again in %s s (refused %s times so far): %r",
                effect,
                RETRY_SECONDS,
                self.refusals[type(effect).__name__],
                error,
            )
            self._try_later(effect)
            return None

    def _try_later(self, effect: Effect) -> None:
        """Have the effect performed again, if this is still the same reign then."""
        reign = self._state.reign

        def put() -> None:
            if self._state.reign == reign:
                self._put(RetryDue(effect))

        asyncio.get_running_loop().call_later(RETRY_SECONDS, put)

    # --- requests

    def _answer(self, effect: Answer) -> None:
        answer = self._asked.pop(effect.request_id, None)
        if answer is None or answer.done():
            return  # whoever asked has gone
        if isinstance(effect.value, ApiError):
            answer.set_exception(effect.value)
        else:
            answer.set_result(effect.value)

    def _refuse(self, event: Event, code: ErrorCode) -> None:
        if isinstance(event, Request):
            self._answer(Answer(event.request_id, ApiError(code)))

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
        for request_id in list(self._asked):
            self._answer(Answer(request_id, ApiError(ErrorCode.NOT_CONTROLLER)))

    def _set_timer(self, effect: SetTimer) -> None:
        asyncio.get_running_loop().call_later(effect.delay_ms / 1000, self._put, effect.event)

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
            beyond=effect.beyond,
        )
        if isinstance(outcome, Elected):
            logger.info("elected controller, epoch %s", outcome.epoch)
        return outcome

    async def _step_down(self, effect: StepDown) -> None:
        await ClusterWriter(self._zk, effect.epoch_zk_version).step_down()

    async def _clear_notifications(self, effect: ClearNotifications) -> None:
        await self._reader.watch_notifications()
        for directory in (LogDirEvent.directory(), IsrChange.directory()):
            await self._writer.clear(directory)

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
    SetTimer: Controller._set_timer,
    Answer: Controller._answer,
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
    DropReassignments: lambda c, e: c._writer.drop_reassignments(e.partitions),
    DeletePreferredElection: lambda c, e: c._writer.delete_nodes([PreferredReplicaElection.path()]),
    WritePartitionStates: lambda c, e: c._writer.write_states(e.writes),
    MarkForDeletion: lambda c, e: c._writer.mark_for_deletion(e.topics),
    DeleteMarkers: lambda c, e: c._writer.delete_markers(e.topics),
    DeleteTopicZnodes: Controller._delete_topic,
    Repeat: Controller._repeat,
}

TRIED_AGAIN = frozenset(
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
        DropReassignments,
        DeletePreferredElection,
        DeleteMarkers,
        DeleteTopicZnodes,
        DeleteNotifications,
    )
)
"""What is tried again when ZooKeeper refuses it. The watch that asked for a read is spent, and
without it nothing would be heard of what it watched. States are written over the version that is
known, so a late write does no harm; of the others `failover.retry_due` says what is still wanted.

The rest: an election and a failover begin anew (`_recover`). MarkForDeletion is what a client asks
for, who hears that its time is up, and asks again; a late mark would be another topic's of that
name.
"""
