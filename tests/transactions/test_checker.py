"""The checker finds each anomaly by its name, and nothing in a history that is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.topic_partition import TopicPartition
from tests.transactions import checker
from tests.transactions.checker import judge, names
from tests.transactions.history import Attempt, History, Outcome, Reading, value_of

COMMITTED = Outcome.COMMITTED
A, B, IN = TopicPartition("out", 0), TopicPartition("out", 1), TopicPartition("in", 0)


def transfer(history: History, offset: int, outcome: Outcome = COMMITTED) -> Attempt:
    """One unit from A to B, both at `offset`, for the input at that offset."""
    committed = [one.number for one in history.attempts.values() if one.outcome is COMMITTED]
    attempt = history.begin("p0", saw=committed[-1:])
    attempt.outcome = outcome
    for place, (partition, amount) in enumerate(((A, -1), (B, 1))):
        value = value_of(attempt.number, place, amount)
        attempt.writes[value] = partition, offset
        history.everything.setdefault(partition, {})[offset] = value
        if outcome is COMMITTED:
            history.committed.setdefault(partition, {})[offset] = value
    attempt.inputs.append((IN, offset))
    attempt.offsets[IN] = offset + 1
    return attempt


@pytest.fixture
def history() -> History:
    """Four transactions, the second aborted and done again; a reader; offsets."""
    history = History()
    writer = history.begin("source")
    writer.outcome = COMMITTED
    for offset in range(3):
        value = value_of(writer.number, offset)
        writer.writes[value] = IN, offset
        history.committed.setdefault(IN, {})[offset] = value

    transfer(history, 0)
    aborted = transfer(history, 1, Outcome.ABORTED)
    aborted.inputs = [(IN, 1)]
    for offset in (2, 3):
        again = transfer(history, offset)
        again.inputs = [(IN, offset - 1)]
        again.offsets = {IN: offset}
    for partition in (A, B):
        reading = history.read("r0", partition)
        reading.rows = list(history.committed[partition].items())
        reading.position = 4
    history.observed = [{IN: 0}, {IN: 1}, {IN: 3}]
    history.stable = [(A, 1, 2), (A, 2, 4), (A, 1, 3)]  # the last one by a leader of before
    return history


def reading_of(history: History, partition: TopicPartition) -> Reading:
    (reading,) = [reading for reading in history.readings if reading.partition == partition]
    return reading


def read_aborted(history: History) -> None:
    reading_of(history, A).rows.append((1, history.everything[A][1]))


def commit_aborted(history: History) -> None:
    for partition in (A, B):
        history.committed[partition][1] = history.everything[partition][1]
        reading_of(history, partition).position = 1


def lose(history: History) -> None:
    for partition in (A, B):
        del history.committed[partition][3]
    history.observed[-1] = {IN: 2}
    history.attempts[4].offsets = {}


def move(history: History) -> None:
    for partition in (A, B):
        rows = history.committed[partition]
        rows[4] = rows.pop(3)


def duplicate(history: History) -> None:
    for partition in (A, B):
        history.committed[partition][4] = history.committed[partition][3]


def process_twice(history: History) -> None:
    history.attempts[4].inputs.append((IN, 1))


def skip(history: History) -> None:
    history.attempts[3].inputs.clear()


def miss(history: History) -> None:
    del reading_of(history, A).rows[0]


def read_a_part(history: History) -> None:
    attempt = history.attempts[4]
    value = value_of(attempt.number, 2)
    attempt.writes[value] = A, 4
    history.committed[A][4] = value
    reading_of(history, A).position = 5


def tear(history: History) -> None:
    history.attempts[4].outcome = Outcome.UNKNOWN
    del history.committed[B][3]


def reorder(history: History) -> None:
    for partition in (A, B):
        rows = history.committed[partition]
        rows[2], rows[3] = rows[3], rows[2]
        reading_of(history, partition).rows = list(rows.items())
        for value, (where, _) in list(history.attempts[3].writes.items()):
            history.attempts[3].writes[value] = where, 3
        for value, (where, _) in list(history.attempts[4].writes.items()):
            history.attempts[4].writes[value] = where, 2
        history.everything.clear()


def say_another(history: History) -> None:
    other = history.read("r1", A, is_committed=False)
    other.rows = [(0, value_of(2, 0))]


def go_back(history: History) -> None:
    history.observed.insert(2, {IN: 0})


def take_back_what_is_stable(history: History) -> None:
    history.stable.append((A, 2, 3))


def stop_short(history: History) -> None:
    history.observed[-1] = {IN: 2}


def leave_over(history: History) -> None:
    attempt = history.attempts[4]
    (value,) = [value for value, (where, _) in attempt.writes.items() if where == B]
    where = attempt.writes.pop(value)
    attempt.writes[value_of(4, 1, 2)] = where
    history.committed[B][3] = value_of(4, 1, 2)
    history.everything.clear()
    reading_of(history, B).rows[-1] = (3, value_of(4, 1, 2))


def see_each_other(history: History) -> None:
    history.attempts[1].saw.add(4)


def get_stuck(history: History) -> None:
    history.stuck.append("r0 stands at 3 of out-0")


ANOMALIES: list[tuple[str, Callable[[History], None]]] = [
    (checker.ABORTED_READ, read_aborted),
    (checker.ABORTED_READ, commit_aborted),
    (checker.LOST_WRITE, lose),
    (checker.LOST_WRITE, move),
    (checker.DUPLICATED_WRITE, duplicate),
    (checker.PROCESSED_TWICE, process_twice),
    (checker.SKIPPED_INPUT, skip),
    (checker.MISSED_READ, miss),
    (checker.INTERMEDIATE_READ, read_a_part),
    (checker.TORN, tear),
    (checker.REORDERED, reorder),
    (checker.TWO_VALUES, say_another),
    (checker.OFFSETS_BACK, go_back),
    (checker.STABLE_BACK, take_back_what_is_stable),
    (checker.WRONG_OFFSETS, stop_short),
    (checker.WRONG_SUM, leave_over),
    (checker.CIRCULAR_FLOW, see_each_other),
    (checker.STUCK, get_stuck),
]


def test_nothing_is_found_in_a_history_that_is_well(history: History) -> None:
    assert list(map(str, judge(history))) == []


@pytest.mark.parametrize(
    ("name", "spoil"), ANOMALIES, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_anomaly_is_found(
    history: History, name: str, spoil: Callable[[History], None]
) -> None:
    spoil(history)
    assert name in names(judge(history))


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        (checker.STUCK, get_stuck),
        (checker.STABLE_BACK, take_back_what_is_stable),
        (checker.CIRCULAR_FLOW, see_each_other),
        (checker.TWO_VALUES, say_another),
        (checker.MISSED_READ, miss),
    ],
)
def test_it_is_found_alone(history: History, name: str, spoil: Callable[[History], None]) -> None:
    spoil(history)
    assert names(judge(history)) == [name]


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_unknown_may_be_there_or_not(history: History, is_there: bool) -> None:
    attempt = history.attempts[4]
    attempt.outcome = Outcome.UNKNOWN
    if not is_there:
        for partition in (A, B):
            del history.committed[partition][3]
            del reading_of(history, partition).rows[-1]
        history.observed[-1] = {IN: 2}
    assert list(map(str, judge(history))) == []
