"""The options of the source: those of Spark's Kafka source, and a few of our own.

Names and meanings are those of Spark's Kafka source, so that a query changes only its format name.
An option that begins with `kafka.` is a setting of the client. Ours are `columns`, `commit.*`,
`onGroup*`, `joinedTaskOffsets`, `initialOffsetsFile`, `kgroup.corrupt` and the `group…` values of
`startingOffsets`. Spark passes names in lower case, so case never counts.
"""

import logging
from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import IGNORED, ClusterConfig
from clients.security import LOGIN_PROTOCOLS, TLS_PROTOCOLS, login_of, protocol_of
from protocol.frozen import frozen
from protocol.settings import (
    REQUIRED,
    Check,
    SettingError,
    declared_settings,
    ge,
    gt,
    int32,
    int64,
    load,
    one_of,
    setting,
)
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from spark_connector.client_options import check_bootstrap, named_as_given, split_options
from spark_connector.commit_metadata import check_metadata
from spark_connector.damage import FAIL, SKIP
from spark_connector.positions import (
    EARLIEST,
    GROUP,
    GROUP_OR_EARLIEST,
    GROUP_OR_LATEST,
    LATEST,
    WITHOUT_COMMIT,
    Position,
    is_json,
    read_position,
)
from spark_connector.row_columns import TYPES, row_columns
from spark_connector.subscription import Subscription, read_subscription
from spark_connector.time_text import read_ms

logger = logging.getLogger(__name__)

COMMITTERS_GROUP = "kafka.consumer.commit.groupid"
"""The name of `commit.group.id` in a well-known listener for Spark's Kafka source."""

CONSUMERS_GROUP = "kafka.group.id"
"""The group of the consumers of Spark's source. Ours have none; it commits to none either."""


REFUSED: Mapping[str, str] = {
    "provider": "comes from CREATE TABLE, which is not offered, as Spark keeps a table's options "
    "from a Python source that reads it; use CREATE TEMPORARY VIEW … USING kgroup OPTIONS (…)",
    "path": "is given, and topics have none: call load() without a path",
    "kafka.auto.offset.reset": "is not a setting of the source; give startingOffsets",
    "kafka.key.deserializer": "is not a setting of the source: keys are bytes, cast the column",
    "kafka.value.deserializer": "is not a setting of the source: values are bytes, cast the column",
    "kafka.enable.auto.commit": "is not a setting of the source; give commit.group.id",
    "kafka.interceptor.classes": "is not a setting of the source: there are no Java classes here",
}
"""Options that are refused, by their names in lower case; most of them Spark's source refuses."""

NO_EFFECT: Mapping[str, str] = {
    "groupIdPrefix": "ranges are read without a group",
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms bounds retries",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms is the pause between retries",
}
"""Options of Spark's Kafka source that are accepted and have no effect, and why."""

_WITHOUT_GROUP = "ranges are read without a group"

CLIENT_NO_EFFECT: Mapping[str, str] = {
    **IGNORED,
    "allow.auto.create.topics": "the source creates no topics",
    "auto.commit.interval.ms": "commit.group.id is committed to with each batch",
    "check.crcs": "checksums are always checked",
    "client.rack": "leaders are read",
    "exclude.internal.topics": "a pattern never matches internal topics",
    "fetch.max.bytes": "max.partition.fetch.bytes bounds a fetch, which is of one partition",
    "fetch.min.bytes": "what is there is read at once",
    "group.id": _WITHOUT_GROUP,
    "group.instance.id": _WITHOUT_GROUP,
    "group.protocol": _WITHOUT_GROUP,
    "heartbeat.interval.ms": _WITHOUT_GROUP,
    "max.poll.interval.ms": _WITHOUT_GROUP,
    "max.poll.records": "Spark takes records by Arrow batches",
    "partition.assignment.strategy": _WITHOUT_GROUP,
    "retry.backoff.max.ms": "retry.backoff.ms is the pause between retries",
    "session.timeout.ms": _WITHOUT_GROUP,
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms limits it",
}
"""Settings of Kafka's consumer that are accepted and have no effect, and why."""

PROTOCOL = "security.protocol"
_LOGIN, _TLS = "sasl.", "ssl."


@frozen(kw_only=True)
class ReaderConfig(ClusterConfig):
    """Settings of the client behind the source: `kafka.` before these names."""

    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers", REQUIRED, doc="host:port[,host:port...] of brokers to begin with"
    )
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes", 4_194_304, validator=gt(0), doc="Bytes that one fetch asks for"
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms", 500, validator=ge(0), doc="Time for which a broker waits for records"
    )
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        validator=one_of("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are read (KIP-98)",
    )

    @property
    def cluster_settings(self) -> dict[str, Any]:
        """The settings that every client has, as the admin client takes them."""
        return {
            declared.name: getattr(self, field)
            for field, declared in declared_settings(ClusterConfig).items()
        }

    @property
    def isolation(self) -> int:
        """`isolation.level` as in requests: 0 uncommitted, 1 committed."""
        return int(self.isolation_level == "read_committed")


def _position(*words: str) -> Check:
    def check(text: str) -> str | None:
        if text.lower() in words or is_json(text):
            return None
        return f"must be {', '.join(words)} or JSON"

    return check


def _names_topic(topics: tuple[str, ...]) -> str | None:
    return None if topics else "names no topic"


def _names_columns(columns: tuple[str, ...]) -> str | None:
    if not columns or set(columns) - TYPES.keys():
        return f"must name columns of {', '.join(TYPES)}"
    return None


def _duration(text: str) -> str | None:
    try:
        read_ms(text)
    except ValueError as error:
        return str(error)
    return None


@frozen(kw_only=True)
class SourceOptions:
    """The options of one query. It can be pickled, and is sent to every worker."""

    # ---- what is read
    client: ReaderConfig = ReaderConfig(bootstrap_servers=())
    """The settings whose names begin with `kafka.`."""
    subscribe: tuple[str, ...] | None = setting(
        "subscribe", None, validator=_names_topic, doc="Topics to read, separated by commas"
    )
    subscribe_pattern: str = setting(
        "subscribePattern", "", doc="Java's regular expression, to be found in topics' names"
    )
    assign: str = setting("assign", "", doc='Partitions to read: {"topic": [0, 1]}')
    starting_offsets: str = setting(
        "startingOffsets",
        "",
        validator=_position(EARLIEST, LATEST, GROUP, GROUP_OR_EARLIEST, GROUP_OR_LATEST),
        doc="Where a new query begins; default: latest for streams, earliest for batches",
    )
    starting_offsets_by_timestamp: str = setting(
        "startingOffsetsByTimestamp", "", doc='Where a new query begins: {"topic": {"0": ms}}'
    )
    starting_timestamp: int | None = setting(
        "startingTimestamp", None, validator=int64(0), doc="Where a new query begins, in ms"
    )
    starting_offsets_by_timestamp_strategy: str = setting(
        "startingOffsetsByTimestampStrategy",
        "error",
        validator=one_of("error", "latest"),
        doc="Where a partition begins that has nothing since the timestamp",
    )
    on_group_out_of_range: str = setting(
        "onGroupOutOfRange",
        "fail",
        validator=one_of(EARLIEST, LATEST, "fail"),
        doc="Where a partition begins whose log no longer, or not yet, has the group's offset",
    )
    ending_offsets: str = setting(
        "endingOffsets", LATEST, validator=_position(LATEST), doc="Where a batch ends (exclusive)"
    )
    ending_offsets_by_timestamp: str = setting(
        "endingOffsetsByTimestamp", "", doc='Where a batch ends: {"topic": {"0": ms}}'
    )
    ending_timestamp: int | None = setting(
        "endingTimestamp", None, validator=int64(0), doc="Where a batch ends, in ms"
    )

    # ---- batches, and their tasks
    max_offsets_per_trigger: int | None = setting(
        "maxOffsetsPerTrigger", None, validator=int64(1), doc="Most offsets in a micro-batch"
    )
    min_offsets_per_trigger: int | None = setting(
        "minOffsetsPerTrigger",
        None,
        validator=int64(1),
        doc="Least offsets in a micro-batch, unless maxTriggerDelay has passed",
    )
    max_trigger_delay: str = setting(
        "maxTriggerDelay",
        "15m",
        validator=_duration,
        doc="Longest wait for minOffsetsPerTrigger, from the last micro-batch on",
    )
    min_partitions: int | None = setting(
        "minPartitions", None, validator=int32(1), doc="Least tasks; large ranges are divided"
    )
    max_records_per_partition: int | None = setting(
        "maxRecordsPerPartition", None, validator=int64(1), doc="Most offsets in a task"
    )
    joined_task_offsets: int = setting(
        "joinedTaskOffsets",
        5_000,
        validator=int64(0),
        doc="Most offsets in a task that reads several small ranges; 0: a task for each range",
    )

    poll_timeout_ms: int = setting(
        "kafkaConsumer.pollTimeoutMs",
        120_000,
        validator=int64(1),
        doc="Time for which a task waits for brokers that are away",
    )

    # ---- rows, and records that are gone
    fail_on_data_loss: bool = setting(
        "failOnDataLoss",
        True,
        doc="Whether it is an error that records are deleted before they are read",
    )
    corrupt: str = setting(
        "kgroup.corrupt",
        FAIL,
        validator=one_of(FAIL, SKIP),
        doc="If a batch of records cannot be read: fail the task, or go on behind it",
    )
    include_headers: bool = setting("includeHeaders", False, doc="Add the column headers")
    columns: tuple[str, ...] | None = setting(
        "columns",
        None,
        validator=_names_columns,
        doc="Columns to read, separated by commas; by default all, and headers by includeHeaders",
    )

    # ---- a stream's progress
    commit_group_id: str | None = setting(
        "commit.group.id",
        None,
        aliases=(COMMITTERS_GROUP,),
        doc="The group in which a stream's progress is committed",
    )
    commit_mode: str = setting(
        "commit.mode",
        "batch",
        validator=one_of("batch", "off"),
        doc="Commit after each batch, or never",
    )
    commit_on: str | None = setting(
        "commit.on",
        None,
        validator=one_of("batch-end"),
        doc="Commit the end of a batch query that writes, when it has succeeded",
    )
    commit_metadata: str = setting(
        "commit.metadata",
        "spark",
        validator=check_metadata,
        doc="Metadata of each committed offset",
    )
    on_group_reset: str = setting(
        "onGroupReset",
        "warn",
        validator=one_of("warn", "ignore", "fail", "follow"),
        doc="If someone else moves the group: overwrite that with a warning (ignore is an older "
        "word for that), fail the query, or let a new one follow",
    )

    initial_offsets_file: str = setting(
        "initialOffsetsFile",
        "",
        doc="A file on the driver that has where a query began until its first batch succeeds",
    )

    @property
    def committed_group(self) -> str | None:
        """The group to commit to; None if the query commits nothing."""
        return self.commit_group_id if self.commit_mode == "batch" else None

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns of a row."""
        return self.columns or row_columns(self.include_headers)

    @property
    def subscription(self) -> Subscription:
        """Return the topics and partitions to read. Raises SettingError."""
        return read_subscription(self.subscribe, self.subscribe_pattern, self.assign)

    @property
    def start(self) -> Position:
        """Return where a new query begins. Raises SettingError."""
        return read_position(
            "starting",
            self.starting_offsets,
            self.starting_offsets_by_timestamp,
            self.starting_timestamp,
            self.subscription,
        )

    @property
    def end(self) -> Position:
        """Return where a batch ends. Raises SettingError."""
        return read_position(
            "ending",
            self.ending_offsets,
            self.ending_offsets_by_timestamp,
            self.ending_timestamp,
            self.subscription,
        )

    @property
    def max_trigger_delay_s(self) -> float:
        """`maxTriggerDelay` in seconds."""
        return read_ms(self.max_trigger_delay) / 1000


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Read and check the options of a query. `streaming`: None if Spark has not said so yet.

    Raises SettingError, which names the option.
    """
    lower_names = {name.lower(): name for name in given}
    for refused, reason in REFUSED.items():
        if refused in lower_names:
            raise SettingError(lower_names[refused], reason)
    client, own = split_options(given, {COMMITTERS_GROUP})
    options, _ = load(SourceOptions, own, accepted=NO_EFFECT)
    config = read_client(client)

    # The default depends on the kind of query.
    start = options.starting_offsets or (LATEST if streaming else EARLIEST)
    options = attrs.evolve(
        options,
        client=config,
        starting_offsets=_lower_word(start),
        ending_offsets=_lower_word(options.ending_offsets),
    )
    _check_together(options, streaming)
    return options


def read_client(client: Mapping[str, str]) -> ReaderConfig:
    """Read and check the settings of the client. Raises SettingError, which names the option."""
    with named_as_given():
        used = _without_unused_security(client)
        config, _ = load(ReaderConfig, used, accepted=CLIENT_NO_EFFECT)
        check_bootstrap(config.bootstrap_servers)
        login_of(config)
    return config


def warn_of_groups(given: Mapping[str, str], options: SourceOptions) -> None:
    """Warn if `kafka.group.id` is not the group to which the query commits."""
    consumers = {name.lower(): text for name, text in given.items()}.get(CONSUMERS_GROUP)
    if consumers not in (None, options.commit_group_id):
        logger.warning(
            "%s is %s, to which nothing is committed, as in Spark's own source: "
            "commit.group.id is the group to commit to",
            CONSUMERS_GROUP,
            consumers,
        )


def _without_unused_security(client: Mapping[str, str]) -> dict[str, str]:
    """Return the client's settings without those of security for which its protocol has no use.

    Raises SettingError where they stand alone: the protocol is hardly meant to be PLAINTEXT.
    """
    secure = [name for name in client if name.lower().startswith((_LOGIN, _TLS))]
    if secure and PROTOCOL not in map(str.lower, client):
        raise SettingError(secure[0], f"needs kafka.{PROTOCOL} beside it")

    protocol = protocol_of(client)
    users = ((_LOGIN, LOGIN_PROTOCOLS), (_TLS, TLS_PROTOCOLS))
    unused = tuple(prefix for prefix, protocols in users if protocol not in protocols)
    return {name: text for name, text in client.items() if not name.lower().startswith(unused)}


def _lower_word(text: str) -> str:
    return text if is_json(text) else text.lower()


def _check_together(options: SourceOptions, streaming: bool | None) -> None:
    """Raise SettingError for options that do not fit together."""
    # Reading them checks their texts too.
    start = options.start
    end = options.end

    if start.word in WITHOUT_COMMIT and options.commit_group_id is None:
        raise SettingError(start.option, f"is {start.word}, so commit.group.id is required")
    if streaming and end != Position("endingOffsets", LATEST):
        raise SettingError(end.option, "is for batch queries; a stream has no end")
    if options.commit_on is not None and options.committed_group is None:
        raise SettingError("commit.on", f"is {options.commit_on}, so commit.group.id is required")
    if options.commit_on is not None and streaming:
        raise SettingError("commit.on", "is for batch queries; a stream commits after each batch")
    if options.on_group_reset == "follow" and options.committed_group is None:
        raise SettingError("onGroupReset", "is follow, so commit.group.id is required")
    # Spark's own source refuses this too: such a batch would always be empty.
    if streaming is False and (start.word == LATEST or LATEST_TIME in start.offsets.values()):
        raise SettingError("startingOffsets", "may not be latest in a batch query")
    if EARLIEST_TIME in end.offsets.values():
        raise SettingError("endingOffsets", "may not be earliest")

    # The least and the most of a batch.
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise SettingError(
            "minOffsetsPerTrigger", f"is {least}, more than maxOffsetsPerTrigger, which is {most}"
        )
