"""Settings of a consumer whose membership is with the coordinator: Java's, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import IGNORED
from clients.high_level.config import RESETS, StreamsConfig
from groups.assignors.assignor import RebalanceProtocol
from groups.assignors.assignor_table import choose_protocol, find_assignor
from groups.consumer.state import ConsumerSettings
from protocol.frozen import frozen
from protocol.settings import Check, SettingError, between, ge, load, one_of, setting
from protocol.text import explain_unsendable

MAX_INT = 2**31 - 1
MAX_INSTANCE_ID = 249
REBALANCE_GRACE_MS = 5000
"""Time beyond the rebalance timeout for which the response to a JoinGroup is waited for."""

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
_JAVA_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}

_OF_JAVA = {
    "max.poll.records": "a stream hands out one message at a time",
    "check.crcs": "the checksums of all batches are checked",
    "allow.auto.create.topics": "a consumer creates no topics here",
}
"""Settings of Java's consumer that are accepted without effect, with the reason."""


def known_strategies() -> Check:
    """Return the check for a list of assignors."""

    def check(value: tuple[str, ...]) -> str | None:
        unknown = [name for name in value if _JAVA_NAMES.get(name, name) not in STRATEGIES]
        if unknown:
            return f"knows {', '.join(STRATEGIES)}, not {', '.join(unknown)}"
        return None if value else "needs at least one strategy"

    return check


def legal_instance_id() -> Check:
    """Return the check for an instance id, as Java's clients have it."""
    letters = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

    def check(value: str) -> str | None:
        if value in ("", ".", ".."):
            return "may not be empty, . or .."
        if len(value) > MAX_INSTANCE_ID:
            return f"may have {MAX_INSTANCE_ID} characters at most"
        if not set(value) <= letters:
            return "may hold only letters, digits, dot, hyphen and underscore"
        return None

    return check


@frozen(kw_only=True)
class MemberConfig(StreamsConfig):
    """Settings of a member of a coordinator's group."""

    membership: str = setting(
        "membership",
        validator=one_of("coordinator"),
        doc="Where the group's members register",
    )
    # No names of znodes here: whatever brokers take (fault strangers-146).
    group_id: str = setting(
        "group.id",
        validator=lambda value: explain_unsendable(value) if value else "may not be empty",
        doc="The group to consume in",
    )
    client_id: str | None = setting(
        "client.id",
        None,
        validator=explain_unsendable,
        doc="Name for brokers' logs; default group.id",
    )
    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers", aliases=("metadata.broker.list",), doc="Brokers to connect to first"
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        None,
        validator=legal_instance_id(),
        doc="Fixed name: a restart within session.timeout.ms causes no rebalance (KIP-345)",
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        ("range", "cooperative-sticky"),
        validator=known_strategies(),
        doc="Assignors in order of preference; all members of the group have one in common",
    )

    # ---- liveness
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        45_000,
        validator=between(1, MAX_INT),
        doc="Silence after which the coordinator removes a member",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms", 3_000, validator=ge(1), doc="Time between heartbeats"
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        300_000,
        validator=between(1, MAX_INT),
        doc="Most time for one message, after which others consume; also the time that members "
        "have to join a rebalance",
    )

    # ---- offsets
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 5_000, validator=ge(1), doc="Time between commits"
    )
    offsets_storage: str = setting(
        "offsets.storage", "kafka", validator=one_of("kafka"), doc="Store of committed offsets"
    )
    dual_commit_enabled: bool = setting(
        "dual.commit.enabled",
        False,
        validator=lambda value: "offsets are with the coordinator" if value else None,
        doc="Commit to ZooKeeper too: not here",
    )

    @property
    def consumer_settings(self) -> ConsumerSettings:
        """The settings of the membership."""
        strategies = self.partition_assignment_strategy
        protocol = choose_protocol([find_assignor(name) for name in strategies])
        return ConsumerSettings(
            group_id=self.group_id,
            strategies=strategies,
            is_cooperative=protocol is RebalanceProtocol.COOPERATIVE,
            group_instance_id=self.group_instance_id,
            auto_commit=self.auto_commit_enable,
            retry_backoff_ms=self.refresh_leader_backoff_ms,
        )


def load_member_config(settings: Mapping[str, Any]) -> tuple[MemberConfig, list[str]]:
    """Load settings with Kafka's names, or with underscores. Raises SettingError.

    Settings that make sense with ZooKeeper alone are refused by name.
    """
    for name in settings:
        dotted = name.replace("_", ".")
        if dotted.startswith(("zookeeper.", "rebalance.")) or dotted == "consumer.id":
            raise SettingError(
                dotted, "has no meaning with membership=coordinator; remove it, or the membership"
            )

    config, notes = load(MemberConfig, settings, accepted={**IGNORED, **_OF_JAVA})
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise SettingError("heartbeat.interval.ms", "must be below session.timeout.ms")
    if config.socket_timeout_ms < config.fetch_wait_max_ms:
        raise SettingError("socket.timeout.ms", "must be at least fetch.wait.max.ms")

    strategies = tuple(_JAVA_NAMES.get(name, name) for name in config.partition_assignment_strategy)
    return attrs.evolve(
        config,
        auto_offset_reset=RESETS.get(config.auto_offset_reset, config.auto_offset_reset),
        partition_assignment_strategy=strategies,
    ), notes
