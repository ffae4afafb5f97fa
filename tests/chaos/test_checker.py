"""The checker notices what it is there for."""

import re

import pytest

from protocol.topic_partition import TopicPartition
from tests.chaos.checker import (
    Commit,
    Start,
    Verdict,
    disorder,
    judge_members,
    judge_offsets,
    judge_producer,
    judge_reader,
    judge_starts,
)
from tests.chaos.ledger import Committed, Observed, Produced, value_of

AT = TopicPartition("t", 0)


def acknowledged(*numbers: int, is_idempotent: bool = True) -> Produced:
    """A producer that was told that each number is at the offset of its place."""
    produced = Produced("p", is_idempotent)
    produced.sent[AT] = max(numbers, default=-1) + 1
    for offset, number in enumerate(numbers):
        produced.enter(AT, number, offset, 0.0)
    return produced


def stored(*numbers: int) -> dict[TopicPartition, dict[int, bytes]]:
    return {AT: {offset: value_of("p", number) for offset, number in enumerate(numbers)}}


def wrong_with(produced: Produced, *numbers: int) -> list[str]:
    """What is complained of when these numbers are stored, without the cases."""
    verdict = Verdict()
    judge_producer(verdict, produced, stored(*numbers))
    return [re.sub(r"p: (.*): .*", r"\1", sentence) for sentence in verdict.wrong]


def test_what_is_stored_as_it_was_acknowledged_is_well() -> None:
    assert wrong_with(acknowledged(0, 1, 2), 0, 1, 2) == []


def test_what_was_never_acknowledged_may_be_there_or_not() -> None:
    produced = acknowledged(0, 1)
    produced.sent[AT] = 9
    assert wrong_with(produced, 0, 1, 2, 5) == []


def test_a_record_that_is_gone_from_the_end_is_lost() -> None:
    assert wrong_with(acknowledged(0, 1, 2), 0, 1) == [
        "acknowledged and lost",
        "not where it was acknowledged",
    ]


def test_two_records_that_changed_places_are_out_of_order() -> None:
    assert wrong_with(acknowledged(0, 2, 1), 0, 2, 1) == ["out of order"]


def test_a_record_that_is_there_twice_is_wrong_of_an_idempotent_producer_alone() -> None:
    assert wrong_with(acknowledged(0, 1, is_idempotent=True), 0, 1, 1) == [
        "duplicated though idempotent"
    ]
    assert wrong_with(acknowledged(0, 1, is_idempotent=False), 0, 1, 1) == []


def test_a_client_that_left_numbers_out_makes_its_duplicates_itself_and_nothing_else() -> None:
    produced = acknowledged(0, 1)
    produced.renumbered = 1
    assert wrong_with(produced, 0, 1, 1) == []
    assert wrong_with(produced, 0, 0) == ["acknowledged and lost", "not where it was acknowledged"]


def test_a_delivery_that_fails_is_wrong() -> None:
    produced = acknowledged(0)
    produced.failed.append("refused")
    assert wrong_with(produced, 0) == ["deliveries failed"]


@pytest.mark.parametrize(
    ("numbers", "cases"),
    [
        ([], []),
        ([1, 3, 7], []),
        ([1, 2, 1, 2, 3], []),
        ([1, 3, 2], ["2 behind 3"]),
        ([2, 1, 2, 1], ["1 behind 2"]),
    ],
)
def test_only_what_comes_for_the_first_time_can_be_out_of_order(
    numbers: list[int], cases: list[str]
) -> None:
    assert disorder(numbers) == cases


def test_what_was_read_and_is_another_now_is_wrong() -> None:
    observed = Observed("reader")
    observed.enter(AT, 0, value_of("p", 0))
    observed.enter(AT, 1, value_of("p", 1))
    verdict = Verdict()
    judge_reader(verdict, observed, stored(0, 2))
    assert verdict.wrong == ["reader: read what is not there: 1, t-0@1 was b'p:1', is b'p:2'"]


def test_an_offset_that_was_read_twice_and_differently_is_wrong() -> None:
    observed = Observed("reader")
    observed.enter(AT, 0, b"p:1")
    observed.enter(AT, 0, b"p:0")
    assert len(observed.changed) == 1


def test_what_no_member_was_handed_is_missed() -> None:
    one, other = Observed("one"), Observed("other")
    one.enter(AT, 0, b"p:0")
    other.enter(AT, 2, b"p:2")
    verdict = Verdict()
    judge_members(verdict, "members", [one, other], stored(0, 1, 2))
    assert verdict.wrong == ["members: never handed out: 1, t-0@1"]


def test_an_offset_below_one_that_was_confirmed_before_went_back() -> None:
    committed = Committed("c")
    committed.tried[AT] = 7
    committed.confirm(AT, 5)
    committed.read(AT, 6, at_least=5)
    committed.read(AT, 5, at_least=6)
    verdict = Verdict()
    judge_offsets(verdict, committed)
    assert verdict.wrong == ["c: offsets went back: 1, c t-0: 5, was 6 before"]


def test_an_offset_that_nobody_has_tried_to_commit_is_wrong() -> None:
    committed = Committed("c")
    committed.tried[AT] = 7
    committed.read(AT, 8, at_least=-1)
    verdict = Verdict()
    judge_offsets(verdict, committed)
    assert len(verdict.wrong) == 1


@pytest.mark.parametrize(
    ("offset", "assigned_ms", "is_behind"),
    [(7, 200, False), (6, 200, True), (3, 150, False), (0, 100, False), (2, 101, True)],
)
def test_member_begins_behind_no_commit_that_came_before_it(
    offset: int, assigned_ms: int, is_behind: bool
) -> None:
    verdict = Verdict()
    commits = [Commit(100, AT, 3), Commit(150, AT, 7), Commit(160, TopicPartition("t", 1), 99)]
    judge_starts(verdict, "g", [Start("m", assigned_ms, AT, offset)], commits)
    assert bool(verdict.wrong) == is_behind
