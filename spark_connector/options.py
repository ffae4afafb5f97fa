"""The options of the source: those of Spark's Kafka source, and a few of our own.

Names and meanings are those of Spark's Kafka source, so that a query changes only its format name.
An option that begins with `kafka.` is a setting of the client. Ours are `commit.*`, `onGroupReset`
and the value `group` of `startingOffsets`. Spark passes names in lower case, so case never counts.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from clients.config import IGNORED, ClusterConfig
from protocol.settings import (
    REQUIRED,
    Check,
    SettingError,
    declared_settings,
    ge,
    gt,
    load,
    one_of,
    setting,
)
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from spark_connector.stream_offset import Offsets, from_json

EARLIEST = "earliest"
LATEST = "latest"
GROUP = "group"

INITIAL = "initial"
"""Metadata of a committed position at which a query was to begin."""

COMMITTERS_GROUP = "kafka.consumer.commit.groupid"
"""The name of `commit.group.id` in a well-known listener for Spark's Kafka source."""

_CLIENT = "kafka."

NOT_OFFERED: Mapping[str, str] = {
    "subscribepattern": "is not offered; name the topics in subscribe",
    "assign": "is not offered; name the topics in subscribe",
    "startingtimestamp": "is not offered; give startingOffsets",
    "startingoffsetsbytimestamp": "is not offered; give startingOffsets",
    "endingtimestamp": "is not offered; give endingOffsets",
    "endingoffsetsbytimestamp": "is not offered; give endingOffsets",
    "minoffsetspertrigger": "is not offered; give the query a trigger interval",
    "maxtriggerdelay": "is not offered; give the query a trigger interval",
    "minpartitions": "is not offered; each partition is read by one task",
    "kafka.group.id": "names no group here; commit.group.id is the one that is committed to",
}
"""Options of Spark's Kafka source that are refused, because they would change what is read."""

NO_EFFECT: Mapping[str, str] = {
    "groupIdPrefix": "ranges are read without a group",
    "kafkaConsumer.pollTimeoutMs": "kafka.default.api.timeout.ms bounds a read",
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms bounds retries",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms is the pause between retries",
}
"""Options of Spark's Kafka source that are accepted and have no effect, and why."""


@attrs.frozen(kw_only=True)
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
        if text.lower() in words or _is_json(text):
            return None
        return f"must be {', '.join(words)} or JSON"

    return check


def _names_topic(topics: tuple[str, ...]) -> str | None:
    return None if topics else "names no topic"


def _metadata(text: str) -> str | None:
    if text == INITIAL:
        return "is reserved: the source itself writes it for a query's first position"
    # Kafka's default of offset.metadata.max.bytes.
    return None if len(text.encode()) <= 4096 else "has more than 4096 bytes"


@attrs.frozen(kw_only=True)
class SourceOptions:
    """The options of one query. It can be pickled, and is sent to every worker."""

    # ---- what is read
    client: ReaderConfig = ReaderConfig(bootstrap_servers=())
    """The settings whose names begin with `kafka.`."""
    subscribe: tuple[str, ...] = setting(
        "subscribe", validator=_names_topic, doc="Topics to read, separated by commas"
    )
    starting_offsets: str = setting(
        "startingOffsets",
        "",
        validator=_position(EARLIEST, LATEST, GROUP),
        doc="Where a new query begins; default: latest for streams, earliest for batches",
    )
    ending_offsets: str = setting(
        "endingOffsets", LATEST, validator=_position(LATEST), doc="Where a batch ends (exclusive)"
    )
    max_offsets_per_trigger: int | None = setting(
        "maxOffsetsPerTrigger", None, validator=gt(0), doc="Most offsets in a micro-batch"
    )
    fail_on_data_loss: bool = setting(
        "failOnDataLoss",
        True,
        doc="Whether it is an error that records are deleted before they are read",
    )
    include_headers: bool = setting("includeHeaders", False, doc="Add the column headers")

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
    commit_metadata: str = setting(
        "commit.metadata", "spark", validator=_metadata, doc="Metadata of each committed offset"
    )
    on_group_reset: str = setting(
        "onGroupReset",
        "ignore",
        validator=one_of("ignore", "fail"),
        doc="If someone else moves the group: overwrite that with a warning, or fail the query",
    )

    @property
    def committed_group(self) -> str | None:
        """The group to commit to; None if the query commits nothing."""
        return self.commit_group_id if self.commit_mode == "batch" else None


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Read and check the options of a query. `streaming`: None if Spark has not said so yet.

    Raises SettingError, which names the option.
    """
    # Options of the client, and of the source.
    client = {}
    own = {}
    for name, text in given.items():
        if name.lower() in NOT_OFFERED:
            raise SettingError(name, NOT_OFFERED[name.lower()])
        # kafka.consumer.commit.groupid begins like a client's setting, and names our group.
        if name.lower().startswith(_CLIENT) and name.lower() != COMMITTERS_GROUP:
            client[name[len(_CLIENT) :]] = text
        else:
            own[name] = text

    options, _ = load(SourceOptions, own, accepted=NO_EFFECT)
    try:
        config, _ = load(ReaderConfig, client, accepted=IGNORED)
    except SettingError as error:
        raise error.with_name(_CLIENT + error.name) from error

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


def specific_offsets(name: str, text: str, topics: Collection[str]) -> Offsets | None:
    """Read offsets in JSON, where -2 is the earliest and -1 the latest; None if it is a word.

    Raises SettingError for topics that are not subscribed to, and for offsets below -2.
    """
    if not _is_json(text):
        return None
    try:
        offsets = from_json(json.loads(text))
    except ValueError as error:
        raise SettingError(name, f'is not like {{"topic": {{"0": 23}}}}: {error}') from error
    for partition, offset in offsets.items():
        if partition.topic not in topics:
            raise SettingError(name, f"names {partition.topic}, which subscribe does not")
        if offset < EARLIEST_TIME:
            raise SettingError(name, f"has {offset} for {partition}")
    return offsets


def _is_json(text: str) -> bool:
    return text.startswith("{")


def _lower_word(text: str) -> str:
    return text if _is_json(text) else text.lower()


def _check_together(options: SourceOptions, streaming: bool | None) -> None:
    """Raise SettingError for options that do not fit together."""
    start = options.starting_offsets
    end = options.ending_offsets

    # Reading them checks their JSON too.
    starts = specific_offsets("startingOffsets", start, options.subscribe) or {}
    ends = specific_offsets("endingOffsets", end, options.subscribe) or {}

    if start == GROUP and options.commit_group_id is None:
        raise SettingError("startingOffsets", "is group, so commit.group.id is required")
    if streaming and end != LATEST:
        raise SettingError("endingOffsets", "is for batch queries; a stream has no end")
    # Spark's own source refuses this too: such a batch would always be empty.
    if streaming is False and (start == LATEST or LATEST_TIME in starts.values()):
        raise SettingError("startingOffsets", "may not be latest in a batch query")
    if EARLIEST_TIME in ends.values():
        raise SettingError("endingOffsets", "may not be earliest")
