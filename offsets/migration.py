"""Move a group's offsets from one store to the other: one pure function of what is observed.

**The ladder.** At any moment a member is in one of four modes:

                       reads        writes
    zookeeper          ZooKeeper    ZooKeeper
    dual-zookeeper     ZooKeeper    both (Kafka first, then what Kafka took)
    dual-kafka         Kafka        both (in the same order)
    kafka              Kafka        Kafka

A migration climbs the ladder, or descends it, rung by rung; a rollback goes back the way it came.
The mode in force is in one znode and outranks every member's settings. The next rung is taken only
when every live member stands on this one, so that members stand on at most two neighbouring rungs
at any time. The step back to where stragglers still are needs nobody's consent.

**Why nobody loses or skips a message.** *Processed* is the position up to which a partition's
messages have been handed out and done with; *acknowledged* is the last offset whose commit
succeeded. Claim: a member that starts a partition in a mode in force reads an offset r with
acknowledged <= r <= processed. (r > processed would skip messages; r < acknowledged, or none, would
repeat them or, by auto.offset.reset, skip.)

- Members commit only their own positions, and only of partitions that they own; the command copies
  only what the leading store held. So a store that has ever led holds nothing above processed,
  until the application itself goes back, and that is a commit like any other.
- zookeeper and dual-zookeeper: every member reads ZooKeeper, and writes it before a commit counts
  as acknowledged. Nobody reads what Kafka holds meanwhile (nothing, or leftovers that may lie
  *above* processed). So the command brings Kafka up to date while ZooKeeper leads, and no moment
  for that is wrong. Kafka and dual-kafka: the mirror image.
- dual-zookeeper and dual-kafka: every member writes both, and a commit is acknowledged when both
  have it. So both hold at least the last offset acknowledged since all are dual; for a partition
  not committed since then, both must hold the same. This is *verified* before this step, and
  before this step alone. Between its two writes a commit may be in Kafka alone: it is not yet
  acknowledged, and it is not above processed.
- A copy that arrives after a newer commit of a member takes that back, in the store that nobody
  reads. The stores differ then: the offset is copied again, or the next commit puts it right, and
  until both agree the step across the middle is not taken.
- Members that come. They create their node below the znode first, then read the znode, and only
  then their first offset. The command writes the znode first, and then lists the members. One of
  the two sees the other: a member that is missing in the list reads the new mode, and is in the
  list before the mode after that.
- Members that change. A member acknowledges an epoch when none of its operations in an earlier mode
  is in flight. One whose session expired has stopped delivering and committing (its lease).
- Members that are not ours do not obey. With any settings they may stay while one end of the ladder
  leads. To cross the middle they must write both, which their commits show, or which the user
  vouches for by name.

**Why it may be killed anywhere.** `decide` has no memory that counts. Each round begins with
reading everything; each write of the znode names the version on which it was decided; a copy can be
repeated. The two steps that look like one (taking a rung, and members obeying it) are distinguished
by what members acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum

import attrs

from offsets.migration_evidence import Evidence
from offsets.migration_observation import (
    MemberSeen,
    Observation,
    Obstacle,
    Offsets,
    describe_pair,
    find_coordinated_members,
    find_obstacles,
)
from offsets.migration_words import (
    impossible_now,
    list_divergences,
    not_obeying_obstacle,
    other_migration_obstacle,
    plan_text,
    status_text,
)
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage

LADDER = tuple(OffsetMode)

LOOK_AGAIN_MS = 250
NOTHING_CHANGED = "nothing was changed"


class Command(StrEnum):
    """The sub-commands of `kgroup migrate`."""

    PLAN = "plan"
    START = "start"
    STATUS = "status"
    VERIFY = "verify"
    FINALIZE = "finalize"
    ROLLBACK = "rollback"


# --- effects -------------------------------------------------------------------------------------


@frozen
class Rewrite:
    """Write the znode, if it still has this version."""

    migration: GroupMigration
    version: int


@frozen
class Copy:
    """Commit these offsets to one of the stores, from outside of the group."""

    to: OffsetStorage
    offsets: Offsets


@frozen
class Look:
    """Look at the group again, after a pause."""

    after_ms: int = LOOK_AGAIN_MS


@frozen
class Finish:
    """End the command. It has done all of its work if there are no obstacles."""

    text: str
    obstacles: tuple[Obstacle, ...] = ()


Effect = Rewrite | Copy | Look | Finish


# --- one run of a command ------------------------------------------------------------------------


@frozen(kw_only=True)
class Run:
    """A running command, and what it has observed so far.

    - `now_ms`: the time of the last observation.
    - `commits`, `seconds`: proof is so many commits seen in both stores, over so long.
    - `wait_ms`: patience with members and proof; it starts again with every epoch.
    - `trusted`: members that the user vouches for.
    - `overwrite`: the user says that larger offsets in the target are leftovers.
    """

    # What the user has typed.
    command: Command
    target: OffsetStorage | None = None
    commits: int = 3
    seconds: int = 10
    wait_ms: int = 20_000
    trusted: frozenset[str] = frozenset()
    overwrite: bool = False

    # What has been observed.
    now_ms: int = 0
    epoch: int = -1
    epoch_since_ms: int = 0
    evidence: Evidence | None = None
    last_observation: Observation | None = None

    @property
    def is_patient(self) -> bool:
        """True if there is time to look again for what is missing."""
        return self.now_ms - self.epoch_since_ms < self.wait_ms


Decision = tuple[Run, Effect]


def decide(run: Run, observation: Observation, now_ms: int) -> Decision:
    """Return the run as it is after `observation`, and the effect to perform next.

    `now_ms` is the wall clock, right after the look.
    """
    run = attrs.evolve(run, now_ms=now_ms)

    # Each epoch gets its own patience, and its own evidence: members have to follow again.
    epoch = observation.migration.epoch if observation.migration else 0
    if epoch != run.epoch:
        run = attrs.evolve(run, epoch=epoch, epoch_since_ms=now_ms, evidence=None)

    after, effect = DECIDE[run.command](run, observation)
    return attrs.evolve(after, last_observation=observation), effect


def _plan(run: Run, observation: Observation) -> Decision:
    """Say what `start` would do. Nothing is changed."""
    assert run.target is not None
    if refusal := _find_refusal(run.target, observation):
        return run, refusal
    if observation.migration and not is_settled(observation.migration):
        return run, Finish(status_text(observation))

    # A member of ours may have registered, and not be listed yet.
    if observation.foreign_members and run.is_patient:
        return run, Look()

    obstacles = find_obstacles(observation, run.target, overwrite=run.overwrite)
    text = NOTHING_CHANGED if obstacles else plan_text(observation, run.target)
    return run, Finish(text, obstacles)


def _status(run: Run, observation: Observation) -> Decision:
    return run, Finish(status_text(observation), observation.unreadable)


def _start(run: Run, observation: Observation) -> Decision:
    """Step to the first dual mode, then bring the target up to date while nobody reads it."""
    assert run.target is not None
    target = run.target
    migration = observation.migration
    if refusal := _find_refusal(target, observation):
        return run, refusal

    # Take the first step, or stop if there is nothing left to do.
    if migration is None or is_settled(migration):
        if obstacles := find_obstacles(observation, target, overwrite=run.overwrite):
            return run, Finish(NOTHING_CHANGED, obstacles)
        first = begin_migration(migration, target, run.now_ms)
        return run, Rewrite(first, observation.version)
    # The middle is crossed: the rest is for `finalize`.
    if migration.mode.reads is target:
        return run, Finish(status_text(observation))

    # Copy, and wait for members to follow.
    late = observation.not_obeying
    # Only two looks at the same order tell an offset that is missing from one in flight.
    is_second_look = (
        run.last_observation is not None and run.last_observation.version == observation.version
    )
    if run.is_patient:
        if stuck := _find_stuck(run, observation, target):
            return run, Copy(target, stuck)
        if late or not is_second_look:
            return run, Look()

    # Members that are not ours and came after the znode was written may have the right settings.
    obstacles = tuple(
        not_obeying_obstacle(name, late[name], migration)
        for name in sorted(late)
        if late[name].epoch is not None or late[name].czxid < observation.mzxid
    )
    stuck = _find_stuck(run, observation, target)
    obstacles += (*observation.unreadable, *list_divergences(observation, stuck))
    return run, Finish(status_text(observation), obstacles)


def _verify(run: Run, observation: Observation) -> Decision:
    """Look until all is proven, and write the proof into the znode, for `finalize`."""
    migration = observation.migration
    if migration is None or not migration.mode.is_dual:
        return run, Finish(*impossible_now(observation))

    run = _gather_evidence(run, observation, observation.partitions)
    unproven = _find_unproven(run, migration, observation)
    if unproven and run.is_patient:
        return run, Look()

    # The proof counts for the step across the middle alone.
    proven = None if unproven else tuple(sorted(observation.not_obeying))
    is_before_middle = migration.mode.reads is not migration.goal
    # A proof is for members older than the znode: one that came back has to be written again.
    has_changed = proven != migration.proven or not observation.proven.issuperset(proven or ())
    if is_before_middle and has_changed:
        return run, Rewrite(attrs.evolve(migration, proven=proven), observation.version)

    text = status_text(observation)
    if unproven:
        text = f"not verified\n{text}"
    return run, Finish(text, unproven)


def _finalize(run: Run, observation: Observation) -> Decision:
    """Step across the middle, if that is verified, and on to the target alone."""
    migration = observation.migration
    if migration is None or migration.goal is not migration.target:
        return run, Finish(*impossible_now(observation))
    if migration.mode.reads is migration.target:
        return _go_on(run, migration, observation)
    if migration.proven is None:
        obstacle = Obstacle("both stores", "NOT_VERIFIED", "verify first")
        return run, Finish(status_text(observation), (obstacle,))

    # What has been proven must still hold.
    late = observation.not_obeying.keys() - run.trusted - observation.proven
    # That the stores agree at one look is enough: `verify` has watched them for long.
    run = _gather_evidence(run, observation, observation.partitions)
    assert run.evidence is not None
    behind = run.evidence.find_unproven(1, run.now_ms, run.now_ms)
    obstacles = (
        *(
            Obstacle(name, "NOT_VERIFIED", "came after verify: verify again")
            for name in sorted(late)
        ),
        *observation.unreadable,
        *find_coordinated_members(observation),
        *list_divergences(observation, behind),
    )
    if obstacles and run.is_patient:
        return run, Look()
    if obstacles:
        return run, Finish(status_text(observation), obstacles)
    return run, Rewrite(_take_step(migration), observation.version)


def _rollback(run: Run, observation: Observation) -> Decision:
    """Go back the way the migration came; across the middle only when that is proven."""
    migration = observation.migration
    if migration is None:
        return run, Finish(*impossible_now(observation))
    source = migration.target.other

    # Turn around. From target alone, or from the source's dual mode, it is one step towards the
    # source, and back to where stragglers stand. In the middle members must follow before anything
    # else.
    if migration.goal is not source:
        turned = attrs.evolve(migration, goal=source, proven=None)
        is_middle = migration.mode.is_dual and migration.mode.reads is not source
        return run, Rewrite(turned if is_middle else _take_step(turned), observation.version)
    if migration.mode.reads is source:
        return _go_on(run, migration, observation)

    # In the middle: bring the source up to date.
    leading = observation.store(migration.target)
    run = _gather_evidence(run, observation, set(leading))
    assert run.evidence is not None
    stuck = run.evidence.find_stuck(run.now_ms)
    if stuck and run.is_patient:
        # Our copy is no commit of a member: begin the evidence of these partitions again.
        after = attrs.evolve(run, evidence=run.evidence.without(stuck))
        return after, Copy(source, {partition: leading[partition] for partition in sorted(stuck)})

    # Then prove it, and step across.
    if unproven := _find_unproven(run, migration, observation):
        if run.is_patient:
            return run, Look()
        return run, Finish(status_text(observation), unproven)
    # Beyond the middle, members may stay that were seen to write both stores.
    proven = tuple(sorted(observation.not_obeying))
    return run, Rewrite(attrs.evolve(_take_step(migration), proven=proven), observation.version)


def _go_on(run: Run, migration: GroupMigration, observation: Observation) -> Decision:
    """Go on beyond the middle, where members that are not ours may stay if they write both."""
    late: dict[str, MemberSeen] = {
        name: member for name, member in observation.not_obeying.items() if member.epoch is not None
    }

    # A step is taken only when every member of ours has acknowledged the last one.
    if late and run.is_patient:
        return run, Look()
    if late:
        obstacles = tuple(
            not_obeying_obstacle(name, late[name], migration) for name in sorted(late)
        )
        return run, Finish(status_text(observation), obstacles)

    if is_settled(migration):
        # An unreadable offset matters only in a store that is read.
        in_use = migration.mode.reads is OffsetStorage.ZOOKEEPER
        return run, Finish(status_text(observation), observation.unreadable if in_use else ())
    return run, Rewrite(_take_step(migration), observation.version)


DECIDE: dict[Command, Callable[[Run, Observation], Decision]] = {
    Command.PLAN: _plan,
    Command.START: _start,
    Command.STATUS: _status,
    Command.VERIFY: _verify,
    Command.FINALIZE: _finalize,
    Command.ROLLBACK: _rollback,
}


# --- steps ---------------------------------------------------------------------------------------


def is_settled(migration: GroupMigration) -> bool:
    """Return whether the goal's store is the only one in use."""
    return not migration.mode.is_dual and migration.mode.reads is migration.goal


def begin_migration(
    before: GroupMigration | None, target: OffsetStorage, now_ms: int
) -> GroupMigration:
    """Return the first step of a migration; `before`: the settled one that went the other way."""
    # Members begin at the source's end of the ladder, whether by settings or by `before`.
    alone = LADDER[0] if target is OffsetStorage.KAFKA else LADDER[-1]
    at_rest = GroupMigration(
        target=target,
        goal=target,
        mode=alone,
        came_from=alone,
        # Epochs go on: members still acknowledge the last one of `before`.
        epoch=before.epoch if before else 0,
        started_at_ms=now_ms,
    )
    return _take_step(at_rest)


def _take_step(migration: GroupMigration) -> GroupMigration:
    """Return the migration one rung nearer to its goal."""
    assert not is_settled(migration), "there is no rung beyond the goal"
    rung = LADDER.index(migration.mode)
    is_up = migration.goal is OffsetStorage.KAFKA
    return attrs.evolve(
        migration,
        mode=LADDER[rung + 1 if is_up else rung - 1],
        came_from=migration.mode,
        epoch=migration.epoch + 1,
    )


# --- what is missing -----------------------------------------------------------------------------


def _find_refusal(target: OffsetStorage, observation: Observation) -> Finish | None:
    """Return the end of `start` or `plan` if their work is done, or another migration runs."""
    migration = observation.migration
    if migration is None:
        return None
    # At rest: either the work is done, or the way is free.
    if is_settled(migration):
        return Finish(status_text(observation)) if migration.goal is target else None

    # The same command again: it goes on where it stopped.
    if migration.goal is target and migration.target is target:
        return None
    return Finish(status_text(observation), (other_migration_obstacle(migration),))


def _find_stuck(
    run: Run, observation: Observation, storage: OffsetStorage
) -> dict[TopicPartition, int]:
    """Return the offsets that one store lacks, if neither store has moved since the last look."""
    if run.last_observation is None:
        return {}
    # What a member commits just now moves a store from look to look.
    before = run.last_observation
    return {
        partition: offset
        for partition, offset in observation.missing_in(storage).items()
        if before.pair(partition) == observation.pair(partition)
    }


def _gather_evidence(
    run: Run, observation: Observation, partitions: Collection[TopicPartition]
) -> Run:
    evidence = run.evidence or Evidence(run.now_ms)
    evidence = evidence.with_look(
        observation.store(OffsetStorage.ZOOKEEPER),
        observation.store(OffsetStorage.KAFKA),
        observation.owners,
        partitions,
        run.now_ms,
    )
    return attrs.evolve(run, evidence=evidence)


def _find_unproven(
    run: Run, migration: GroupMigration, observation: Observation
) -> tuple[Obstacle, ...]:
    """Return what is not proven yet: partitions in step, members that write both stores.

    In a group without members nothing moves, and one look is enough.
    """
    assert run.evidence is not None
    evidence = run.evidence
    commits, seconds = (run.commits, run.seconds) if observation.members else (0, 0)
    since_ms = run.now_ms - seconds * 1000
    obstacles = [*observation.unreadable, *find_coordinated_members(observation)]

    # Partitions.
    reasons = evidence.find_unproven(commits, since_ms, run.now_ms)
    for partition, reason in sorted(reasons.items()):
        if evidence.partitions[partition].differs:
            text = f"{reason}: {describe_pair(observation, partition)}"
            obstacles.append(Obstacle(str(partition), "DIVERGED", text))
        else:
            text = f"{reason}: --wait gives more time"
            obstacles.append(Obstacle(str(partition), "NOT_PROVEN", text))

    # All agrees so far. It has to do so for the whole time.
    if evidence.since_ms > since_ms and not obstacles:
        text = f"watched for less than {seconds} s"
        obstacles.append(Obstacle("both stores", "NOT_PROVEN", text))

    # Members.
    proven_members = run.trusted | evidence.proven_members(max(commits, 1))
    obstacles += [
        not_obeying_obstacle(name, observation.members[name], migration)
        for name in sorted(observation.not_obeying.keys() - proven_members)
    ]
    return tuple(obstacles)
