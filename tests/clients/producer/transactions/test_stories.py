"""Random stories of a producer's decisions and a coordinator, without I/O: both in one loop.

Requests are lost on the way there or back, and refused; batches fail. Whatever happens, a
transaction counts as a whole or not at all, as the producer has been told, and every end comes.
"""

import random
from collections import Counter
from typing import Any

import attrs
import pytest

from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.transactions import effects as do
from clients.producer.transactions import events as on
from clients.producer.transactions.decide import decide
from clients.producer.transactions.requests import (
    CommitOffsets,
    Identity,
    Initialize,
    Request,
    encode,
    read_codes,
)
from clients.producer.transactions.state import Phase, Transaction
from protocol.api import key_of
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.producer.transactions.coordinating_broker import CoordinatingBroker

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
PASSING = [
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
]
STEPS = 300
PATIENCE = 1000


@attrs.define(eq=False)
class Story:
    """One producer, one coordinator, and what the application has seen."""

    seed: int
    rng: random.Random = attrs.field(init=False)
    broker: CoordinatingBroker = attrs.field(factory=CoordinatingBroker)
    transaction: Transaction = attrs.field(factory=lambda: Transaction(Identity("x"), 60_000, 100))
    has_faults: bool = True
    is_fenced: bool = False

    # ---- what is to be performed next: a request, or the end of a pause
    work: do.Send | do.Pause | do.Gather | None = None
    queued: dict[TopicPartition, list[bytes]] = attrs.field(factory=dict)

    # ---- the application
    number: int = 0
    sent: list[tuple[TopicPartition, bytes]] = attrs.field(factory=list)
    is_committing: bool = False
    committed: Counter[tuple[TopicPartition, bytes]] = attrs.field(factory=Counter)
    in_doubt: list[tuple[TopicPartition, bytes]] = attrs.field(factory=list)
    ends: Counter[str] = attrs.field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def handle(self, event: on.Event) -> None:
        for effect in decide(self.transaction, event):
            match effect:
                case do.Send() | do.Pause() | do.Gather():
                    assert self.work is None, "one at a time"
                    self.work = effect
                case do.Ended():
                    if self.is_committing:
                        self.committed.update(self.sent)
                    self.ends["commit" if self.is_committing else "abort"] += 1
                    self.is_committing = False
                case do.Fail():
                    self.queued.clear()
                    if effect.failure.transaction_in_doubt:
                        self.in_doubt = self.sent
                        self.ends["in doubt"] += 1
                    self.is_committing = False

    # ---- steps

    def perform(self) -> None:
        """Perform the work that was decided, perhaps with a fault."""
        work, self.work = self.work, None
        if isinstance(work, do.Send):
            self.handle(self.respond(work.request))
        elif work is not None:
            self.handle(on.PauseOver())

    def respond(self, request: Request) -> on.Event:
        fates = ["unsent", "refused", "lost", "answer lost", *["fine"] * 8]
        fate = self.rng.choice(fates) if self.has_faults else "fine"
        if fate == "unsent":
            return on.NotSent(request)

        lost = on.Responded(request, {None: ErrorCode.NETWORK_EXCEPTION})
        wire = encode(request, self.transaction.identity)
        if fate == "lost":
            return lost
        if fate == "refused":
            self.broker.refusals[key_of(wire)] = [self.rng.choice(PASSING)]
        response = self.broker.answers[key_of(wire)](wire)
        if fate == "answer lost":
            return lost

        codes = read_codes(request, response)
        ids: dict[str, Any] = {}
        if isinstance(request, Initialize):
            ids = {
                "producer_id": response.producer_id,
                "producer_epoch": response.producer_epoch,
                "can_renew": True,
            }
        return on.Responded(request, codes, **ids)

    def send_batch(self) -> None:
        """Write the batches of a partition, as the sender does for those that are added."""
        partition = self.rng.choice(sorted(self.queued))
        if partition not in self.transaction.added or self.transaction.drops_batches:
            return
        values = self.queued.pop(partition)
        is_current = self.transaction.identity.producer_epoch == self.broker.epoch
        assert partition in self.broker.partitions or not is_current, "not added"

        fate = self.rng.random() if self.has_faults else 1.0
        is_written = is_current and (fate >= 0.05 or self.rng.random() < 0.5)
        if is_written:
            self.broker.written[partition] += values
        if not is_current:
            self.handle(on.BatchFailed("t", ErrorCode.INVALID_PRODUCER_EPOCH, True))
        elif fate < 0.05:
            self.handle(on.BatchFailed("t", ErrorCode.NETWORK_EXCEPTION, True))

    def act(self) -> None:
        """Do what the application may do in this phase."""
        phase = self.transaction.phase
        if phase is Phase.UNINITIALIZED:
            self.handle(on.InitializeAsked())
        elif phase is Phase.READY:
            self.number += 1
            self.sent = []
            self.handle(on.BeginAsked())
        elif phase is Phase.MUST_ABORT:
            self.handle(on.EndAsked(commit=False))
        elif phase is Phase.OPEN:
            self.rng.choice(
                [self.send, self.send, self.send, self.send_offsets, self.end, self.end]
            )()

    def send(self) -> None:
        partition = self.rng.choice(PARTITIONS)
        value = b"%d" % self.number
        self.sent.append((partition, value))
        self.queued.setdefault(partition, []).append(value)

    def send_offsets(self) -> None:
        offsets = {self.rng.choice(PARTITIONS): OffsetAndMetadata(self.number)}
        self.handle(on.OffsetsAsked(CommitOffsets(ConsumerGroupMetadata("g"), offsets)))

    def end(self) -> None:
        self.is_committing = self.rng.random() < 0.7
        self.handle(on.EndAsked(self.is_committing))

    def look_at_batches(self) -> None:
        """Say what the sender says in each of its turns."""
        if self.queued:
            self.handle(on.PartitionsUsed(frozenset(self.queued)))
        elif self.transaction.is_ending and not self.transaction.are_batches_done:
            self.handle(on.BatchesDone())

    def step(self) -> None:
        steps = [self.look_at_batches, self.perform]
        if self.queued:
            steps.append(self.send_batch)
        if self.has_faults:
            steps.append(self.act)
            if self.rng.random() < 0.001:
                self.broker.another_producer()
                self.is_fenced = True
        self.rng.choice(steps)()

    # ---- the end

    def tell(self) -> None:
        for _ in range(STEPS):
            self.step()

        # Without faults, and with an application that waits, everything ends.
        self.has_faults = False
        for _ in range(PATIENCE):
            if self.transaction.phase in (Phase.MUST_ABORT, Phase.OPEN):
                self.handle(on.EndAsked(commit=False))
            self.step()
        assert self.transaction.phase in (Phase.READY, Phase.FAILED, Phase.UNINITIALIZED)
        assert self.transaction.phase is not Phase.FAILED or self.is_fenced, self.transaction

        counted = Counter(
            (partition, value)
            for partition, values in self.broker.committed.items()
            for value in values
        )
        doubted = Counter(self.in_doubt)
        assert counted in (self.committed, self.committed + doubted)
        assert self.broker.state != "Ongoing" or self.transaction.phase is Phase.FAILED


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 400, 50)])
def test_a_transaction_counts_as_a_whole_or_not_at_all_whatever_is_lost(seeds: range) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        story = Story(seed)
        try:
            story.tell()
        except AssertionError as violation:
            raise AssertionError(f"seed {seed}") from violation
        ends += story.ends
    assert ends["commit"] > 20
    assert ends["abort"] > 20
