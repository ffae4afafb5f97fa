"""Simulate an assignor: who would get what, what would move, and how even it would be.

The assignors are those that members run. A cooperative assignor takes several rounds, since a
partition changes its owner only after the old one has released it; they are played to the end.
Nothing is read or written here; `clients.kgroup.simulate` takes its members from a live group.
"""

from collections.abc import Mapping, Sequence

from groups.assignors.assignor import Assignor, PartitionCounts, RebalanceProtocol
from groups.assignors.assignor_table import find_assignor
from groups.assignors.claims import Claim
from groups.assignors.members import MemberSubscription
from protocol.consumer_protocol import Subscription
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

Shares = Mapping[str, tuple[TopicPartition, ...]]
"""The partitions of each member, by its id."""

MAX_ROUNDS = 4
"""Bound of the rounds of one rebalance; a cooperative one settles in two."""


@frozen
class SimulatedMember:
    """A member with its subscription, and what it owns before the rebalance."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    group_instance_id: str | None = None


@frozen
class Simulation:
    """The result of one assignor. Weights are 1 for each partition if none were given."""

    assignor: str
    shares: Shares
    before: Shares
    """What members owned before, those that left included."""
    weight_of: Mapping[str, int]
    """The sum of the weights of each member's partitions."""
    rounds: int

    @property
    def kept(self) -> int:
        """Number of partitions that stay with their owner."""
        return sum(len(self.kept_by(member_id)) for member_id in self.shares)

    @property
    def moved(self) -> int:
        """Number of partitions that had another owner before, present or gone."""
        before = {partition for owned in self.before.values() for partition in owned}
        now = {partition for share in self.shares.values() for partition in share}
        return len(before & now) - self.kept

    def kept_by(self, member_id: str) -> set[TopicPartition]:
        """Return the partitions that the member had before and has after."""
        return set(self.shares[member_id]) & set(self.before.get(member_id, ()))

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest number of partitions of a member."""
        sizes = [len(share) for share in self.shares.values()]
        return min(sizes), max(sizes)

    @property
    def load(self) -> float | None:
        """The largest weight of a member over the mean: 1.0 is even; None without any weight."""
        total = sum(self.weight_of.values())
        return max(self.weight_of.values()) * len(self.weight_of) / total if total else None


def simulate(
    assignor: str,
    members: Sequence[SimulatedMember],
    partition_counts: PartitionCounts,
    *,
    left: Shares | None = None,
    weights: Mapping[TopicPartition, int] | None = None,
) -> Simulation:
    """Return what the assignor would make of the members.

    `left` has what members owned that are gone. A partition without an entry in `weights` weighs
    nothing. Raises ValueError for an unknown assignor, or without members.

        simulate("range", [SimulatedMember("m1", ("t",)), SimulatedMember("m2", ("t",))], {"t": 3})
    """
    if not members:
        raise ValueError("no members: nobody to assign partitions to")

    before = {member.member_id: member.owned for member in members}
    shares, rounds = _rebalance(find_assignor(assignor), members, partition_counts)

    weight_of = {
        member_id: len(share) if weights is None else sum(weights.get(p, 0) for p in share)
        for member_id, share in shares.items()
    }
    return Simulation(assignor, shares, {**before, **(left or {})}, weight_of, rounds)


def _rebalance(
    assignor: Assignor, members: Sequence[SimulatedMember], partition_counts: PartitionCounts
) -> tuple[Shares, int]:
    """Return the final shares and the number of rounds that lead to them."""
    shares: Shares = {member.member_id: member.owned for member in members}
    is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.protocols

    for rounds in range(1, MAX_ROUNDS + 1):
        assigned = assignor.assign(
            partition_counts,
            [_subscription(assignor, m, shares[m.member_id], rounds) for m in members],
        )
        owned_before = {partition for share in shares.values() for partition in share}
        shares = {m: tuple(sorted(assignment.partitions)) for m, assignment in assigned.items()}

        # Partitions that were only released in this round have an owner after the next one.
        released = owned_before - {partition for share in shares.values() for partition in share}
        is_settled = not any(p.partition < partition_counts.get(p.topic, 0) for p in released)
        if is_settled or not is_cooperative:
            return shares, rounds

    return shares, MAX_ROUNDS


def _subscription(
    assignor: Assignor, member: SimulatedMember, owned: tuple[TopicPartition, ...], generation: int
) -> MemberSubscription:
    """Return what the member would send when it joins."""
    claim = Claim(owned, generation) if owned else None
    subscription = Subscription(
        member.topics,
        assignor.user_data(claim),
        owned_partitions=owned,
        generation_id=generation if owned else -1,
    )
    return MemberSubscription(member.member_id, subscription, member.group_instance_id)
