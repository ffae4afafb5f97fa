"""Random histories of groups: rounds of a rebalance each, and what happens in between.

Members join, leave, restart, subscribe to other topics, and miss rebalances, after which they claim
what others have got since. Topics come, grow and vanish. In *wild* histories members lie, too: they
claim partitions of others, partitions that do not exist, or write user data that nobody can read.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

import attrs

from groups.assignors.assignor import Assignments
from groups.assignors.assignor_table import find_assignor
from groups.assignors.claims import Claim
from groups.assignors.members import MemberSubscription
from protocol.consumer_protocol import NO_GENERATION, Subscription
from protocol.topic_partition import TopicPartition

ROUNDS = 6
MAX_MEMBERS = 8
MAX_TOPICS = 6
MAX_PARTITIONS = 9


@attrs.define(eq=False)
class Member:
    """A member between two rebalances. `claim` is its last assignment."""

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    claim: Claim | None = None
    is_absent: bool = False
    user_data: bytes | None = None


class History:
    """A group with all that a leader sees of it."""

    def __init__(self, rng: Random, *, wild: bool = False) -> None:
        self.rng = rng
        self.wild = wild
        self.has_equal_subscriptions = rng.random() < 0.5
        self.generation_id = 0
        self.names = 0
        self.partition_counts: dict[str, int] = {}
        self.members: list[Member] = []
        for _ in range(rng.randint(1, MAX_TOPICS)):
            self.add_topic()
        for _ in range(rng.randint(1, MAX_MEMBERS)):
            self.join()

    # ---- what happens

    def go_on(self) -> None:
        """Let something happen before the next rebalance."""
        for member in self.members:
            member.is_absent = False
            member.user_data = None

        events: list[Callable[[], None]] = [
            self.join,
            self.leave,
            self.restart,
            self.miss_the_rebalance,
            self.subscribe_otherwise,
            self.add_topic,
            self.grow_a_topic,
            self.lose_a_topic,
            lambda: None,
        ]
        if self.wild:
            events += [self.shrink_a_topic, self.claim_too_much, self.write_nonsense]
        for event in self.rng.choices(events, k=self.rng.randint(1, 3)):
            event()

        if all(member.is_absent for member in self.members):
            self.join()

    def join(self) -> None:
        if len(self.members) < MAX_MEMBERS:
            name = self.new_name("c")
            instance_id = f"i{self.rng.randint(0, 99)}-{name}" if self.rng.random() < 0.3 else None
            self.members.append(Member(name, self.new_subscription(), instance_id))

    def leave(self) -> None:
        if len(self.members) > 1:
            self.members.remove(self.rng.choice(self.members))

    def restart(self) -> None:
        member = self.rng.choice(self.members)
        member.member_id = self.new_name("c")
        member.claim = None

    def miss_the_rebalance(self) -> None:
        self.rng.choice(self.members).is_absent = True

    def subscribe_otherwise(self) -> None:
        chosen = self.members if self.has_equal_subscriptions else [self.rng.choice(self.members)]
        topics = self.some_topics()
        for member in chosen:
            member.topics = topics

    def add_topic(self) -> None:
        if len(self.partition_counts) < MAX_TOPICS:
            count = self.rng.randint(1, MAX_PARTITIONS)
            self.partition_counts[self.new_name("t")] = count

    def grow_a_topic(self) -> None:
        topic = self.rng.choice(sorted(self.partition_counts))
        self.partition_counts[topic] += self.rng.randint(1, 3)

    def lose_a_topic(self) -> None:
        if len(self.partition_counts) > 1:
            del self.partition_counts[self.rng.choice(sorted(self.partition_counts))]

    def shrink_a_topic(self) -> None:
        topic = self.rng.choice(sorted(self.partition_counts))
        self.partition_counts[topic] = self.rng.randint(0, self.partition_counts[topic])

    def claim_too_much(self) -> None:
        member = self.rng.choice(self.members)
        topics = [*self.partition_counts, "unknown"]
        others = [
            TopicPartition(self.rng.choice(topics), self.rng.randint(-1, MAX_PARTITIONS))
            for _ in range(self.rng.randint(1, 5))
        ]
        own = member.claim.partitions if member.claim is not None else ()
        generation_id = max(NO_GENERATION, self.generation_id - self.rng.randint(-1, 2))
        member.claim = Claim((*own, *others), generation_id)

    def write_nonsense(self) -> None:
        member = self.rng.choice(self.members)
        written = find_assignor("sticky").user_data(member.claim) or b""
        if self.rng.random() < 0.5:
            member.user_data = written[: self.rng.randint(0, len(written))]
        else:
            member.user_data = self.rng.randbytes(self.rng.randint(0, 40))

    def new_name(self, prefix: str) -> str:
        # Names must not sort by age, and their order must not be that of the members.
        self.names += 1
        return f"{prefix}{self.rng.randint(0, 99):02d}-{self.names}"

    def new_subscription(self) -> tuple[str, ...]:
        if self.has_equal_subscriptions and self.members:
            return self.members[0].topics
        return self.some_topics()

    def some_topics(self) -> tuple[str, ...]:
        topics = sorted(self.partition_counts)
        if self.has_equal_subscriptions and self.rng.random() < 0.5:
            return tuple(topics)
        return tuple(self.rng.sample(topics, self.rng.randint(1, len(topics))))

    # ---- a rebalance

    def subscriptions(self, assignor_name: str) -> list[MemberSubscription]:
        """Return what the members send, in an order of chance."""
        present = [member for member in self.members if not member.is_absent]
        self.rng.shuffle(present)
        return [subscribe(assignor_name, member) for member in present]

    def take(self, assignments: Assignments) -> None:
        """Give the members of the rebalance what they got."""
        self.generation_id += 1
        for member in self.members:
            if member.member_id in assignments:
                partitions = assignments[member.member_id].partitions
                member.claim = Claim(partitions, self.generation_id)
                member.is_absent = False
                member.user_data = None


def subscribe(assignor_name: str, member: Member) -> MemberSubscription:
    """Return a member's subscription as a client of today writes it."""
    claim = member.claim or Claim()
    user_data = find_assignor(assignor_name).user_data(member.claim)
    is_cooperative = assignor_name == "cooperative-sticky"
    subscription = Subscription(
        topics=member.topics,
        user_data=user_data if member.user_data is None else member.user_data,
        owned_partitions=claim.partitions if is_cooperative else (),
        generation_id=claim.generation_id,
    )
    return MemberSubscription(member.member_id, subscription, member.group_instance_id)


# ---- what holds for an assignment


def existing_partitions(
    partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
) -> set[TopicPartition]:
    """Return the partitions of all topics that somebody subscribes to."""
    topics = {topic for member in members for topic in member.subscription.topics}
    return {
        TopicPartition(topic, number)
        for topic in topics
        for number in range(partition_counts.get(topic, 0))
    }


def find_homes(
    members: Sequence[MemberSubscription], claims: Mapping[str, Claim]
) -> dict[TopicPartition, str]:
    """Return who may keep each partition: the only one who claims it with its newest generation."""
    homes: dict[TopicPartition, str] = {}
    for partition in {p for claim in claims.values() for p in claim.partitions}:
        generation_of = {
            member_id: claim.generation_id
            for member_id, claim in claims.items()
            if partition in claim.partitions
        }
        newest = max(generation_of.values())
        claimants = [member for member, number in generation_of.items() if number == newest]
        if len(claimants) == 1:
            homes[partition] = claimants[0]

    topics_of = {member.member_id: member.subscription.topics for member in members}
    return {p: member for p, member in homes.items() if p.topic in topics_of[member]}


def holders(assignments: Assignments) -> dict[TopicPartition, str]:
    """Return who gets each partition; no partition may have two holders."""
    counts = Counter(p for share in assignments.values() for p in share.partitions)
    assert max(counts.values(), default=1) == 1, counts
    return {p: member for member, share in assignments.items() for p in share.partitions}


def count_moved(assignments: Assignments, homes: Mapping[TopicPartition, str]) -> int:
    """Return how many partitions that are still there have left home."""
    holder_of = holders(assignments)
    return sum(1 for p, home in homes.items() if holder_of.get(p) != home)


def balance_score(assignments: Assignments) -> int:
    """Return the sum of the differences between the loads of all pairs of members."""
    loads = [len(share.partitions) for share in assignments.values()]
    return sum(abs(a - b) for i, a in enumerate(loads) for b in loads[:i])


def improving_moves(
    assignments: Assignments, members: Sequence[MemberSubscription]
) -> list[tuple[TopicPartition, str]]:
    """Return the moves of one partition that would bring two members closer together."""
    loads = {member: len(share.partitions) for member, share in assignments.items()}
    return [
        (partition, member.member_id)
        for partition, holder in holders(assignments).items()
        for member in members
        if partition.topic in member.subscription.topics
        and loads[holder] - loads[member.member_id] >= 2
    ]
