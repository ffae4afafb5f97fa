"""The settings of a topic's logs, under Kafka's topic-level names (Kafka's LogConfig).

A broker has one `LogConfig` of its own, made from the `log.*` settings that `BROKER_NAME` pairs
with the topic's names. A topic overrides single values of it. A log reads its config at each
decision, so a changed value counts at once and not with the next segment (KAFKA-7366).

The log honours segment.bytes, segment.ms, segment.jitter.ms, segment.index.bytes,
index.interval.bytes, preallocate, flush.messages, flush.ms, retention.bytes, retention.ms,
cleanup.policy (delete), file.delete.delay.ms and message.timestamp.type. The checks before an
append honour max.message.bytes, compression.type, message.format.version,
message.timestamp.difference.max.ms, min.insync.replicas and unclean.leader.election.enable. Fetches
honour message.downconversion.enable. The cleaner honours cleanup.policy (compact),
delete.retention.ms, min.compaction.lag.ms, max.compaction.lag.ms and min.cleanable.dirty.ratio.
Replication honours the two lists of throttled replicas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property

import attrs

from core_log.appending.message_format import check_version, magic_of
from protocol.frozen import frozen
from protocol.records.batch_header import MAGIC
from protocol.settings import (
    Check,
    SettingError,
    between,
    declared_settings,
    each_of,
    int32,
    int64,
    load,
    one_of,
    setting,
)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
WEEK_MS = 7 * 24 * 60 * 60 * 1000

UNKNOWN_TOPIC_CONFIG = "Unknown topic config name: "
"""How Kafka's message begins for a name that is no setting of topics."""

_int = int32(0)
_long = int64(0)
_long_or_none = int64(-1)
_REPLICA = re.compile("[0-9]+:[0-9]+")


def _replicas_of(name: str) -> Check:
    def check(listed: tuple[str, ...]) -> str | None:
        if listed == ("*",) or all(map(_REPLICA.fullmatch, listed)):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    return check


_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


@frozen
class LogConfig:
    """The settings of a topic's logs. Times in ms, sizes in bytes; -1 retention is no limit."""

    # Segments, their indexes, and flushes.
    segment_bytes: int = setting("segment.bytes", 2**30, validator=int32(14))
    segment_ms: int = setting("segment.ms", WEEK_MS, validator=int64(1))
    segment_jitter_ms: int = setting("segment.jitter.ms", 0, validator=_long)
    segment_index_bytes: int = setting("segment.index.bytes", 10 * 2**20, validator=_int)
    index_interval_bytes: int = setting("index.interval.bytes", 4096, validator=_int)
    flush_messages: int = setting("flush.messages", LONG_MAX, validator=_long)
    flush_ms: int = setting("flush.ms", LONG_MAX, validator=_long)
    # Retention, compaction, and the largest batch.
    retention_bytes: int = setting("retention.bytes", -1, validator=_long_or_none)
    retention_ms: int = setting("retention.ms", WEEK_MS, validator=_long_or_none)
    # Since 2.5 a record of 1 MiB fits with what a batch has around it (fault outside-O7).
    max_message_bytes: int = setting("max.message.bytes", 1_048_588, validator=_int)
    delete_retention_ms: int = setting("delete.retention.ms", 86_400_000, validator=_long)
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms", 0, validator=_long)
    max_compaction_lag_ms: int = setting("max.compaction.lag.ms", LONG_MAX, validator=int64(1))
    file_delete_delay_ms: int = setting("file.delete.delay.ms", 60_000, validator=_long)
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", 0.5, validator=between(0, 1)
    )
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", ("delete",), validator=each_of("compact", "delete")
    )
    # Replication, and the form in which records are stored.
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable", False)
    min_insync_replicas: int = setting("min.insync.replicas", 1, validator=int32(1))
    compression_type: str = setting(
        "compression.type",
        "producer",
        validator=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    preallocate: bool = setting("preallocate", False)
    message_format_version: str = setting(
        "message.format.version", "2.3-IV1", validator=check_version
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type", "CreateTime", validator=one_of("CreateTime", "LogAppendTime")
    )
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms", LONG_MAX, validator=_long
    )
    message_downconversion_enable: bool = setting("message.downconversion.enable", True)
    # Replicas whose replication is throttled (KIP-73).
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        _LEADERS, (), validator=_replicas_of(_LEADERS)
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        _FOLLOWERS, (), validator=_replicas_of(_FOLLOWERS)
    )
    keeps_all: bool = False
    """No setting. True while the log's settings are not known for certain: until then nothing of
    the log is deleted or compacted."""
    was_cleaned: bool = False
    """No setting. True once the log was compacted, whatever its policy is now."""

    @classmethod
    def from_properties(cls, broker_defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
        """Return the broker's values with a topic's in their place.

        Raises SettingError for a name that is no topic setting and for a value out of its range.
        """
        given, _ = load(cls, overrides)
        # Only what was given replaces the broker's value: the rest of `given` is Kafka's defaults.
        fields = {name.replace(".", "_").replace("-", "_").lower() for name in overrides}
        return attrs.evolve(broker_defaults, **{field: getattr(given, field) for field in fields})

    def keeping_all(self) -> LogConfig:
        """Return the config for a log whose settings are not known for certain."""
        return attrs.evolve(self, keeps_all=True)

    def remembering(self, was_cleaned: bool) -> LogConfig:
        """Return the config for a log, with the note of whether it was once compacted."""
        return attrs.evolve(self, was_cleaned=True) if was_cleaned else self

    @cached_property
    def magic(self) -> int:
        """The record format of the log: 0, 1 or 2."""
        return magic_of(self.message_format_version)

    @cached_property
    def leader_throttled(self) -> frozenset[str]:
        """`leader.replication.throttled.replicas` as a set."""
        return frozenset(self.leader_replication_throttled_replicas)

    @cached_property
    def follower_throttled(self) -> frozenset[str]:
        """`follower.replication.throttled.replicas` as a set."""
        return frozenset(self.follower_replication_throttled_replicas)

    @cached_property
    def max_segment_ms(self) -> int:
        """Longest time one segment is written to.

        Records that must be compacted in time must be in a closed segment by then (KIP-354).
        """
        if self.compacts:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def deletes(self) -> bool:
        """True if retention may delete old segments."""
        return "delete" in self.cleanup_policy and not self.keeps_all

    @cached_property
    def hides_holes(self) -> bool:
        """True if recovery cannot see that a power loss took a segment's end but left the next one.

        Compaction leaves gaps too, and messages of old formats do not name their first offset.
        """
        return self.may_have_gaps or self.magic < MAGIC

    @property
    def may_have_gaps(self) -> bool:
        """True if the log may lack any offset, because it is compacted or may have been."""
        return "compact" in self.cleanup_policy or self.keeps_all or self.was_cleaned

    @property
    def compacts(self) -> bool:
        """True if the cleaner keeps only the newest record of each key."""
        return "compact" in self.cleanup_policy and not self.keeps_all


def broker_config(defaults: LogConfig, values: Mapping[str, str]) -> LogConfig:
    """Return a broker's own config: `defaults` with `values`, by the topic's names.

    Kafka refuses some values for all topics at once that a single topic may have. A negative limit
    of retention is none, whatever the number. Raises SettingError.
    """
    values = {
        name: "-1" if name in _LIMITS and value.strip().startswith("-") else value
        for name, value in values.items()
    }
    config = LogConfig.from_properties(defaults, values)

    for name in BROKER_CHECKS.keys() & values.keys():
        number = getattr(config, name.replace(".", "_"))
        reason = BROKER_CHECKS[name](number)
        # One line in the broker's file would delete the records of every topic (fault broker-7).
        if reason is not None:
            raise SettingError(name, reason, values[name])
    return config


_LIMITS = ("retention.ms", "retention.bytes")


def _check_broker_retention(retention_ms: int) -> str | None:
    return None if retention_ms else "must be unlimited (-1) or, greater than or equal to 1"


BROKER_CHECKS: Mapping[str, Callable[[int], str | None]] = {
    "retention.ms": _check_broker_retention,
    "flush.messages": lambda count: None if count >= 1 else "Value must be at least 1",
    "segment.index.bytes": lambda size: None if size >= 4 else "Value must be at least 4",
}
"""Settings whose values brokers judge more strictly than topics, as Kafka 2.8 does; all others with
a twin have the same range, or a wider one."""


def contradiction(overrides: Mapping[str, str]) -> str | None:
    """Say in Kafka's words why a topic's own settings contradict each other; None if they do not.

    A value that is wrong by itself is not looked at.
    """
    lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    given = {name: overrides[name] for name in lags if name in overrides}
    # One lag alone may contradict Kafka's default of the other.
    try:
        config = LogConfig.from_properties(LogConfig(), given)
    except SettingError:
        return None

    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least <= most:
        return None
    return f"conflict topic config setting {lags[0]} ({least}) > {lags[1]} ({most})"


# All others are `log.` and the topic's name. An empty name: the broker has no such setting.
_SPECIAL_BROKER_NAMES = {
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.message.bytes": "message.max.bytes",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "min.insync.replicas": "min.insync.replicas",
    "compression.type": "compression.type",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
}
DELETION_SETTINGS = frozenset(
    (
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "delete.retention.ms",
        "min.compaction.lag.ms",
    )
)
"""The settings by which records are deleted. If a topic has a value here that cannot be
understood, none of its records is deleted."""

_TOPIC_NAMES = tuple(declaration.name for declaration in declared_settings(LogConfig).values())

BROKER_NAME: Mapping[str, str] = {
    name: broker_name
    for name in _TOPIC_NAMES
    if (broker_name := _SPECIAL_BROKER_NAMES.get(name, f"log.{name}"))
}
"""Topic setting → the broker setting that is its default. Settings without one are left out."""
