"""Settings of groups and their members, under Kafka's names with the defaults of 2.8."""

from __future__ import annotations

from protocol.frozen import frozen
from protocol.settings import between, ge, int64, setting

MAX_INT = 2**31 - 1
WEEK_MS = 7 * 24 * 3_600_000


@frozen
class GroupConfig:
    """Limits of a group. Groups that only commit have none beside those of their commits."""

    # ---- members
    max_size: int = setting(
        "group.max.size",
        MAX_INT,
        validator=between(1, MAX_INT),
        doc="Most members in a group (KIP-389).",
    )
    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6000,
        validator=between(0, MAX_INT),
        doc="Shortest session timeout that a member may ask for.",
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        validator=between(0, MAX_INT),
        doc="Longest session timeout that a member may ask for.",
    )

    # ---- rebalances
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3000,
        validator=between(0, MAX_INT),
        doc="Time for which an empty group waits for more members before its first rebalance "
        "(KIP-134).",
    )
    reset_hold_ms: int = setting(
        "kgroup.reset.hold.ms",
        5000,
        validator=ge(0),
        doc="Longest time for which a group whose members `kgroup reset` has removed takes no new "
        "ones, so that its offsets can be written.",
    )

    # ---- why groups rebalanced
    events_enable: bool = setting(
        "kgroup.events.enable",
        True,
        doc="Whether a coordinator writes each rebalance to __group_events.",
    )
    events_retention_ms: int = setting(
        "kgroup.events.retention.ms",
        WEEK_MS,
        validator=int64(-1),
        doc="Time for which __group_events keeps a rebalance; -1 without limit. It is a setting of "
        "the topic, which takes it when it is created.",
    )
