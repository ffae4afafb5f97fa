"""Judge `__consumer_offsets` by what was read of it: is it compacted, safe, and soon loaded? Pure.

Facts go in; rows come out, each with OK, WARN or ERR, and a sentence with the numbers and the
remedy. A partition that is no longer cleaned is told by its records alone, so with every broker: in
`PartitionFacts.clean_bytes` is all that can have been cleaned, and one segment is never cleaned, as
it is being written. What is left must have been cleaned, or will be at the cleaner's next look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from clients.command_line.point_in_time import timestamp
from clients.groups.group_view import duration
from clients.watching.health import ERR, OK, SEVERITY, WARN
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC

SEGMENT_BYTES = 104_857_600
LARGE_SEGMENT_BYTES = 268_435_456
MIN_DIRTY_RATIO = 0.5
LARGE_DIRTY_RATIO = 0.75
NO_LAG_MS = 2**63 - 1
REPLICAS = 3
LONGEST_TRANSACTION_MS = 900_000
"""Kafka's default for transaction.max.timeout.ms."""
LONGEST_LOAD_MS = 60_000
"""Then commits fail: default.api.timeout.ms of a Java consumer."""
LOAD_BYTES_PER_S = 10 << 20
"""A coordinator reads its own disk, and is not slower however slow this reading was."""
DAY_MINUTES = 1440
COMMITS_PER_OFFSET_AND_SECOND = 10
SHOWN_GROUPS = 10

Finding = tuple[str, str]
"""A verdict and its sentence."""


@frozen
class PartitionFacts:
    """The facts about a partition. Times are in ms; sizes are those of the leader's log."""

    partition_id: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start: int | None = None
    log_end: int | None = None
    replica_bytes: int | None = None
    """Size of the largest replica; None if no broker told it."""
    read_bytes: int = 0
    clean_bytes: int = 0
    young_bytes: int = 0
    """Size of what is younger than min.compaction.lag.ms."""
    records: int = 0
    keys: int = 0
    repeated_since_ms: int | None = None
    last_written_ms: int | None = None
    open_since_ms: int | None = None
    """When the first record was written that transactions hold back; None if there is none."""
    read_ms: int = 0
    error: str | None = None
    is_damaged: bool = False
    """True if the error is in the bytes of the log."""


@frozen
class GroupTally:
    """The offsets of a group, and how many it has committed within the sample."""

    keys: int
    commits: int


@frozen
class TopicFacts:
    """The facts about the topic. Settings are as brokers tell them; those before 0.11 do not."""

    partitions: Sequence[PartitionFacts]
    groups: Mapping[str, GroupTally]
    brokers: Sequence[int]
    settings: Mapping[str, str]
    broker_settings: Mapping[int, Mapping[str, str]]
    now_ms: int
    sample_ms: int
    silent: Mapping[int, str] = attrs.Factory(dict)
    """Brokers that did not respond, and why."""

    def number(self, name: str, default: float) -> float:
        """Return a setting of the topic."""
        return float(self.settings.get(name, default))

    @property
    def load_bytes_per_s(self) -> float:
        """The speed at which a coordinator loads partitions: that of this reading, at least."""
        read_bytes = sum(partition.read_bytes for partition in self.partitions)
        read_ms = sum(partition.read_ms for partition in self.partitions)
        return max(read_bytes * 1000 / max(1, read_ms), LOAD_BYTES_PER_S)

    def load_ms(self, partitions: Iterable[PartitionFacts]) -> int:
        """Return how long groups wait until these are loaded, one after the other."""
        size = sum(partition.read_bytes for partition in partitions)
        return round(size * 1000 / self.load_bytes_per_s)


def judge_topic(facts: TopicFacts) -> list[dict[str, Any]]:
    """Return a row for each setting, broker, partition, and for the groups that weigh most."""
    return [
        *_setting_rows(facts),
        *_broker_rows(facts),
        *(_partition_row(partition, facts) for partition in facts.partitions),
        *_group_rows(facts),
    ]


def summarize(facts: TopicFacts, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the worst verdict, and a sentence on all rows."""
    size = size_text(sum(map(_size, facts.partitions)))
    keys = sum(partition.keys for partition in facts.partitions)
    what = f"{OFFSETS_TOPIC}: {len(facts.partitions)} partitions, {size}, {keys} keys"
    wrong = sorted(
        (row for row in rows if row["verdict"] != OK),
        key=lambda row: -SEVERITY.index(row["verdict"]),
    )
    if not wrong:
        return OK, f"{what}: all OK"

    counts = [
        f"{count} {verdict}"
        for verdict in (ERR, WARN)
        if (count := sum(1 for row in wrong if row["verdict"] == verdict))
    ]
    first = wrong[0]
    return first[
        "verdict"
    ], f"{what}: {', '.join(counts)}; first {first['subject']}: {first['why']}"


# --- Settings and brokers ------------------------------------------------------------------------


def _setting_rows(facts: TopicFacts) -> Iterable[dict[str, Any]]:
    alter = f"kbroker configs alter --topic {OFFSETS_TOPIC} --add"

    policy = facts.settings.get("cleanup.policy")
    if policy is not None:
        finding = (OK, "the last commit of each offset stays")
        if policy != "compact":
            effect = (
                f"offsets are deleted after retention.ms={facts.settings.get('retention.ms', '?')}"
                if "delete" in policy
                else "old commits stay for ever"
            )
            finding = (ERR, f"{effect}: {alter} cleanup.policy=compact")
        yield _row("setting", "cleanup.policy", [finding], value=policy)

    replicas = min((len(partition.replicas) for partition in facts.partitions), default=0)
    wanted = min(REPLICAS, len(facts.brokers))
    finding = (OK, "")
    if replicas < wanted:
        finding = (
            WARN,
            f"{len(facts.brokers)} brokers could keep {wanted} replicas: "
            "groups stop, or lose offsets, with too few brokers: add replicas with "
            "`kbroker reassign`",
        )
    yield _row("setting", "replication factor", [finding], value=str(replicas))

    if "segment.bytes" in facts.settings:
        segment = facts.number("segment.bytes", SEGMENT_BYTES)
        finding = (OK, "")
        if segment > LARGE_SEGMENT_BYTES:
            finding = (
                WARN,
                f"up to {size_text(segment)} of each partition are never cleaned, and are read at "
                f"each fail-over: {alter} segment.bytes={SEGMENT_BYTES}",
            )
        yield _row("setting", "segment.bytes", [finding], value=facts.settings["segment.bytes"])

    if "min.cleanable.dirty.ratio" in facts.settings:
        finding = (OK, "")
        if facts.number("min.cleanable.dirty.ratio", MIN_DIRTY_RATIO) > LARGE_DIRTY_RATIO:
            finding = (
                WARN,
                "partitions grow far before they are cleaned: "
                f"{alter} min.cleanable.dirty.ratio={MIN_DIRTY_RATIO}",
            )
        value = facts.settings["min.cleanable.dirty.ratio"]
        yield _row("setting", "min.cleanable.dirty.ratio", [finding], value=value)


def _broker_rows(facts: TopicFacts) -> Iterable[dict[str, Any]]:
    for broker in facts.brokers:
        settings = facts.broker_settings.get(broker, {})
        findings: list[Finding] = []

        if broker in facts.silent:
            findings.append(
                (ERR, f"it does not respond: {facts.silent[broker]}; start it, or look at its log")
            )
        if settings.get("log.cleaner.enable") == "false":
            findings.append(
                (ERR, "log.cleaner.enable=false: it cleans nothing; set it to true and restart it")
            )
        minutes = settings.get("offsets.retention.minutes")
        if minutes is not None and int(minutes) <= DAY_MINUTES:
            findings.append(
                (
                    WARN,
                    f"offsets.retention.minutes={minutes}: a group that stands still for longer "
                    "loses its offsets; Kafka's default is 10080 since 2.0",
                )
            )

        # A new coordinator loads one partition after the other.
        led = [partition for partition in facts.partitions if partition.leader == broker]
        load_ms = facts.load_ms(led)
        size = sum(map(_size, led))
        if load_ms > LONGEST_LOAD_MS:
            findings.append(
                (
                    WARN,
                    f"if it fails, the groups of its {len(led)} partitions stand still until "
                    f"{size_text(size)} are loaded, {duration(load_ms)} at "
                    f"{size_text(facts.load_bytes_per_s)}/s; partitions that are cleaned, and more "
                    "brokers, make that shorter",
                )
            )
        yield _row("broker", f"broker {broker}", findings, size_bytes=size, load_ms=load_ms)


# --- Partitions ----------------------------------------------------------------------------------


def _partition_row(partition: PartitionFacts, facts: TopicFacts) -> dict[str, Any]:
    findings: list[Finding] = []
    if partition.leader < 0:
        findings.append(
            (
                ERR,
                "no leader: its groups stand still; start one of "
                f"{list(partition.isr or partition.replicas)}",
            )
        )
    elif partition.is_damaged:
        findings.append(
            (
                ERR,
                f"a batch is damaged: {partition.error}; the cleaner and the next coordinator stop "
                "there: let another replica lead, and delete this one",
            )
        )
    elif partition.error is not None:
        findings.append((ERR, f"it could not be read to its end: {partition.error}"))
    if partition.leader >= 0 and (missing := set(partition.replicas) - set(partition.isr)):
        findings.append(
            (
                WARN,
                f"{len(partition.isr)} of {len(partition.replicas)} replicas are in sync: "
                f"look at broker {', '.join(map(str, sorted(missing)))}",
            )
        )
    findings += _judge_cleaning(partition, facts)

    dirty = _closed_dirty_bytes(partition, facts)
    total = partition.clean_bytes + dirty
    return _row(
        "partition",
        f"{OFFSETS_TOPIC}-{partition.partition_id}",
        findings,
        partition=partition.partition_id,
        leader=partition.leader,
        log_start_offset=partition.log_start,
        log_end_offset=partition.log_end,
        size_bytes=_size(partition),
        records=partition.records,
        keys=partition.keys,
        records_per_key=round(partition.records / partition.keys, 1) if partition.keys else None,
        dirty_ratio=round(dirty / total, 2) if total else 0.0,
        uncleaned_since_ms=partition.repeated_since_ms,
        load_ms=facts.load_ms([partition]),
    )


def _judge_cleaning(partition: PartitionFacts, facts: TopicFacts) -> Iterable[Finding]:
    held_ms = facts.now_ms - (partition.open_since_ms or facts.now_ms)
    # Also where no key has come again yet (fault strangers-176).
    if held_ms > LONGEST_TRANSACTION_MS:
        yield (
            ERR,
            f"a transaction is open for {duration(held_ms)}, and nothing behind it is cleaned: "
            "`kbroker transactions find-hanging`, then `abort`",
        )

    since_ms = partition.repeated_since_ms
    if since_ms is None:
        return
    numbers = (
        f"nothing was cleaned since {timestamp(since_ms)}: records {partition.records}, keys "
        f"{partition.keys}"
    )

    remedy = (
        f"the cleaner of broker {partition.leader} has stopped, is behind, or leaves this "
        "partition out: its log says why (log-cleaner.log; `kbroker log cleaner` with ours); "
        "restart the broker; if a segment is damaged let another replica lead, and delete this one"
    )

    # A segment that was closed just now waits for the cleaner's next look: one more is too many.
    dirty = _closed_dirty_bytes(partition, facts)
    ratio = dirty / max(1, partition.clean_bytes + dirty)
    wanted = facts.number("min.cleanable.dirty.ratio", MIN_DIRTY_RATIO)
    if dirty > facts.number("segment.bytes", SEGMENT_BYTES) and ratio > (1 + wanted) / 2:
        yield (
            ERR,
            f"{numbers}, dirty ratio {ratio:.2f} where cleaning begins at {wanted:g}; {remedy}",
        )
        return

    # A segment is closed at that age, when the next record comes; then the cleaner has its turn.
    longest_ms = facts.number("max.compaction.lag.ms", NO_LAG_MS)
    age_ms = (partition.last_written_ms or since_ms) - since_ms
    if age_ms > 2 * longest_ms:
        yield ERR, f"{numbers}, and max.compaction.lag.ms is {duration(int(longest_ms))}; {remedy}"


def _closed_dirty_bytes(partition: PartitionFacts, facts: TopicFacts) -> float:
    """Return how much at least is cleanable: all but one segment, or what is young."""
    kept = max(facts.number("segment.bytes", SEGMENT_BYTES), partition.young_bytes)
    return max(0.0, partition.read_bytes - partition.clean_bytes - kept)


def _size(partition: PartitionFacts) -> int:
    return partition.read_bytes if partition.replica_bytes is None else partition.replica_bytes


# --- Groups --------------------------------------------------------------------------------------


def _group_rows(facts: TopicFacts) -> Iterable[dict[str, Any]]:
    names = sorted(facts.groups)
    largest = sorted(names, key=lambda name: -facts.groups[name].keys)[:SHOWN_GROUPS]
    busiest = sorted(names, key=lambda name: -facts.groups[name].commits)[:SHOWN_GROUPS]

    for name in dict.fromkeys([*busiest, *largest]):
        group = facts.groups[name]
        rate = group.commits * 1000 / facts.sample_ms
        findings = []
        if rate > COMMITS_PER_OFFSET_AND_SECOND * max(1, group.keys):
            findings.append(
                (
                    WARN,
                    f"{rate:.0f} commits a second of {group.keys} offsets: does it commit after "
                    "each message? Commit once a poll, or by auto.commit.interval.ms",
                )
            )
        row = _row("group", name, findings, keys=group.keys)
        yield row | {"commits_per_s": round(rate, 1)}


def _row(about: str, subject: str, findings: Iterable[Finding], **values: Any) -> dict[str, Any]:
    ordered = sorted(findings, key=lambda finding: -SEVERITY.index(finding[0]))
    return {
        "about": about,
        "subject": subject,
        "verdict": ordered[0][0] if ordered else OK,
        **values,
        "why": "; ".join(why for _, why in ordered if why) or None,
    }


def size_text(size: float) -> str:
    """Return bytes as people read them: 17 B, 3.4 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
