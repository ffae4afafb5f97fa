"""Moving a group's offsets from one store to the other: one pure function of what is seen.

**The ladder.** At any moment a member is in one of four modes:

                       reads        writes
    zookeeper          ZooKeeper    ZooKeeper
    dual-zookeeper     ZooKeeper    both (Kafka first, then what Kafka took)
    dual-kafka         Kafka        both (in the same order)
    kafka              Kafka        Kafka

A migration climbs the ladder, or descends it, rung by rung; a rollback goes back the way it came.
The mode in force is in one znode and outranks every member's settings. The next rung is taken only
when every live member stands on this one, so that at any time members stand on two neighbouring
rungs at most. The step back to where stragglers still are needs nobody's consent.

**Why nobody loses or skips a message.** Call *processed* the position up to which a partition's
messages have been handed out and done with, and *acknowledged* the last offset whose commit
succeeded. Claim: whoever starts a partition in a mode that is in force reads an offset r with
acknowledged <= r <= processed. (r > processed would skip messages; r < acknowledged, or none, would
repeat them or, by auto.offset.reset, skip.)

- Members commit positions of theirs only, and only of partitions they own; the command copies only
  what the leading store held. So a store that was ever led from holds nothing above processed,
  until the application itself goes back, and that is a commit like any other.
- zookeeper and dual-zookeeper: everybody reads ZooKeeper and everybody writes it before a commit
  counts as acknowledged. What Kafka holds meanwhile (nothing, or leftovers of another life that
  would lie *above* processed) is read by nobody; hence it is while ZooKeeper leads that the command
  brings Kafka up to date, and no moment for that is wrong. Kafka and dual-kafka: the mirror image.
- dual-zookeeper and dual-kafka: everybody writes both, and a commit is acknowledged when both have
  it. So both hold at least the last offset acknowledged since everybody is dual; for a partition
  not committed since, both must hold the same. That is what is *verified* before this step, and
  before this step alone. Between its two writes a commit may be in Kafka alone: it is not yet
  acknowledged, and it is not above processed.
- A copy that comes behind a newer commit of a member's takes back what that wrote, in the store
  that nobody reads. The stores differ then: it is copied anew, or the next commit puts it right,
  and until both agree the step across the middle is not taken.
- Members that come. They make their node below the znode first, read the znode afterwards, and
  only then their first offset; the command writes the znode first and lists the members afterwards.
  One of the two sees the other: a member that the list missed reads the new mode, and is in the
  list before the mode after that.
- Members that change. A member acknowledges an epoch when nothing it began in an earlier mode is
  under way any more. One whose session expired has stopped delivering and committing (its lease).
- Members that are not ours do not obey. Whatever they are set to, they may stay while one end of
  the ladder leads; to cross the middle they must write both, which is seen from what they commit,
  or vouched for by name.

**Why it may be killed anywhere.** `decide` has no memory that counts: each round begins with
reading everything, each write of the znode names the version it was decided on, a copy can be
repeated, and the two steps that look like one (to take a rung, and to have it obeyed) are told
apart by what members acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum

import attrs

from offsets.migration_evidence import Evidence
from offsets.migration_observation import (
    Observation,
    Obstacle,
    Offsets,
    apart,
    joined_elsewhere,
    refusals,
)
from offsets.migration_words import (
    disobedience,
    diverged,
    nothing_to_do,
    plan_text,
    status_text,
    under_way,
)
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage

LADDER = tuple(OffsetMode)

LOOK_AGAIN_MS = 250
NOTHING_CHANGED = "nothing was changed"


class Command(StrEnum):
    """What the user wants."""

    PLAN = "plan"
    START = "start"
    STATUS = "status"
    VERIFY = "verify"
    FINALIZE = "finalize"
    ROLLBACK = "rollback"


# --- What is wanted done -------------------------------------------------------------------------


@attrs.frozen
class Rewrite:
    """Write the znode, if it still has this version."""

    migration: GroupMigration
    version: int


@attrs.frozen
class Copy:
    """Commit these to one of the stores, from outside of the group."""

    to: OffsetStorage
    offsets: Offsets


@attrs.frozen
class Look:
    """Look again, after so long."""

    after_ms: int = LOOK_AGAIN_MS


@attrs.frozen
class Finish:
    """The command has done what it could: all of it if there are no faults."""

    text: str
    obstacles: tuple[Obstacle, ...] = ()


Effect = Rewrite | Copy | Look | Finish


# --- One run of a command ------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Run:
    """A command under way, and what it has seen so far.

    `commits`, `seconds`: what counts as proof. `wait_ms`: the patience with members and proof, anew
    with every epoch. `trusted`: members the user vouches for. `overwrite`: the user says that what
    the target holds is worth nothing.
    """

    command: Command
    target: OffsetStorage | None = None
    commits: int = 3
    seconds: int = 10
    wait_ms: int = 20_000
    trusted: frozenset[str] = frozenset()
    overwrite: bool = False
    epoch: int = -1
    epoch_since_ms: int = 0
    evidence: Evidence | None = None
    last_observation: Observation | None = None

    def is_patient(self, seen: Observation) -> bool:
        """Whether what is missing is worth another look."""
        return seen.now_ms - self.epoch_since_ms < self.wait_ms


Decision = tuple[Run, Effect]


def decide(run: Run, seen: Observation) -> Decision:
    """Say what a command does next, having seen `seen`. Does nothing itself."""
    epoch = seen.migration.epoch if seen.migration else 0
    if epoch != run.epoch:
        run = attrs.evolve(run, epoch=epoch, epoch_since_ms=seen.now_ms, evidence=None)
    after, effect = DECIDE[run.command](run, seen)
    return attrs.evolve(after, last_observation=seen), effect


def _plan(run: Run, seen: Observation) -> Decision:
    assert run.target is not None
    if refused := _refused(run.target, seen):
        return run, refused
    if seen.migration and not is_settled(seen.migration):
        return run, Finish(status_text(seen))
    if seen.foreign_members and run.is_patient(seen):  # one of ours may just have come
        return run, Look()
    faults = refusals(seen, run.target, overwrite=run.overwrite)
    return run, Finish(NOTHING_CHANGED if faults else plan_text(seen, run.target), faults)


def _status(run: Run, seen: Observation) -> Decision:
    return run, Finish(status_text(seen), seen.unreadable)


def _start(run: Run, seen: Observation) -> Decision:
    """To the first dual mode; then bring the target up to date, as long as nobody reads it."""
    assert run.target is not None
    migration, target = seen.migration, run.target
    if refused := _refused(target, seen):
        return run, refused
    if migration is None or is_settled(migration):
        if faults := refusals(seen, target, overwrite=run.overwrite):
            return run, Finish(NOTHING_CHANGED, faults)
        return run, Rewrite(begin_migration(migration, target, seen.now_ms), seen.version)
    if migration.mode.reads is target:
        return run, Finish(status_text(seen))
    late = seen.not_obeying
    is_second_look = (
        run.last_observation is not None and run.last_observation.version == seen.version
    )
    if run.is_patient(seen):
        if stuck := _stuck(run, seen, target):
            return run, Copy(target, stuck)
        if late or not is_second_look:
            return run, Look()
    # Whoever has come since the znode was written may have come with the right settings.
    faults = tuple(
        disobedience(name, late[name], migration)
        for name in sorted(late)
        if late[name].epoch is not None or late[name].czxid < seen.mzxid
    )
    faults += (*seen.unreadable, *diverged(seen, _stuck(run, seen, target)))
    return run, Finish(status_text(seen), faults)


def _verify(run: Run, seen: Observation) -> Decision:
    """Look until all is proven; the proof is written down for `finalize`."""
    migration = seen.migration
    if migration is None or not migration.mode.is_dual:
        return run, Finish(*nothing_to_do(seen))
    run = _gathered(run, seen, seen.partitions)
    lacking = _lacking(run, migration, seen)
    if lacking and run.is_patient(seen):
        return run, Look()
    proven = None if lacking else tuple(sorted(seen.not_obeying))
    is_next_to_cross = migration.mode.reads is not migration.goal
    is_news = proven != migration.proven or not seen.proven.issuperset(proven or ())
    if is_next_to_cross and is_news:
        return run, Rewrite(attrs.evolve(migration, proven=proven), seen.version)
    return run, Finish("not verified\n" * bool(lacking) + status_text(seen), lacking)


def _finalize(run: Run, seen: Observation) -> Decision:
    """Over the middle, if that is verified, and on to the target alone."""
    migration = seen.migration
    if migration is None or migration.goal is not migration.target:
        return run, Finish(*nothing_to_do(seen))
    if migration.mode.reads is migration.target:
        return _go_on(run, migration, seen)
    if migration.proven is None:
        fault = Obstacle("both stores", "NOT_VERIFIED", "verify first")
        return run, Finish(status_text(seen), (fault,))
    late = seen.not_obeying.keys() - run.trusted - seen.proven
    run = _gathered(run, seen, seen.partitions)
    assert run.evidence is not None
    behind = run.evidence.lacking(1, seen.now_ms, seen.now_ms)
    faults = (
        *(Obstacle(m, "NOT_VERIFIED", "came after verify: verify again") for m in sorted(late)),
        *seen.unreadable,
        *joined_elsewhere(seen),
        *diverged(seen, behind),
    )
    if faults and run.is_patient(seen):
        return run, Look()
    if faults:
        return run, Finish(status_text(seen), faults)
    return run, Rewrite(_stepped(migration), seen.version)


def _rollback(run: Run, seen: Observation) -> Decision:
    """Back the way it came, over the middle only when that is proven."""
    migration = seen.migration
    if migration is None:
        return run, Finish(*nothing_to_do(seen))
    source = migration.target.other
    if migration.goal is not source:
        back = attrs.evolve(migration, goal=source, proven=None)
        # From target alone, or from the source's dual mode, it is one step towards the source, and
        # back to where stragglers stand. In the middle members must follow before anything else.
        is_middle = migration.mode.is_dual and migration.mode.reads is not source
        return run, Rewrite(back if is_middle else _stepped(back), seen.version)
    if migration.mode.reads is source:
        return _go_on(run, migration, seen)
    kept = seen.store(migration.target)
    run = _gathered(run, seen, set(kept))
    assert run.evidence is not None
    stuck = run.evidence.stuck(seen.now_ms)
    if stuck and run.is_patient(seen):
        after = attrs.evolve(run, evidence=run.evidence.without(stuck))
        return after, Copy(source, {p: kept[p] for p in sorted(stuck)})
    if lacking := _lacking(run, migration, seen):
        if run.is_patient(seen):
            return run, Look()
        return run, Finish(status_text(seen), lacking)
    proven = tuple(sorted(seen.not_obeying))
    return run, Rewrite(attrs.evolve(_stepped(migration), proven=proven), seen.version)


def _go_on(run: Run, migration: GroupMigration, seen: Observation) -> Decision:
    """Behind the middle: members that are not ours, set to write both, are no hindrance."""
    late = {m: each for m, each in seen.not_obeying.items() if each.epoch is not None}
    if late and run.is_patient(seen):
        return run, Look()
    if late:
        faults = tuple(disobedience(m, late[m], migration) for m in sorted(late))
        return run, Finish(status_text(seen), faults)
    if is_settled(migration):
        in_use = migration.mode.reads is OffsetStorage.ZOOKEEPER
        return run, Finish(status_text(seen), seen.unreadable if in_use else ())
    return run, Rewrite(_stepped(migration), seen.version)


DECIDE: dict[Command, Callable[[Run, Observation], Decision]] = {
    Command.PLAN: _plan,
    Command.START: _start,
    Command.STATUS: _status,
    Command.VERIFY: _verify,
    Command.FINALIZE: _finalize,
    Command.ROLLBACK: _rollback,
}


# --- Steps ---------------------------------------------------------------------------------------


def is_settled(migration: GroupMigration) -> bool:
    """Whether the goal's store is the only one in use."""
    return not migration.mode.is_dual and migration.mode.reads is migration.goal


def begin_migration(
    before: GroupMigration | None, target: OffsetStorage, now_ms: int
) -> GroupMigration:
    """The first step of a migration; `before` is the settled one that went the other way."""
    alone = LADDER[0] if target is OffsetStorage.KAFKA else LADDER[-1]
    at_rest = GroupMigration(
        target=target,
        goal=target,
        mode=alone,
        came_from=alone,
        epoch=before.epoch if before else 0,
        started_at_ms=now_ms,
    )
    return _stepped(at_rest)


def _stepped(migration: GroupMigration) -> GroupMigration:
    """One rung nearer to the goal."""
    rung = LADDER.index(migration.mode)
    up = migration.goal is OffsetStorage.KAFKA
    return attrs.evolve(
        migration,
        mode=LADDER[rung + 1 if up else rung - 1],
        came_from=migration.mode,
        epoch=migration.epoch + 1,
    )


# --- What is missing -----------------------------------------------------------------------------


def _refused(target: OffsetStorage, seen: Observation) -> Finish | None:
    """What `start` and `plan` find done already, or being done by somebody else."""
    migration = seen.migration
    if migration is None:
        return None
    if is_settled(migration):
        return Finish(status_text(seen)) if migration.goal is target else None
    if migration.goal is target and migration.target is target:
        return None
    return Finish(status_text(seen), (under_way(migration),))


def _stuck(run: Run, seen: Observation, storage: OffsetStorage) -> dict[TopicPartition, int]:
    """What one store lacks of the other and has lacked, both unmoved, since the last look."""
    if run.last_observation is None:
        return {}
    before = run.last_observation
    return {p: o for p, o in seen.behind(storage).items() if before.pair(p) == seen.pair(p)}


def _gathered(run: Run, seen: Observation, partitions: Collection[TopicPartition]) -> Run:
    evidence = run.evidence or Evidence(seen.now_ms)
    evidence = evidence.seeing(
        seen.store(OffsetStorage.ZOOKEEPER),
        seen.store(OffsetStorage.KAFKA),
        seen.owners,
        partitions,
        seen.now_ms,
    )
    return attrs.evolve(run, evidence=evidence)


def _lacking(run: Run, migration: GroupMigration, seen: Observation) -> tuple[Obstacle, ...]:
    """What is not proven: partitions in step, members that write both.

    In a group without members nothing moves, and one look says it all.
    """
    assert run.evidence is not None
    commits, seconds = (run.commits, run.seconds) if seen.members else (0, 0)
    since_ms = seen.now_ms - seconds * 1000
    faults = [*seen.unreadable, *joined_elsewhere(seen)]
    for p, reason in sorted(run.evidence.lacking(commits, since_ms, seen.now_ms).items()):
        differs = run.evidence.partitions[p].differs
        said = f"{reason}: {apart(seen, p)}" if differs else f"{reason}: --wait gives more time"
        faults.append(Obstacle(str(p), "DIVERGED" if differs else "NOT_PROVEN", said))
    if run.evidence.since_ms > since_ms and not faults:
        faults.append(Obstacle("both stores", "NOT_PROVEN", f"watched for less than {seconds} s"))
    unproven = seen.not_obeying.keys() - run.trusted - run.evidence.proven_members(max(commits, 1))
    faults += [disobedience(m, seen.members[m], migration) for m in sorted(unproven)]
    return tuple(faults)
