"""The high-level consumer: streams of messages, shared with the other members of a group.

It is Kafka's ZookeeperConsumerConnector (0.7 to 1.1) for asyncio. Members register in ZooKeeper;
offsets are in ZooKeeper or Kafka (`offsets.storage`). Members of this library and of the JVM may
share a group. One ZooKeeper session carries registration, ownership and offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from clients.arguments import check_offsets, check_partitions, mapping_from, plain_int
from clients.cluster import Cluster
from clients.errors import MembershipConflict, MessageStreamsExist, SettingError
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.config import ConsumerConfig, load_consumer_config
from clients.high_level.coordinator_side import CoordinatorSide
from clients.high_level.delivery import ConsumerRebalanceListener, StreamDelivery
from clients.high_level.fetchers import Fetchers
from clients.high_level.group_side import GroupSide
from clients.high_level.heartbeats import is_place_lost
from clients.high_level.leader_finder import LeaderFinder
from clients.high_level.member_config import MemberConfig, load_member_config
from clients.high_level.metrics import ConsumerMetrics, Meters
from clients.high_level.seeking import Place, resolve
from clients.high_level.streams import MessageAndMetadata, MessageStream, PartitionFeed
from clients.high_level.zookeeper_side import ZooKeeperSide
from clients.own_loop import OwnLoop
from clients.serializers import Decoder, bytes_decoder
from clients.transport.connection import Connection
from groups.consumer.member_failed import MemberFailed
from groups.zookeeper.filters import TopicFilter
from groups.zookeeper.membership_errors import (
    ConsumerIdInUse,
    ConsumerRebalanceFailed,
    MembershipLost,
    StrategyConflict,
)
from groups.zookeeper.registration import (
    FilterSubscription,
    StaticSubscription,
    Subscription,
    check_subscription,
    stream_index,
)
from offsets.store import CoordinatorStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ErrorCode
from protocol.shielded import wait_shielded
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import ZkSession

logger = logging.getLogger(__name__)

ZOOKEEPER, COORDINATOR = "zookeeper", "coordinator"

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.name

GATHER_S = 0.1
"""Time for which a commit waits for more places."""

_CANNOT_JOIN = (
    ConsumerIdInUse,
    MemberFailed,
    MembershipConflict,
    MembershipLost,
    StrategyConflict,
)
"""Errors after which a connector is shut down: trying again cannot help."""


class ConsumerConnector:
    """A member of a group, with Kafka's settings as a mapping or as keywords with underscores.

    `zk` is a session to use in place of an own one; the caller closes it.
    """

    config: ConsumerConfig | MemberConfig
    notes: list[str]
    """A text for each setting that is accepted and has no effect."""
    consumer_id: str
    """The member's own part of its id in the group."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        zk: ZkSession | None = None,
        **keywords: Any,
    ) -> None:
        given = {**(settings or {}), **keywords}
        membership = given.get("membership", ZOOKEEPER)
        if membership not in (ZOOKEEPER, COORDINATOR):
            # Each kind has settings of its own, and would complain of what the other has.
            reason = f"String must be one of: {ZOOKEEPER}, {COORDINATOR}"
            raise SettingError("membership", reason, str(membership))
        if membership == COORDINATOR:
            self.config, self.notes = load_member_config(given)
        else:
            self.config, self.notes = load_consumer_config(given)

        group_id = self.config.group_id
        self._cluster = Cluster(
            self.config.bootstrap_servers,
            config=self.config.cluster_config,
            find_brokers=self._find_brokers if isinstance(self.config, ConsumerConfig) else None,
        )
        self._meters = Meters(time.monotonic)
        self._rebalance_error: str | None = None
        self._side: GroupSide = self._choose_side(zk)
        self.consumer_id = self._side.consumer_id

        self._queues: dict[tuple[str, str], MessageStream] = {}
        self._finder = LeaderFinder(
            self._cluster,
            self._fetch_from,
            self.config.refresh_leader_backoff_ms,
            self.config.metadata_max_age_ms,
            # Late, as the delivery is made below.
            owned=lambda: self._delivery.owned,
        )

        self._delivery = StreamDelivery(
            group_id,
            self.consumer_id,
            self._side.store,
            self._finder.add,
            self.config.offsets_commit_max_retries,
            self.config.offsets_channel_backoff_ms,
            entitled=self._side.may_commit,
            explain_loss=self._explain_loss,
        )

        # ---- from joining on
        self._fetchers: Fetchers | None = None
        self._runner: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._own_loop = OwnLoop()
        self._started = False
        self._created = False
        self._placed = asyncio.Event()
        """Set when the end of a log has become a place, which is to be committed soon."""
        self._has_joined = False
        self._streams: dict[str, list[MessageStream]] = {}

    def _choose_side(self, zk: ZkSession | None) -> GroupSide:
        """Return the side that keeps the group."""
        if isinstance(self.config, MemberConfig):
            return CoordinatorSide(
                self.config,
                self._cluster,
                self._call_coordinator,
                self._meters,
                self._set_rebalance_error,
            )
        return ZooKeeperSide(
            self.config,
            zk,
            self._cluster,
            self._connect_store,
            self._meters,
            self._set_rebalance_error,
        )

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    # --- what an application calls ------------------------------------------------------------

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener of rebalances. Raises MessageStreamsExist if streams exist already."""
        if self._created:
            raise MessageStreamsExist("set the listener before creating message streams")

        self._delivery.listener = listener

    async def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        key_decoder: Decoder = bytes_decoder,
        value_decoder: Decoder = bytes_decoder,
    ) -> dict[str, list[MessageStream]]:
        """Join the group with a number of streams per topic; return them after the rebalance.

        Each partition feeds one stream of one member. An empty map joins and consumes nothing.

        Raises MessageStreamsExist and ValueError. Raises ConsumerIdInUse, StrategyConflict,
        MembershipConflict, MembershipLost and MemberFailed; the connector is shut down then. Raises
        ConsumerRebalanceFailed and its subclass MalformedMember; the member goes on trying until
        `shutdown`, and `streams` has the streams that it feeds. Raises ClientError if no broker
        responds, and ZooKeeperError if ZooKeeper is unreachable for
        zookeeper.connection.timeout.ms. After these, and after a cancellation: if `streams` is
        empty, call this again, otherwise the member goes on trying too.
        """

        # Refused before anything is registered: other members could not read it.
        counts = mapping_from(str, topic_count_map)
        subscription = StaticSubscription(
            {topic: plain_int(count) for topic, count in counts.items()}
        )
        check_subscription(subscription)
        _check_decoders(key_decoder, value_decoder)

        await self._create_once()

        # Kept before joining, so that `streams` has them even if joining raises.
        self._streams = streams = {
            topic: [self._new_stream(topic, i, key_decoder, value_decoder) for i in range(count)]
            for topic, count in subscription.streams.items()
        }

        self._delivery.stream_of = lambda p, thread: streams[p.topic][stream_index(thread)]
        await self._join(subscription)
        return streams

    async def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: Decoder = bytes_decoder,
        value_decoder: Decoder = bytes_decoder,
    ) -> list[MessageStream]:
        """Join with streams that each carry all topics that the filter allows, now and later.

        Raises as `create_message_streams`.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise TypeError(f"{topic_filter!r} is no TopicFilter: make a Whitelist or a Blacklist")
        num_streams = plain_int(num_streams)
        subscription = FilterSubscription(topic_filter, num_streams)
        check_subscription(subscription)
        _check_decoders(key_decoder, value_decoder)
        await self._create_once()

        streams = [self._new_stream("*", i, key_decoder, value_decoder) for i in range(num_streams)]
        self._streams = {"*": streams}

        # A filter's streams carry every topic, so the number of the thread decides alone.
        self._delivery.stream_of = lambda p, thread: streams[stream_index(thread)]
        await self._join(subscription)
        return streams

    @property
    def streams(self) -> dict[str, list[MessageStream]]:
        """The streams by topic; those of a filter under "*".

        They exist also if creating them raised ConsumerRebalanceFailed: the member goes on trying,
        and these streams deliver its messages.
        """
        return self._streams

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, or the consumed messages of all partitions that we own.

        A message counts as consumed when the next one of its stream is asked for. Only with
        `offsets` can a group go back. Raises CommitFailed after offsets.commit.max.retries
        repetitions, offsets.channel.backoff.ms apart, and for a partition that we do not own;
        once if messages were consumed and not committed of partitions that were lost, or that were
        ours at `shutdown`; ValueError for a negative offset.
        """
        if offsets is not None:
            check_offsets(offsets)
        await self._start()
        await self._delivery.commit_offsets(offsets)

    async def commit(self, message: MessageAndMetadata) -> None:
        """Commit this message of a partition, and all before it, as consumed.

        Raises as `commit_offsets`.
        """
        if not hasattr(message, "topic_partition"):
            raise TypeError(f"{message!r} is no MessageAndMetadata")
        # What is committed is the next offset to consume.
        offset = OffsetAndMetadata(message.offset + 1)
        await self.commit_offsets({message.topic_partition: offset})

    # --- where this member is -------------------------------------------------------------------

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are ours and delivered now."""
        return frozenset(feed.partition for feed in self._delivery.owned)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next message of a partition that will be handed out.

        None until auto.offset.reset has given it. Raises ValueError if the partition is not ours.
        """
        feed = self._delivery.feed_of(partition)
        return feed.stream.next_offset(feed)

    async def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return what the group has committed for a partition, also one that is not ours.

        None if there is nothing. Waits until a transaction that is about to commit an offset has
        ended. Raises OffsetFetchFailed, ClientError.
        """
        check_partitions(partition)
        return (await self._fetch_committed([partition])).get(partition)

    async def _fetch_committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets; wait for transactions that are about to commit some."""
        await self._start()
        config = self.config
        now = asyncio.get_running_loop().time
        deadline = now() + config.cluster_config.default_api_timeout_ms / 1000
        while True:
            try:
                return await self._side.store.fetch(config.group_id, partitions)
            except OffsetFetchFailed as failure:
                if UNSTABLE not in failure.errors.values() or now() >= deadline:
                    raise
            await asyncio.sleep(config.offsets_channel_backoff_ms / 1000)

    async def seek(self, partition: TopicPartition, place: Place) -> None:
        """Go on at an offset, at EARLIEST_TIME or LATEST_TIME, or at a Timestamp.

        Queued messages of the partition are dropped, and its offset may go back with the next
        commit. Raises ValueError if the partition is not ours, or there is no such place;
        ClientError if its leader cannot be asked.
        """
        self._delivery.feed_of(partition)
        offset = await resolve(self._cluster, partition, place, self.config.isolation)
        self._delivery.seek(partition, offset)

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Go on at the committed offsets of these partitions, or of all that are ours.

        It is for messages whose transaction was aborted. A partition without a committed offset
        begins where auto.offset.reset says; one that is no longer ours is left out, as its owner
        begins at the committed offset. Raises OffsetFetchFailed, ClientError.
        """
        check_partitions(*partitions)
        delivery = self._delivery
        wanted = set(partitions) if partitions else {feed.partition for feed in delivery.owned}
        before = {feed.partition: feed for feed in delivery.owned if feed.partition in wanted}
        committed = await self._fetch_committed(before.keys())

        for partition, feed in before.items():
            # One that went and came back meanwhile began at a later committed offset.
            if feed.live:
                place = committed.get(partition)
                if place is None:
                    delivery.seek(partition, None)
                else:
                    delivery.seek(partition, place.offset, place.leader_epoch)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return who we are, for `Producer.send_offsets_to_transaction`.

        It is for the messages in hand: an offset of another owner's messages is refused with it.
        Raises SettingError with auto.commit.enable, which would commit outside of transactions, and
        if the group's offsets are in ZooKeeper.
        """
        if self.config.auto_commit_enable:
            reason = "must be false for offsets in transactions: it commits outside of them"
            raise SettingError("auto.commit.enable", reason)
        self._side.refuse_transactions()

        committer = self._side.committer()
        return ConsumerGroupMetadata(
            self.config.group_id,
            committer.generation_id,
            committer.member_id,
            committer.group_instance_id,
            self._delivery.handed_out(),
            self._delivery.with_epochs,
        )

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no messages of these partitions until `resume`, or until they are not ours.

        Raises ValueError if one is not ours.
        """
        self._delivery.pause_partitions(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out messages of these partitions again. Raises ValueError if one is not ours."""
        self._delivery.resume_partitions(partitions)
        self._wake_fetchers()

    @property
    def metrics(self) -> ConsumerMetrics:
        """The numbers of this consumer as of now."""
        owned = self._delivery.owned

        # After a reset the feed may be ahead of the watermark of its last response.
        lags = {
            feed.partition: max(0, feed.end_offset - feed.fetch_offset)
            for feed in owned
            if feed.end_offset >= 0 and feed.fetch_offset is not None
        }
        return self._meters.read(
            lags,
            Counter(feed.partition.topic for feed in owned),
            {name: stream.queue_size for name, stream in self._queues.items()},
            self._rebalance_error,
            {feed.partition: feed.trouble for feed in owned if feed.trouble is not None},
        )

    async def shutdown(self) -> None:
        """End the streams, commit (if auto.commit.enable), leave the group; within 9 s.

        Further calls wait for the same end, also if an earlier call was cancelled. A call from a
        rebalance listener does not wait, because the shutdown waits for the listener.
        """
        self._own_loop.check()

        # In a task of its own: a caller that is cancelled does not stop it halfway.
        if self._closing is None:
            self._closing = asyncio.create_task(self._shut_down(), name=f"end {self.consumer_id}")
        if not self._side.is_called_by_listener:
            await wait_shielded(self._closing)

    close = shutdown
    """The same under the name that all other clients have."""

    # --- inside -------------------------------------------------------------------------------

    async def _shut_down(self) -> None:
        # First the streams, so that nothing is handed out after the last commit.
        self._delivery.is_closing = True
        for stream in self._delivery.streams:
            stream.end()

        # Then fetchers and periodic commits: the member's last commit runs alone.
        if self._runner:
            self._runner.cancel()
            await asyncio.wait([self._runner])

        try:
            if self._has_joined:
                await self._side.leave()
            await self._side.close()
        finally:
            await self._cluster.close()

    def _explain_loss(self) -> str:
        return "it was shut down" if self._closing else self._side.explain_loss()

    async def _start(self) -> None:
        self._own_loop.check()
        if self._started:
            return

        # Set before the wait, since a session starts once.
        self._started = True

        for note in self.notes:
            logger.info("%s", note)

        try:
            await self._side.start()
        except BaseException:
            self._started = False
            self._delivery.store = self._side.store
            raise

    async def _create_once(self) -> None:
        """Start, and wait for a connected session. After an error it can be called again."""
        if self._created:
            raise MessageStreamsExist(f"{self.consumer_id} has message streams already")

        self._created = True
        try:
            await self._start()
            await self._side.wait_until_ready()

            # A shutdown may have come during the wait.
            if self._closing:
                raise ConsumerRebalanceFailed(f"{self.consumer_id} was shut down before it joined")

        except BaseException:
            # Nothing is registered yet, so a later call may try again.
            self._created = False
            raise

    def _new_stream(
        self, topic: str, index: int, key_decoder: Decoder, value_decoder: Decoder
    ) -> MessageStream:
        stream = MessageStream(
            key_decoder,
            value_decoder,
            max_chunks=self.config.queued_max_message_chunks,
            timeout_ms=self.config.consumer_timeout_ms,
            on_room=self._wake_fetchers,
            entitled=self._side.is_entitled,
            own_loop=self._own_loop,
        )

        self._delivery.streams.append(stream)
        self._queues[topic, f"{self.consumer_id}-{index}"] = stream
        return stream

    def _wake_fetchers(self) -> None:
        if self._fetchers:
            self._fetchers.wake()

    async def _join(self, subscription: Subscription) -> None:
        self._has_joined = True
        self._runner = asyncio.create_task(self._run(), name=f"connector {self.consumer_id}")

        # The id is taken, or the session is gone: this connector can never join.
        try:
            await self._side.join(subscription, self._delivery)
        except _CANNOT_JOIN:
            await self.shutdown()
            raise
        except BaseException:
            # Nobody has joined yet, so a later call may try again.
            if not self._side.has_member:
                await self._take_back_streams()
            raise

    async def _take_back_streams(self) -> None:
        """End what was begun for streams that no member feeds."""
        assert self._runner is not None, "it runs from joining on"
        self._runner.cancel()
        await asyncio.wait([self._runner])

        for stream in self._delivery.streams:
            stream.end()
        self._delivery.streams.clear()
        self._queues.clear()
        self._streams = {}
        self._created = self._has_joined = False

    def _set_rebalance_error(self, error: str | None) -> None:
        self._rebalance_error = error

    async def _run(self) -> None:
        """Run what goes on beside the member: leaders, fetchers, periodic commits."""
        try:
            async with asyncio.TaskGroup() as tasks:
                # Fetchers run in this group, and end with it.
                self._fetchers = Fetchers(
                    self.config,
                    self._connect,
                    self._give_back,
                    tasks.create_task,
                    self._meters,
                    self._finder.look_again,
                    self._placed.set,
                )
                tasks.create_task(self._finder.run())
                for work in self._side.background():
                    tasks.create_task(work)
                if self.config.auto_commit_enable:
                    tasks.create_task(self._commit_periodically())
        except Exception as error:
            logger.exception("%s: the consumer failed", self.consumer_id)

            # The readers of streams must learn of it; the log alone would leave them waiting.
            for stream in self._delivery.streams:
                stream.end(error)

    async def _commit_periodically(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.config.auto_commit_interval_ms / 1000):
                    await self._placed.wait()
                    # Other partitions of the topic are about to have a place too.
                    await asyncio.sleep(GATHER_S)
            self._placed.clear()
            try:
                await self._delivery.commit_offsets()
            except CommitFailed as failure:
                # The next round commits the same positions, or later ones.
                logger.error("%s: offsets not committed: %s", self.consumer_id, failure)

    def _fetch_from(self, broker_id: int, feed: PartitionFeed) -> None:
        assert self._fetchers is not None
        self._fetchers.add(broker_id, feed)

    async def _connect(self, broker_id: int, fetcher_id: int) -> Connection:
        # One connection per fetcher: a long poll delays all requests behind it.
        return await self._cluster.connection(broker_id, f"fetch-{fetcher_id}")

    def _give_back(self, feeds: Iterable[PartitionFeed]) -> None:
        """Look up leaders again: the brokers of these feeds do not lead them."""
        # The broker that named these leaders may be behind.
        self._cluster.ask_another()
        self._finder.add_again(feeds)

    def _connect_store(self) -> CoordinatorStore:
        """Return the store of the offsets that the coordinator keeps for a ZooKeeper group."""
        return CoordinatorStore(
            self._call_coordinator, self._forget_coordinator, self._meters.kafka_commits.mark
        )

    async def _call_coordinator(self, request: Any) -> Any:
        timeout_ms = self.config.offsets_channel_socket_timeout_ms
        group_id = self.config.group_id
        return await self._cluster.call_coordinator(
            group_id, request, timeout_ms=timeout_ms, is_doubtful=is_place_lost
        )

    def _forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(self.config.group_id)

    async def _find_brokers(self) -> list[str]:
        # The cluster is there before the side, which it serves.
        assert isinstance(self._side, ZooKeeperSide)
        return await self._side.find_brokers()


def _check_decoders(*decoders: object) -> None:
    for decoder in decoders:
        if not callable(decoder):
            raise TypeError(f"{decoder!r} is no decoder: give a function of bytes")
