"""Small groups in few words: `assign("sticky", "t:3", member("c1", "t", "t-0 t-1"))`."""

from groups.assignors.assignor_table import find_assignor
from groups.assignors.claims import Claim
from protocol.topic_partition import TopicPartition
from tests.groups.assignors.histories import Member, subscribe


def member(
    member_id: str,
    topics: str,
    owned: str = "",
    *,
    generation_id: int = 1,
    group_instance_id: str | None = None,
    user_data: bytes | None = None,
) -> Member:
    """Return a member; it is new if it owns nothing."""
    claim = Claim(partitions(owned), generation_id) if owned else None
    return Member(member_id, tuple(topics.split()), group_instance_id, claim, user_data=user_data)


def assign(assignor_name: str, counts: str, *members: Member) -> dict[str, str]:
    """Return the share of each member, in words, in the assignor's order."""
    subscriptions = [subscribe(assignor_name, joined) for joined in members]
    assignments = find_assignor(assignor_name).assign(read_counts(counts), subscriptions)
    return {
        member_id: " ".join(map(str, share.partitions)) for member_id, share in assignments.items()
    }


def read_counts(words: str) -> dict[str, int]:
    """Read "a:3 b:4"."""
    pairs = [word.split(":") for word in words.split()]
    return {topic: int(count) for topic, count in pairs}


def partitions(words: str) -> tuple[TopicPartition, ...]:
    """Read "t-0 t-2"."""
    pairs = [word.rsplit("-", 1) for word in words.split()]
    return tuple(TopicPartition(topic, int(number)) for topic, number in pairs)


def loads(shares: dict[str, str]) -> dict[str, int]:
    """Return how many partitions each member got."""
    return {member_id: len(share.split()) for member_id, share in shares.items()}
