"""The verdict: what was promised against what is there. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs

from protocol.topic_partition import TopicPartition
from tests.chaos.ledger import Committed, Observed, Produced, read_value

EXAMPLES = 5


@attrs.frozen
class ProducerVerdict:
    """What became of one producer's records."""

    producer: str
    sent: int
    acknowledged: int
    stored: int
    lost: int
    misplaced: int
    duplicated: int
    renumbered: int
    out_of_order: int
    failed: int


@attrs.define(eq=False)
class Verdict:
    """`wrong` has a sentence for each thing that must not be."""

    producers: list[ProducerVerdict] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)

    def complain(self, what: str, cases: Sequence[object]) -> None:
        """A sentence with the number of cases and some of them, if there are any."""
        if cases:
            some = "; ".join(map(str, cases[:EXAMPLES]))
            self.wrong.append(f"{what}: {len(cases)}, {some}")


@attrs.frozen
class Commit:
    """An acknowledged commit of one partition. Times are the wall clock's, of one machine."""

    at_ms: int
    partition: TopicPartition
    offset: int


@attrs.frozen
class Start:
    """The first message that a member was given of a partition; the time is of its assignment."""

    member: str
    at_ms: int
    partition: TopicPartition
    offset: int


Stored = Mapping[TopicPartition, Mapping[int, bytes]]
"""Partition to offset to value, in the order of the offsets."""


def judge_producer(verdict: Verdict, produced: Produced, stored: Stored) -> None:
    """Nothing acknowledged is lost, moved or out of order; idempotent means once, unless its client
    spoilt it."""
    found: dict[TopicPartition, list[int]] = {
        at: _numbers(produced.producer, stored.get(at, {}).values()) for at in produced.sent
    }
    lost = [
        f"{at} {number}"
        for at, acknowledged in produced.acknowledged.items()
        for number in sorted(acknowledged.keys() - set(found[at]))
    ]
    misplaced = [
        f"{at} {number} acknowledged at {offset}"
        for at, acknowledged in produced.acknowledged.items()
        for number, offset in acknowledged.items()
        if offset >= 0 and not _is_at(produced.producer, number, stored[at].get(offset))
    ]
    twice = [
        f"{at} {number} x{times}"
        for at, numbers in found.items()
        for number, times in Counter(numbers).items()
        if times > 1
    ]
    disordered = [f"{at} {case}" for at, numbers in found.items() for case in disorder(numbers)]
    who = produced.producer
    verdict.complain(f"{who}: acknowledged and lost", lost)
    verdict.complain(f"{who}: not where it was acknowledged", misplaced)
    verdict.complain(f"{who}: out of order", disordered)
    verdict.complain(f"{who}: deliveries failed", produced.failed)
    if produced.is_idempotent and not produced.renumbered:
        verdict.complain(f"{who}: duplicated though idempotent", twice)
    verdict.producers.append(
        ProducerVerdict(
            who,
            sum(produced.sent.values()),
            produced.count,
            sum(map(len, found.values())),
            len(lost),
            len(misplaced),
            len(twice),
            produced.renumbered,
            len(disordered),
            len(produced.failed),
        )
    )


def _numbers(producer: str, values: Iterable[bytes]) -> list[int]:
    read = map(read_value, values)
    return [number for who, number in read if who == producer]


def _is_at(producer: str, number: int, value: bytes | None) -> bool:
    return value is not None and read_value(value) == (producer, number)


def disorder(numbers: Iterable[int]) -> list[str]:
    """Where a number comes for the first time behind a larger one."""
    cases, seen, largest = [], set[int](), -1
    for number in numbers:
        if number not in seen and number < largest:
            cases.append(f"{number} behind {largest}")
        seen.add(number)
        largest = max(largest, number)
    return cases


def judge_reader(verdict: Verdict, observed: Observed, stored: Stored) -> None:
    """What somebody has read stays what it was, where it was."""
    gone = [
        f"{at}@{offset} was {value!r}, is {stored.get(at, {}).get(offset)!r}"
        for at, values in observed.values.items()
        for offset, value in values.items()
        if stored.get(at, {}).get(offset) != value
    ]
    verdict.complain(f"{observed.who}: read what is not there", observed.changed + gone)


def judge_members(verdict: Verdict, who: str, observed: Sequence[Observed], stored: Stored) -> None:
    """The members together were handed out everything."""
    missed = [
        f"{at}@{offset}"
        for at, values in stored.items()
        for offset in values
        if not any(offset in each.values[at] for each in observed)
    ]
    verdict.complain(f"{who}: never handed out", missed)


def judge_starts(
    verdict: Verdict, who: str, starts: Sequence[Start], commits: Sequence[Commit]
) -> None:
    """Nobody begins behind a commit that was acknowledged before the partition was assigned."""
    committed: dict[TopicPartition, list[Commit]] = defaultdict(list)
    for commit in commits:
        committed[commit.partition].append(commit)

    behind = []
    for start in starts:
        before = [c.offset for c in committed[start.partition] if c.at_ms < start.at_ms]
        if start.offset < max(before, default=0):
            behind.append(
                f"{start.member} began {start.partition} at {start.offset}, "
                f"{max(before)} was committed"
            )
    verdict.complain(f"{who}: began behind a commit", behind)


def judge_offsets(verdict: Verdict, committed: Committed) -> None:
    """A committed offset goes forward, and no further than somebody has tried."""
    beyond = [
        f"{at}: {offset}, at most {committed.tried[at]} was tried"
        for at, offset in committed.confirmed.items()
        if at in committed.tried and offset > committed.tried[at]
    ]
    verdict.complain(f"{committed.who}: offsets went back", committed.gone_back)
    verdict.complain(f"{committed.who}: offsets nobody has committed", beyond)
