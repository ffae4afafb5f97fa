"""A broker that coordinates transactions in memory, and loses responses when it is told to.

It has the checks of Kafka's coordinator in their order, and a log of what is written in
transactions: what readers of committed data see is `committed`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from protocol.api import find_api
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import error_response as partition_results
from protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from protocol.messages.end_txn import EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.produce import ProduceResponsePartition
from protocol.messages.txn_offset_commit import error_response as offset_results
from protocol.records.batch import decode_records, read_header
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker, all_versions

OFFSETS_TOPIC = "__consumer_offsets"

TRANSACTIONS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)
EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"


class CoordinatingBroker(ScriptedBroker):
    """A coordinator of the id `x`, and the leader of all partitions."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        super().__init__(topics)
        self.state = EMPTY
        self.producer_id, self.epoch = 100, -1
        self.epoch_before = -1
        """The epoch that was renewed, for a producer that has not got the response."""
        self.timeout_ms = 0
        self.partitions: set[TopicPartition] = set()

        # ---- what the transaction has written, and what counts
        self.written: dict[TopicPartition, list[bytes | None]] = defaultdict(list)
        self.staged: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, list[bytes | None]] = defaultdict(list)
        self.offsets: dict[TopicPartition, int] = {}
        self.generation = 1
        """Of the group, whose member is `m`."""
        self._sequences: dict[tuple[TopicPartition, int], tuple[int, int]] = {}

        self.refusals: dict[ApiKey, list[ErrorCode]] = defaultdict(list)
        """Errors of the next requests, which do nothing."""
        self.losses: dict[ApiKey, int] = defaultdict(int)
        """Number of the next requests that are performed, and get no response."""
        self.versions: dict[str, tuple[int, int]] = {}
        """Ranges of versions other than the newest."""

        self.answers[ApiKey.API_VERSIONS] = self.api_versions
        self._serve(ApiKey.INIT_PRODUCER_ID, self.init_producer_id)
        self._serve(ApiKey.ADD_PARTITIONS_TO_TXN, self.add_partitions)
        self._serve(ApiKey.ADD_OFFSETS_TO_TXN, self.add_offsets)
        self._serve(ApiKey.END_TXN, self.end_txn)
        self._serve(ApiKey.TXN_OFFSET_COMMIT, self.txn_offset_commit)
        self._serve(ApiKey.PRODUCE, self.produce)

    def _serve(self, key: ApiKey, perform: Callable[[Any], Any]) -> None:
        def answer(request: Any) -> Any:
            if self.refusals[key]:
                return find_api(key).error_response(request, self.refusals[key].pop(0))
            response = perform(request)
            if self.losses[key]:
                self.losses[key] -= 1
                return HANG_UP
            return response

        self.answers[key] = answer

    def api_versions(self, _: Any) -> ApiVersionsResponse:
        ranges: Mapping[str, tuple[int, int]] = self.versions
        listed = all_versions(**ranges)
        known = {key.api_key for key in listed.api_keys}
        transactions = [
            ApiVersionsResponseKey(
                api_key=key,
                min_version=ranges.get(key.name, (0, 0))[0],
                max_version=ranges.get(key.name, (0, find_api(key).versions.last))[1],
            )
            for key in TRANSACTIONS
            if key not in known
        ]
        return ApiVersionsResponse(error_code=0, api_keys=[*listed.api_keys, *transactions])

    def another_producer(self) -> None:
        """Have another producer take the id."""
        self._abort()
        self.epoch_before = -1
        self.epoch += 1
        self.state = EMPTY

    # ---- the coordinator

    def _check(self, request: Any) -> ErrorCode:
        if request.producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if request.producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def init_producer_id(self, request: Any) -> InitProducerIdResponse:
        if request.producer_id >= 0 and self._check(request):
            if request.producer_epoch != self.epoch_before:
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
            return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        if self.state == ONGOING:
            # It fences, aborts, and has the producer ask again.
            self._abort()
            self.epoch += 1
            self.state = EMPTY
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        self.state = EMPTY
        self.epoch_before = request.producer_epoch
        self.epoch += 1
        self.timeout_ms = request.transaction_timeout_ms
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def add_partitions(self, request: Any) -> Any:
        code = self._check(request)
        if not code:
            self.state = ONGOING
            self.partitions |= {
                TopicPartition(topic.name, number)
                for topic in request.topics
                for number in topic.partitions
            }
        return partition_results(request, code)

    def add_offsets(self, request: Any) -> AddOffsetsToTxnResponse:
        code = self._check(request)
        if not code:
            self.state = ONGOING
            self.partitions.add(TopicPartition(OFFSETS_TOPIC, 0))
        return AddOffsetsToTxnResponse(error_code=code)

    def end_txn(self, request: Any) -> EndTxnResponse:
        code = self._check(request)
        wanted = COMMITTED if request.committed else ABORTED
        if not code and self.state == ONGOING:
            (self._commit if request.committed else self._abort)()
        elif not code and self.state != wanted:
            code = ErrorCode.INVALID_TXN_STATE
        return EndTxnResponse(error_code=code)

    def _commit(self) -> None:
        for partition, values in self.written.items():
            self.committed[partition] += values
        self.offsets |= self.staged
        self._end(COMMITTED)

    def _abort(self) -> None:
        self._end(ABORTED)

    def _end(self, state: str) -> None:
        self.state = state
        self.written.clear()
        self.staged.clear()
        self.partitions.clear()

    # ---- the group's coordinator, and leaders

    def txn_offset_commit(self, request: Any) -> Any:
        code = self._check(request)
        assert TopicPartition(OFFSETS_TOPIC, 0) in self.partitions or code
        if not code and request.generation_id not in (-1, self.generation):
            code = ErrorCode.ILLEGAL_GENERATION
        if not code:
            self.staged |= {
                TopicPartition(topic.name, part.partition_index): part.committed_offset
                for topic in request.topics
                for part in topic.partitions
            }
        return offset_results(request, code)

    def _append(self, partition: TopicPartition, batch: Any) -> ProduceResponsePartition:
        header = read_header(batch)
        code = self._check(header)
        if self.produce_errors:
            code = self.produce_errors.pop(0)
        elif code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH

        # Nothing may be written before its partition is added.
        assert partition in self.partitions or code
        assert header.is_transactional

        # A repeated batch is known; a gap is not taken.
        place = (partition, header.producer_epoch)
        last, following = self._sequences.get(place, (-1, 0))
        is_repeated = header.base_sequence == last
        if not code and not is_repeated and header.base_sequence != following:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not code and not is_repeated:
            records = decode_records(batch)
            self._sequences[place] = header.base_sequence, following + len(records)
            self.written[partition] += [record.value for record in records]
        return ProduceResponsePartition(
            index=partition.partition, error_code=code, base_offset=-1 if code else 0
        )
