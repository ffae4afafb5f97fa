"""Texts of a migration for the user: where it stands, what is proven, what to do next."""

from __future__ import annotations

from collections.abc import Collection

from offsets.migration_observation import TITLE, MemberSeen, Observation, Obstacle, describe_pair
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage

DUAL_SETTINGS = "offsets.storage=kafka dual.commit.enabled=true"
SETTINGS = {
    OffsetStorage.ZOOKEEPER: "offsets.storage=zookeeper",
    OffsetStorage.KAFKA: "offsets.storage=kafka dual.commit.enabled=false",
}
"""Settings that make a member that is not ours do what the end of a migration demands."""

MODE_TEXT = {
    OffsetMode.ZOOKEEPER: "members read and write ZooKeeper alone",
    OffsetMode.DUAL_ZOOKEEPER: "members write both stores and read ZooKeeper",
    OffsetMode.DUAL_KAFKA: "members write both stores and read Kafka",
    OffsetMode.KAFKA: "members read and write Kafka alone",
}


def step_of(migration: GroupMigration | None) -> str:
    """Return the name of the step at which a migration stands."""
    if migration is None:
        return "none"
    # At one end of the ladder, or on a rung between.
    is_back = migration.goal is not migration.target
    if not migration.mode.is_dual:
        return "rolled-back" if is_back else "finalized"
    if is_back:
        return "rolling-back"
    if migration.mode.reads is migration.target:
        return "finalizing"
    return "started" if migration.proven is None else "verified"


def status_text(observation: Observation) -> str:
    """Say where the migration stands, what is proven of it, and what comes next."""
    migration = observation.migration
    if migration is None:
        first = f"{observation.group}: no migration; members go by their settings"
        return f"{first}\n{_next_line(observation)}"

    # The mode in force, and how many follow.
    lines = [f"{observation.group}: {step_of(migration)}: {MODE_TEXT[migration.mode]}"]
    late = observation.not_obeying
    count = f"{len(observation.members) - len(late)} of {len(observation.members)} members obey"
    obeying = count if observation.members else "no member lives, nobody has to obey"
    lines.append(f"proven: {obeying} (epoch {migration.epoch})")

    # What `verify` has proven.
    if step_of(migration) == "verified":
        lines.append("proven: both stores were in step when verified")
        if proven := observation.proven & observation.foreign_members.keys():
            lines.append(f"proven: not ours, but written both: {', '.join(sorted(proven))}")

    # Nothing is known of the settings of members that are not ours.
    if unsure := [
        name for name in sorted(observation.foreign_members) if settings_wanted(observation, name)
    ]:
        needed = settings_wanted(observation, unsure[0])
        lines.append(f"not ours, wants {needed} and a restart if it has not: {', '.join(unsure)}")

    lines += _left_behind(observation)
    lines.append(_next_line(observation))
    return "\n".join(lines)


def settings_wanted(observation: Observation, name: str) -> str | None:
    """Return the settings that a member needs; None if it is ours or proven, or not yet known."""
    migration = observation.migration
    if migration is None or name not in observation.foreign_members:
        return None
    # On the way a member writes both stores; at the end it uses one.
    if migration.mode.is_dual:
        return None if name in observation.proven else DUAL_SETTINGS
    return SETTINGS[migration.mode.reads]


def next_command(observation: Observation) -> str | None:
    """Return the command to type next; None at the end."""
    verb = _NEXT_VERBS[step_of(observation.migration)]
    return f"kgroup migrate {verb} {observation.group}{observation.options}" if verb else None


_NEXT_VERBS = {
    "none": "plan",
    "started": "verify",
    "verified": "finalize",
    "finalizing": "finalize",
    "finalized": None,
    "rolling-back": "rollback",
    "rolled-back": None,
}
_CAN_TURN_BACK = ("started", "verified", "finalizing", "finalized")


def _next_line(observation: Observation) -> str:
    back = f"; to turn back, kgroup migrate rollback {observation.group}{observation.options}"
    can_turn_back = step_of(observation.migration) in _CAN_TURN_BACK
    return f"next: {next_command(observation) or 'nothing'}{back if can_turn_back else ''}"


def _left_behind(observation: Observation) -> list[str]:
    if not observation.lost:
        return []
    return [f"left behind, no such partition: {', '.join(map(str, sorted(observation.lost)))}"]


def plan_text(observation: Observation, target: OffsetStorage) -> str:
    """Say what `start` would do."""
    # What there is to copy.
    source = target.other
    count = len(observation.store(source))
    missing = len(observation.missing_in(target))
    lines = [
        f"{observation.group}: {count} offsets in {TITLE[source]}, {missing} of them to copy to "
        f"{TITLE[target]}"
    ]

    # Members that follow, members that do not, and offsets before the start of the log.
    if observation.members:
        obedient = len(observation.members) - len(observation.foreign_members)
        lines.append(f"{obedient} of {len(observation.members)} members follow by themselves")
    else:
        lines.append("no member lives: start, verify and finalize need no waiting")
    lines += [
        f"not ours: {name}: after start, set {DUAL_SETTINGS} there and restart"
        for name in sorted(observation.foreign_members)
    ]
    lines += [
        f"expired: {partition}: {offset} is before the start of the log, "
        f"{observation.log_starts[partition]}: in both stores, auto.offset.reset decides"
        for partition, offset in sorted(observation.expired(source).items())
    ]
    lines += _left_behind(observation)

    options = f" --to {target}{observation.options}"
    lines.append(f"next: kgroup migrate start {observation.group}{options}")
    return "\n".join(lines)


def list_divergences(
    observation: Observation, partitions: Collection[TopicPartition]
) -> tuple[Obstacle, ...]:
    """Return an obstacle for each partition for which the stores differ."""
    return tuple(
        Obstacle(str(partition), "DIVERGED", describe_pair(observation, partition))
        for partition in sorted(partitions)
    )


def impossible_now(observation: Observation) -> tuple[str, tuple[Obstacle, ...]]:
    """Return the end of a command that does not fit the step of the migration."""
    step = step_of(observation.migration)
    obstacle = Obstacle(
        observation.group, "INVALID_STEP", f"not possible now, the migration is: {step}"
    )
    return status_text(observation), (obstacle,)


def other_migration_obstacle(migration: GroupMigration) -> Obstacle:
    """Return the obstacle that another migration has to end first."""
    return Obstacle(
        "migration",
        "MIGRATION_UNDER_WAY",
        f"one to {TITLE[migration.target]} is {step_of(migration)}: finalize it or roll it back",
    )


def not_obeying_obstacle(name: str, member: MemberSeen, migration: GroupMigration) -> Obstacle:
    """Return the obstacle that a member does not follow the mode in force."""
    # One of ours follows by itself, as soon as it reads the order.
    if member.epoch is not None:
        text = f"it has not followed to epoch {migration.epoch} yet (it is in {member.epoch})"
        return Obstacle(name, "NOT_OBEYING", f"{text}: is it cut off from ZooKeeper?")

    # One of the others follows its settings, which it reads when it starts.
    needed = DUAL_SETTINGS if migration.mode.is_dual else SETTINGS[migration.mode.reads]
    return Obstacle(
        name,
        "NOT_OBEYING",
        f"not obeying: set {needed} there and restart; once it commits to both it is proven by "
        f"verify, and --trust {name} vouches for it",
    )
