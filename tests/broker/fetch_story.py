"""Stories of fetches in sessions, by a reader who may read some topics and not others.

Requests of several connections name the same session, wait, are woken and expire in any order,
while records are appended and permissions change. No response has records of a topic that was
never allowed to be read from its request to its response.

python -m tests.broker.fetch_story 0:300       one after the other, until one is violated
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import Any

import attrs

from broker.handlers import fetch
from broker.network.authorization import Resource
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.network.session import Principal
from kgroup.testing.story import Story, Violation
from protocol.acls import Operation
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, batch, context
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.story_totals import seeds_of

TOPICS = ("open", "secret", "other")
PARTITIONS = 2
STEPS = 60
ALICE = Principal("User", "alice")
VERSIONS = (7, 11, 12)
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)
CHANGED_PERMISSION = 0.05
"""Chance, at each step, that a topic is allowed that was not, or no longer."""


@attrs.define(eq=False)
class Waiting:
    """A request that is parked; `allowed` has the topics that could be read since it came."""

    number: int
    wait: Wait
    allowed: set[str]


@attrs.define(eq=False)
class FetchStory:
    """The story of one seed; `live` tells it. Raises Violation."""

    seed: int
    rng: Random = attrs.field(init=False)
    story: Story = attrs.field(init=False)
    replicas: Replicas = attrs.field(factory=Replicas)
    allowed: set[str] = attrs.field(factory=lambda: {"open"})
    waiting: list[Waiting] = attrs.field(factory=list)
    sessions: list[list[int]] = attrs.field(factory=list)
    """The id and the next epoch of each session that was opened."""
    _step: int = 0

    def __attrs_post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.story = Story(self.seed, lambda: float(self._step))
        for topic in TOPICS:
            self.replicas.lead(topic, PARTITIONS)

    def live(self) -> None:
        """Take all steps."""
        steps = (self._fetch, self._fetch, self._append, self._wake, self._expire)
        for self._step in range(STEPS):
            if self.rng.random() < CHANGED_PERMISSION:
                self._change_permission()
            self.rng.choice(steps)()

    # ---- steps

    def _change_permission(self) -> None:
        self.allowed ^= {self.rng.choice(TOPICS)}
        self.story.tell("acls", f"allow {sorted(self.allowed)}")
        for waiting in self.waiting:
            waiting.allowed |= self.allowed

    def _append(self) -> None:
        partition = self._draw_partition()
        self.story.tell("log", f"append to {partition}")
        self.replicas.manager.append(
            partition, batch(b"v" * 10), all_in_sync=False, zstd_allowed=True, now_ms=0
        )

    def _fetch(self) -> None:
        known = self.rng.choice(self.sessions) if self.sessions else None
        use = self.rng.random()
        if use < 0.2:
            session = NO_SESSION
        elif known is None or use < 0.4:
            session = NEW_SESSION
        else:
            session = (known[0], known[1])

        request = self._draw_request(session)
        named = [(t.topic, [p.partition for p in t.partitions]) for t in request.topics]
        self.story.tell("alice", f"{self._step} fetches {named} in {session}")
        outcome = fetch.handle(
            self.replicas.manager,
            self.replicas.cache,
            self.replicas.sessions,
            1 << 30,
            self.replicas.deferred,
            self.replicas.leader_quota,
            request,
            self._context(),
        )
        if known is not None and session == tuple(known):
            known[1] += 1
        self._take(Waiting(self._step, outcome, set(self.allowed)), outcome)

    def _wake(self) -> None:
        self._complete(expired=False)

    def _expire(self) -> None:
        self._complete(expired=True)

    def _complete(self, *, expired: bool) -> None:
        if not self.waiting:
            return
        waiting = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        self.story.tell("broker", f"looks at {waiting.number}, expired: {expired}")
        self._take(waiting, waiting.wait.try_complete(expired) or waiting.wait)

    # ---- their parts

    def _draw_partition(self) -> TopicPartition:
        return TopicPartition(self.rng.choice(TOPICS), self.rng.randrange(PARTITIONS))

    def _draw_request(self, session: tuple[int, int]) -> FetchRequest:
        named = {self._draw_partition() for _ in range(self.rng.randrange(4))}
        forgotten = self._draw_partition()
        return FetchRequest(
            max_wait_ms=self.rng.choice((0, 500)),
            min_bytes=self.rng.choice((1, 1, 10_000)),
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchRequestTopic(
                    topic=partition.topic,
                    partitions=[
                        FetchRequestPartition(
                            partition=partition.partition,
                            fetch_offset=0,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
                for partition in sorted(named)
            ],
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic=forgotten.topic, partitions=[forgotten.partition])
            ]
            if session[1] > 0 and self.rng.random() < 0.2
            else [],
        )

    def _context(self) -> RequestContext:
        def decide(principal: Principal, operation: Operation, resource: Resource) -> bool:
            return operation is Operation.READ and resource.name in self.allowed

        sender = AskingAuthorizer(decide).sender(ALICE, "127.0.0.1")
        return context(self.rng.choice(VERSIONS))._replace(sender=sender)

    def _take(self, waiting: Waiting, outcome: Any) -> None:
        """Park a request that waits, or check its response."""
        if isinstance(outcome, Wait):
            waiting.wait = outcome
            self.waiting.append(waiting)
            return

        assert isinstance(outcome, FetchResponse)
        if outcome.session_id and outcome.session_id not in [known for known, _ in self.sessions]:
            self.sessions.append([outcome.session_id, 1])
        for topic in outcome.responses:
            for part in topic.partitions:
                records = part.records or b""
                size = len(records) if isinstance(records, bytes) else records.size
                self.story.tell("alice", f"{waiting.number} gets {topic.topic}: {size} bytes")
                if size and topic.topic not in waiting.allowed:
                    raise Violation(f"alice gets records of {topic.topic}, which ACLs forbid")
                self.story.counts["records read" if size else "empty parts"] += 1


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when a story was violated."""
    (wanted,) = arguments
    for seed in seeds_of(wanted):
        fetch_story = FetchStory(seed)
        try:
            fetch_story.live()
        except Violation as violation:
            print(f"seed {seed}", *fetch_story.story.lines(), violation, sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
