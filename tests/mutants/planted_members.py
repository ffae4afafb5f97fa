"""Bugs of groups with members, to be planted where we have none.

Those with `PAIRS` are noticed by the stories of consumers and their coordinator without I/O, within
the seeds that `make test` tells; those without, by stories of a cluster.
"""

from __future__ import annotations

from tests.mutants.planted import PAIRS, Bug

MEMBER_BUGS: tuple[Bug, ...] = (
    Bug(
        "a commit of an old generation is accepted",
        "groups.coordinator.commits:refusal",
        "if committer.generation_id != group.generation_id:\n"
        "    return ErrorCode.ILLEGAL_GENERATION",
        "",
        seed=14,
        stories=PAIRS,
    ),
    Bug(
        "a parked join is never answered when the coordinator moves",
        "groups.coordinator.membership.loading:unload",
        "effects += respond_to_removed(group, member, ErrorCode.NOT_COORDINATOR)",
        "",
        seed=1,
        stories=PAIRS,
    ),
    Bug(
        "members join while offsets are reset",
        "groups.coordinator.membership.join:join",
        "group.held_by is not None",
        "False",
        seed=1,
        stories=PAIRS,
    ),
    Bug(
        "a follower gets an assignment before the leader's is written",
        "groups.coordinator.membership.sync:sync",
        "group.state is GroupState.STABLE",
        "group.state is GroupState.STABLE or member.member_id != group.leader_id",
        stories=PAIRS,
    ),
    Bug(
        "members act on a record that is not written yet",
        "groups.coordinator.membership.sync:sync",
        "effects.append(_store(shard, group, event))",
        """
        effects.append(_store(shard, group, event))
        for name, given in event.assignments:
            group.members[name].assignment = given
        group.move_to(GroupState.STABLE, now_ms)
        effects += respond_to_syncs(group)
        """,
        seed=30,
        stories=PAIRS,
    ),
    Bug(
        "members of a log that was loaded have no session",
        "groups.coordinator.membership.loading:load",
        "effects += [restart_session(member) for member in group.members.values()]",
        "",
        seed=37,
        stories=PAIRS,
    ),
    Bug(
        "two members get one partition, because one does not say what it keeps",
        "groups.consumer.decide:_join",
        "joining.owned",
        "frozenset()",
        seed=1,
        stories=PAIRS,
    ),
)
