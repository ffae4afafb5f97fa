"""The table of a broker's figures: the name, kind, labels and origin of each.

Names and labels are those that jmx_exporter's example configuration for Kafka 2.x makes of a 2.8.2
broker's MBeans, so that dashboards for Kafka show our brokers; docs/metrics.md says which of its
names are here. Figures that Kafka has not begin with `kgroup_broker_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import attrgetter

from broker.controller.replica_states import ReplicaStatus
from broker.metrics.census import Census, is_under_replicated
from broker.metrics.counts import BUCKETS_S, Buckets, RequestCounts, TopicCounts, find_quantiles
from broker.metrics.exposition import Sample, format_head, format_samples
from broker.metrics.sources import Sources
from broker.replication.partition import Partition
from groups.coordinator.membership.state import GroupState
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from zk.api import SessionState

Read = Callable[[Sources, Census], Iterable[Sample]]

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
RUNNING = 3
"""Kafka's number for a broker that serves."""


@frozen
class Family:
    """The samples under one name. Those of a histogram's parts have `suffix` behind the name."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    read: Read
    suffix: str = ""

    def lines(self, sources: Sources, census: Census) -> Iterator[str]:
        """Yield the text, a line or two at a time."""
        # A histogram has one head above its parts.
        if self.suffix in ("", "_bucket"):
            yield format_head(self.name, self.kind, self.help)
        yield from format_samples(self.name + self.suffix, self.labels, self.read(sources, census))


def take_census(sources: Sources, census: Census) -> Iterator[None]:
    """Count what many families need, in slices; forget the topics that are gone."""
    yield from census.count_topics(sources.counts, sources.cache.has_topic)
    yield from census.count_replicas(sources.replicas.partitions.values())
    yield from census.count_cluster(sources.controller)
    led_partitions = sources.coordinator.runtime.led_partitions()
    yield from census.count_groups([led.shard for led in led_partitions])
    yield from census.count_cleaning(sources.cleaner)


def format_figures(sources: Sources) -> Iterator[str]:
    """Yield the whole text in pieces, some of them empty: each is a place to pause."""
    census = Census()
    for _ in take_census(sources, census):
        yield ""
    for family in FAMILIES:
        yield from family.lines(sources, census)


# ---- one number


def _one(read: Callable[[Sources, Census], float]) -> Read:
    return lambda sources, census: [((), read(sources, census))]


def _counted(name: str, what: str, read: Callable[[Sources, Census], float]) -> Family:
    return Family(name, COUNTER, what, (), _one(read))


def _gauge(name: str, what: str, read: Callable[[Sources, Census], float]) -> Family:
    return Family(name, GAUGE, what, (), _one(read))


# ---- partitions


def _of_partitions(name: str, what: str, read: Callable[[Partition], float]) -> Family:
    def samples(sources: Sources, census: Census) -> Iterator[Sample]:
        # A copy: replicas come and go while the text is made.
        for (topic, number), partition in list(sources.replicas.partitions.items()):
            yield (topic, number), read(partition)

    return Family(name, GAUGE, what, ("topic", "partition"), samples)


def _is_at_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr) == partition.log.config.min_insync_replicas


def _is_under_min_isr(partition: Partition) -> bool:
    return partition.is_leader and not partition.is_enough_in_sync


# ---- topics


def _of_topics(name: str, what: str, field: str) -> Family:
    read: Callable[[TopicCounts], int] = attrgetter(field)

    def samples(sources: Sources, census: Census) -> Iterator[Sample]:
        yield (), read(census.topics)
        for topic, counts in list(sources.counts.topics.items()):
            yield (topic,), read(counts)

    return Family(
        f"kafka_server_brokertopicmetrics_{name}_total", COUNTER, what, ("topic",), samples
    )


# ---- requests


def _requests(sources: Sources) -> list[tuple[str, tuple[RequestCounts, ...]]]:
    """Return the counts of each kind of request by Kafka's name; "Fetch" has both kinds of it."""
    of_apis = sources.counts.requests
    followers = sources.counts.follower_fetches
    kinds: list[tuple[str, tuple[RequestCounts, ...]]] = []
    kinds += [(counts.name, (counts,)) for counts in of_apis.values()]
    kinds.append((followers.name, (followers,)))
    if ApiKey.FETCH in of_apis:
        kinds.append(("Fetch", (of_apis[ApiKey.FETCH], followers)))
    return kinds


def _distribution(name: str, what: str, field: str, scale: int) -> tuple[Family, Family]:
    """Return quantiles, of which there are as many as Kafka has, and the number of requests."""
    read: Callable[[RequestCounts], Iterable[float]] = attrgetter(field)
    full_name = f"kafka_network_requestmetrics_{name}"

    def quantiles(sources: Sources, census: Census) -> Iterator[Sample]:
        for request, parts in _requests(sources):
            numbers = [number for counts in parts for number in read(counts)]
            for quantile, number in find_quantiles(numbers):
                yield (request, quantile), number * scale

    def number(sources: Sources, census: Census) -> Iterator[Sample]:
        for request, parts in _requests(sources):
            yield (request,), sum(counts.count for counts in parts)

    return (
        Family(full_name, GAUGE, what, ("request", "quantile"), quantiles),
        Family(f"{full_name}_count", COUNTER, f"{what} Number of requests.", ("request",), number),
    )


def _by_version(sources: Sources, census: Census) -> Iterator[Sample]:
    for request, parts in _requests(sources):
        # A fetch of a consumer and one of a follower may have one version.
        for version in sorted({version for counts in parts for version in counts.versions}):
            yield (request, version), sum(counts.versions.get(version, 0) for counts in parts)


def _errors(sources: Sources, census: Census) -> Iterator[Sample]:
    for request, parts in _requests(sources):
        for code in sorted({code for counts in parts for code in counts.errors}):
            number = sum(counts.errors.get(code, 0) for counts in parts)
            yield (request, ErrorCode.of(code).name), number


# ---- histograms


def _histogram(
    name: str,
    what: str,
    labels: tuple[str, ...],
    read: Callable[[Sources], Iterable[tuple[tuple[object, ...], Buckets]]],
) -> tuple[Family, Family, Family]:
    def buckets(sources: Sources, census: Census) -> Iterator[Sample]:
        for values, histogram in read(sources):
            cumulated = accumulate(histogram.numbers)
            for bound, number in zip((*BUCKETS_S, "+Inf"), cumulated, strict=True):
                yield (*values, bound), number

    def total(sources: Sources, census: Census) -> Iterator[Sample]:
        return ((values, histogram.sum_s) for values, histogram in read(sources))

    def number(sources: Sources, census: Census) -> Iterator[Sample]:
        return ((values, sum(histogram.numbers)) for values, histogram in read(sources))

    return (
        Family(name, HISTOGRAM, what, (*labels, "le"), buckets, "_bucket"),
        Family(name, HISTOGRAM, what, labels, total, "_sum"),
        Family(name, HISTOGRAM, what, labels, number, "_count"),
    )


def _request_buckets(sources: Sources) -> Iterator[tuple[tuple[object, ...], Buckets]]:
    for counts in (*sources.counts.requests.values(), sources.counts.follower_fetches):
        yield (counts.name,), counts.buckets


# ---- parked requests

OPERATIONS: dict[str, tuple[ApiKey, ...]] = {
    "Produce": (ApiKey.PRODUCE,),
    "Fetch": (ApiKey.FETCH,),
    "DeleteRecords": (ApiKey.DELETE_RECORDS,),
    "ElectLeader": (ApiKey.ELECT_LEADERS,),
    "Rebalance": (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
    "topic": (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS),
}
"""Kafka's purgatories, and the requests that wait in them."""


def _parked(sources: Sources, census: Census) -> Iterator[Sample]:
    subjects = sources.purgatory.subjects()
    for operation, keys in OPERATIONS.items():
        yield (operation,), sum(subjects[key] for key in keys)


# ---- others


def _logins(sources: Sources, census: Census) -> Iterator[Sample]:
    for listener, counts in sources.logins.items():
        for result, counter in counts.by_result().items():
            yield (listener, result), counter.count


def _blocked_ns(sources: Sources, census: Census) -> Iterator[Sample]:
    for listener, blocked_s in sources.listener.blocked_s().items():
        yield (listener,), round(blocked_s * 1e9)


def _groups(state: GroupState) -> Family:
    name = f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.value.lower()}"
    return _gauge(name, f"Groups in state {state.value}.", lambda s, c: c.groups[state.value])


def _queues(sources: Sources, census: Census) -> Iterator[Sample]:
    return (((broker,), n) for broker, n in sources.controller.queued_requests.items())


def _directories(number_of: Callable[[Census], dict[str, int]]) -> Read:
    def samples(sources: Sources, census: Census) -> Iterator[Sample]:
        for log_dir in sources.replicas.logs.dirs:
            yield (log_dir.path,), number_of(census)[log_dir.path]

    return samples


def _offline_directories(sources: Sources, census: Census) -> Iterator[Sample]:
    logs = sources.replicas.logs
    for log_dir in logs.dirs:
        yield (log_dir.path,), 0
    for path in logs.offline_dirs:
        yield (path,), 1


def _full_directories(sources: Sources, census: Census) -> Iterator[Sample]:
    for log_dir in sources.replicas.logs.dirs:
        yield (log_dir.path,), int(log_dir.is_full)


def _active_controller(sources: Sources, census: Census) -> float:
    return sources.controller.is_active


def _since_last_run_ms(sources: Sources, census: Census) -> float:
    looked_at_ms = sources.cleaner.looked_at_ms
    return sources.now_ms() - looked_at_ms if looked_at_ms else 0


def _buffer_utilization(sources: Sources, census: Census) -> float:
    return census.last_pass.statistics.map_utilization * 100 if census.last_pass else 0


def _clean_time_s(sources: Sources, census: Census) -> float:
    last = census.last_pass
    return (last.ended_ms - last.started_ms) // 1000 if last else 0


def _recopied(sources: Sources, census: Census) -> float:
    if census.last_pass is None or not census.last_pass.statistics.bytes_read:
        return 0
    statistics = census.last_pass.statistics
    return 100 * statistics.bytes_written / statistics.bytes_read


_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_CLEANER = "kafka_log_logcleaner"
_CLEANER_MANAGER = "kafka_log_logcleanermanager"
_SESSION = "kafka_server_sessionexpirelistener_zookeeper"
_FETCH_SESSIONS = "kafka_server_fetchsessioncache"
_PURGATORY = "kafka_server_delayedoperationpurgatory"

FAMILIES: tuple[Family, ...] = (
    # Topics.
    _of_topics("messagesin", "Records appended as the leader.", "messages_in"),
    _of_topics("bytesin", "Bytes appended as the leader.", "bytes_in"),
    _of_topics("bytesout", "Bytes sent to consumers.", "bytes_out"),
    _of_topics("totalproducerequests", "Batches to append.", "produce_requests"),
    _of_topics("failedproducerequests", "Batches refused.", "failed_produce_requests"),
    _of_topics("totalfetchrequests", "Partitions in responses to fetches.", "fetch_requests"),
    _of_topics("failedfetchrequests", "Partitions with an error.", "failed_fetch_requests"),
    _counted(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes sent to followers.",
        lambda s, c: s.counts.replication_bytes_out,
    ),
    # Requests.
    Family(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        "Requests that have their response.",
        ("request", "version"),
        _by_version,
    ),
    Family(
        "kafka_network_requestmetrics_errors_total",
        COUNTER,
        "Responses, of Produce and Fetch the partitions in them, by their errors.",
        ("request", "error"),
        _errors,
    ),
    *_distribution("totaltimems", "From the request to its response.", "total_s", 1000),
    *_distribution("localtimems", "Time in the handler.", "local_s", 1000),
    *_distribution("remotetimems", "Time parked.", "remote_s", 1000),
    *_distribution("requestbytes", "Size of the request.", "sizes", 1),
    *_histogram(
        "kgroup_broker_request_seconds",
        "From the request to its response.",
        ("request",),
        _request_buckets,
    ),
    Family(
        f"{_PURGATORY}_purgatorysize", GAUGE, "Parked requests.", ("delayedOperation",), _parked
    ),
    Family(
        f"{_PURGATORY}_numdelayedoperations",
        GAUGE,
        "Parked requests.",
        ("delayedOperation",),
        _parked,
    ),
    # The loop and its connections.
    *_histogram(
        "kgroup_broker_loop_delay_seconds",
        "How late the event loop called a timer.",
        (),
        lambda s: [((), s.load.delays)],
    ),
    _gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "Share of time in which the event loop had nothing to compute, 0 to 1.",
        lambda s, c: s.load.idle_share,
    ),
    _gauge(
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "The same: one loop does both.",
        lambda s, c: s.load.idle_share,
    ),
    _gauge(
        "kgroup_broker_connections",
        "Open connections. Kafka's own name has its threads as a label.",
        lambda s, c: len(s.listener.connections),
    ),
    Family(
        "kafka_network_acceptor_acceptorblockedpercent_count",
        COUNTER,
        "Nanoseconds for which connections waited because of the limits of their listener.",
        ("listener",),
        _blocked_ns,
    ),
    Family(
        "kgroup_broker_logins_total",
        COUNTER,
        "Logins by SASL. Kafka has them for each of its threads.",
        ("listener", "result"),
        _logins,
    ),
    _gauge(
        "kafka_network_socketserver_memorypoolused",
        "Bytes of requests and unsent responses.",
        lambda s, c: s.listener.queued.total,
    ),
    _gauge(
        "kafka_network_socketserver_memorypoolavailable",
        "Bytes that may be added to these.",
        lambda s, c: max(0, s.listener.queued.limit - s.listener.queued.total),
    ),
    _gauge(
        f"{_FETCH_SESSIONS}_numincrementalfetchsessions",
        "Fetch sessions.",
        lambda s, c: s.fetch_sessions.open_count,
    ),
    _gauge(
        f"{_FETCH_SESSIONS}_numincrementalfetchpartitionscached",
        "Partitions of fetch sessions.",
        lambda s, c: s.fetch_sessions.partition_count,
    ),
    # Replicas.
    _gauge(f"{_REPLICAS}_partitioncount", "Replicas.", lambda s, c: len(s.replicas.partitions)),
    _gauge(f"{_REPLICAS}_leadercount", "Partitions led.", lambda s, c: c.leaders),
    _gauge(
        f"{_REPLICAS}_underreplicatedpartitions",
        "Partitions led with a replica that is not in sync.",
        lambda s, c: c.under_replicated,
    ),
    _gauge(
        f"{_REPLICAS}_underminisrpartitioncount",
        "Partitions led with fewer replicas in sync than min.insync.replicas.",
        lambda s, c: c.under_min_isr,
    ),
    _gauge(
        f"{_REPLICAS}_atminisrpartitioncount",
        "Partitions led with as many replicas in sync as min.insync.replicas.",
        lambda s, c: c.at_min_isr,
    ),
    _gauge(
        f"{_REPLICAS}_offlinereplicacount",
        "Replicas whose log cannot be used.",
        lambda s, c: len(s.replicas.logs.unusable),
    ),
    _counted(
        f"{_REPLICAS}_isrshrinks_total",
        "Times an ISR shrank.",
        lambda s, c: s.replicas.follower_progress.isr_shrinks,
    ),
    _counted(
        f"{_REPLICAS}_isrexpands_total",
        "Times an ISR grew.",
        lambda s, c: s.replicas.follower_progress.isr_expands,
    ),
    _counted(
        f"{_REPLICAS}_failedisrupdates_total",
        "ISRs that were not written, because another leader had the partition.",
        lambda s, c: s.replicas.follower_progress.failed_isr_updates,
    ),
    Family(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        GAUGE,
        "Partitions whose last fetch from their leader failed.",
        ("clientId",),
        lambda s, c: [(("Replica",), len(s.replicas.followers.failures()))],
    ),
    # Partitions.
    _of_partitions(
        "kafka_cluster_partition_underreplicated",
        "1 if it is led here, and a replica is not in sync.",
        is_under_replicated,
    ),
    _of_partitions(
        "kafka_cluster_partition_insyncreplicascount",
        "Replicas in sync, if it is led here.",
        lambda p: len(p.isr) if p.is_leader else 0,
    ),
    _of_partitions(
        "kafka_cluster_partition_replicascount",
        "Replicas, if it is led here.",
        lambda p: len(p.replicas) if p.is_leader else 0,
    ),
    _of_partitions(
        "kafka_cluster_partition_underminisr",
        "1 if it is led here with fewer replicas in sync than min.insync.replicas.",
        _is_under_min_isr,
    ),
    _of_partitions(
        "kafka_cluster_partition_atminisr",
        "1 if it is led here with just min.insync.replicas.",
        _is_at_min_isr,
    ),
    _of_partitions(
        "kafka_cluster_partition_laststableoffsetlag",
        "Records between the last stable offset and the high watermark.",
        lambda p: p.high_watermark - p.last_stable_offset if p.is_leader else 0,
    ),
    _of_partitions("kafka_log_log_size", "Bytes of the log.", lambda p: p.log.size),
    _of_partitions(
        "kafka_log_log_logstartoffset", "First offset.", lambda p: p.log.log_start_offset
    ),
    _of_partitions("kafka_log_log_logendoffset", "Next offset.", lambda p: p.log.log_end_offset),
    _of_partitions("kafka_log_log_numlogsegments", "Segments.", lambda p: len(p.log.segments)),
    # Directories and the cleaner.
    _gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed.",
        lambda s, c: len(s.replicas.logs.offline_dirs),
    ),
    Family(
        "kafka_log_logmanager_logdirectoryoffline",
        GAUGE,
        "1 if the directory has failed.",
        ("logDirectory",),
        _offline_directories,
    ),
    Family(
        "kgroup_broker_log_directory_full",
        GAUGE,
        "1 if the directory's disk has no room, so that appends are refused.",
        ("logDirectory",),
        _full_directories,
    ),
    _gauge(
        f"{_CLEANER_MANAGER}_max_dirty_percent",
        "Dirty share of the dirtiest log at the cleaner's last look.",
        lambda s, c: s.cleaner.max_dirty_ratio * 100,
    ),
    _gauge(f"{_CLEANER_MANAGER}_time_since_last_run_ms", "Time since that.", _since_last_run_ms),
    Family(
        f"{_CLEANER_MANAGER}_uncleanable_partitions_count",
        GAUGE,
        "Logs in quarantine: they could not be cleaned.",
        ("logDirectory",),
        _directories(lambda census: census.uncleanable),
    ),
    Family(
        f"{_CLEANER_MANAGER}_uncleanable_bytes",
        GAUGE,
        "Bytes of these logs.",
        ("logDirectory",),
        _directories(lambda census: census.uncleanable_bytes),
    ),
    _gauge(f"{_CLEANER}_deadthreadcount", "1 if the cleaner died.", lambda s, c: s.cleaner.is_dead),
    _gauge(
        f"{_CLEANER}_max_buffer_utilization_percent",
        "How full the last pass's map of keys was.",
        _buffer_utilization,
    ),
    _gauge(f"{_CLEANER}_max_clean_time_secs", "Duration of the last pass.", _clean_time_s),
    _gauge(
        f"{_CLEANER}_cleaner_recopy_percent", "Share of bytes that the last pass kept.", _recopied
    ),
    # The controller.
    _gauge(f"{_CONTROLLER}_activecontrollercount", "1 on the controller.", _active_controller),
    _gauge(
        f"{_CONTROLLER}_offlinepartitionscount",
        "Partitions without a leader; 0 on all brokers but the controller, as all that follow.",
        lambda s, c: c.offline_partitions,
    ),
    _gauge(
        f"{_CONTROLLER}_preferredreplicaimbalancecount",
        "Partitions that are not led by their preferred leader.",
        lambda s, c: c.preferred_imbalance,
    ),
    _gauge(
        f"{_CONTROLLER}_globaltopiccount",
        "Topics.",
        lambda s, c: len(s.controller.state.assignments),
    ),
    _gauge(f"{_CONTROLLER}_globalpartitioncount", "Partitions.", lambda s, c: c.partitions),
    _gauge(
        f"{_CONTROLLER}_topicstodeletecount",
        "Topics that are being deleted.",
        lambda s, c: len(s.controller.state.deletions),
    ),
    _gauge(
        f"{_CONTROLLER}_replicastodeletecount",
        "Replicas that are being deleted.",
        lambda s, c: c.replicas[ReplicaStatus.DELETION_STARTED],
    ),
    _gauge(
        f"{_CONTROLLER}_replicasineligibletodeletecount",
        "Replicas whose deletion waits for their broker.",
        lambda s, c: c.replicas[ReplicaStatus.DELETION_INELIGIBLE],
    ),
    _gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "Events that wait for the controller.",
        lambda s, c: s.controller.queued_events,
    ),
    Family(
        "kafka_controller_controllerchannelmanager_queuesize",
        GAUGE,
        "Requests of the controller that wait to be sent.",
        ("broker_id",),
        _queues,
    ),
    _gauge(
        "kafka_controller_controllerchannelmanager_totalqueuesize",
        "Requests of the controller that wait to be sent.",
        lambda s, c: sum(s.controller.queued_requests.values()),
    ),
    # Groups.
    _gauge(f"{_GROUPS}_numgroups", "Groups of this coordinator.", lambda s, c: c.groups.total()),
    _gauge(f"{_GROUPS}_numoffsets", "Committed offsets here.", lambda s, c: c.offsets),
    *map(_groups, GroupState),
    # Transactions.
    _gauge(
        f"{_MARKERS}_unknowndestinationqueuesize",
        "Markers of ended transactions that wait for a leader of their partition.",
        lambda s, c: s.markers.count_unplaced(),
    ),
    _gauge(
        f"{_MARKERS}_logappendretryqueuesize",
        "Ended transactions whose last record could not be written, and is tried again.",
        lambda s, c: s.transactions.count_ends_to_write_again(),
    ),
    # ZooKeeper, and the broker.
    _counted(
        f"{_SESSION}syncconnects_total",
        "Times the session was connected.",
        lambda s, c: s.session.numbers[SessionState.CONNECTED],
    ),
    _counted(
        f"{_SESSION}disconnects_total",
        "Times the connection was lost.",
        lambda s, c: s.session.numbers[SessionState.SUSPENDED],
    ),
    _counted(
        f"{_SESSION}expires_total",
        "Times the session expired.",
        lambda s, c: s.session.numbers[SessionState.EXPIRED],
    ),
    _gauge("kafka_server_kafkaserver_brokerstate", "3: the broker serves.", lambda s, c: RUNNING),
)
