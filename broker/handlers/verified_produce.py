"""Produce where transactions are verified: their coordinators are asked before the first batch.

See `broker.replication.verification`, which says for each batch what is to be asked, and refuses a
batch whose verdict is missing when it is appended.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.handlers.produce import find_refusals
from broker.network.dispatch import Handler, Outcome
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.replication.replica_manager import ReplicaManager
from broker.replication.verification import Verdict, Verification
from core_log.appending.validator import is_transactional
from protocol.frozen import frozen
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import read_header
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition


@frozen
class VerifiedProduce:
    """The handler before `produce`, which appends."""

    produce: Handler
    replicas: ReplicaManager
    verification: Verification

    def __call__(self, request: ProduceRequest, context: RequestContext) -> Outcome:
        """Append, when the coordinator has said of each transaction that it may open."""
        if request.transactional_id is None:
            return self.produce(request, context)
        undecided = [verdict for verdict in self._verdicts(request, context) if not _is_in(verdict)]
        if not undecided:
            return self.produce(request, context)

        def try_complete(expired: bool) -> Outcome | None:
            # A batch whose verdict is late is refused, so that its producer tries again.
            if expired or all(map(_is_in, undecided)):
                return self.produce(request, context)
            return None

        return Wait(tuple(undecided), request.timeout_ms, try_complete)

    def _verdicts(self, request: ProduceRequest, context: RequestContext) -> Iterator[Verdict]:
        """Return the verdicts that the batches of the request need, as far as it is permitted."""
        assert request.transactional_id is not None
        refusals = find_refusals(request, context)
        for topic in request.topic_data:
            for part in topic.partition_data:
                partition = self.replicas.partitions.get(TopicPartition(topic.name, part.index))
                if partition is None or not partition.is_leader or topic.name in refusals:
                    continue
                if part.records is None or not is_transactional(part.records):
                    continue

                # What is wrong with a batch is found when it is appended.
                try:
                    header = read_header(part.records)
                except CorruptRecord:
                    continue
                verdict = self.verification.verdict_on(partition, header, request.transactional_id)
                if verdict is not None:
                    yield verdict


def _is_in(verdict: Verdict) -> bool:
    return verdict.error is not None
