"""What a migration tells the user: where it stands, what is proven, what to do next."""

from __future__ import annotations

from collections.abc import Collection

from offsets.migration_observation import TITLE, MemberSeen, Observation, Obstacle, apart
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage

DUAL_SETTINGS = "offsets.storage=kafka dual.commit.enabled=true"
SETTINGS = {
    OffsetStorage.ZOOKEEPER: "offsets.storage=zookeeper",
    OffsetStorage.KAFKA: "offsets.storage=kafka dual.commit.enabled=false",
}
"""What makes a member that is not ours do as the end of a migration wants it to."""

MODE_TEXT = {
    OffsetMode.ZOOKEEPER: "members read and write ZooKeeper alone",
    OffsetMode.DUAL_ZOOKEEPER: "members write both stores and read ZooKeeper",
    OffsetMode.DUAL_KAFKA: "members write both stores and read Kafka",
    OffsetMode.KAFKA: "members read and write Kafka alone",
}


def step_of(migration: GroupMigration | None) -> str:
    """One word for where a migration stands."""
    if migration is None:
        return "none"
    is_back = migration.goal is not migration.target
    if not migration.mode.is_dual:
        return "rolled-back" if is_back else "finalized"
    if is_back:
        return "rolling-back"
    if migration.mode.reads is migration.target:
        return "finalizing"
    return "started" if migration.proven is None else "verified"


def status_text(seen: Observation) -> str:
    """Where it stands, what is proven of it, and what comes next."""
    migration = seen.migration
    if migration is None:
        said = f"{seen.group}: no migration; members go by their settings"
        return f"{said}\n{_next(seen)}"
    lines = [f"{seen.group}: {step_of(migration)}: {MODE_TEXT[migration.mode]}"]
    late = seen.not_obeying
    count = f"{len(seen.members) - len(late)} of {len(seen.members)} members obey"
    obeying = count if seen.members else "no member lives, nobody has to obey"
    lines.append(f"proven: {obeying} (epoch {migration.epoch})")
    if step_of(migration) == "verified":
        lines.append("proven: both stores were in step when verified")
        if proven := seen.proven & seen.foreign_members.keys():
            lines.append(f"proven: not ours, but written both: {', '.join(sorted(proven))}")
    if unsure := [name for name in sorted(seen.foreign_members) if settings_wanted(seen, name)]:
        wanted = settings_wanted(seen, unsure[0])
        lines.append(f"not ours, wants {wanted} and a restart if it has not: {', '.join(unsure)}")
    lines += _left_behind(seen)
    lines.append(_next(seen))
    return "\n".join(lines)


def settings_wanted(seen: Observation, name: str) -> str | None:
    """What a member that is not ours has to be set to; None if that is proven, or not yet known."""
    migration = seen.migration
    if migration is None or name not in seen.foreign_members:
        return None
    if migration.mode.is_dual:
        return None if name in seen.proven else DUAL_SETTINGS
    return SETTINGS[migration.mode.reads]


def next_command(seen: Observation) -> str | None:
    """What to type now to come to the end; None there."""
    verb = _NEXT[step_of(seen.migration)]
    return f"kgroup migrate {verb} {seen.group}" if verb else None


_NEXT = {
    "none": "plan",
    "started": "verify",
    "verified": "finalize",
    "finalizing": "finalize",
    "finalized": None,
    "rolling-back": "rollback",
    "rolled-back": None,
}
_CAN_TURN_BACK = ("started", "verified", "finalizing", "finalized")


def _next(seen: Observation) -> str:
    back = f"; to turn back, kgroup migrate rollback {seen.group}"
    can_turn_back = step_of(seen.migration) in _CAN_TURN_BACK
    return f"next: {next_command(seen) or 'nothing'}{back if can_turn_back else ''}"


def _left_behind(seen: Observation) -> list[str]:
    if not seen.lost:
        return []
    return [f"left behind, no such partition: {', '.join(map(str, sorted(seen.lost)))}"]


def plan_text(seen: Observation, target: OffsetStorage) -> str:
    """What `start` would do."""
    source = target.other
    count, missing = len(seen.store(source)), len(seen.behind(target))
    lines = [
        f"{seen.group}: {count} offsets in {TITLE[source]}, {missing} of them to copy to "
        f"{TITLE[target]}"
    ]
    if seen.members:
        obedient = len(seen.members) - len(seen.foreign_members)
        lines.append(f"{obedient} of {len(seen.members)} members follow by themselves")
    else:
        lines.append("no member lives: start, verify and finalize need no waiting")
    lines += [
        f"not ours: {name}: after start, set {DUAL_SETTINGS} there and restart"
        for name in sorted(seen.foreign_members)
    ]
    lines += [
        f"expired: {p}: {offset} is before the start of the log, {seen.log_starts[p]}: wherever it "
        "is kept, auto.offset.reset decides"
        for p, offset in sorted(seen.expired(source).items())
    ]
    lines += _left_behind(seen)
    lines.append(f"next: kgroup migrate start {seen.group} --to {target}")
    return "\n".join(lines)


def diverged(seen: Observation, partitions: Collection[TopicPartition]) -> tuple[Obstacle, ...]:
    """The stores differ, and not because a commit is on its way."""
    return tuple(Obstacle(str(p), "DIVERGED", apart(seen, p)) for p in sorted(partitions))


def nothing_to_do(seen: Observation) -> tuple[str, tuple[Obstacle, ...]]:
    """The command does not fit to where the migration stands."""
    step = step_of(seen.migration)
    fault = Obstacle(seen.group, "INVALID_STEP", f"not possible now, the migration is: {step}")
    return status_text(seen), (fault,)


def under_way(migration: GroupMigration) -> Obstacle:
    """Another migration has to end first."""
    return Obstacle(
        "migration",
        "MIGRATION_UNDER_WAY",
        f"one to {TITLE[migration.target]} is {step_of(migration)}: finalize it or roll it back",
    )


def disobedience(name: str, member: MemberSeen, migration: GroupMigration) -> Obstacle:
    """A member that does not do what the mode in force says."""
    if member.epoch is not None:
        said = f"it has not followed to epoch {migration.epoch} yet (it is in {member.epoch})"
        return Obstacle(name, "NOT_OBEYING", f"{said}: is it cut off from ZooKeeper?")
    wanted = DUAL_SETTINGS if migration.mode.is_dual else SETTINGS[migration.mode.reads]
    return Obstacle(
        name,
        "NOT_OBEYING",
        f"not obeying: set {wanted} there and restart; once it commits to both it is proven by "
        f"verify, and --trust {name} vouches for it",
    )
