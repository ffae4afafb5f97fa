"""Evidence: what looks at two stores prove, and what they cannot."""

from collections.abc import Iterable

from offsets.migration_evidence import STUCK_MS, Evidence
from protocol.topic_partition import TopicPartition

P = TopicPartition("t", 0)
LOOK_MS = 250

Look = tuple[int | None, int | None]


def after(looks: Iterable[Look], owner: str = "g_a", evidence: Evidence | None = None) -> Evidence:
    """Return the evidence after looks (ZooKeeper, Kafka), LOOK_MS apart."""
    now_ms = 0 if evidence is None else 100_000
    evidence = evidence or Evidence(0)
    for zookeeper, kafka in looks:
        stores = [{} if offset is None else {P: offset} for offset in (zookeeper, kafka)]
        evidence = evidence.with_look(*stores, {P: owner}, {P}, now_ms)
        now_ms += LOOK_MS
    return evidence


def reason(evidence: Evidence, looks: int, commits: int = 3) -> str | None:
    """Return why the partition lacks proof over all the looks; None if it does not."""
    now_ms = (looks - 1) * LOOK_MS
    return evidence.find_unproven(commits, 0, now_ms).get(P)


def test_a_partition_that_stays_equal_needs_no_commits() -> None:
    assert reason(after([(5, 5)] * 9), 9) is None


def test_one_without_offsets_anywhere_is_equal() -> None:
    assert reason(after([(None, None)] * 9), 9) is None


def test_commits_seen_in_both_at_once_count() -> None:
    looks = [(5, 5), (6, 6), (7, 7), (7, 7), (8, 8)]
    assert reason(after(looks), 5) is None
    assert reason(after(looks), 5, commits=4) == "3 of 4 commits seen in both"


def test_commits_seen_in_one_after_the_other_count() -> None:
    assert reason(after([(5, 5), (5, 6), (6, 7), (7, 8), (8, 9)]), 5) is None


def test_a_writer_of_zookeeper_alone_proves_nothing() -> None:
    looks = [(5 + i, 5) for i in range(40)]
    assert reason(after(looks), 40) == "different"
    assert after(looks).proven_members(1) == set()


def test_a_writer_of_kafka_alone_proves_nothing() -> None:
    looks = [(5, 5 + i) for i in range(40)]
    assert reason(after(looks), 40) == "different"
    assert after(looks).proven_members(1) == set()


def test_a_difference_that_stays_is_stuck_and_takes_back_what_was_proven() -> None:
    stuck = STUCK_MS // LOOK_MS + 1
    looks = [(5, 5), (6, 6), (7, 7), (8, 8), *[(8, 9)] * stuck]
    evidence = after(looks)
    assert evidence.find_stuck((len(looks) - 1) * LOOK_MS) == {P}
    assert reason(evidence, len(looks)) == "different"
    assert after([*looks, (9, 9)]).find_unproven(0, 0, len(looks) * LOOK_MS) == {
        P: "in step only since a moment"
    }


def test_a_commit_on_its_way_at_the_last_look_is_no_difference() -> None:
    assert reason(after([(5, 5), (6, 6), (7, 7), (8, 8), (8, 9)]), 5) is None


def test_an_offset_that_one_store_lacks_is_a_difference() -> None:
    assert reason(after([(5, None)]), 1) == "different"


def test_a_member_is_proven_by_the_commits_of_what_it_owns() -> None:
    moving = [(5 + i, 5 + i) for i in range(4)]
    assert after(moving, "g_jvm").proven_members(3) == {"g_jvm"}
    assert after(moving, "g_jvm").proven_members(4) == set()


def test_commits_of_a_former_owner_prove_nothing_of_the_next() -> None:
    before = after([(5 + i, 5 + i) for i in range(4)], "g_jvm")
    assert after([(8, 8), (9, 9)], "g_other", before).proven_members(2) == set()


def test_what_was_copied_is_no_commit() -> None:
    copied = after([(5, 3)]).without({P})
    assert after([(5, 5)], evidence=copied).partitions[P].commits == 0


def test_after_a_rewind_commits_count_anew() -> None:
    assert reason(after([(90, 90), (10, 10), (11, 11), (12, 12)]), 4) is None


def commits_seen(gap_ms: int) -> int:
    """Count the commits seen: one a second, a look every 300 ms, and `gap_ms` between its reads."""
    evidence = Evidence(0)
    now_ms = 0
    while now_ms < 70_000:
        kafka, zookeeper = ({P: 1000 + at_ms // 1000} for at_ms in (now_ms, now_ms + gap_ms))
        evidence = evidence.with_look(zookeeper, kafka, {P: "g_a"}, {P}, now_ms + gap_ms)
        now_ms += 300 + gap_ms
    return evidence.partitions[P].commits


def test_commits_are_seen_in_both_stores_while_these_are_read_close_together() -> None:
    """`GroupReader` ensures that this holds for thousands of partitions."""
    assert commits_seen(gap_ms=50) >= 50
    assert commits_seen(gap_ms=400) >= 3
