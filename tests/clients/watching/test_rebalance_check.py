"""The check that a group has rebalanced, from one reading of it."""

from clients.watching.rebalance_check import find_badly_owned
from groups.zookeeper.events import GroupSnapshot, Owner
from groups.zookeeper.registration import StaticSubscription
from protocol.topic_partition import TopicPartition

A, B = "g_a", "g_A"
SNAPSHOT = GroupSnapshot(
    members={A: StaticSubscription({"t": 2}), B: StaticSubscription({"u": 1})},
    all_topics=(),
    partitions={"t": (0, 1), "u": (0,)},
)
WHOLE = {
    TopicPartition("t", 0): f"{A}-0",
    TopicPartition("t", 1): f"{A}-1",
    TopicPartition("u", 0): f"{B}-0",
}


def problems(**changed: str | None) -> list[tuple[str, int, str | None, str]]:
    """Return the problems of a whole group with changes, such as `t1="thread"`."""
    threads = {**WHOLE, **{TopicPartition(n[0], int(n[1:])): o for n, o in changed.items()}}
    owners = {p: Owner(thread, 0, 1) for p, thread in threads.items() if thread is not None}
    items = find_badly_owned(SNAPSHOT, owners)
    return [(i["topic"], i["partition"], i["owner"], i["problem"]) for i in items]


def test_every_partition_owned_by_a_registered_stream_is_no_problem() -> None:
    assert problems() == []


def test_a_partition_without_owner_is_named() -> None:
    assert problems(t1=None) == [("t", 1, None, "no owner")]


def test_an_owner_that_left_or_has_no_such_stream_is_named() -> None:
    assert problems(t0="g_gone-0") == [("t", 0, "g_gone-0", "owner is not registered")]
    assert problems(t0=f"{A}-2") == [("t", 0, f"{A}-2", "owner is not registered")]


def test_an_owner_whose_id_differs_in_case_is_another_member() -> None:
    problem = "owner does not consume this topic"
    assert problems(t0=f"{B}-0") == [("t", 0, f"{B}-0", problem)]


def test_owners_of_what_nobody_consumes_do_not_matter() -> None:
    assert problems(v0="g_gone-0") == []
