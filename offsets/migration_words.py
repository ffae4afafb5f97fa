"""What a migration tells the user: where it stands, what is proven, what to do next."""

from __future__ import annotations

from offsets.migration_observation import TITLE, Fault, MemberSeen, Observation
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
        return f"{seen.group}: no migration; members go by their settings"
    lines = [f"{seen.group}: {step_of(migration)}: {MODE_TEXT[migration.mode]}"]
    late = seen.not_obeying
    obeying = len(seen.members) - len(late)
    lines.append(f"proven: {obeying} of {len(seen.members)} members obey (epoch {migration.epoch})")
    if step_of(migration) == "verified":
        lines.append("proven: both stores were in step when verified")
    if seen.strangers:
        names = ", ".join(sorted(seen.strangers))
        wanted = DUAL_SETTINGS if migration.mode.is_dual else SETTINGS[migration.mode.reads]
        lines.append(f"not ours, wants {wanted} and a restart if it has not: {names}")
    if seen.lost:
        lines.append(f"left behind, no such partition: {', '.join(map(str, sorted(seen.lost)))}")
    lines.append(f"next: {_NEXT[step_of(migration)]}")
    return "\n".join(lines)


_NEXT = {
    "started": "verify, or rollback",
    "verified": "finalize, or rollback",
    "finalizing": "finalize again to end it, or rollback",
    "finalized": "nothing; rollback would bring it back",
    "rolling-back": "rollback again to end it",
    "rolled-back": "nothing; start would begin anew",
}


def plan_text(seen: Observation, target: OffsetStorage) -> str:
    """What `start` would do."""
    source = target.other
    count, missing = len(seen.store(source)), len(seen.behind(target))
    lines = [
        f"{seen.group}: {count} offsets in {TITLE[source]}, {missing} of them to copy to "
        f"{TITLE[target]}; {len(seen.members) - len(seen.strangers)} members follow by themselves"
    ]
    if not seen.members:
        lines.append("no member lives: copy, verify and finalize need no waiting")
    lines += [
        f"not ours: {name}: after start, set {DUAL_SETTINGS} there and restart"
        for name in sorted(seen.strangers)
    ]
    if seen.lost:
        lines.append(f"left behind, no such partition: {', '.join(map(str, sorted(seen.lost)))}")
    lines.append(f"next: start --to {target}")
    return "\n".join(lines)


def nothing_to_do(seen: Observation) -> tuple[str, tuple[Fault, ...]]:
    """The command does not fit to where the migration stands."""
    step = step_of(seen.migration)
    fault = Fault(seen.group, "INVALID_STEP", f"not possible now, the migration is: {step}")
    return status_text(seen), (fault,)


def under_way(migration: GroupMigration) -> Fault:
    """Another migration has to end first."""
    return Fault(
        "migration",
        "MIGRATION_UNDER_WAY",
        f"one to {TITLE[migration.target]} is {step_of(migration)}: finalize it or roll it back",
    )


def disobedience(name: str, member: MemberSeen, migration: GroupMigration) -> Fault:
    """A member that does not do what the mode in force says."""
    if member.epoch is not None:
        said = f"it has not followed to epoch {migration.epoch} yet (it is in {member.epoch})"
        return Fault(name, "NOT_OBEYING", f"{said}: is it cut off from ZooKeeper?")
    wanted = DUAL_SETTINGS if migration.mode.is_dual else SETTINGS[migration.mode.reads]
    return Fault(
        name,
        "NOT_OBEYING",
        f"not obeying: set {wanted} there and restart; once it commits to both it is proven by "
        f"verify, and --trust {name} vouches for it",
    )
