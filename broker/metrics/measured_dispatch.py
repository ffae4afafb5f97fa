"""Count the requests of a broker on their way through its dispatcher.

A `MeasuredDispatcher` stands in the place of the dispatcher where figures are asked for. Without
it nothing is counted, and nothing costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from broker.metrics.counts import Counts, RequestCounts
from broker.network.dispatch import Dispatch, Dispatched, FetchedParts
from broker.network.purgatory import Wait
from broker.network.request_context import Origin
from protocol.api_key import ApiKey
from protocol.header import read_correlation_id
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceResponse


@attrs.define(eq=False)
class MeasuredDispatcher:
    """Passes each request on to `dispatcher`, and counts it when it has its response.

    `clock` returns seconds that are never set back.
    """

    dispatcher: Dispatch
    counts: Counts
    clock: Callable[[], float]

    def dispatch(self, frame: memoryview, origin: Origin) -> Dispatched:
        """Serve one request, and count it. Raises Refused."""
        began = self.clock()
        dispatched = self.dispatcher.dispatch(frame, origin)
        local_s = self.clock() - began

        # A follower's fetch has figures of its own, as in Kafka.
        key = dispatched.header.api_key
        counts = self.counts.requests[key]
        if key == ApiKey.FETCH and dispatched.is_from_broker:
            counts = self.counts.follower_fetches

        if isinstance(dispatched.outcome, Wait):
            served = _Served(self, counts, len(frame), began, local_s)
            return served.measure(dispatched)
        counts.note(dispatched.header.api_version, len(frame), local_s, local_s)
        self.count_response(counts, dispatched.outcome)
        return dispatched

    def dispatch_run(self, frames: Sequence[memoryview], origin: Origin) -> Sequence[bytes]:
        """Serve the first of these requests at once, and count them. Raises Refused.

        Each of them has its response when all have.
        """
        began = self.clock()
        responses = self.dispatcher.dispatch_run(frames, origin)
        if responses:
            took_s = self.clock() - began
            key, version, _ = read_correlation_id(frames[0])
            counts = self.counts.requests[key]
            counts.note_run(version, [len(frame) for frame in frames[: len(responses)]], took_s)
            counts.errors[0] = counts.errors.get(0, 0) + len(responses)
        return responses

    def is_from_broker(self, begin: memoryview, origin: Origin) -> bool:
        """Return whether a request is a broker's, by the bytes that are there of its frame."""
        return self.dispatcher.is_from_broker(begin, origin)

    def count_response(self, counts: RequestCounts, response: object) -> None:
        """Count the errors and the bytes of a response."""
        errors = counts.errors
        topics = self.counts.topics
        rest = self.counts.rest

        # The short way has responses without an error alone.
        if isinstance(response, bytes):
            errors[0] = errors.get(0, 0) + 1

        elif isinstance(response, FetchedParts):
            errors[0] = errors.get(0, 0) + len(response.sizes)
            for name, size in response.sizes:
                of_topic = self.counts.topic(name)
                of_topic.fetch_requests += 1
                of_topic.bytes_out += size

        elif isinstance(response, ProduceResponse):
            for topic in response.responses:
                for produced in topic.partition_responses:
                    code = produced.error_code
                    errors[code] = errors.get(code, 0) + 1
                    if code:
                        of_topic = topics.get(topic.name, rest)
                        of_topic.produce_requests += 1
                        of_topic.failed_produce_requests += 1

        elif isinstance(response, FetchResponse):
            is_follower = counts is self.counts.follower_fetches
            for fetched in response.responses:
                for part in fetched.partitions:
                    code = part.error_code
                    errors[code] = errors.get(code, 0) + 1
                    name = fetched.topic
                    of_topic = topics.get(name, rest) if code else self.counts.topic(name)
                    of_topic.fetch_requests += 1
                    if code:
                        of_topic.failed_fetch_requests += 1

                    # A range of a file, or bytes in memory.
                    records = part.records
                    size = len(records) if isinstance(records, bytes) else records.size
                    if is_follower:
                        self.counts.replication_bytes_out += size
                    else:
                        of_topic.bytes_out += size

        else:
            # Other responses have an error for all, or errors of their parts, which do not count.
            whole = getattr(response, "error_code", None)
            if whole is not None:
                errors[whole] = errors.get(whole, 0) + 1


@attrs.define(eq=False)
class _Served:
    """A request that is parked: it counts when its wait ends."""

    owner: MeasuredDispatcher
    counts: RequestCounts
    size: int
    began: float
    local_s: float

    def measure(self, dispatched: Dispatched) -> Dispatched:
        """Return the outcome with a wait that counts the request at its end."""
        wait = dispatched.outcome
        assert isinstance(wait, Wait)

        def try_complete(expired: bool) -> Dispatched | None:
            tried = self.owner.clock()
            ended: Dispatched | None = wait.try_complete(expired)
            if ended is None:
                return None
            now = self.owner.clock()
            self.local_s += now - tried

            # It may be parked again, for something else.
            if isinstance(ended.outcome, Wait):
                return self.measure(ended)
            version = ended.header.api_version
            self.counts.note(version, self.size, self.local_s, now - self.began)
            self.owner.count_response(self.counts, ended.outcome)
            return ended

        # The purgatory shows what its requests are by the subject of their waits.
        return dispatched._replace(
            outcome=attrs.evolve(wait, try_complete=try_complete, subject=dispatched.header.api_key)
        )
