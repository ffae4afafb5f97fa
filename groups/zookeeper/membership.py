"""The decisions of a member of a ZooKeeper group: one pure function of state and event.

The theory. Every member watches the group and computes the same assignment from the same reading
of it. Owner nodes are ephemeral and created with "fail if it exists"; they keep two members from
consuming one partition while their readings differ. A *round* compares three things: the
assignment, the owner nodes as ZooKeeper has them, and the partitions that we deliver. It then
makes the three equal:

    read the group -> read the owner nodes that concern us
      -> stop, commit and release what is no longer ours
      -> claim what is free, in one multi, and rewrite nodes that move between our own threads
      -> read the offsets of partitions that we hold but do not deliver, and deliver them

Partitions that stay keep their fetchers and positions (Kafka's connector stops everything). What
another member still holds is left alone: we watch its node, and repeat the round after
`rebalance.backoff.ms`, for ever. Each round starts from the tree and not from memory, so a reply
lost on the way, a node deleted by hand, or a claim that succeeded unseen needs no case of its own.

Offsets are read *after* the claim: only then has the former owner committed and let go. (Kafka
reads them before, and consumes again what was committed in between.)

`Phase` in `membership_state` lists the phases of a round, and the legal moves between them.

Protocol: Kafka's ZookeeperConsumerConnector (0.8.2 to 1.1), whose members may share the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.assignment import ASSIGNORS
from groups.zookeeper.membership_state import AT_REST, Membership, Phase
from groups.zookeeper.registration import consumer_of, find_strategy_conflict, threads_by_topic
from protocol.topic_partition import TopicPartition

DEBOUNCE_MS = 25
"""Least time from a change to the reading; at most it is twice this. Changes come in bursts, and
every member would read the whole group at each. Only the reading waits: what it shows to be no
longer ours is released at once, since JVM members try only a few times to claim it."""

AUDIT_MS = 10_000
"""Time after which a settled member reads the group again. If somebody deletes one of our owner
nodes, no watch of ours fires, and old JVM members may delete nodes that are no longer theirs."""

LEAST_BACKOFF_MS = 50
"""Least pause between two tries, even if `rebalance.backoff.ms` is 0. Kafka's members give up after
a few tries; ours never do."""

MAX_CLAIMS_IN_VAIN = 3
"""Bound on repeating one claim without a pause. A claim fails because a peer was faster, and the
next reading shows what it took. This bounds claims that fail while the tree stays the same."""

MAX_NAMED = 10  # partitions in one message

_OUT_OF_GROUP = {Phase.OFFLINE, Phase.REGISTERING, Phase.ASIDE, Phase.CLOSED}


Decision = tuple[Membership, list[do.Effect]]


def decide(member: Membership, event: on.Event, monotonic_ms: int) -> Decision:
    """Return what `member` becomes by `event`, and the effects to perform.

    `monotonic_ms` is the time for intervals; it is not the wall clock.
    """
    if member.phase is Phase.CLOSED:
        return member, []
    return DECIDE[type(event)](member, event, monotonic_ms)


# --- the session ------------------------------------------------------------------------------


def _session_established(
    member: Membership, event: on.SessionEstablished, monotonic_ms: int
) -> Decision:
    resumed = attrs.evolve(member, suspended_since_ms=None, is_paused=False)

    # The same session: watches may have been lost with the connection.
    if event.session_id == member.session_id:
        resumed, effects = _group_changed(resumed, event, monotonic_ms)
        return resumed, [do.ResumeDelivery(), *effects]

    # Another session: the former one has expired, even if nobody said so.
    after, effects = _session_lost(resumed, event, monotonic_ms)
    registering = attrs.evolve(after.enter(Phase.REGISTERING), session_id=event.session_id)
    return registering, [*effects, do.ResumeDelivery(), do.Register(event.session_id)]


def _session_lost(member: Membership, event: on.Event, monotonic_ms: int) -> Decision:
    """Stop first, and commit nothing: peers may own our partitions by now."""
    after = attrs.evolve(
        member.enter(Phase.OFFLINE),
        session_id=0,
        suspended_since_ms=None,
        # Results of this round that are still on their way become stale.
        round=member.round + 1,
        has_changed=False,
        held=frozenset(),
        delivering={},
    )
    effects: list[do.Effect] = [do.Abandon()]
    if member.delivering:
        effects.append(do.NotifyLost(frozenset(member.delivering)))
    return after, effects


def _session_closed(member: Membership, event: on.SessionClosed, monotonic_ms: int) -> Decision:
    """End this member: peers own our partitions from now on, and no other session will follow.

    The streams fail, because an application that only waited for messages would wait for ever.
    """
    after, effects = _session_lost(member, event, monotonic_ms)
    reason = f"{member.consumer_id}: the ZooKeeper session has been closed: this member has ended"
    report = do.Report(reason, do.FailureKind.SESSION_CLOSED)
    return after.enter(Phase.CLOSED), [*effects, do.FailDelivery(reason), report]


def _suspended(member: Membership, event: on.Suspended, monotonic_ms: int) -> Decision:
    """Set the end of the lease to two thirds of the session timeout.

    So long our partitions are surely ours. The last third is for clocks that differ and for
    messages in flight.
    """
    lease_end_ms = event.since_ms + event.session_timeout_ms * 2 // 3
    suspended = attrs.evolve(member, suspended_since_ms=event.since_ms)
    return suspended, [do.SetTimer(on.LeaseEnded(event.since_ms), lease_end_ms)]


def _lease_ended(member: Membership, event: on.LeaseEnded, monotonic_ms: int) -> Decision:
    # The connection is back, or was back and broke again: that is another lease.
    if member.suspended_since_ms != event.since_ms:
        return member, []
    return attrs.evolve(member, is_paused=True), [do.PauseDelivery()]


def _registered(member: Membership, event: on.Registered, monotonic_ms: int) -> Decision:
    if member.phase is not Phase.REGISTERING or event.session_id != member.session_id:
        return member, []
    return _begin_round(member)


def _registration_failed(
    member: Membership, event: on.RegistrationFailed, monotonic_ms: int
) -> Decision:
    if member.phase is not Phase.REGISTERING or event.session_id != member.session_id:
        return member, []

    # A member that has joined before keeps trying: an earlier session of its own may hold the id.
    if event.in_use and not member.has_joined:
        closed = member.enter(Phase.CLOSED)
        return closed, [do.Report(event.reason, do.FailureKind.ID_IN_USE)]
    return _back_off(member, event.reason, monotonic_ms, phase=Phase.REGISTERING)


# --- a round ----------------------------------------------------------------------------------


def _group_changed(member: Membership, event: on.Event, monotonic_ms: int) -> Decision:
    """Begin a round soon if none is in progress; else remember that another is needed."""
    if member.phase in AT_REST:
        return _debounce(member, monotonic_ms)
    return attrs.evolve(member, has_changed=member.phase not in _OUT_OF_GROUP), []


def _debounce(member: Membership, monotonic_ms: int) -> Decision:
    waiting = member.enter(Phase.DEBOUNCING)
    return waiting, [
        do.SetTimer(on.ReadDue(member.round), monotonic_ms + DEBOUNCE_MS, spread_ms=DEBOUNCE_MS)
    ]


def _read_due(member: Membership, event: on.ReadDue, monotonic_ms: int) -> Decision:
    if _is_stale(member, event.round, Phase.DEBOUNCING):
        return member, []
    return _begin_round(member)


def _begin_round(member: Membership) -> Decision:
    assert member.session_id, "a round needs a session"
    reading = attrs.evolve(
        member.enter(Phase.READING_GROUP),
        round=member.round + 1,
        has_changed=False,
        has_announced_release=False,
        claim=None,
    )
    return reading, [do.ReadGroup(reading.round)]


def _group_unreadable(member: Membership, event: on.GroupUnreadable, monotonic_ms: int) -> Decision:
    """Wait: nobody can compute an assignment, on the JVM either."""
    if _is_stale(member, event.round, Phase.READING_GROUP):
        return member, []
    if member.has_changed:
        return _debounce(attrs.evolve(member, has_changed=False), monotonic_ms)
    problem = event.problem.text
    return _wait_for_repair(member, problem, do.FailureKind.UNREADABLE, monotonic_ms)


def _group_read(member: Membership, event: on.GroupRead, monotonic_ms: int) -> Decision:
    if _is_stale(member, event.round, Phase.READING_GROUP):
        return member, []
    if member.has_changed:
        return _debounce(attrs.evolve(member, has_changed=False), monotonic_ms)

    # A group whose members have different strategies computes no assignment.
    snapshot = event.snapshot
    is_new = snapshot != member.snapshot
    strategy = member.settings.partition_assignment_strategy
    if is_new and (
        conflict := find_strategy_conflict(snapshot.members, snapshot.strategies, strategy)
    ):
        return _strategies_conflict(member, conflict, monotonic_ms)

    # Somebody has deleted our registration.
    if member.consumer_id not in snapshot.members:
        return member.enter(Phase.REGISTERING), [do.Register(member.session_id)]

    if is_new:
        member = _compute_assignment(member, snapshot)
    return _read_owners(member)


def _strategies_conflict(member: Membership, conflict: str, monotonic_ms: int) -> Decision:
    """Leave if it is we who came last, for then it is our fault; else wait."""
    if member.has_joined:
        return _wait_for_repair(member, conflict, do.FailureKind.STRATEGY, monotonic_ms)

    closed = member.enter(Phase.CLOSED)
    return closed, [do.LeaveGroup(member.held), do.Report(conflict, do.FailureKind.STRATEGY)]


def _wait_for_repair(
    member: Membership, problem: str, kind: do.FailureKind, monotonic_ms: int
) -> Decision:
    """Keep what we have, claim nothing, and read the group again later. Report a problem once."""
    reports = [] if problem == member.complaint else [do.Report(problem, kind)]
    waiting = attrs.evolve(member.enter(Phase.BACKING_OFF), complaint=problem)
    return waiting, [_retry_timer(waiting, monotonic_ms), *reports]


def _compute_assignment(member: Membership, snapshot: on.GroupSnapshot) -> Membership:
    """Compute which thread gets which partition.

    In a large group this is the most expensive step of a round. Most rounds (audits, and those that
    a broker's restart begins) read the same snapshot again, and do not come here.
    """
    threads = threads_by_topic(
        snapshot.members, snapshot.all_topics, member.settings.exclude_internal_topics
    )
    assign = ASSIGNORS[member.settings.partition_assignment_strategy]
    assignment = assign(threads, snapshot.partitions, snapshot.leaders)

    target = {
        partition: thread_id
        for partition, thread_id in assignment.items()
        if consumer_of(thread_id) == member.consumer_id
    }
    return attrs.evolve(member, snapshot=snapshot, assignment=assignment, target=target)


def _read_owners(member: Membership) -> Decision:
    reading = member.enter(Phase.READING_OWNERS)
    return reading, [do.ReadOwners(member.round, member.held | member.target.keys())]


def _owners_read(member: Membership, event: on.OwnersRead, monotonic_ms: int) -> Decision:
    """Compare assignment, tree and deliveries; give up what is not ours, claim what is free."""
    if _is_stale(member, event.round, Phase.READING_OWNERS):
        return member, []

    # Compare.
    target = member.target
    ours = {
        partition: owner
        for partition, owner in event.owners.items()
        if owner.is_held_by(member.consumer_id, member.session_id)
    }

    # We deliver it, and the node is gone or another's.
    lost = member.delivering.keys() - ours
    leaving = frozenset(ours.keys() - target.keys())
    free = {
        partition: thread_id
        for partition, thread_id in target.items()
        if partition not in event.owners
    }
    moving = {
        partition: (target[partition], owner.version)
        for partition, owner in ours.items()
        if partition not in leaving and owner.thread_id != target[partition]
    }
    has_changes = bool(leaving or lost or free or moving or member.has_new_assignment)

    # Stop and release, in this order: stop, commit, tell the listener, release.
    effects: list[do.Effect] = []
    if lost:
        # Their positions are not committed: a new owner may have committed already.
        effects += [do.StopFetchers(frozenset(lost)), do.ForgetPositions(frozenset(lost))]
        effects.append(do.NotifyLost(frozenset(lost)))
    if leaving:
        effects.append(do.StopFetchers(leaving))
        # The offset of a deleted topic would outlive it.
        deleted = {partition for partition in leaving if partition not in member.assignment}
        if member.settings.auto_commit_enable and leaving != deleted:
            effects.append(do.CommitPositions(member.round, leaving - deleted))
        # What was held and not delivered yet was never announced.
        if revoked := leaving & member.delivering.keys():
            effects.append(do.NotifyRevoked(member.round, revoked))

    # Once in a round, however often it reads the owners.
    if has_changes and not member.has_announced_release:
        effects.append(do.NotifyReleasing(member.round, frozenset(ours)))
    if leaving:
        effects += [do.ForgetPositions(leaving), do.ReleaseOwners(member.round, leaving)]

    reconciled = attrs.evolve(
        member,
        # With what leaves: its release may still fail.
        held=frozenset(ours.keys() | free.keys()),
        delivering={
            partition: thread_id
            for partition, thread_id in member.delivering.items()
            if partition in ours and partition not in leaving
        },
        blocked={
            partition: consumer_of(owner.thread_id)
            for partition, owner in event.owners.items()
            if partition in target and partition not in ours
        },
        has_announced_release=member.has_announced_release or has_changes,
        release_failure=member.release_failure if leaving else None,
    )
    assert reconciled.delivering.keys() <= reconciled.held, "only what is ours is delivered"

    # Claim, or deliver at once.
    if free or moving:
        claim = do.ClaimOwners(member.round, free, moving)
        reconciled, next_effects = _claim(reconciled, claim, monotonic_ms)
    else:
        reconciled, next_effects = _deliver(reconciled, monotonic_ms)
    return reconciled, effects + next_effects


def _claim(member: Membership, claim: do.ClaimOwners, monotonic_ms: int) -> Decision:
    """Claim, unless the same claim has failed too often while nothing changed."""
    in_vain = member.claims_in_vain + 1 if claim == member.claim else 0
    if in_vain < MAX_CLAIMS_IN_VAIN:
        claiming = member.enter(Phase.CLAIMING)
        return attrs.evolve(claiming, claim=claim, claims_in_vain=in_vain), [claim]

    if member.has_changed:
        return _debounce(attrs.evolve(member, has_changed=False), monotonic_ms)
    partitions = _list_some(sorted({*claim.create, *claim.move}))
    return _back_off(member, f"claimed in vain, though free: {partitions}", monotonic_ms)


def _claim_failed(member: Membership, event: on.ClaimFailed, monotonic_ms: int) -> Decision:
    """Read the owners again: a peer was faster."""
    if _is_stale(member, event.round, Phase.CLAIMING):
        return member, []
    return _read_owners(member)


def _claimed(member: Membership, event: on.Claimed, monotonic_ms: int) -> Decision:
    if _is_stale(member, event.round, Phase.CLAIMING):
        return member, []
    return _deliver(member, monotonic_ms)


def _deliver(member: Membership, monotonic_ms: int) -> Decision:
    """Deliver all of the target that is not blocked: it is ours now."""
    ours = {
        partition: thread_id
        for partition, thread_id in member.target.items()
        if partition not in member.blocked
    }

    # From one of our threads to another: fetcher and position stay.
    moved = {
        partition: thread_id
        for partition, thread_id in ours.items()
        if member.delivering.get(partition, thread_id) != thread_id
    }
    undelivered = frozenset(ours.keys() - member.delivering.keys())

    effects: list[do.Effect] = [do.MoveFetchers(moved)] if moved else []
    delivering = {**member.delivering, **moved}
    fetching = attrs.evolve(member.enter(Phase.FETCHING_OFFSETS), delivering=delivering)
    if undelivered:
        return fetching, [*effects, do.FetchOffsets(member.round, undelivered)]

    # There is no offset to read: go on as if the empty reading had come back.
    nothing = on.OffsetsFetched(member.round, {})
    fetching, next_effects = _offsets_fetched(fetching, nothing, monotonic_ms)
    return fetching, effects + next_effects


def _offsets_fetched(member: Membership, event: on.OffsetsFetched, monotonic_ms: int) -> Decision:
    if member.phase is Phase.ASIDE:
        return _come_back(member, event, monotonic_ms)
    if _is_stale(member, event.round, Phase.FETCHING_OFFSETS):
        return member, []

    # Deliver what has an offset; None means that auto.offset.reset decides.
    starts = {
        partition: (member.target[partition], offset) for partition, offset in event.offsets.items()
    }
    new_threads = {partition: thread_id for partition, (thread_id, _) in starts.items()}
    started = attrs.evolve(
        member,
        delivering={**member.delivering, **new_threads},
        announced=member.assignment,
    )

    # The listener gets the assignment before the first message comes, and may seek what is open.
    effects: list[do.Effect] = [do.OpenFeeds(starts)] if starts else []
    if starts or member.has_new_assignment:
        effects.append(do.NotifyStarting(member.round, member.assignment))
    if starts:
        opened = frozenset(starts)
        effects += [do.NotifyAssigned(member.round, opened), do.StartFetchers(opened)]

    ended, next_effects = _end_round(started, event.failed, monotonic_ms)
    return ended, effects + next_effects


def _end_round(
    member: Membership, failed: Mapping[TopicPartition, str], monotonic_ms: int
) -> Decision:
    """Settle, or try again later if something is undone. `failed`: offsets that cannot be read."""
    if member.has_changed:
        return _debounce(attrs.evolve(member, has_changed=False), monotonic_ms)

    # Something is undone: say what, and try again later.
    if member.blocked or failed or member.release_failure:
        reasons = [member.release_failure] if member.release_failure else []
        reasons += [f"owned by {owner}: {_list_some(of)}" for owner, of in member.blockers]
        reasons += [
            f"offset of {partition}: {why}" for partition, why in [*failed.items()][:MAX_NAMED]
        ]
        if _others_would_do_better(member, failed):
            return _step_aside(member, "; ".join(reasons), monotonic_ms)

        waiting, effects = _back_off(member, "; ".join(reasons), monotonic_ms)
        # What a member gives up it gives up in one go: one watch for each of them will do.
        one_of_each = frozenset(of[0] for _, of in member.blockers)
        watch = [do.WatchOwners(member.round, one_of_each)] if one_of_each else []
        return waiting, [*watch, *effects]

    assert member.delivering.keys() == member.target.keys(), "settled, and something is missing"
    settled = attrs.evolve(member.enter(Phase.SETTLED), attempts=0, has_joined=True, complaint=None)
    return settled, [_retry_timer(settled, monotonic_ms, AUDIT_MS), do.Report()]


# --- out of the group, for others to have our share -----------------------------------------------


def _others_would_do_better(member: Membership, failed: Mapping[TopicPartition, str]) -> bool:
    """Return whether other members should have our share.

    That is so when we have long held partitions, can read the offset of none of them, and others
    consume the same topics.
    """
    if not failed or member.delivering or member.snapshot is None:
        return False

    # Not yet for long: a coordinator that moves comes back within a few tries.
    if member.attempts + 1 < member.settings.rebalance_max_retries:
        return False

    # Others help only where they consume the same topics.
    snapshot = member.snapshot
    topics = {partition.topic for partition in failed}
    return any(
        not topics.isdisjoint(
            subscription.streams_of(snapshot.all_topics, member.settings.exclude_internal_topics)
        )
        for consumer_id, subscription in snapshot.members.items()
        if consumer_id != member.consumer_id
    )


def _step_aside(member: Membership, reason: str, monotonic_ms: int) -> Decision:
    """Leave the group until an offset can be read: those that stay may reach what we cannot.

    If nobody reaches it, all come back as soon as one offset can be read.
    """
    complaint = f"out of the group until an offset can be read: {reason}"
    aside = attrs.evolve(member.enter(Phase.ASIDE), complaint=complaint)
    report = do.Report(complaint, do.FailureKind.RETRIES)
    return aside, [do.LeaveGroup(member.held), _retry_timer(aside, monotonic_ms), report]


def _come_back(member: Membership, event: on.OffsetsFetched, monotonic_ms: int) -> Decision:
    """Register again if an offset was read.

    The offset itself is not used: others may own the partition by now, and commit.
    """
    if event.round != member.round:
        return member, []
    if not event.offsets:
        return member, [_retry_timer(member, monotonic_ms)]
    return member.enter(Phase.REGISTERING), [do.Register(member.session_id)]


# --- when something goes wrong --------------------------------------------------------------------


def _round_failed(member: Membership, event: on.RoundFailed, monotonic_ms: int) -> Decision:
    # Out of the group there is no round to repeat: look for an offset again later.
    if member.phase is Phase.ASIDE and event.round == member.round:
        return member, [_retry_timer(member, monotonic_ms)]

    # The next round is on its way already, or there is no group to be in.
    is_waiting = member.phase in (Phase.BACKING_OFF, Phase.DEBOUNCING)
    if event.round != member.round or is_waiting or member.phase in _OUT_OF_GROUP:
        return member, []

    if member.has_changed:
        return _debounce(attrs.evolve(member, has_changed=False), monotonic_ms)
    return _back_off(member, event.reason, monotonic_ms)


def _release_failed(member: Membership, event: on.ReleaseFailed, monotonic_ms: int) -> Decision:
    """Try again: peers wait for what we cannot give up, so the round has settled nothing."""
    if event.round != member.round:
        return member, []
    unreleased = attrs.evolve(member, release_failure=event.reason)
    return _round_failed(unreleased, on.RoundFailed(event.round, event.reason), monotonic_ms)


def _back_off(
    member: Membership, reason: str, monotonic_ms: int, phase: Phase = Phase.BACKING_OFF
) -> Decision:
    """Try again later, for ever; report each time that rebalance.max.retries tries have failed.

    A try is a round that a whole pause came before. Rounds that a watch began do not count: while
    members come and go there may be many of them within a second.
    """
    waiting = member.enter(phase)
    timer = _retry_timer(waiting, monotonic_ms)

    tries = member.attempts + 1
    complaint = f"can't rebalance after {tries} retries: {reason}"
    if tries % member.settings.rebalance_max_retries or complaint == member.complaint:
        return waiting, [timer]

    waiting = attrs.evolve(waiting, complaint=complaint)
    return waiting, [timer, do.Report(complaint, do.FailureKind.RETRIES)]


def _list_some(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of MAX_NAMED partitions, and how many more there are."""
    names = ", ".join(map(str, partitions[:MAX_NAMED]))
    more = len(partitions) - MAX_NAMED
    return f"{names} and {more} more" if more > 0 else names


def _retry_timer(member: Membership, monotonic_ms: int, delay_ms: int | None = None) -> do.SetTimer:
    if delay_ms is None:
        delay_ms = max(member.settings.rebalance_backoff_ms, LEAST_BACKOFF_MS)
    return do.SetTimer(on.Retry(member.round), monotonic_ms + delay_ms, spread_ms=delay_ms // 10)


def _retry(member: Membership, event: on.Retry, monotonic_ms: int) -> Decision:
    if event.round != member.round:
        return member, []

    retrying = attrs.evolve(member, attempts=member.attempts + 1)
    if member.phase is Phase.REGISTERING:
        return retrying, [do.Register(member.session_id)]
    if member.phase is Phase.ASIDE:
        return retrying, [do.FetchOffsets(member.round, frozenset(member.target))]

    # Without a connection nothing can be read; the session's return begins a round.
    if member.phase not in AT_REST or member.suspended_since_ms is not None:
        return member, []

    # The audit of a settled member is no attempt.
    return _begin_round(retrying if member.phase is Phase.BACKING_OFF else member)


def _is_stale(member: Membership, asked_in_round: int, phase: Phase) -> bool:
    """Return whether a result is of an older round, or of a phase that has ended."""
    return asked_in_round != member.round or member.phase is not phase


# --- the end ----------------------------------------------------------------------------------


def _shutdown(member: Membership, event: on.Shutdown, monotonic_ms: int) -> Decision:
    """Leave so that successors start at once, from where we were.

    Positions are forgotten before: a later commit of the application would overwrite theirs.
    """
    delivered = frozenset(member.delivering)
    effects: list[do.Effect] = [do.Interrupt(), do.StopFetchers(delivered)]

    # Behind the end of the lease, peers may own these partitions and have committed.
    if delivered and member.is_paused:
        effects.append(do.NotifyLost(delivered))
    elif delivered:
        if member.settings.auto_commit_enable:
            effects.append(do.CommitPositions(member.round, delivered))
        effects.append(do.NotifyRevoked(member.round, delivered))
    effects += [do.ForgetPositions(delivered), do.LeaveGroup(member.held)]
    return member.enter(Phase.CLOSED), effects


DECIDE: dict[type[on.Event], Callable[[Membership, Any, int], Decision]] = {
    on.SessionEstablished: _session_established,
    on.Suspended: _suspended,
    on.LeaseEnded: _lease_ended,
    on.SessionLost: _session_lost,
    on.SessionClosed: _session_closed,
    on.Registered: _registered,
    on.RegistrationFailed: _registration_failed,
    on.GroupChanged: _group_changed,
    on.TopicsChanged: _group_changed,
    on.BrokersChanged: _group_changed,
    on.OwnerChanged: _group_changed,
    on.ReadDue: _read_due,
    on.GroupRead: _group_read,
    on.GroupUnreadable: _group_unreadable,
    on.OwnersRead: _owners_read,
    on.Claimed: _claimed,
    on.ClaimFailed: _claim_failed,
    on.OffsetsFetched: _offsets_fetched,
    on.RoundFailed: _round_failed,
    on.ReleaseFailed: _release_failed,
    on.Retry: _retry,
    on.Shutdown: _shutdown,
}
