"""The decisions of a consumer in a group at a coordinator: a pure function of state and event.

The theory. A *round* begins with a JoinGroup. What must be given up is given up before it: fetchers
stop, offsets are committed, the application is told. An eager consumer gives up all its partitions,
a cooperative one (KIP-429) keeps them, tells the coordinator, and gives up what its new assignment
lacks; then it joins once more, so that others can have it:

    give up -> JoinGroup -> (compute the assignment, if we lead) -> SyncGroup
      -> give up what we no longer have -> read committed offsets, deliver -> (join once more)

The coordinator tells us of a rebalance in the response to a heartbeat or a commit. An identity that
it does not know any longer is lost with all partitions: nothing of them is committed, because
others may own them. Responses count only for the identity with which the request was sent
(KAFKA-9823), and results of a round only in that round.

A coordinator that is silent says nothing of either: identity and partitions stay. But when the
session timeout has passed without an accepted heartbeat, others may own them, and a member that
does not hear of it must not consume beside them: delivery pauses until a coordinator accepts us.

Protocol: Kafka's ConsumerCoordinator (2.4 and later), whose members share the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.state import NO_GENERATION, NO_MEMBER_ID, Consumer, Phase
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

Decision = tuple[Consumer, list[do.Effect]]
Partitions = frozenset[TopicPartition]

FATAL = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors after which trying again cannot help."""
COORDINATOR_AWAY = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Errors after which another broker may be the coordinator."""
IDENTITY_LOST = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
PLACE_LOST = IDENTITY_LOST | {ErrorCode.FENCED_INSTANCE_ID}
"""Errors that are worth a doubt whether who sends them still coordinates the group."""
ACCEPTED = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
"""Responses to a heartbeat after which the session lasts its time again."""

CLOSING = "the consumer is being closed"


def decide(consumer: Consumer, event: on.Event) -> Decision:
    """Return what `consumer` becomes by `event`, and the effects to perform."""
    if consumer.phase is Phase.CLOSED:
        return consumer, []
    return DECIDE[type(event)](consumer, event)


# ---- beginning a round


def _topics_read(consumer: Consumer, event: on.TopicsRead) -> Decision:
    if event.topics == consumer.topics and consumer.round:
        return consumer, []

    subscribed = attrs.evolve(consumer, topics=event.topics)
    if not consumer.round:
        return _join(subscribed, "the consumer joins")
    return _join_when_at_rest(subscribed, "the subscribed topics have changed")


def _partitions_changed(consumer: Consumer, event: on.PartitionsChanged) -> Decision:
    # Another member leads, and sees it too.
    if not consumer.is_leader:
        return consumer, []
    return _join_when_at_rest(consumer, event.reason)


def _join_when_at_rest(consumer: Consumer, reason: str) -> Decision:
    """Join now, or behind the round in progress."""
    if consumer.phase is Phase.STABLE:
        return _rejoin(consumer, reason)
    # The next JoinGroup has the new topics anyway.
    if consumer.phase in (Phase.ASIDE, Phase.BACKING_OFF):
        return consumer, []
    return attrs.evolve(consumer, rejoins=reason), []


def _rejoin(consumer: Consumer, reason: str) -> Decision:
    """Give up what must be given up, and join."""
    leaving = consumer.owned
    if consumer.settings.is_cooperative:
        # Others get what we no longer subscribe to, in the same round.
        leaving = frozenset(p for p in consumer.owned if p.topic not in consumer.topics)

    joining, effects = _join(_without(consumer, leaving), reason)
    return joining, [*_revoke(consumer, leaving), *effects]


def _join(consumer: Consumer, reason: str) -> Decision:
    joining = attrs.evolve(
        consumer.enter(Phase.JOINING),
        round=consumer.round + 1,
        rejoins=None,
        joins_because=reason,
        is_leader=False,
    )
    join = do.SendJoin(
        joining.round,
        joining.member_id,
        tuple(sorted(joining.topics)),
        joining.owned,
        joining.generation_id,
        reason,
    )
    return joining, [join]


# ---- giving up


def _revoke(consumer: Consumer, leaving: Partitions) -> list[do.Effect]:
    """Give up partitions that are ours until we join."""
    if not leaving:
        return []
    effects: list[do.Effect] = [do.StopFetchers(leaving)]
    # What is not delivered yet has no position of its own, and the application does not know of it.
    delivered = leaving - consumer.undelivered
    if consumer.settings.auto_commit and delivered:
        effects.append(do.CommitPositions(delivered))
    if delivered:
        effects.append(do.NotifyRevoked(delivered))
    return [*effects, do.ForgetPositions(leaving)]


def _without(consumer: Consumer, leaving: Partitions) -> Consumer:
    return attrs.evolve(
        consumer, owned=consumer.owned - leaving, undelivered=consumer.undelivered - leaving
    )


def _lose(consumer: Consumer) -> Decision:
    """Give up all at once, and commit nothing: others may own it."""
    lost = consumer.owned
    effects: list[do.Effect] = [do.Abandon(), do.EndHeartbeats()]
    if lost:
        effects.append(do.NotifyLost(lost))
    return _without(consumer, lost), effects


def _lose_identity(consumer: Consumer, error: ErrorCode) -> Decision:
    """Give up generation and partitions; the member id too, if it is what is not known."""
    after, effects = _lose(consumer)
    is_id_known = error is ErrorCode.ILLEGAL_GENERATION
    return attrs.evolve(
        after,
        generation_id=NO_GENERATION,
        member_id=after.member_id if is_id_known else NO_MEMBER_ID,
    ), effects


def _fail(consumer: Consumer, error: ErrorCode, reason: str = "") -> Decision:
    after, effects = _lose(consumer)
    return after.enter(Phase.CLOSED), [*effects, do.Fail(error, reason)]


# ---- JoinGroup


def _join_responded(consumer: Consumer, event: on.JoinResponded) -> Decision:
    if _is_stale(consumer, event.round, Phase.JOINING):
        return consumer, []
    if event.error is not ErrorCode.NONE:
        return _join_refused(consumer, event)

    accepted, resuming = _accepted(consumer)
    joined = attrs.evolve(
        accepted,
        member_id=event.member_id,
        generation_id=event.generation_id,
        protocol_name=event.protocol_name,
        is_leader=event.leader_id == event.member_id,
    )
    begin = [*resuming, do.BeginHeartbeats(event.member_id, event.generation_id)]

    # The leader shares out, unless the coordinator has kept the assignment (KIP-814).
    if joined.is_leader and not event.skip_assignment:
        compute = do.ComputeAssignment(event.round, event.protocol_name, event.members)
        return joined.enter(Phase.ASSIGNING), [*begin, compute]
    return _sync(joined, {}, *begin)


def _join_refused(consumer: Consumer, event: on.JoinResponded) -> Decision:
    error = event.error
    if error in FATAL:
        return _fail(consumer, error)
    # The coordinator knows us from now on, if we join with this id (KIP-394).
    if error is ErrorCode.MEMBER_ID_REQUIRED:
        known = attrs.evolve(consumer, member_id=event.member_id)
        return _join(known, consumer.joins_because)
    if error in IDENTITY_LOST:
        after, effects = _lose_identity(consumer, error)
        joining, joins = _join(after, error.name)
        return joining, [*effects, *joins]
    return _back_off(consumer, error)


# ---- SyncGroup


def _assignment_computed(consumer: Consumer, event: on.AssignmentComputed) -> Decision:
    if _is_stale(consumer, event.round, Phase.ASSIGNING):
        return consumer, []
    if event.problem is not None:
        return _pause(consumer, event.problem)
    return _sync(consumer, event.assignments)


def _sync(consumer: Consumer, assignments: Mapping[str, bytes], *effects: do.Effect) -> Decision:
    sync = do.SendSync(
        consumer.round,
        consumer.member_id,
        consumer.generation_id,
        consumer.protocol_name,
        assignments,
    )
    return consumer.enter(Phase.SYNCING), [*effects, sync]


def _sync_responded(consumer: Consumer, event: on.SyncResponded) -> Decision:
    if _is_stale(consumer, event.round, Phase.SYNCING):
        return consumer, []

    error = event.error
    if error in FATAL:
        return _fail(consumer, error)
    if error in IDENTITY_LOST:
        after, effects = _lose_identity(consumer, error)
        joining, joins = _join(after, error.name)
        return joining, [*effects, *joins]
    if error is ErrorCode.REBALANCE_IN_PROGRESS:
        return _rejoin(consumer, "the group rebalances once more")
    if error is not ErrorCode.NONE:
        return _back_off(consumer, error)
    if event.partitions is None:
        return _pause(consumer, "the assignment from the group's leader cannot be read")
    return _take_assignment(consumer, event.partitions)


def _take_assignment(consumer: Consumer, assigned: Partitions) -> Decision:
    """Give up what is no longer ours, and read offsets of what is new."""
    # The leader did not know our latest subscription.
    if any(partition.topic not in consumer.topics for partition in assigned):
        return _rejoin(consumer, "the assignment is to topics that are not subscribed to")

    leaving = consumer.owned - assigned
    added = assigned - consumer.owned
    kept = _without(consumer, leaving)
    after = attrs.evolve(
        kept.enter(Phase.STARTING), owned=assigned, undelivered=kept.undelivered | added
    )
    if leaving:
        # Others have it in the round that we begin by joining.
        after = attrs.evolve(after, rejoins="partitions are given up to other members")
    effects = _revoke(consumer, leaving)
    # Others may give partitions up, of which we get ours in the round that they begin by joining.
    if consumer.settings.is_cooperative and not leaving:
        effects.append(do.HastenHeartbeats())

    if after.undelivered:
        return after, [*effects, do.FetchOffsets(after.round, after.undelivered)]
    settled, settling = _settle(after)
    return settled, [*effects, do.NotifyAssigned(frozenset(), assigned), *settling]


# ---- offsets


def _offsets_fetched(consumer: Consumer, event: on.OffsetsFetched) -> Decision:
    if _is_stale(consumer, event.round, Phase.STARTING):
        return consumer, []

    starts = {
        partition: offset
        for partition, offset in event.offsets.items()
        if partition in consumer.undelivered
    }
    started = frozenset(starts)
    after = attrs.evolve(consumer, undelivered=consumer.undelivered - started)
    effects: list[do.Effect] = []
    if starts:
        # The listener may seek what is open, before anything of it is fetched.
        notify = do.NotifyAssigned(started, after.owned)
        effects += [do.OpenFeeds(starts), notify, do.StartFetchers(started)]

    # Some cannot be read now: the others are consumed meanwhile.
    if after.undelivered:
        reasons = sorted({event.failed.get(p, "no response") for p in after.undelivered})
        problem = f"committed offsets cannot be read: {', '.join(reasons)}"
        retry = do.SetTimer(on.OffsetsDue(after.round), after.settings.retry_backoff_ms)
        return after, [*effects, retry, do.Report(problem)]
    settled, settling = _settle(after)
    return settled, [*effects, *settling]


def _offsets_due(consumer: Consumer, event: on.OffsetsDue) -> Decision:
    if _is_stale(consumer, event.round, Phase.STARTING):
        return consumer, []
    return consumer, [do.FetchOffsets(consumer.round, consumer.undelivered)]


def _settle(consumer: Consumer) -> Decision:
    """Rest, or join once more."""
    reason = consumer.rejoins
    stable = attrs.evolve(consumer.enter(Phase.STABLE), rejoins=None)
    if reason is None:
        return stable, [do.Settle()]
    return _rejoin(stable, reason)


# ---- heartbeats


def _heartbeat_responded(consumer: Consumer, event: on.HeartbeatResponded) -> Decision:
    # It was sent with an identity that we have given up.
    if not _is_ours(consumer, event.generation_id, event.member_id):
        return consumer, []

    error = event.error
    if error in FATAL:
        return _fail(consumer, error)
    # The next generation has begun, and the response to our JoinGroup is on its way. To join once
    # more would begin another one, in which the same may happen.
    if error is ErrorCode.ILLEGAL_GENERATION and consumer.phase is Phase.JOINING:
        return consumer, []
    if error in IDENTITY_LOST:
        after, effects = _lose_identity(consumer, error)
        joining, joins = _join(after, error.name)
        return joining, [*effects, *joins]
    if error in COORDINATOR_AWAY:
        return consumer, [do.ForgetCoordinator()]
    if error not in ACCEPTED:
        return consumer, []

    accepted, resuming = _accepted(attrs.evolve(consumer, heartbeats_failed=False))
    # While we join, sync or assign, their responses say the same.
    if error is ErrorCode.REBALANCE_IN_PROGRESS and consumer.phase in (
        Phase.STARTING,
        Phase.STABLE,
    ):
        rejoining, joins = _rejoin(accepted, "the group rebalances")
        return rejoining, [*resuming, *joins]
    return accepted, resuming


def _is_ours(consumer: Consumer, generation_id: int, member_id: str) -> bool:
    identity = (generation_id, member_id)
    return identity == (consumer.generation_id, consumer.member_id) and consumer.has_generation


def _accepted(consumer: Consumer) -> tuple[Consumer, list[do.Effect]]:
    """Note that the coordinator knows us, and deliver again if that was in doubt."""
    if not consumer.is_suspended:
        return consumer, []
    after = attrs.evolve(consumer, is_suspended=False)
    effects: list[do.Effect] = [do.ResumeDelivery()]
    # In other phases something else is in the way; who settles reports that it is over.
    if consumer.phase is Phase.STABLE:
        effects.append(do.Report(None))
    return after, effects


def _heartbeats_silent(consumer: Consumer, event: on.HeartbeatsSilent) -> Decision:
    """Deliver nothing until a coordinator accepts us: others may own our partitions."""
    if not _is_ours(consumer, event.generation_id, event.member_id) or consumer.is_suspended:
        return consumer, []

    problem = (
        f"no heartbeat of member {event.member_id} has been accepted for {event.silence_ms} ms "
        f"by {event.coordinator}, so others may own the partitions; nothing is delivered until a "
        "coordinator accepts one"
    )
    suspended = attrs.evolve(consumer, is_suspended=True)
    return suspended, [do.PauseDelivery(), do.Report(problem)]


def _heartbeats_failed(consumer: Consumer, event: on.HeartbeatsFailed) -> Decision:
    """Leave and join again: without heartbeats our place is lost, and nobody would tell us."""
    # Whoever has no generation sends none; they begin with the next one.
    if not consumer.has_generation:
        return consumer, []

    reason = f"heartbeats have failed: {event.reason}"
    # The new ones have failed too before any was accepted.
    if consumer.heartbeats_failed:
        failed, effects = _fail(consumer, ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        return failed, [*effects, *_leave(consumer, reason)]

    # The session lasts still, so what is consumed is committed. The coordinator answers that it
    # does not know us any longer, and we get another id; if our leaving was lost, it is the same.
    leaving = consumer.owned
    effects = [do.Interrupt(), *_revoke(consumer, leaving)]
    effects += [do.EndHeartbeats(), *_leave(consumer, reason)]
    after = attrs.evolve(_without(consumer, leaving), heartbeats_failed=True)
    joining, joins = _join(after, reason)
    return joining, [*effects, *joins]


# ---- failures that may pass


def _call_failed(consumer: Consumer, event: on.CallFailed) -> Decision:
    if consumer.phase not in (Phase.JOINING, Phase.SYNCING) or event.round != consumer.round:
        return consumer, []
    if event.error in FATAL:
        return _fail(consumer, event.error)
    paused, effects = _pause(consumer, event.reason)
    return paused, [do.ForgetCoordinator(), *effects]


def _back_off(consumer: Consumer, error: ErrorCode) -> Decision:
    paused, effects = _pause(consumer, error.name)
    if error in COORDINATOR_AWAY:
        effects.insert(0, do.ForgetCoordinator())
    return paused, effects


def _pause(consumer: Consumer, problem: str) -> Decision:
    """Try again after a pause."""
    retry = do.SetTimer(on.RetryDue(consumer.round), consumer.settings.retry_backoff_ms)
    return consumer.enter(Phase.BACKING_OFF), [retry, do.Report(problem)]


def _retry_due(consumer: Consumer, event: on.RetryDue) -> Decision:
    if _is_stale(consumer, event.round, Phase.BACKING_OFF):
        return consumer, []
    return _rejoin(consumer, "the last attempt to join has failed")


def _is_stale(consumer: Consumer, round: int, phase: Phase) -> bool:
    return consumer.round != round or consumer.phase is not phase


# ---- the application


def _poll_timed_out(consumer: Consumer, event: on.PollTimedOut) -> Decision:
    """Leave, so that others consume; come back when the application asks again."""
    if consumer.phase is Phase.ASIDE:
        return consumer, []

    after, effects = _lose(consumer)
    if not event.has_left:
        effects += _leave(consumer, event.reason)
    aside = attrs.evolve(
        after.enter(Phase.ASIDE), generation_id=NO_GENERATION, member_id=NO_MEMBER_ID
    )
    return aside, [*effects, do.Report(event.reason)]


def _poll_resumed(consumer: Consumer, event: on.PollResumed) -> Decision:
    if consumer.phase is not Phase.ASIDE:
        return consumer, []
    return _join(consumer, event.reason)


def _shutdown(consumer: Consumer, event: on.Shutdown) -> Decision:
    effects: list[do.Effect] = [do.Interrupt(), *_revoke(consumer, consumer.owned)]
    effects += [do.EndHeartbeats(), *_leave(consumer, CLOSING)]
    return _without(consumer, consumer.owned).enter(Phase.CLOSED), effects


def _leave(consumer: Consumer, reason: str) -> list[do.Effect]:
    # A static member keeps its place until its session ends: it may only restart.
    if consumer.settings.group_instance_id is not None or not consumer.member_id:
        return []
    return [do.SendLeave(consumer.member_id, reason)]


DECIDE: dict[type[on.Event], Callable[[Consumer, Any], Decision]] = {
    on.TopicsRead: _topics_read,
    on.PartitionsChanged: _partitions_changed,
    on.PollTimedOut: _poll_timed_out,
    on.PollResumed: _poll_resumed,
    on.Shutdown: _shutdown,
    on.JoinResponded: _join_responded,
    on.AssignmentComputed: _assignment_computed,
    on.SyncResponded: _sync_responded,
    on.CallFailed: _call_failed,
    on.RetryDue: _retry_due,
    on.HeartbeatResponded: _heartbeat_responded,
    on.HeartbeatsSilent: _heartbeats_silent,
    on.HeartbeatsFailed: _heartbeats_failed,
    on.OffsetsFetched: _offsets_fetched,
    on.OffsetsDue: _offsets_due,
}
