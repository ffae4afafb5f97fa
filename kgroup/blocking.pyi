"""Blocking twins of the clients, under the same names.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        future = producer.send("flights", b"...")       # a concurrent.futures.Future
        metadata = future.result(timeout=30)

Methods, arguments, results and exceptions are those of `kgroup.Admin`, `kgroup.ConsumerConnector`,
`kgroup.Producer` and `kgroup.SimpleConsumer`, without `await`: a call blocks until it is done. An
asyncio future becomes a `concurrent.futures.Future`, an asynchronous iterator an iterator. Any
thread, and several threads, may use a twin; a stream only one at a time.

A twin belongs to its process: a forked child gets OtherProcess, and makes one of its own. A
Producer that was not closed when the program ends sends what is left, for at most five seconds.
"""

# Written by building/blocking_stub.py.
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, overload

from clients.admin.client_quotas import Matches, QuotaEntity
from clients.admin.descriptions import (
    ClusterDescription,
    ConfigResource,
    FencedProducer,
    GroupDescription,
    GroupListing,
    GroupMemberId,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ProducerState,
    ScramCredentialInfo,
    SettingValue,
    TopicDescription,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
    UserChange,
)
from clients.admin.verdicts import Verdicts
from clients.blocking import BlockingStream as MessageStream
from clients.cluster import FindBrokers
from clients.cluster_view import BrokerEndpoint
from clients.config import ClusterConfig
from clients.errors import KgroupError
from clients.fetch_requests import Isolation
from clients.fetching import FetchedPartition
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.config import ConsumerConfig
from clients.high_level.delivery import ConsumerRebalanceListener
from clients.high_level.member_config import MemberConfig
from clients.high_level.metrics import ConsumerMetrics
from clients.high_level.seeking import Place
from clients.high_level.streams import MessageAndMetadata
from clients.producer.config import ProducerConfig
from clients.producer.deliveries import Delivery, RecordMetadata
from clients.producer.encoded_record import Header
from clients.producer.handlers import ProducerMetrics
from clients.producer.messages import Messages
from clients.producer.sequences import Sequences
from clients.serializers import Decoder, bytes_decoder
from clients.simple_consumer import FetchRequest
from groups.zookeeper.filters import TopicFilter
from offsets.requests import FetchedOffset
from protocol.acls import AclBinding, AclFilter
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsResponseConfig
from protocol.records.batch import BatchBuilder
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import ZkSession

__all__ = ["Admin", "ConsumerConnector", "MessageStream", "Producer", "SimpleConsumer"]

class Admin:
    """A blocking `kgroup.Admin`, which says more."""

    config: ClusterConfig
    notes: list[str]

    def __init__(
        self,
        bootstrap: str | Mapping[str, Any],
        /,
        *,
        find_brokers: FindBrokers | None = None,
        waits_for_dead: bool = True,
        **keywords: Any,
    ) -> None:
        """Open nothing yet.

        Unless it `waits_for_dead`, a broker at whose address nobody listens is an error at once of
        what it alone can say; else another one may take over within the time of the call.
        """

    def close(self) -> None:
        """Close all connections. Further calls wait for the same end.

        Raises OtherLoop on another loop than that of the first call.
        """

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Verdicts[str]:
        """Create topics. Returns None or the controller's error for each topic.

        Raises TypeError for what is no NewTopic, as a name alone.
        """

    def create_partitions(
        self, new_partitions: Mapping[str, NewPartitions], *, validate_only: bool = False
    ) -> Verdicts[str]:
        """Add partitions to topics. Returns None or the controller's error for each topic."""

    def delete_topics(self, names: Iterable[str]) -> Verdicts[str]:
        """Delete topics. Returns None or the controller's error for each topic."""

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""

    def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Describe topics; None: all, as `describe_all` does.

        Raises BrokerError for a topic with an error, as Kafka's client does. That comes at once,
        also if the error may pass: so may that of a topic that does not exist.
        """

    def describe_cluster(self) -> ClusterDescription:
        """Return the brokers and the controller."""

    def describe_all(self) -> tuple[ClusterDescription, dict[str, TopicDescription]]:
        """Return the cluster and all topics, from one response of one broker.

        A topic whose response is an error is described as it was before, or left out.
        """

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, synonyms: bool = False
    ) -> dict[ConfigResource, tuple[DescribeConfigsResponseConfig, ...]]:
        """Return all settings of topics and brokers. Each broker is asked for its own."""

    def describe_each_config(
        self, resources: Iterable[ConfigResource], *, at: int | None = None
    ) -> dict[ConfigResource, tuple[DescribeConfigsResponseConfig, ...] | KgroupError]:
        """Do the same as `describe_configs`, with an error for each resource that has one.

        An error of a resource is not waited out: its topic was deleted, or it may not be described.
        `at` is the broker whose defaults count for topics, by default any.
        """

    def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, SettingValue]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[ConfigResource]:
        """Replace all settings of topics or brokers. A setting that is left out gets its default.

        Returns None or an error for each resource.
        """

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, SettingValue | None]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[ConfigResource]:
        """Change single settings; None deletes a setting (brokers from 2.3 on).

        Returns None or an error for each resource.
        """

    def describe_client_quotas(
        self, matches: Matches | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of users and clients (brokers from 2.6 on).

        `matches` maps `user`, `client-id` or `ip` to the name that an entity must have: a name,
        None for all others, or ANY. `strict`: the entity has no other types.
        """

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[QuotaEntity]:
        """Set quotas by their names, such as producer_byte_rate; None removes one.

        Returns None or an error for each entity. Brokers from 2.6 on.
        """

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return those of `users`, or of all, that can log in by SCRAM (brokers from 2.7 on)."""

    def alter_user_scram_credentials(self, changes: Iterable[UserChange]) -> Verdicts[str]:
        """Give passwords to users, or take them away (brokers from 2.7 on).

        No broker sees a password. Returns None or an error for each user; an error says that
        nothing of this user was changed.
        """

    def describe_acls(self, wanted: AclFilter = ...) -> list[AclBinding]:
        """Return the ACLs that a filter chooses, sorted; without one all of them.

        Raises BrokerError SECURITY_DISABLED if the broker has no authorizer.
        """

    def create_acls(self, bindings: Iterable[AclBinding]) -> Verdicts[AclBinding]:
        """Add ACLs. Returns None, also for one that exists, or the broker's error for each.

        Brokers learn of ACLs one after the other: another one may decide without them for a while.
        """

    def delete_acls(self, filters: Iterable[AclFilter]) -> dict[AclFilter, Verdicts[AclBinding]]:
        """Delete the ACLs that filters choose.

        Returns the ACLs of each filter, with None or the error for which one was not deleted. An
        ACL that two filters choose is with the first.
        """

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Verdicts[TopicPartition]:
        """Start to move partitions; None cancels a move (brokers from 2.4 on).

        Returns None or an error for each partition. None means started, not finished.
        """

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return those of `partitions`, or of all, that are being moved (brokers from 2.4 on)."""

    def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None = None
    ) -> Verdicts[TopicPartition]:
        """Elect PREFERRED or UNCLEAN leaders (brokers from 2.2, unclean from 2.4 on).

        Returns None or an error for each partition, often ELECTION_NOT_NEEDED. Without
        `partitions`, all partitions that need it get an election, and only these are returned.
        """

    def alter_replica_log_dirs(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        """Start to move replicas to other log directories (absolute paths) of their brokers.

        Returns None or an error for each replica. None means started; `describe_log_dirs` has the
        progress. REPLICA_NOT_AVAILABLE: the broker has no such replica yet, and will create it in
        that directory.
        """

    def describe_log_dirs(
        self, broker: int, *, with_replicas: bool = True
    ) -> dict[str, LogDirDescription]:
        """Return a broker's log directories by path; none if they may not be described.

        Each has its replicas, and copies of replicas that are being moved to it (`is_future`),
        unless the caller does without them.
        """

    def controlled_shutdown(self, broker: int) -> tuple[TopicPartition, ...]:
        """Let the controller move all leaders off a broker that is about to stop.

        Returns the partitions that the broker still leads. It cannot become a leader again until it
        registers again.
        """

    def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: int = 0,
        timeout_ms: int | None = None,
        waits_for_topics: bool = True,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return each partition's offset at a time (ms), or at EARLIEST_TIME or LATEST_TIME.

        Leaders are asked concurrently, with one request each. The result of a partition without an
        offset at the timeout has its error. A topic that brokers do not know may have just been
        created, and is waited for; where it is rather a deleted one, `waits_for_topics` is False.
        """

    def first_timestamps(
        self, offsets: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, int]:
        """Return the timestamp (ms) of the first record at or behind each offset.

        A partition is left out if it has no such record, the record has no timestamp, or it cannot
        be read now.
        """

    def list_groups(self) -> list[GroupListing]:
        """Return the groups of all coordinators, sorted by id. Groups in ZooKeeper are left out."""

    def groups_of_each_broker(self) -> dict[BrokerEndpoint, list[GroupListing] | KgroupError]:
        """Return the groups that each broker coordinates, or its error."""

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state and members of groups. An unknown group is in state "Dead"."""

    def describe_each_group(
        self, group_ids: Iterable[str]
    ) -> dict[str, GroupDescription | KgroupError]:
        """Do the same as `describe_groups`, with an error for each group that has one.

        Each coordinator is asked for many of its groups at once.
        """

    def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets; partitions without one are absent.

        With `require_stable` transactions that have offsets of the group are waited for (brokers
        from 2.5 on). After the timeout of the call it raises DeadlineExceeded.
        """

    def offsets_of_each_group(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KgroupError]:
        """Return all committed offsets of each group, or its error.

        Coordinators from 3.0 on are asked for many of their groups at once (KIP-709).
        """

    def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group that has no members.

        Raises BrokerError with the partition in its text; UNKNOWN_MEMBER_ID if the group has
        members. Raises TypeError and ValueError for impossible offsets.
        """

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Verdicts[TopicPartition]:
        """Commit offsets for a group that has no members.

        Returns None or an error for each partition, as UNKNOWN_TOPIC_OR_PARTITION: the others are
        committed. Raises BrokerError if the coordinator is not found, DeadlineExceeded if it does
        not respond, and TypeError and ValueError for impossible offsets.
        """

    def delete_groups(self, group_ids: Iterable[str]) -> Verdicts[str]:
        """Delete groups and all their committed offsets (brokers from 1.1 on).

        Returns None or an error for each group: NON_EMPTY_GROUP if it has members,
        GROUP_ID_NOT_FOUND if it does not exist.
        """

    def remove_group_members(
        self, group_id: str, members: Iterable[GroupMemberId], reason: str
    ) -> Verdicts[GroupMemberId]:
        """Remove members from a group at its coordinator (brokers from 2.4 on).

        Returns None or an error for each member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. Raises
        BrokerError for the group, and UnsupportedApi if the coordinator is older.
        """

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        """Delete a group's committed offsets of these partitions (brokers from 2.4 on).

        Returns None, also for a partition without an offset, or an error for each partition:
        GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION. Raises BrokerError for the group.
        """

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, sorted (brokers from 3.0 on).

        `states` are Kafka's names, such as Ongoing. `min_duration_ms`: only ids whose last
        transaction began longer ago (brokers from 3.8 on). Raises the error of a broker that has
        one: its ids would be missing.
        """

    def transactions_of_each_broker(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
    ) -> dict[BrokerEndpoint, list[TransactionListing] | KgroupError]:
        """Do the same as `list_transactions`, with an error for each broker that has one."""

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Return the last transaction of each id (brokers from 3.0 on).

        Raises BrokerError TRANSACTIONAL_ID_NOT_FOUND for an id that no producer has used.
        """

    def describe_each_transaction(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | KgroupError]:
        """Do the same as `describe_transactions`, with an error for each id that has one."""

    def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, FencedProducer | KgroupError]:
        """Fence all producers that have one of these ids, and abort what they have open.

        Returns a result or error for each id. A producer that is initialised later has the id.
        """

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that the leader of each partition knows (brokers from 2.8 on).

        `broker` asks one replica in place of the leaders.
        """

    def producers_of_each_partition(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | KgroupError]:
        """Do the same as `describe_producers`, with an error for each partition that has one."""

    def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Abort the transaction that a producer has open on one partition, by a marker.

        This is for a transaction that no coordinator will end: any other is torn by it. The epochs
        are those of `describe_producers`. Raises BrokerError INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if they are older than the partition's, and AbortInDoubt.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class ConsumerConnector:
    """A blocking `kgroup.ConsumerConnector`, which says more."""

    config: ConsumerConfig | MemberConfig
    notes: list[str]
    consumer_id: str

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        zk: ZkSession | None = None,
        **keywords: Any,
    ) -> None: ...
    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener of rebalances. Raises MessageStreamsExist if streams exist already."""

    def create_message_streams(
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

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: Decoder = bytes_decoder,
        value_decoder: Decoder = bytes_decoder,
    ) -> list[MessageStream]:
        """Join with streams that each carry all topics that the filter allows, now and later.

        Raises as `create_message_streams`.
        """

    @property
    def streams(self) -> dict[str, list[MessageStream]]:
        """The streams by topic; those of a filter under "*".

        They exist also if creating them raised ConsumerRebalanceFailed: the member goes on trying,
        and these streams deliver its messages.
        """

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, or the consumed messages of all partitions that we own.

        A message counts as consumed when the next one of its stream is asked for. Only with
        `offsets` can a group go back. Raises CommitFailed after offsets.commit.max.retries
        repetitions, offsets.channel.backoff.ms apart, and for a partition that we do not own;
        once if messages were consumed and not committed of partitions that were lost, or that were
        ours at `shutdown`; ValueError for a negative offset.
        """

    def commit(self, message: MessageAndMetadata) -> None:
        """Commit this message of a partition, and all before it, as consumed.

        Raises as `commit_offsets`.
        """

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are ours and delivered now."""

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next message of a partition that will be handed out.

        None until auto.offset.reset has given it. Raises ValueError if the partition is not ours.
        """

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return what the group has committed for a partition, also one that is not ours.

        None if there is nothing. Waits until a transaction that is about to commit an offset has
        ended. Raises OffsetFetchFailed, ClientError.
        """

    def seek(self, partition: TopicPartition, place: Place) -> None:
        """Go on at an offset, at EARLIEST_TIME or LATEST_TIME, or at a Timestamp.

        Queued messages of the partition are dropped, and its offset may go back with the next
        commit. Raises ValueError if the partition is not ours, or there is no such place;
        ClientError if its leader cannot be asked.
        """

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Go on at the committed offsets of these partitions, or of all that are ours.

        It is for messages whose transaction was aborted. A partition without a committed offset
        begins where auto.offset.reset says; one that is no longer ours is left out, as its owner
        begins at the committed offset. Raises OffsetFetchFailed, ClientError.
        """

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return who we are, for `Producer.send_offsets_to_transaction`.

        It is for the messages in hand: an offset of another owner's messages is refused with it.
        Raises SettingError with auto.commit.enable, which would commit outside of transactions, and
        if the group's offsets are in ZooKeeper.
        """

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no messages of these partitions until `resume`, or until they are not ours.

        Raises ValueError if one is not ours.
        """

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out messages of these partitions again. Raises ValueError if one is not ours."""

    @property
    def metrics(self) -> ConsumerMetrics:
        """The numbers of this consumer as of now."""

    def shutdown(self) -> None:
        """End the streams, commit (if auto.commit.enable), leave the group; within 9 s.

        Further calls wait for the same end, also if an earlier call was cancelled. A call from a
        rebalance listener does not wait, because the shutdown waits for the listener.
        """
    close = shutdown

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Producer:
    """A blocking `kgroup.Producer`, which says more."""

    config: ProducerConfig
    notes: list[str]
    metrics: ProducerMetrics

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None: ...
    @overload
    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Buffer a record and return the future of its delivery; for ProducerData a list of them.

        Waits only for the topic's metadata and for room in the buffer, `max.block.ms` in all.
        Raises RecordTooLarge, BufferExhausted, DeadlineExceeded, ProducerClosed; BrokerError for an
        invalid topic; ValueError for an invalid partition or time; and any error of the serializers
        and the partitioner. The future raises BrokerError, DeliveryTimedOut or ProducerClosed.

        With `producer.type=sync` it returns a list of RecordMetadata when all are acknowledged. It
        raises FailedToSendMessage, and errors of an encoder before anything is sent. With `async`
        it returns None when all are queued, and raises QueueFull and ProducerClosed.
        """

    @overload
    def send(self, topic: Messages) -> list[Any] | None:
        """Buffer a record and return the future of its delivery; for ProducerData a list of them.

        Waits only for the topic's metadata and for room in the buffer, `max.block.ms` in all.
        Raises RecordTooLarge, BufferExhausted, DeadlineExceeded, ProducerClosed; BrokerError for an
        invalid topic; ValueError for an invalid partition or time; and any error of the serializers
        and the partitioner. The future raises BrokerError, DeliveryTimedOut or ProducerClosed.

        With `producer.type=sync` it returns a list of RecordMetadata when all are acknowledged. It
        raises FailedToSendMessage, and errors of an encoder before anything is sent. With `async`
        it returns None when all are queued, and raises QueueFull and ProducerClosed.
        """

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Future[Sequence[RecordMetadata]]:
        """Buffer records in order, and return one future for all of them.

        `keys` has a key for each value; partition, headers and time are the same for all. The
        future gives the RecordMetadata of each record, in the order of `values`. When all are done
        and some have failed, it raises RecordsNotDelivered, which has the results of all.

        Waits for room as often as the buffer is full, each time up to `max.block.ms`. Raises as
        `send`, before anything is buffered, if a record cannot be encoded or the first one cannot
        be buffered; if a later one cannot, it fails with all behind it. Raises ValueError unless
        there are as many keys as values, TypeError with `producer.type`.
        """

    def send_batch(
        self, partition: TopicPartition, builder: BatchBuilder, delivery: Delivery
    ) -> None:
        """Buffer records that the caller has encoded; they are sent as one batch.

        `delivery` gets the delivery of the first of them. Waits and raises as `send`.
        """

    def use_numbers(self, numbers: Sequences) -> None:
        """Number the records as `numbers` says, not by an id that a broker gives.

        Call it before the first record. Raises ValueError without `enable.idempotence`.
        """

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. Raises as `send` and its future."""

    def flush(self) -> None:
        """Send all buffered records without lingering, and wait until each succeeded or failed.

        As in Kafka this raises nothing for records that could not be delivered: their futures do,
        `metrics.record_error_total` counts them, and the log has a line for each partition and
        error. Records sent during the flush are not waited for. Raises ProducerClosed if the
        producer is closed during the flush.
        """

    def init_transactions(self) -> None:
        """Get the id of `transactional.id`, and fence the producer that had it before.

        An open transaction of that producer is aborted. The `async with` of a producer does it;
        again it does nothing. Waits up to `max.block.ms`. Raises ProducerFenced, ProducerFailed;
        DeadlineExceeded, after which it may be called again.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context manager: a transaction that is committed at its end.

        On an exception it is aborted. If that is TransactionFailed, its `can_be_run_again` says
        whether to run the block again. After TransactionInDoubt nothing is known: call
        `commit_transaction`. Raises as `begin_transaction` and `commit_transaction`.
        """

    def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent until its end belong to it.

        Raises InvalidTransactionState if one is open, or the producer is not initialized;
        TransactionFailed if the last one must be aborted; ProducerFenced, ProducerFailed.
        """

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit offsets with the transaction: the next ones to consume, of a consumer's group.

        `group` is the consumer's `group_metadata()`. Offsets are refused, and the transaction must
        be aborted, if the consumer is no longer the member that read the messages. Waits up to
        `max.block.ms`. Raises TransactionFailed, ProducerFenced, ProducerFailed,
        InvalidTransactionState; ValueError for an impossible offset; DeadlineExceeded, after which
        a commit goes on with them.
        """

    def commit_transaction(self) -> None:
        """Send what is buffered, and commit the transaction. Waits up to `max.block.ms`.

        Raises TransactionFailed if anything was not delivered: abort it, and run it again if that
        can help. TransactionInDoubt if it took too long: call this again. ProducerFenced,
        ProducerFailed, InvalidTransactionState.
        """

    def abort_transaction(self) -> None:
        """Drop what is buffered, and abort the transaction. Waits up to `max.block.ms`.

        Records that were not sent fail with TransactionAborted. Raises ProducerFenced,
        ProducerFailed, InvalidTransactionState; DeadlineExceeded, after which the abort goes on.
        """

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises as `send`."""

    def close(self, timeout_ms: int | None = None) -> None:
        """Send all buffered records, for at most `timeout_ms`, and close the connections.

        Records that are not acknowledged by then fail with ProducerClosed. With
        `producer.type=async` the FailedToSendMessage that this raises has the messages that are
        still queued. A call while another one closes waits for the same end, sooner if its time is
        shorter, and raises the same. A caller that is cancelled does not stop the close; the next
        one hears how it ended.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class SimpleConsumer:
    """A blocking `kgroup.SimpleConsumer`, which says more."""

    host: str
    port: int
    so_timeout_ms: int
    buffer_size: int
    client_id: str
    broker_version: str

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = 30000,
        buffer_size: int = 65536,
        client_id: str = "",
        *,
        broker_version: str = "",
        security: Mapping[str, Any] | None = None,
    ) -> None: ...
    @classmethod
    def for_leader(cls, config: Mapping[str, Any], topic: str, partition: int) -> SimpleConsumer:
        """Make a consumer at the leader of a partition, which it follows.

        The leader is found through `bootstrap.servers` or `zookeeper.connect`. Raises BrokerError
        for an impossible topic, DeadlineExceeded without a leader within
        `default.api.timeout.ms`; so do later calls when the leader moves.
        """

    def close(self) -> None:
        """Close the connections. A later call connects again.

        Raises OtherLoop on another loop than that of the first call.
        """

    def fetch(
        self,
        request: FetchRequest,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> FetchedPartition:
        """Read one partition. Returns at once unless `max_wait_ms` and `min_bytes` are given."""

    def multifetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[FetchedPartition]:
        """Read partitions; the results have the order of the requests.

        A partition that occurs twice is read in two requests.
        """

    def get_offsets_before(
        self,
        topic: str,
        partition: int,
        time: int,
        max_num_offsets: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[int]:
        """Return offsets where segments written before `time` (ms) start, newest first.

        With LATEST_TIME the log's end comes first; EARLIEST_TIME gives only its start. A broker
        without version 0 of ListOffsets is asked for the one offset at the time, and so is any
        broker for committed data. Raises BrokerError.
        """

    def earliest_or_latest_offset(
        self,
        topic: str,
        partition: int,
        time: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> int:
        """Return the offset at EARLIEST_TIME or LATEST_TIME. Raises BrokerError.

        To readers of committed data the latest one is the last stable offset.
        """

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        version: int | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit for a group without members; return the error code of each partition.

        Any broker keeps version 0 in ZooKeeper; later versions need the group's coordinator. If
        this broker is not the coordinator, the one that it names is asked. Raises BrokerError if it
        names none, ValueError for an offset that cannot be.
        """

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, version: int | None = None
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return a group's committed offsets. Versions as for `commit_offsets`.

        Raises BrokerError for an error of the whole request, such as NOT_COORDINATOR.
        """

    def find_coordinator(self, group: str) -> BrokerEndpoint:
        """Return the broker that keeps a group. Raises BrokerError.

        COORDINATOR_NOT_AVAILABLE is worth a retry: a cluster creates its offsets topic on the first
        question.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
