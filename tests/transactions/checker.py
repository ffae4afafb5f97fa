"""The judge of transactions: what was promised against what was read. Pure.

Names of findings are those of Adya's isolation levels, as tests of other systems use them (G1a,
G1b, G1c). Writes of transactions that are interleaved in a log (G0) are normal in Kafka. A commit
whose response was lost is unknown: it may be there or not, but whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import attrs

from protocol.topic_partition import TopicPartition
from tests.transactions.history import Attempt, History, Outcome, Reading, read_value

EXAMPLES = 5

ABORTED_READ = "aborted read (G1a)"
INTERMEDIATE_READ = "intermediate read (G1b)"
CIRCULAR_FLOW = "circular information flow (G1c)"
TORN = "torn transaction"
LOST_WRITE = "lost write"
DUPLICATED_WRITE = "duplicated write"
PROCESSED_TWICE = "input processed twice"
SKIPPED_INPUT = "input skipped"
MISSED_READ = "missed read"
REORDERED = "writes of one producer out of order"
TWO_VALUES = "one offset with two values"
OFFSETS_BACK = "committed offsets went back"
STABLE_BACK = "last stable offset went back"
WRONG_OFFSETS = "committed offsets are not what was processed"
WRONG_SUM = "amounts do not add up"
STUCK = "stuck reader"


@attrs.frozen
class Finding:
    """Something that must not be, with cases."""

    name: str
    cases: list[str]

    def __str__(self) -> str:
        return f"{self.name}: {len(self.cases)}, {'; '.join(self.cases[:EXAMPLES])}"


def judge(history: History) -> list[Finding]:
    """Return all findings; none if every promise was kept."""
    found = {
        ABORTED_READ: _aborted_reads(history),
        INTERMEDIATE_READ: _intermediate_reads(history),
        CIRCULAR_FLOW: _circles(history),
        TORN: _torn(history),
        LOST_WRITE: _lost(history),
        DUPLICATED_WRITE: _duplicated(history),
        PROCESSED_TWICE: _processed_twice(history),
        SKIPPED_INPUT: _skipped_inputs(history),
        MISSED_READ: _missed_reads(history),
        REORDERED: _reordered(history),
        TWO_VALUES: _two_values(history),
        OFFSETS_BACK: _offsets_back(history),
        STABLE_BACK: _stable_back(history),
        WRONG_OFFSETS: _wrong_offsets(history),
        WRONG_SUM: _wrong_sums(history),
        STUCK: iter(history.stuck),
    }
    return [Finding(name, cases) for name, some in found.items() if (cases := list(some))]


# ---- what was read


def _committed_readings(history: History) -> Iterator[Reading]:
    return (reading for reading in history.readings if reading.is_committed)


def _aborted_reads(history: History) -> Iterator[str]:
    """Go through values of aborted transactions that a reader of committed data saw."""
    for reading in _committed_readings(history):
        for offset, value in reading.rows:
            if _attempt_of(history, value).outcome is Outcome.ABORTED:
                yield f"{reading.reader} read {_text(value)} at {reading.partition} {offset}"
    for partition, rows in history.committed.items():
        for offset, value in rows.items():
            if _attempt_of(history, value).outcome is Outcome.ABORTED:
                yield f"{_text(value)} is committed at {partition} {offset}"


def _missed(history: History) -> Iterator[tuple[Reading, int, bytes, bool]]:
    """Go through what a reader passed and did not read, though it is committed.

    With it comes whether the reader read another value of the same transaction there.
    """
    for reading in _committed_readings(history):
        read = dict(reading.rows)
        read_attempts = {read_value(value)[0] for value in read.values()}
        for offset, value in history.committed.get(reading.partition, {}).items():
            if offset < reading.position and offset not in read:
                yield reading, offset, value, read_value(value)[0] in read_attempts


def _intermediate_reads(history: History) -> Iterator[str]:
    for reading, offset, value, is_part in _missed(history):
        if is_part:
            yield f"{reading.reader} read a part without {_text(value)} at {offset}"


def _missed_reads(history: History) -> Iterator[str]:
    for reading, offset, value, is_part in _missed(history):
        if not is_part:
            yield f"{reading.reader} passed {_text(value)} at {reading.partition} {offset}"


def _two_values(history: History) -> Iterator[str]:
    """Go through offsets at which different values were seen, by whomever."""
    seen: dict[tuple[TopicPartition, int], bytes] = {}
    for partition, offset, value in _all_rows(history):
        first = seen.setdefault((partition, offset), value)
        if first != value:
            yield f"{partition} {offset}: {_text(first)} and {_text(value)}"


def _all_rows(history: History) -> Iterator[tuple[TopicPartition, int, bytes]]:
    for reading in history.readings:
        for offset, value in reading.rows:
            yield reading.partition, offset, value
    for partitions in (history.committed, history.everything):
        for partition, rows in partitions.items():
            for offset, value in rows.items():
                yield partition, offset, value


# ---- what is there at the end


def _visible(history: History) -> Mapping[int, set[bytes]]:
    """Return the committed values of each attempt."""
    visible: dict[int, set[bytes]] = defaultdict(set)
    for rows in history.committed.values():
        for value in rows.values():
            visible[read_value(value)[0]].add(value)
    return visible


def _torn(history: History) -> Iterator[str]:
    visible = _visible(history)
    for attempt in history.attempts.values():
        seen = len(visible.get(attempt.number, ()))
        if 0 < seen < len(attempt.writes):
            yield f"{_name(attempt)}: {seen} of {len(attempt.writes)} values are committed"


def _lost(history: History) -> Iterator[str]:
    """Go through values of committed transactions that are not there, or not where they were."""
    visible = _visible(history)
    for attempt in history.attempts.values():
        if attempt.outcome is not Outcome.COMMITTED:
            continue
        for value, (partition, offset) in attempt.writes.items():
            if value not in visible.get(attempt.number, ()):
                yield f"{_name(attempt)}: {_text(value)} is not in {partition}"
            elif offset >= 0 and history.committed[partition].get(offset) != value:
                yield f"{_name(attempt)}: {_text(value)} is not at {partition} {offset}"


def _duplicated(history: History) -> Iterator[str]:
    counts = Counter(value for rows in history.committed.values() for value in rows.values())
    for value, number in counts.items():
        if number > 1:
            yield f"{_text(value)} is there {number} times"


def _reordered(history: History) -> Iterator[str]:
    for partition, rows in history.committed.items():
        last: dict[str, tuple[int, int]] = {}
        for offset in sorted(rows):
            number, place, _ = read_value(rows[offset])
            producer = history.attempts[number].producer
            if (number, place) < last.get(producer, (-1, -1)):
                yield f"{producer} wrote {number}/{place} before {last[producer]} in {partition}"
            last[producer] = number, place


def _wrong_sums(history: History) -> Iterator[str]:
    for number, values in _visible(history).items():
        total = sum(read_value(value)[2] for value in values)
        is_whole = len(values) == len(history.attempts[number].writes)
        if total and is_whole:
            yield f"{_name(history.attempts[number])}: {total} is left over"
    total = sum(
        read_value(value)[2] for rows in history.committed.values() for value in rows.values()
    )
    if total:
        yield f"all of it: {total} is left over"


# ---- what was processed


def _took_effect(history: History, attempt: Attempt, visible: Mapping[int, set[bytes]]) -> bool:
    """Return whether an attempt is committed, by what is there if nobody was told."""
    if attempt.outcome is Outcome.UNKNOWN:
        return bool(visible.get(attempt.number))
    return attempt.outcome is Outcome.COMMITTED


def _processors(history: History) -> Mapping[tuple[TopicPartition, int], list[Attempt]]:
    visible = _visible(history)
    by_input: dict[tuple[TopicPartition, int], list[Attempt]] = defaultdict(list)
    for attempt in history.attempts.values():
        if _took_effect(history, attempt, visible):
            for processed in attempt.inputs:
                by_input[processed].append(attempt)
    return by_input


def _processed_twice(history: History) -> Iterator[str]:
    for (partition, offset), attempts in _processors(history).items():
        if len(attempts) > 1:
            yield f"{partition} {offset} by {', '.join(map(_name, attempts))}"


def _skipped_inputs(history: History) -> Iterator[str]:
    """Go through inputs below the offset that was processed last, which nobody processed."""
    processed = _processors(history)
    last: dict[TopicPartition, int] = {}
    for partition, offset in processed:
        last[partition] = max(last.get(partition, -1), offset)
    for partition, end in last.items():
        for offset in history.committed.get(partition, {}):
            if offset <= end and (partition, offset) not in processed:
                yield f"{partition} {offset}"


def _offsets_back(history: History) -> Iterator[str]:
    last: dict[TopicPartition, int] = {}
    for offsets in history.observed:
        for partition, offset in offsets.items():
            if offset < last.get(partition, -1):
                yield f"{partition}: {offset} after {last[partition]}"
            last[partition] = offset


def _stable_back(history: History) -> Iterator[str]:
    """Go through last stable offsets that a leader took back, or its successor.

    A leader that was replaced and has not heard of it tells what it knows.
    """
    last: dict[TopicPartition, tuple[int, int]] = {}
    for partition, epoch, offset in history.stable:
        last_epoch, last_offset = last.get(partition, (-1, -1))
        if epoch < last_epoch:
            continue
        if offset < last_offset:
            yield f"{partition}: {offset} in epoch {epoch} after {last_offset} in {last_epoch}"
        last[partition] = epoch, offset


def _wrong_offsets(history: History) -> Iterator[str]:
    """Go through partitions whose last committed offset is not that of the last transaction."""
    visible = _visible(history)
    expected: dict[TopicPartition, int] = {}
    for attempt in history.attempts.values():
        if _took_effect(history, attempt, visible):
            for partition, offset in attempt.offsets.items():
                expected[partition] = max(expected.get(partition, -1), offset)

    found = history.observed[-1] if history.observed else {}
    for partition, offset in expected.items():
        if found.get(partition) != offset:
            yield f"{partition}: {found.get(partition)} instead of {offset}"


# ---- who saw whom


def _circles(history: History) -> Iterator[str]:
    """Name transactions that saw each other in a circle, if there is one."""
    visible = _visible(history)
    committed = {
        attempt.number: attempt
        for attempt in history.attempts.values()
        if _took_effect(history, attempt, visible)
    }
    saw = {number: attempt.saw & committed.keys() for number, attempt in committed.items()}
    try:
        TopologicalSorter(saw).prepare()
    except CycleError as error:
        _, circle = error.args
        yield " was seen by ".join(_name(committed[number]) for number in circle)


# ---- texts


def _attempt_of(history: History, value: bytes) -> Attempt:
    return history.attempts[read_value(value)[0]]


def _name(attempt: Attempt) -> str:
    return f"transaction {attempt.number} of {attempt.producer} ({attempt.outcome.value})"


def _text(value: bytes) -> str:
    return value.decode()


def names(findings: Iterable[Finding]) -> list[str]:
    """Return the names of findings."""
    return [finding.name for finding in findings]
