"""Settings of the high-level consumer: Kafka's old ConsumerConfig, its names and its defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import BrokerVersionConfig, ClusterConfig
from clients.fetch_requests import Isolation
from clients.security import SecurityConfig
from groups.zookeeper.assignment import ASSIGNORS
from groups.zookeeper.membership_state import MembershipSettings
from protocol.frozen import frozen
from protocol.settings import (
    Check,
    SettingError,
    declared_settings,
    ge,
    load,
    one_of,
    setting,
)
from protocol.text import explain_unsendable
from protocol.zookeeper_security import ZooKeeperSecurity

_LEGAL_ID = re.compile(r"[a-zA-Z0-9._-]*")

RESETS = {"earliest": "smallest", "latest": "largest"}


def legal_id() -> Check:
    """Return the check for an id that is part of names of znodes and metrics."""
    return lambda value: (
        explain_unsendable(value)
        if _LEGAL_ID.fullmatch(value)
        else "may hold only letters, digits, dot, hyphen and underscore"
    )


def legal_node() -> Check:
    """Return the check for a legal id that can be the name of a znode."""
    return lambda value: (
        "cannot be the name of a node in ZooKeeper"
        if value in ("", ".", "..")
        else legal_id()(value)
    )


@frozen(kw_only=True)
class StreamsConfig(BrokerVersionConfig):
    """Settings of consumers, wherever their membership is. Times are in ms, sizes in bytes."""

    # ---- the group and its brokers
    group_id: str = setting("group.id", validator=legal_node(), doc="The group to consume in")
    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        (),
        aliases=("metadata.broker.list",),
        doc="Brokers to connect to first; default: those registered in ZooKeeper",
    )
    client_id: str | None = setting(
        "client.id", None, validator=legal_id(), doc="Name for brokers' logs; default group.id"
    )

    # ---- leaders
    refresh_leader_backoff_ms: int = setting(
        "refresh.leader.backoff.ms",
        200,
        aliases=("retry.backoff.ms",),
        validator=ge(0),
        doc="Pause between look-ups of leaders",
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        300_000,
        validator=ge(1),
        doc="Age at which leaders are looked up again",
    )

    # ---- connections
    socket_timeout_ms: int = setting(
        "socket.timeout.ms",
        30_000,
        aliases=("request.timeout.ms",),
        validator=ge(1),
        doc="Longest wait for a broker's response",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms", 10_000, validator=ge(1), doc="Longest time to connect"
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms", 50, validator=ge(0), doc="Pause before the first reconnect"
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        1_000,
        validator=ge(0),
        doc="Longest pause; it doubles with each failure",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        -1,
        aliases=("receive.buffer.bytes",),
        validator=ge(-1),
        doc="SO_RCVBUF of connections; -1: the system's default",
    )

    # ---- fetching
    fetch_message_max_bytes: int = setting(
        "fetch.message.max.bytes",
        1_048_576,
        aliases=("max.partition.fetch.bytes",),
        validator=ge(1),
        doc="Per partition in a fetch",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        52_428_800,
        validator=ge(1),
        doc="Per fetch; also the largest message, if it is above fetch.message.max.bytes",
    )
    num_consumer_fetchers: int = setting(
        "num.consumer.fetchers", 1, validator=ge(1), doc="Fetchers, and connections, per broker"
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes", 1, validator=ge(0), doc="Brokers wait until they have this much"
    )
    fetch_wait_max_ms: int = setting(
        "fetch.wait.max.ms",
        100,
        aliases=("fetch.max.wait.ms",),
        validator=ge(0),
        doc="Longest wait for fetch.min.bytes",
    )
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        validator=one_of("read_uncommitted", "read_committed"),
        doc="read_committed: without messages of open and aborted transactions (KIP-98)",
    )
    queued_max_message_chunks: int = setting(
        "queued.max.message.chunks", 2, validator=ge(1), doc="Fetched chunks waiting per stream"
    )

    # ---- offsets
    auto_commit_enable: bool = setting(
        "auto.commit.enable",
        True,
        aliases=("enable.auto.commit",),
        doc="Commit periodically, in rebalances and at the end",
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 60_000, validator=ge(1), doc="Time between commits"
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "largest",
        validator=one_of("smallest", "largest", "none", *RESETS),
        doc="Start without a committed offset, or with one out of range; none: raise an error",
    )
    consumer_timeout_ms: int = setting(
        "consumer.timeout.ms", -1, doc="Raise ConsumerTimeout after this silence; -1: never"
    )
    offsets_channel_backoff_ms: int = setting(
        "offsets.channel.backoff.ms", 1_000, validator=ge(0), doc="Pause between commit attempts"
    )
    offsets_channel_socket_timeout_ms: int = setting(
        "offsets.channel.socket.timeout.ms",
        10_000,
        aliases=("default.api.timeout.ms",),
        validator=ge(1),
        doc="Longest wait for the coordinator's response",
    )
    offsets_commit_max_retries: int = setting(
        "offsets.commit.max.retries", 5, validator=ge(0), doc="Attempts after the first one"
    )

    # ---- topics
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        True,
        doc="Hide __consumer_offsets and other internal topics from filters",
    )

    @property
    def cluster_config(self) -> ClusterConfig:
        """The settings of the connections to brokers."""
        return ClusterConfig(
            bootstrap_servers=self.bootstrap_servers,
            client_id=self.client_id or self.group_id,
            request_timeout_ms=self.socket_timeout_ms,
            socket_connection_setup_timeout_ms=self.socket_connection_setup_timeout_ms,
            reconnect_backoff_ms=self.reconnect_backoff_ms,
            reconnect_backoff_max_ms=self.reconnect_backoff_max_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
            # Only calls for offsets are repeated until a deadline.
            default_api_timeout_ms=self.offsets_channel_socket_timeout_ms,
            receive_buffer_bytes=self.socket_receive_buffer_bytes,
            api_version_request=self.api_version_request,
            broker_version_fallback=self.broker_version_fallback,
            **{field: getattr(self, field) for field in declared_settings(SecurityConfig)},
        )

    @property
    def isolation(self) -> Isolation:
        """`isolation.level` as requests have it."""
        return Isolation[self.isolation_level.upper()]

    @property
    def largest_fetch_bytes(self) -> int:
        """Bound for doubling the fetch size when a message does not fit."""
        return max(self.fetch_message_max_bytes, self.fetch_max_bytes)


@frozen(kw_only=True)
class ConsumerConfig(StreamsConfig, ZooKeeperSecurity):
    """Settings of a consumer whose membership is in ZooKeeper."""

    # ---- the member
    zookeeper_connect: str = setting(
        "zookeeper.connect",
        doc="host:port[,host:port...][/chroot]",
        when_missing="is required, unless the member joins at brokers: membership=coordinator",
    )
    membership: str = setting(
        "membership",
        "zookeeper",
        validator=one_of("zookeeper"),
        doc="Where the group's members register",
    )
    consumer_id: str | None = setting(
        "consumer.id",
        None,
        validator=legal_id(),
        doc="Fixed name of the member, in place of a generated one; for tests",
    )
    # ---- ZooKeeper
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        6_000,
        validator=ge(1),
        doc="Silence after which ZooKeeper removes a member",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        validator=ge(1),
        doc="Longest time to connect; default: zookeeper.session.timeout.ms",
    )
    zookeeper_sync_time_ms: int = setting(
        "zookeeper.sync.time.ms", 2_000, validator=ge(0), doc="Default of rebalance.backoff.ms"
    )

    # ---- rebalances
    rebalance_max_retries: int = setting(
        "rebalance.max.retries",
        4,
        validator=ge(1),
        doc="Attempts of the first rebalance before creating streams fails",
    )
    rebalance_backoff_ms: int | None = setting(
        "rebalance.backoff.ms", None, validator=ge(0), doc="Pause between attempts to rebalance"
    )
    partition_assignment_strategy: str = setting(
        "partition.assignment.strategy",
        "range",
        validator=one_of(*ASSIGNORS),
        doc="The same for all members of the group; clustered: only without members on the JVM",
    )

    # ---- the store of offsets
    offsets_storage: str = setting(
        "offsets.storage",
        "zookeeper",
        validator=one_of("zookeeper", "kafka"),
        doc="Store of committed offsets",
    )
    dual_commit_enabled: bool | None = setting(
        "dual.commit.enabled",
        None,
        doc="Commit to ZooKeeper too; default: true if offsets.storage is kafka",
    )

    @property
    def membership_settings(self) -> MembershipSettings:
        """The settings of the membership and its rebalances."""
        backoff_ms = self.rebalance_backoff_ms
        return MembershipSettings(
            partition_assignment_strategy=self.partition_assignment_strategy,
            exclude_internal_topics=self.exclude_internal_topics,
            rebalance_max_retries=self.rebalance_max_retries,
            rebalance_backoff_ms=self.zookeeper_sync_time_ms if backoff_ms is None else backoff_ms,
            auto_commit_enable=self.auto_commit_enable,
        )

    @property
    def commits_to_both(self) -> bool:
        """True if offsets are written to ZooKeeper besides Kafka."""
        if self.offsets_storage != "kafka":
            return False

        return True if self.dual_commit_enabled is None else self.dual_commit_enabled


def load_consumer_config(settings: Mapping[str, Any]) -> tuple[ConsumerConfig, list[str]]:
    """Load settings with Kafka's names, or with underscores. Raises SettingError.

    The case of `offsets.storage` does not matter. `earliest` and `latest` are the newer names of
    `smallest` and `largest`.
    """
    lowered = {
        name: value.lower()
        if name.replace(".", "_") == "offsets_storage" and isinstance(value, str)
        else value
        for name, value in settings.items()
    }
    config, notes = load(ConsumerConfig, lowered)

    # Otherwise a fetch of a quiet partition would end as a failure.
    if config.socket_timeout_ms < config.fetch_wait_max_ms:
        raise SettingError("socket.timeout.ms", "must be at least fetch.wait.max.ms")

    reset = RESETS.get(config.auto_offset_reset, config.auto_offset_reset)
    return attrs.evolve(config, auto_offset_reset=reset), notes
