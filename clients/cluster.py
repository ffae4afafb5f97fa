"""The cluster as a client knows it: brokers, leaders, coordinators, and a connection to each.

The view is a snapshot (`ClusterView`) that each refresh replaces as a whole. Refreshes are paced
and single-flight: a caller that asks while one is in flight shares it. Every call that can fail
with an error that may pass (no leader yet, no coordinator yet, a broker that restarts) is repeated
at another broker, `retry.backoff.ms` apart, until a deadline.

What a client's other `Cluster`s have learned counts as well (`known_cluster`). A call that waits
for a coordinator ends when another broker is known to be it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from clients.arguments import check_topic
from clients.cluster_view import BrokerEndpoint, ClusterView, named_protocols, parse_bootstrap
from clients.config import ClusterConfig
from clients.doubts import Doubts
from clients.errors import (
    BrokerError,
    ConnectionFailed,
    ConnectionRefused,
    DeadlineExceeded,
    KgroupError,
    NoBrokersAvailable,
    UnsupportedApi,
)
from clients.known_cluster import Key, KnownCluster
from clients.security import login_of, tls_of
from clients.transport.connection import Connection
from clients.transport.connections import PATIENCE_S, Ask, Connect, Connections
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import (
    GROUP_KEY,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SOON_S = 10.0
"""Time after which an error comes early enough to need no word before."""

T = TypeVar("T")

FindBrokers = Callable[[], Awaitable[list[str]]]
"""Returns addresses of brokers from another source; raises NoBrokersAvailable."""


class Cluster:
    """A cluster's brokers, and connections to them. One client owns it; `close` closes all."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = None,
        config: ClusterConfig | None = None,
        create_topics: bool = False,
        find_brokers: FindBrokers | None = None,
        connect: Connect = Connection.open,
        known: KnownCluster | None = None,
        waits_for_dead: bool = True,
    ) -> None:
        self.waits_for_dead = waits_for_dead
        """False if a broker where nobody listens is not asked again, for another to take over."""
        self.config = config or ClusterConfig()
        self.known = known or KnownCluster()
        """What this client's other clusters know too."""

        # Brokers that are registered in ZooKeeper are asked when no known one responds.
        if self.config.zookeeper_connect:
            from clients.registered_brokers import brokers_registered_at

            timeout_ms = self.config.socket_connection_setup_timeout_ms
            zookeeper = self.config.zookeeper_connect
            protocol = self.config.security_protocol.upper()
            find_brokers = partial(brokers_registered_at, zookeeper, timeout_ms, protocol)

        self._find_brokers = find_brokers
        self.bootstrap = [] if find_brokers and not bootstrap else parse_bootstrap(bootstrap)
        if known is None:
            _warn_of_protocols(bootstrap, self.config.security_protocol.upper())

        self.client_id = self.config.client_id if client_id is None else client_id

        self.complaints = self.known.complaints
        self.view = ClusterView()
        self.topics_of_interest: set[str] = set()
        """Topics that a refresh of all asks for; they enter with the first question about them."""

        self._create_topics = create_topics
        self._connections = Connections(
            self.config,
            self.client_id,
            connect,
            self.known,
            tls=tls_of(self.config),
            login=login_of(self.config),
        )
        self._waits: dict[Key, dict[asyncio.Timeout, BrokerEndpoint]] = {}
        """Calls that wait for a coordinator, and for which broker."""

        # ---- refreshes: one at a time, paced
        self._refresh_lock = asyncio.Lock()
        self._refreshes = 0

        # Topics that are to be asked for, by callers that wait for the refresh in flight.
        self._awaited_topics: set[str] = set()

        # On the loop's clock: the last attempt, the last response that named brokers, and the last
        # one with all topics of interest.
        self._tried_at = float("-inf")
        self._responded_at = float("-inf")
        self._refreshed_at = float("-inf")

        # Topics of the last attempt, None for all: others are asked for without a pause.
        self._tried_topics: frozenset[str] | None = frozenset()

        # Topics of the last response, None for all: what a waiting caller may share.
        self._refreshed_topics: frozenset[str] | None = frozenset()

        self._doubts = Doubts(self._ask_each_broker, self._give_up)

        # Brokers read from ZooKeeper, and the time before which it is not read again.
        self._registered: list[BrokerEndpoint] = []
        self._look_again_at = float("-inf")
        self._why_none_is_registered = ""
        self._closed = False

    @property
    def brokers(self) -> Mapping[int, BrokerEndpoint]:
        """Live brokers by id, as of the last refresh of any of this client's clusters."""
        return self.known.brokers

    @property
    def controller_id(self) -> int:
        """The controller's broker id; -1 if unknown."""
        return self.view.controller_id

    @property
    def stale(self) -> bool:
        """True if something in the view is older than `metadata.max.age.ms`."""
        return _now() - self._refreshed_at > self.config.metadata_max_age_ms / 1000

    def is_just_read(self, topics: Iterable[str]) -> bool:
        """Return whether a refresh of these topics would have to wait for `retry.backoff.ms`."""
        last_topics = self._refreshed_topics
        has_them = last_topics is None or last_topics.issuperset(topics)
        return has_them and _now() < self._responded_at + self.config.retry_backoff_ms / 1000

    async def refresh(
        self, topics: Iterable[str] | None = None, *, all_topics: bool = False
    ) -> None:
        """Ask a broker for the cluster, and for `topics`; for all topics of interest without them.

        They are all asked for, too, if the view is stale. Callers that wait for a refresh in flight
        share it, or the next one. Two refreshes are at least `retry.backoff.ms` apart, unless the
        last one did not ask for one of these. Raises NoBrokersAvailable, ConnectionFailed.
        """
        requested = frozenset(topics or ())
        for name in requested:
            # Else it would be asked for with the topics of others (fault strangers-151).
            check_topic(name)
        self.topics_of_interest |= requested
        self._awaited_topics |= requested
        before = self._refreshes
        async with self._refresh_lock:
            # Another caller may have refreshed these topics while this one waited for the lock.
            last_topics = self._refreshed_topics
            wanted = self.topics_of_interest if topics is None else requested
            is_shared = last_topics is None or (not all_topics and wanted <= last_topics)
            if self._refreshes > before and is_shared:
                return
            # Who waited for the lock would wait for the pace too, each after the other
            # (fault strangers-172).
            if self._closed:
                raise NoBrokersAvailable("the client is closed")

            tried = self._tried_topics
            if tried is None or requested <= tried:
                await self._pace()

            asked = self.topics_of_interest
            # A new topic costs a question for itself, as in KIP-526, not for all that were asked
            # for before (fault scale-C4).
            if topics is not None and not self.stale:
                asked = self._awaited_topics
            names = None if all_topics else frozenset(asked)
            has_all = names is None or names >= self.topics_of_interest
            self._tried_topics = names

            try:
                response = await self._ask_for_metadata(names)
            finally:
                # A failed attempt counts too: pauses must not depend on success.
                self._tried_at = _now()

            # A broker that has just started knows no brokers. The old view is better than that.
            if response.brokers:
                self._learn(response, whole=all_topics)
                self._responded_at = self._tried_at
                if has_all:
                    self._refreshed_at = self._tried_at
                self.known.learn_brokers(self.view.brokers, response.cluster_id)
                await self._settle_doubts()
            self._refreshes += 1
            self._refreshed_topics = names
            self._awaited_topics -= self._awaited_topics if names is None else names

    async def settle(self, topics: Collection[str]) -> frozenset[str]:
        """Find out whether leaders that are older than others were are right.

        Each broker is asked about these topics. Returns those that were created again, as far as
        can be told: all brokers that may lead them respond, and the view has what the one that
        knows best tells. One that does not respond may be a younger leader.
        """
        return await self._doubts.settle(topics)

    async def _ask_each_broker(self, topics: frozenset[str]) -> dict[str, set[int]]:
        """Ask each broker about topics; return which of those that may lead have not told of it."""
        names = [MetadataRequestTopic(name=name) for name in sorted(topics)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        responses: dict[int, MetadataResponse] = {}

        async def ask(broker: BrokerEndpoint) -> None:
            with suppress(KgroupError):
                connection = await self._connections.to(broker, "metadata")
                response: MetadataResponse = await connection.call(request)
                # A broker that has just started knows no brokers.
                if response.brokers:
                    responses[broker.node_id] = response
                    self._learn(response, asked=topics)

        questions = {node: asyncio.create_task(ask(b)) for node, b in self.brokers.items()}
        if not questions:
            return {}
        try:
            await asyncio.wait(questions.values(), timeout=PATIENCE_S)
            # Those that count may be far away, and log in first (fault strangers-88, was: {}).
            awaited = {questions[node] for node in self._may_lead(topics) & questions.keys()}
            if awaited:
                await asyncio.wait(awaited)
        finally:
            for question in questions.values():
                question.cancel()
            await asyncio.gather(*questions.values(), return_exceptions=True)

        told = {
            (topic.name, node)
            for node, response in responses.items()
            for topic in response.topics
            if not topic.error_code
        }
        missing = {
            name: {node for node in self._may_lead([name]) if (name, node) not in told}
            for name in topics
        }
        if settled := {name for name, nodes in missing.items() if not nodes}:
            self.view = self.view.without(settled)
            for response in responses.values():
                self._learn(response, asked=topics)
        return missing

    def _may_lead(self, topics: Collection[str]) -> set[int]:
        """Return the brokers that may lead a partition of these topics, all if none is known to."""
        # Former replicas know where one was moved to (fault strangers-87, was: set()).
        candidates = self.view.replicas(topics) & self.brokers.keys()
        return candidates or {*self.brokers}

    def _learn(
        self, response: MetadataResponse, *, whole: bool = False, asked: Collection[str] = ()
    ) -> None:
        """Learn from a response; `asked` are the topics of which several brokers are asked.

        However many of them know of older leaders alone, the one that knows better counts.
        """
        before = self.view.older.keys()
        self.view = self.view.without_doubts(asked).updated(response, whole=whole)
        self._doubts.refute(before - self.view.older.keys())

    def _give_up(self, topics: Collection[str]) -> None:
        """Forget what nobody tells any more."""
        self.view = self.view.without(self.view.older.keys() & topics)

    async def _settle_doubts(self) -> None:
        """Find out whether topics whose state is older, time and again, were created again."""
        self._doubts.keep(self.view.older)
        if doubtful := self.view.find_doubtful():
            # A leader that is deposed acknowledges what is lost later (fault strangers-83).
            await self.settle(doubtful)

    async def refresh_unless_just_read(self, topics: Iterable[str]) -> None:
        """Refresh these topics, unless that would have to wait. Raises as `refresh`."""
        if not self.is_just_read(topics):
            await self.refresh(topics)

    async def leader(
        self, partition: TopicPartition, *, timeout_ms: int | None = None
    ) -> BrokerEndpoint:
        """Return the leader of a partition; wait until there is one. Raises as `partitions`."""

        def find() -> BrokerEndpoint | None:
            return self.brokers.get(self.view.leaders.get(partition, -1))

        what = f"leader of {partition}"
        return await self._wait_for(find, partition.topic, what, timeout_ms, partition=partition)

    async def partitions(self, topic: str, *, timeout_ms: int | None = None) -> int:
        """Return the number of partitions; wait until the topic exists.

        Raises BrokerError for a topic with an invalid name, or without permission;
        DeadlineExceeded.
        """

        def find() -> int | None:
            return len(self.view.topics.get(topic, ())) or None

        return await self._wait_for(find, topic, f"topic {topic}", timeout_ms)

    async def coordinator(self, group_id: str, *, timeout_ms: int | None = None) -> BrokerEndpoint:
        """Return the broker that keeps a group. It is remembered until `forget_coordinator`.

        While a new cluster creates the offsets topic, brokers respond with
        COORDINATOR_NOT_AVAILABLE, so the question is repeated. Raises BrokerError,
        DeadlineExceeded.
        """
        find = partial(self.find_coordinator, group_id)
        return await self.retrying(find, f"coordinator of group {group_id}", timeout_ms)

    def learn_coordinators(self, coordinators: Mapping[str, BrokerEndpoint]) -> None:
        """Remember the coordinators of groups that brokers listed as theirs."""
        self.known.learn_coordinators(
            {(GROUP_KEY, group_id): endpoint for group_id, endpoint in coordinators.items()}
        )

    def forget_coordinator(
        self, key: str, key_type: int = GROUP_KEY, *, endpoint: BrokerEndpoint | None = None
    ) -> None:
        """Forget the coordinator of a group, or of another key; only `endpoint`, if it is given.

        It denied being the coordinator, or did not respond.
        """
        self.known.forget_coordinator((key_type, key), endpoint)

    async def call_coordinator(
        self,
        group_id: str,
        request: Any,
        purpose: str = "coordinator",
        *,
        timeout_ms: int | None = None,
        is_doubtful: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Send a request to a group's coordinator. Raises as `ask_coordinator`."""
        return await self.ask_coordinator(
            group_id,
            lambda connection: connection.call(request, timeout_ms=timeout_ms),
            purpose,
            is_doubtful=is_doubtful,
        )

    async def ask_coordinator(
        self,
        group_id: str,
        ask: Ask[T],
        purpose: str = "coordinator",
        *,
        is_doubtful: Callable[[T], bool] | None = None,
        is_parked: bool = False,
    ) -> T:
        """Ask a group's coordinator. Raises as `coordinator`, and errors of `ask`.

        What `is_parked` there is waited for in silence. Everything else has its response soon, or
        the other brokers are asked whether they know another coordinator by now.

        A response that `is_doubtful` counts only if other brokers name no other coordinator: one
        that was stopped, or is cut off from the cluster, may not know that it is none any longer.

        A coordinator that cannot be reached is tried again, like one that is not known yet: until
        the cluster notices that a broker is gone, the broker is still named as coordinator. The
        caller checks the response for errors, and calls `forget_coordinator` if they say so.
        """

        key = GROUP_KEY, group_id

        async def connect() -> tuple[BrokerEndpoint, Connection]:
            endpoint = await self.find_coordinator(group_id)
            try:
                opening = partial(self.connection, endpoint, purpose)
                return endpoint, await self.while_it_coordinates(key, endpoint, opening)
            except ConnectionFailed:
                # The coordinator may have moved, so the next attempt asks who it is.
                self.coordinator_failed(group_id, endpoint)
                raise

        endpoint, connection = await self.retrying(connect, f"coordinator of group {group_id}")
        try:
            response = await self.while_it_coordinates(
                key, endpoint, partial(ask, connection), is_parked=is_parked
            )
            if is_doubtful is not None and is_doubtful(response):
                await self._refute(group_id, endpoint)
            return response
        except ConnectionFailed:
            # The request may have been performed: only the caller can say whether to repeat it.
            self.coordinator_failed(group_id, endpoint)
            raise

    def coordinator_failed(
        self, key: str, endpoint: BrokerEndpoint, key_type: int = GROUP_KEY
    ) -> None:
        """Note that a coordinator did not respond: other brokers are asked who it is."""
        self.known.note_silence(endpoint)
        self.forget_coordinator(key, key_type, endpoint=endpoint)

    async def _refute(self, group_id: str, endpoint: BrokerEndpoint) -> None:
        """Raise ConnectionFailed if other brokers name another coordinator than `endpoint`."""
        try:
            async with asyncio.timeout(self.config.request_timeout_ms / 1000):
                coordinator = await self._ask_others((GROUP_KEY, group_id), endpoint)
        except (KgroupError, TimeoutError):
            # Nobody says otherwise.
            return
        if coordinator.address != endpoint.address:
            raise _moved((GROUP_KEY, group_id), endpoint)

    async def _ask_others(self, key: Key, endpoint: BrokerEndpoint) -> BrokerEndpoint:
        """Return whom the brokers beside `endpoint` name as coordinator, and learn another one.

        Raises as `find_coordinator`.
        """
        others = [broker for broker in self.brokers.values() if broker.address != endpoint.address]
        key_type, name = key
        coordinator = await self._ask_for_coordinator(
            name, key_type, partial(self._connections.first_answer, others)
        )
        if coordinator.address != endpoint.address:
            self.known.learn_coordinators({key: coordinator})
        return coordinator

    async def _look_for_another(self, key: Key, endpoint: BrokerEndpoint) -> None:
        """Ask the other brokers again and again, until they name another; its waits end then."""
        while True:
            with suppress(KgroupError):
                coordinator = await self._ask_others(key, endpoint)
                if coordinator.address != endpoint.address:
                    return
            await asyncio.sleep(PATIENCE_S)

    async def check_coordinator(self, key: str, limit_ms: int, key_type: int = GROUP_KEY) -> None:
        """Look for another coordinator if the known one does not respond within `limit_ms`.

        It ends calls that wait for the known one, such as a JoinGroup, which has no response for as
        long as other members take. Raises as `find_coordinator`.
        """
        endpoint = self.known.coordinator((key_type, key))
        if endpoint is not None:
            # The question matters less than that it is answered: who was deposed says so itself.
            request = FindCoordinatorRequest(key=key, key_type=key_type)

            async def ask() -> None:
                connection = await self.connection(endpoint)
                await connection.call(request, timeout_ms=limit_ms)

            try:
                async with asyncio.timeout(limit_ms / 1000):
                    await self.while_it_coordinates((key_type, key), endpoint, ask)
                return
            except (ConnectionFailed, TimeoutError):
                self.coordinator_failed(key, endpoint, key_type)
        await self.find_coordinator(key, key_type)

    async def while_it_coordinates(
        self,
        key: Key,
        endpoint: BrokerEndpoint,
        ask: Callable[[], Awaitable[T]],
        *,
        is_parked: bool = False,
    ) -> T:
        """Ask `endpoint`, and wait no longer than it is the coordinator of `key`.

        Unless the request `is_parked`, the other brokers are asked who it is when there is no
        response for a second. Raises ConnectionFailed when another one is known, and errors of
        `ask`.
        """
        self.known.listen(self._coordinators_learned)
        # Another part may have learned that while this one connected.
        known = self.known.coordinator(key)
        if known is not None and known.address != endpoint.address:
            raise _moved(key, endpoint)

        looking: list[asyncio.Task[None]] = []

        def look() -> None:
            looking.append(asyncio.create_task(self._look_for_another(key, endpoint)))

        # A broker that is stopped would be waited for until the limit of the request, though others
        # know its successor (fault groups-3, was: None).
        patience = None if is_parked else asyncio.get_running_loop().call_later(PATIENCE_S, look)

        waits = self._waits.setdefault(key, {})
        try:
            # No limit of its own: `_coordinators_learned` sets one.
            async with asyncio.timeout(None) as limit:
                waits[limit] = endpoint
                try:
                    return await ask()
                finally:
                    if patience is not None:
                        patience.cancel()
                    for task in looking:
                        task.cancel()
                    waits.pop(limit, None)
                    if not waits:
                        self._waits.pop(key, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _moved(key, endpoint) from None

    def _coordinators_learned(self, coordinators: Mapping[Key, BrokerEndpoint]) -> None:
        """End the waits for brokers that are coordinators no longer."""
        now = _now()
        for key, coordinator in coordinators.items():
            for limit, endpoint in list(self._waits.get(key, {}).items()):
                if endpoint.address != coordinator.address:
                    # It is ended once.
                    del self._waits[key][limit]
                    # A broker that is stopped, or cut off, never responds (fault groups-3).
                    limit.reschedule(now)

    async def find_coordinator(self, key: str, key_type: int = GROUP_KEY) -> BrokerEndpoint:
        """Return the coordinator of a group, or of another key, if a broker names it now.

        Raises BrokerError, NoBrokersAvailable, UnsupportedApi.
        """
        known = self.known.coordinator((key_type, key))
        if known is not None:
            return known

        # The addresses it began with may be gone when it has to ask again (fault groups-1).
        if not self.brokers:
            await self.refresh(())

        coordinator = await self._ask_for_coordinator(key, key_type, self.ask_any)
        # The broker that answered may be behind, and another part have heard of one that responds.
        known = self.known.coordinator((key_type, key))
        if known is not None and self.known.is_silent(coordinator.address):
            return known

        self.known.learn_coordinators({(key_type, key): coordinator})
        return coordinator

    async def _ask_for_coordinator(
        self,
        key: str,
        key_type: int,
        ask_one: Callable[[Ask[FindCoordinatorResponse]], Awaitable[FindCoordinatorResponse]],
    ) -> BrokerEndpoint:
        """Ask one of the brokers that `ask_one` chooses. Raises as `find_coordinator`."""

        async def ask(connection: Connection) -> FindCoordinatorResponse:
            # An older broker would take any key for a group's.
            if key_type != GROUP_KEY and connection.version_of(ApiKey.FIND_COORDINATOR) == 0:
                raise UnsupportedApi(
                    f"{connection.host}:{connection.port} coordinates groups alone"
                )
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            response: FindCoordinatorResponse = await connection.call(request)
            return response

        response = await ask_one(ask)

        # An error is not remembered: `retrying` asks again if that may help.
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            detail = response.error_message or f"coordinator of {key}"
            raise BrokerError(code, detail, ApiKey.FIND_COORDINATOR)
        return BrokerEndpoint(response.node_id, response.host, response.port)

    async def connection(self, node: int | BrokerEndpoint, purpose: str = "") -> Connection:
        """Return the connection to a broker for a purpose, and open it if needed.

        Purposes keep long polls apart from commits, because a broker responds to the requests of
        one connection in order. Raises ConnectionFailed; at once if the backoff of an earlier
        failure is not over.
        """
        endpoint = node if isinstance(node, BrokerEndpoint) else self.brokers.get(node)
        if endpoint is None:
            raise ConnectionFailed(f"broker {node}", 0, "not in the cluster's metadata")

        return await self._connections.to(endpoint, purpose)

    def open_connection(self, node_id: int, purpose: str = "") -> Connection | None:
        """Return the connection if it is open."""
        endpoint = self.brokers.get(node_id)
        return None if endpoint is None else self._connections.open_to(endpoint, purpose)

    async def ask_any(self, ask: Ask[T], at_last: Collection[BrokerEndpoint] = ()) -> T:
        """Ask a question that any broker can answer.

        Known brokers and bootstrap addresses are asked first, then `at_last`, then those registered
        in ZooKeeper. Raises NoBrokersAvailable with the failure of each, and errors of `ask`.
        """
        endpoints = [*self.brokers.values(), *self.bootstrap, *self._registered]
        try:
            return await self._connections.first_answer(endpoints, ask, at_last)
        except NoBrokersAvailable as failure:
            if self._find_brokers is None:
                raise

            # None of them responded: other brokers may have registered meanwhile.
            try:
                await self._find_registered(self._find_brokers)
                return await self._connections.first_answer(self._registered, ask)
            except NoBrokersAvailable as second:
                reasons = filter(None, dict.fromkeys(map(str, (failure, second))))
                raise NoBrokersAvailable("; ".join(reasons)) from second

    def ask_another(self) -> None:
        """Ask another broker next time: the last response was of no use."""
        self._connections.doubt()

    def may_pass(self, error: KgroupError) -> bool:
        """Return whether another attempt may not meet an error."""
        # Who only looks is shown what the others say, at once.
        if not self.waits_for_dead and is_refused(error):
            return False
        return error.retriable

    async def retrying(
        self, ask: Callable[[], Awaitable[T]], what: str, timeout_ms: int | None = None
    ) -> T:
        """Call `ask` until it succeeds or fails for good. After its time: DeadlineExceeded.

        The log says what fails for longer than a second, if the error may be far off.
        """
        began = _now()
        deadline = self._deadline(timeout_ms)
        while True:
            try:
                answer = await ask()
                self.complaints.succeeded(what, _now())
                return answer
            except KgroupError as error:
                # A closed client has no connections to try again with.
                if not self.may_pass(error) or self._closed:
                    raise
                if _now() + self.config.retry_backoff_ms / 1000 >= deadline:
                    raise DeadlineExceeded(f"{what}: {error}") from error

                # The broker that responded may be behind the others.
                self.ask_another()
                # The error comes when the time is over, which may be a minute (fault users-5).
                if deadline - began > SOON_S:
                    self.complaints.failed(what, error, began, _now())
            await asyncio.sleep(self.config.retry_backoff_ms / 1000)

    def check_loop(self) -> None:
        """Raise OtherLoop on another loop than before, OtherProcess in a forked child."""
        self._connections.check_loop()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self.known.stop_listening(self._coordinators_learned)
        await self._doubts.close()
        await self._connections.close()

    async def _wait_for(
        self,
        find: Callable[[], T | None],
        topic: str,
        what: str,
        timeout_ms: int | None,
        *,
        partition: TopicPartition | None = None,
    ) -> T:
        # What is known answers at once; only old or missing knowledge costs a request.
        value = find()
        if value is not None and not self.stale:
            return value

        async def ask() -> T:
            await self.refresh([topic])
            code = self.view.errors.get(topic, ErrorCode.NONE)

            # A topic whose error may pass keeps its known state, which serves until then.
            value = find()
            if value is None or not (code is ErrorCode.NONE or code.retriable):
                if code is ErrorCode.NONE and partition is not None:
                    raise self.view.no_leader(partition)
                error = ErrorCode.LEADER_NOT_AVAILABLE if code is ErrorCode.NONE else code
                # Who may write may see (fault strangers-184, was: ApiKey.METADATA).
                api_key = ApiKey.PRODUCE if self._create_topics else ApiKey.METADATA
                raise BrokerError(error, topic, api_key)

            return value

        return await self.retrying(ask, what, timeout_ms)

    async def _find_registered(self, find_brokers: FindBrokers) -> None:
        """Read the brokers in ZooKeeper, at most once per `reconnect.backoff.max.ms`."""
        if _now() < self._look_again_at:
            # The same words again: who complains of a failure does so once for each.
            text = self._why_none_is_registered or "ZooKeeper was asked for brokers a moment ago"
            raise NoBrokersAvailable(text)

        # Set before reading, so that a failure backs off too.
        self._look_again_at = _now() + self.config.reconnect_backoff_max_ms / 1000
        try:
            self._registered = parse_bootstrap(await find_brokers())
        except NoBrokersAvailable as error:
            self._why_none_is_registered = str(error)
            raise
        self._why_none_is_registered = ""

    async def _ask_for_metadata(self, names: frozenset[str] | None) -> MetadataResponse:
        async def ask(connection: Connection) -> MetadataResponse:
            topic_names = names
            if topic_names is None and connection.version_of(ApiKey.METADATA) == 0:
                topic_names = frozenset()  # version 0 has no null; no names mean all topics

            topics = None
            if topic_names is not None:
                topics = [MetadataRequestTopic(name=name) for name in sorted(topic_names)]

            request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._create_topics)
            response: MetadataResponse = await connection.call(request)
            is_former = (connection.host, connection.port) in former
            if is_former and response.cluster_id != cluster_id:
                raise ConnectionFailed(
                    connection.host, connection.port, "a broker of another cluster has the address"
                )
            return response

        former: dict[tuple[str, int], BrokerEndpoint] = {}
        cluster_id = self.known.cluster_id
        # The last metadata may be of a time when all but one were down, and that one be silent now.
        if cluster_id is not None:
            own = {endpoint.address for endpoint in self.bootstrap}
            # The others are back, and nobody else knows of them (fault groups-1, was: {}).
            former = {a: endpoint for a, endpoint in self.known.former.items() if a not in own}
        return await self.ask_any(ask, former.values())

    async def _pace(self) -> None:
        due = self._tried_at + self.config.retry_backoff_ms / 1000
        if due > _now():
            await asyncio.sleep(due - _now())

    def _deadline(self, timeout_ms: int | None) -> float:
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        return _now() + timeout_ms / 1000


def _warn_of_protocols(bootstrap: str | Sequence[str], security_protocol: str) -> None:
    """Say which addresses name another protocol than the one that is spoken."""
    for server, protocol in named_protocols(bootstrap).items():
        if protocol.name != security_protocol:
            logger.warning(
                "bootstrap.servers: %s is spoken to as security.protocol says: %s",
                server,
                security_protocol,
            )


def is_refused(error: KgroupError) -> bool:
    """Return whether nobody listens at the address of a broker, or at that of any broker."""
    if isinstance(error, NoBrokersAvailable):
        return error.is_refused
    return isinstance(error, ConnectionRefused)


def _moved(key: Key, endpoint: BrokerEndpoint) -> ConnectionFailed:
    key_type, name = key
    what = "group" if key_type == GROUP_KEY else "transactional.id"
    reason = f"another broker coordinates {what} {name}"
    return ConnectionFailed(endpoint.host, endpoint.port, reason)


def _now() -> float:
    return asyncio.get_running_loop().time()
