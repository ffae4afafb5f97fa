"""What a member of a ZooKeeper group does: one pure function of what has happened.

The theory. Every member watches the group and computes the same assignment from the same reading
of it; owner nodes, ephemeral and created with "fail if it exists", keep two members from
consuming one partition while their readings differ. A *round* compares three things: the
assignment, the owner nodes as ZooKeeper has them, and the partitions we are delivering. It then
does what makes the three equal:

    read the group -> read the owner nodes that concern us
      -> stop, commit and release what is no longer ours
      -> claim what is free, in one multi, and rewrite nodes that move between our own threads
      -> read the offsets of what we hold but do not deliver, and deliver it

Partitions that stay keep their fetchers and positions (Kafka's connector stops everything). What
another member still holds is left alone: its node is watched, and the round is retried after
`rebalance.backoff.ms`, for ever. Because each round starts from the tree and not from memory, a
reply lost on the way, a node deleted by hand, or a claim that succeeded unseen needs no case of
its own.

Offsets are read *after* the claim: only then has the former owner committed and let go. (Kafka
reads them before, and consumes again what was committed in between.)

Protocol: Kafka's ZookeeperConsumerConnector (0.8.2 to 1.1), whose members may share the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.assignment import ASSIGNORS
from groups.zookeeper.membership_state import Membership, Phase
from groups.zookeeper.registration import consumer_of, threads_by_topic
from protocol.topic_partition import TopicPartition

DEBOUNCE_MS = 25
"""From a change to the reading, at least, and at most twice this: changes come in bursts, and every
member would read the whole group at each. Only the reading waits. What it shows to be no longer
ours is released at once, since JVM members give up after a few tries to claim it."""

AUDIT_MS = 10_000
"""A settled member looks this often whether all is still as it left it. An owner node that someone
has deleted fires no watch of ours: old JVM members may delete nodes that are no longer theirs."""

LEAST_BACKOFF_MS = 50
"""Kafka's members give up after a few tries; who tries for ever must not do so without a pause,
though `rebalance.backoff.ms` be 0."""

MAX_CLAIMS_IN_VAIN = 3
"""A claim that fails means that a peer was faster, and the next reading shows what it took. One
that fails again and again, while the tree looks as it did, is not repeated without a pause."""

MAX_NAMED = 10  # partitions in one message

_AT_REST = {Phase.SETTLED, Phase.BACKING_OFF}
_OUT_OF_GROUP = {Phase.OFFLINE, Phase.REGISTERING, Phase.ASIDE, Phase.CLOSED}


Decision = tuple[Membership, list[do.Effect]]


def decide(member: Membership, event: on.Event, monotonic_ms: int) -> Decision:
    """Say what `event` makes of `member`. Does nothing itself. `monotonic_ms` is for intervals."""
    if member.phase is Phase.CLOSED:
        return member, []
    return DECIDE[type(event)](member, event, monotonic_ms)


# --- the session ------------------------------------------------------------------------------


def _session_established(
    member: Membership, event: on.SessionEstablished, monotonic_ms: int
) -> Decision:
    resumed = attrs.evolve(member, suspended_since_ms=None, paused=False)
    if event.session_id == member.session_id:  # watches may have been lost with the connection
        resumed, effects = _group_changed(resumed, event, monotonic_ms)
        return resumed, [do.ResumeDelivery(), *effects]
    left, effects = _session_expired(resumed, event, monotonic_ms)
    registering = attrs.evolve(left, phase=Phase.REGISTERING, session_id=event.session_id)
    return registering, [*effects, do.ResumeDelivery(), do.Register(event.session_id)]


def _session_expired(member: Membership, event: on.Event, monotonic_ms: int) -> Decision:
    """Peers may own our partitions by now: stop first, and commit nothing."""
    left = attrs.evolve(
        member,
        phase=Phase.OFFLINE,
        session_id=0,
        suspended_since_ms=None,
        round=member.round + 1,
        changed=False,
        held=frozenset(),
        delivering={},
    )
    return left, [do.Abandon()]


def _session_closed(member: Membership, event: on.SessionClosed, monotonic_ms: int) -> Decision:
    """Peers own our partitions from now on, and no session will follow in which we could come back:
    an application that only waited for messages would wait for ever."""
    left, effects = _session_expired(member, event, monotonic_ms)
    reason = f"{member.consumer_id}: the ZooKeeper session has been closed: this member has ended"
    report = do.Report(reason, do.Failure.SESSION_CLOSED)
    ended = attrs.evolve(left, phase=Phase.CLOSED)
    return ended, [*effects, do.FailDelivery(reason), report]


def _suspended(member: Membership, event: on.Suspended, monotonic_ms: int) -> Decision:
    """Two thirds of the session timeout are surely ours; the last third is for clocks that differ
    and messages in flight."""
    lease_end_ms = event.since_ms + event.session_timeout_ms * 2 // 3
    suspended = attrs.evolve(member, suspended_since_ms=event.since_ms)
    return suspended, [do.SetTimer(on.LeaseEnded(event.since_ms), lease_end_ms)]


def _lease_ended(member: Membership, event: on.LeaseEnded, monotonic_ms: int) -> Decision:
    if member.suspended_since_ms != event.since_ms:
        return member, []
    return attrs.evolve(member, paused=True), [do.PauseDelivery()]


def _registered(member: Membership, event: on.Registered, monotonic_ms: int) -> Decision:
    if member.phase is not Phase.REGISTERING or event.session_id != member.session_id:
        return member, []
    return _begin_round(member)


def _registration_failed(
    member: Membership, event: on.RegistrationFailed, monotonic_ms: int
) -> Decision:
    if member.phase is not Phase.REGISTERING or event.session_id != member.session_id:
        return member, []
    if event.in_use and not member.joined:
        closed = attrs.evolve(member, phase=Phase.CLOSED)
        return closed, [do.Report(event.reason, do.Failure.ID_IN_USE)]
    return _back_off(member, event.reason, monotonic_ms, phase=Phase.REGISTERING)


# --- a round ----------------------------------------------------------------------------------


def _group_changed(member: Membership, event: on.Event, monotonic_ms: int) -> Decision:
    """Between rounds, begin one soon; during one, remember it."""
    if member.phase in _AT_REST:
        return _debounce(member, monotonic_ms)
    return attrs.evolve(member, changed=member.phase not in _OUT_OF_GROUP), []


def _debounce(member: Membership, monotonic_ms: int) -> Decision:
    waiting = attrs.evolve(member, phase=Phase.DEBOUNCING)
    return waiting, [
        do.SetTimer(on.ReadDue(member.round), monotonic_ms + DEBOUNCE_MS, spread_ms=DEBOUNCE_MS)
    ]


def _read_due(member: Membership, event: on.ReadDue, monotonic_ms: int) -> Decision:
    if _stale(member, event.round, Phase.DEBOUNCING):
        return member, []
    return _begin_round(member)


def _begin_round(member: Membership) -> Decision:
    reading = attrs.evolve(
        member,
        phase=Phase.READING_GROUP,
        round=member.round + 1,
        changed=False,
        told=False,
        claim=None,
    )
    return reading, [do.ReadGroup(reading.round)]


def _group_unreadable(member: Membership, event: on.GroupUnreadable, monotonic_ms: int) -> Decision:
    """Nobody, on the JVM either, can compute an assignment: keep what we have, and claim nothing.

    A strategy that does not go with the group's is our fault if we are the one who came.
    """
    if _stale(member, event.round, Phase.READING_GROUP):
        return member, []
    if member.changed:
        return _debounce(attrs.evolve(member, changed=False), monotonic_ms)
    problem = event.problem
    if problem.conflict and not member.joined:
        closed = attrs.evolve(member, phase=Phase.CLOSED)
        refusal = do.Report(problem.text, do.Failure.STRATEGY)
        return closed, [do.LeaveGroup(member.held), refusal]
    kind = do.Failure.STRATEGY if problem.conflict else do.Failure.UNREADABLE
    news = [] if problem.text == member.complaint else [do.Report(problem.text, kind)]
    waiting = attrs.evolve(member, phase=Phase.BACKING_OFF, complaint=problem.text)
    return waiting, [_retry_timer(waiting, monotonic_ms), *news]


def _group_read(member: Membership, event: on.GroupRead, monotonic_ms: int) -> Decision:
    if _stale(member, event.round, Phase.READING_GROUP):
        return member, []
    if member.changed:
        return _debounce(attrs.evolve(member, changed=False), monotonic_ms)
    snapshot = event.snapshot
    if member.consumer_id not in snapshot.members:  # deleted by someone
        registering = attrs.evolve(member, phase=Phase.REGISTERING)
        return registering, [do.Register(member.session_id)]
    if snapshot != member.snapshot:
        member = _assigned(member, snapshot)
    return _read_owners(member)


def _assigned(member: Membership, snapshot: on.GroupSnapshot) -> Membership:
    """Work out who is to have what. In a large group this is the dearest step of a round, and most
    rounds (the audits, those that a broker's restart begins) read what the last one read."""
    threads = threads_by_topic(
        snapshot.members, snapshot.all_topics, member.settings.exclude_internal_topics
    )
    assign = ASSIGNORS[member.settings.partition_assignment_strategy]
    assignment = assign(threads, snapshot.partitions, snapshot.leaders)
    target = {p: t for p, t in assignment.items() if consumer_of(t) == member.consumer_id}
    return attrs.evolve(member, snapshot=snapshot, assignment=assignment, target=target)


def _read_owners(member: Membership) -> Decision:
    reading = attrs.evolve(member, phase=Phase.READING_OWNERS)
    return reading, [do.ReadOwners(member.round, member.held | member.target.keys())]


def _owners_read(member: Membership, event: on.OwnersRead, monotonic_ms: int) -> Decision:
    """Compare assignment, tree and deliveries; give up what is not ours, claim what is free."""
    if _stale(member, event.round, Phase.READING_OWNERS):
        return member, []
    ours = {p: owner for p, owner in event.owners.items() if _is_ours(member, owner)}
    lost = member.delivering.keys() - ours
    leaving = frozenset(ours.keys() - member.target.keys())
    free = {p: t for p, t in member.target.items() if p not in event.owners}
    moving = {
        p: (member.target[p], owner.version)
        for p, owner in ours.items()
        if p not in leaving and owner.thread_id != member.target[p]
    }
    changes = leaving or lost or free or moving or member.is_news
    # Of a deleted topic: an offset would outlive it.
    gone = {p for p in leaving if p not in member.assignment}
    effects: list[do.Effect] = []
    if lost:
        effects += [do.StopFetchers(frozenset(lost)), do.ForgetPositions(frozenset(lost))]
    if leaving:
        effects.append(do.StopFetchers(leaving))
        if member.settings.auto_commit_enable and leaving != gone:
            effects.append(do.CommitOffsets(member.round, leaving - gone))
    if changes and not member.told:
        effects.append(do.NotifyReleasing(member.round, frozenset(ours)))
    if leaving:
        effects += [do.ForgetPositions(leaving), do.ReleaseOwners(member.round, leaving)]
    reconciled = attrs.evolve(
        member,
        held=frozenset(ours.keys() | free.keys()),  # what leaves, too: its release may yet fail
        delivering={p: t for p, t in member.delivering.items() if p in ours and p not in leaving},
        blocked={
            p: consumer_of(owner.thread_id)
            for p, owner in event.owners.items()
            if p in member.target and p not in ours
        },
        told=member.told or bool(changes),
        unreleased=member.unreleased if leaving else None,
    )
    if free or moving:
        reconciled, more = _claim(
            reconciled, do.ClaimOwners(member.round, free, moving), monotonic_ms
        )
        return reconciled, effects + more
    reconciled, more = _deliver(reconciled, monotonic_ms)
    return reconciled, effects + more


def _is_ours(member: Membership, owner: on.Owner) -> bool:
    """A node of our own earlier session is not: it is about to vanish."""
    return (
        owner.session_id == member.session_id and consumer_of(owner.thread_id) == member.consumer_id
    )


def _claim(member: Membership, claim: do.ClaimOwners, monotonic_ms: int) -> Decision:
    """Claim, unless the same claim has failed too often with nothing changed in between."""
    in_vain = member.claims_in_vain + 1 if claim == member.claim else 0
    if in_vain < MAX_CLAIMS_IN_VAIN:
        return attrs.evolve(member, phase=Phase.CLAIMING, claim=claim, claims_in_vain=in_vain), [
            claim
        ]

    if member.changed:
        return _debounce(attrs.evolve(member, changed=False), monotonic_ms)
    claimed = sorted({*claim.create, *claim.move})
    return _back_off(member, f"claimed in vain, though free: {_some(claimed)}", monotonic_ms)


def _claim_failed(member: Membership, event: on.ClaimFailed, monotonic_ms: int) -> Decision:
    """Somebody was faster: see what is left."""
    if _stale(member, event.round, Phase.CLAIMING):
        return member, []
    return _read_owners(member)


def _claimed(member: Membership, event: on.Claimed, monotonic_ms: int) -> Decision:
    if _stale(member, event.round, Phase.CLAIMING):
        return member, []
    return _deliver(member, monotonic_ms)


def _deliver(member: Membership, monotonic_ms: int) -> Decision:
    """Every partition of the target that is not blocked is ours now; see that it is delivered."""
    ours = {p: t for p, t in member.target.items() if p not in member.blocked}
    moved = {p: t for p, t in ours.items() if member.delivering.get(p, t) != t}
    silent = frozenset(ours.keys() - member.delivering.keys())
    effects: list[do.Effect] = [do.MoveFetchers(moved)] if moved else []
    delivering = {**member.delivering, **moved}
    fetching = attrs.evolve(member, phase=Phase.FETCHING_OFFSETS, delivering=delivering)
    if silent:
        return fetching, [*effects, do.FetchOffsets(member.round, silent)]
    nothing_new = on.OffsetsFetched(member.round, {})
    fetching, more = _offsets_fetched(fetching, nothing_new, monotonic_ms)
    return fetching, effects + more


def _offsets_fetched(member: Membership, event: on.OffsetsFetched, monotonic_ms: int) -> Decision:
    if member.phase is Phase.ASIDE:
        return _come_back(member, event, monotonic_ms)
    if _stale(member, event.round, Phase.FETCHING_OFFSETS):
        return member, []
    starts = {p: (member.target[p], offset) for p, offset in event.offsets.items()}
    started = attrs.evolve(
        member,
        delivering={**member.delivering, **{p: thread for p, (thread, _) in starts.items()}},
        announced=member.assignment,
    )
    effects: list[do.Effect] = []
    if starts or member.is_news:
        effects.append(do.NotifyStarting(member.round, member.assignment))
    if starts:
        effects.append(do.StartFetchers(starts))
    ended, more = _end_round(started, event.failed, monotonic_ms)
    return ended, effects + more


def _end_round(
    member: Membership, failed: Mapping[TopicPartition, str], monotonic_ms: int
) -> Decision:
    if member.changed:
        return _debounce(attrs.evolve(member, changed=False), monotonic_ms)
    if member.blocked or failed or member.unreleased:
        reasons = [member.unreleased] if member.unreleased else []
        reasons += [f"owned by {owner}: {_some(of)}" for owner, of in member.in_the_way]
        reasons += [f"offset of {p}: {why}" for p, why in [*failed.items()][:MAX_NAMED]]
        if _others_would_do_better(member, failed):
            return _step_aside(member, "; ".join(reasons), monotonic_ms)
        waiting, effects = _back_off(member, "; ".join(reasons), monotonic_ms)
        one_of_each = frozenset(of[0] for _, of in member.in_the_way)
        watch = [do.WatchOwners(member.round, one_of_each)] if one_of_each else []
        return waiting, [*watch, *effects]
    settled = attrs.evolve(member, phase=Phase.SETTLED, attempts=0, joined=True, complaint=None)
    return settled, [_retry_timer(settled, monotonic_ms, AUDIT_MS), do.Report()]


# --- out of the group, for others to have our share -----------------------------------------------


def _others_would_do_better(member: Membership, failed: Mapping[TopicPartition, str]) -> bool:
    """Whether we have long held partitions without being able to begin any of them, and there are
    others to consume them."""
    if not failed or member.delivering or member.snapshot is None:
        return False
    if member.attempts + 1 < member.settings.rebalance_max_retries:
        return False
    snapshot, topics = member.snapshot, {p.topic for p in failed}
    return any(
        not topics.isdisjoint(
            subscription.streams_of(snapshot.all_topics, member.settings.exclude_internal_topics)
        )
        for consumer_id, subscription in snapshot.members.items()
        if consumer_id != member.consumer_id
    )


def _step_aside(member: Membership, reason: str, monotonic_ms: int) -> Decision:
    """Leave the group, and come back when an offset can be read: those that stay may well reach
    what we do not. Where nobody does, all come back as soon as one can."""
    complaint = f"out of the group until an offset can be read: {reason}"
    aside = attrs.evolve(member, phase=Phase.ASIDE, complaint=complaint)
    report = do.Report(complaint, do.Failure.RETRIES)
    return aside, [do.LeaveGroup(member.held), _retry_timer(aside, monotonic_ms), report]


def _come_back(member: Membership, event: on.OffsetsFetched, monotonic_ms: int) -> Decision:
    """What was read is not used: others may own these partitions, and commit."""
    if event.round != member.round:
        return member, []
    if not event.offsets:
        return member, [_retry_timer(member, monotonic_ms)]
    return attrs.evolve(member, phase=Phase.REGISTERING), [do.Register(member.session_id)]


# --- when something goes wrong --------------------------------------------------------------------


def _round_failed(member: Membership, event: on.RoundFailed, monotonic_ms: int) -> Decision:
    if member.phase is Phase.ASIDE and event.round == member.round:
        return member, [_retry_timer(member, monotonic_ms)]
    waiting = member.phase in (Phase.BACKING_OFF, Phase.DEBOUNCING)
    if event.round != member.round or waiting or member.phase in _OUT_OF_GROUP:
        return member, []
    if member.changed:
        return _debounce(attrs.evolve(member, changed=False), monotonic_ms)
    return _back_off(member, event.reason, monotonic_ms)


def _release_failed(member: Membership, event: on.ReleaseFailed, monotonic_ms: int) -> Decision:
    """Peers wait for what we cannot give up: no round that leaves it so has settled anything."""
    if event.round != member.round:
        return member, []
    unreleased = attrs.evolve(member, unreleased=event.reason)
    return _round_failed(unreleased, on.RoundFailed(event.round, event.reason), monotonic_ms)


def _back_off(
    member: Membership, reason: str, monotonic_ms: int, phase: Phase = Phase.BACKING_OFF
) -> Decision:
    """Try again later, for ever, and say so each time rebalance.max.retries tries have failed.

    A try is what a whole pause came before. Rounds that a watch began in between are not counted:
    while others come and go there may be many of them within a second.
    """
    waiting = attrs.evolve(member, phase=phase)
    timer = _retry_timer(waiting, monotonic_ms)
    tries = member.attempts + 1
    complaint = f"can't rebalance after {tries} retries: {reason}"
    if tries % member.settings.rebalance_max_retries or complaint == member.complaint:
        return waiting, [timer]
    waiting = attrs.evolve(waiting, complaint=complaint)
    return waiting, [timer, do.Report(complaint, do.Failure.RETRIES)]


def _some(partitions: Sequence[TopicPartition]) -> str:
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
    again = attrs.evolve(member, attempts=member.attempts + 1)
    if member.phase is Phase.REGISTERING:
        return again, [do.Register(member.session_id)]
    if member.phase is Phase.ASIDE:
        return again, [do.FetchOffsets(member.round, frozenset(member.target))]
    if member.phase not in _AT_REST or member.suspended_since_ms is not None:
        return member, []  # nothing can be read now; the session's return begins a round
    return _begin_round(again if member.phase is Phase.BACKING_OFF else member)


def _stale(member: Membership, round_asked_for: int, phase: Phase) -> bool:
    return round_asked_for != member.round or member.phase is not phase


# --- the end ----------------------------------------------------------------------------------


def _shutdown(member: Membership, event: on.Shutdown, monotonic_ms: int) -> Decision:
    """Leave so that successors start at once, from where we were. What the application commits
    after that would be written over theirs."""
    delivered = frozenset(member.delivering)
    effects: list[do.Effect] = [do.Interrupt(), do.StopFetchers(delivered)]
    if member.settings.auto_commit_enable and not member.paused:
        effects.append(do.CommitOffsets(member.round, delivered))
    effects += [do.ForgetPositions(delivered), do.LeaveGroup(member.held)]
    return attrs.evolve(member, phase=Phase.CLOSED), effects


DECIDE: dict[type[on.Event], Callable[[Membership, Any, int], Decision]] = {
    on.SessionEstablished: _session_established,
    on.Suspended: _suspended,
    on.LeaseEnded: _lease_ended,
    on.SessionExpired: _session_expired,
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
