"""What brokers say of leaders and ISRs, asked at their own ports past the network."""

import asyncio
import contextlib
from collections.abc import Callable

import attrs

from clients.errors import ClientError
from clients.transport.connection import Connection
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition
from protocol.topic_partition import TopicPartition
from tests.chaos.cluster import Cluster
from tests.chaos.network import HOST

POLL_S = 0.25
ANSWER_MS = 1000

View = dict[TopicPartition, MetadataResponsePartition]


@attrs.define(eq=False)
class Observer:
    """Polls until told to stop. Times are the story's, in seconds."""

    cluster: Cluster
    now: Callable[[], float]
    leaders: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)
    """Epoch and leader, by the latest epoch that anyone has told of."""
    isrs: dict[TopicPartition, tuple[int, ...]] = attrs.field(factory=dict)
    controller: int = -1
    leader_changes: int = 0
    isr_shrinks: int = 0
    leaderless: list[tuple[TopicPartition, float, float]] = attrs.field(factory=list)
    """From when to when a partition had no leader that runs."""
    _since: dict[TopicPartition, float] = attrs.field(factory=dict)
    _connections: dict[int, Connection] = attrs.field(factory=dict)

    async def run(self, stop: asyncio.Event) -> None:
        """Poll."""
        try:
            while not stop.is_set():
                self._take(await self.views())
                await asyncio.sleep(POLL_S)
        finally:
            for connection in self._connections.values():
                connection.abort("no more questions")

    async def views(self) -> dict[int, View]:
        """What each broker that answers says of all partitions."""
        serving = [each for each in self.cluster.brokers.values() if each.is_serving]
        answers = await asyncio.gather(*(self._ask(each.broker_id, each.port) for each in serving))
        views = {}
        for each, answer in zip(serving, answers, strict=True):
            if answer is None:
                continue
            if answer.controller_id >= 0:
                self.controller = answer.controller_id
            views[each.broker_id] = {
                TopicPartition(topic.name, p.partition_index): p
                for topic in answer.topics
                for p in topic.partitions
            }
        return views

    async def _ask(self, broker_id: int, port: int) -> MetadataResponse | None:
        with contextlib.suppress(ClientError):
            connection = self._connections.get(broker_id)
            if connection is None or connection.closed:
                connection = self._connections[broker_id] = await Connection.open(
                    HOST, port, client_id="observer", request_timeout_ms=ANSWER_MS
                )
            answer: MetadataResponse = await connection.call(
                MetadataRequest(topics=None, allow_auto_topic_creation=False)
            )
            return answer
        return None

    def _take(self, views: dict[int, View]) -> None:
        now = self.now()
        for at in {at for view in views.values() for at in view} | set(self.leaders):
            told = [view[at] for view in views.values() if at in view]
            if not told:
                if views and all(each.is_serving for each in self.cluster.brokers.values()):
                    self._forget(at)
                continue
            latest = max(told, key=lambda p: p.leader_epoch)
            epoch, leader = self.leaders.get(at, (-1, -1))
            if latest.leader_epoch > epoch:
                self.leader_changes += latest.leader_id != leader and epoch >= 0
                self.leaders[at] = (latest.leader_epoch, latest.leader_id)
            isr = tuple(sorted(latest.isr_nodes))
            self.isr_shrinks += len(isr) < len(self.isrs.get(at, ()))
            self.isrs[at] = isr
        for at, (_, leader) in self.leaders.items():
            is_led = leader in self.cluster.brokers and self.cluster.brokers[leader].is_serving
            if not is_led:
                self._since.setdefault(at, now)
            elif at in self._since:
                self.leaderless.append((at, self._since.pop(at), now))

    def _forget(self, at: TopicPartition) -> None:
        for each in (self.leaders, self.isrs, self._since):
            each.pop(at, None)
