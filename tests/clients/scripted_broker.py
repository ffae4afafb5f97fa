"""A broker with scripted responses: a peer for clients, on loopback, with real frames.

Each API has an answer, a function of the request. It returns the response; or HANG_UP, to close the
connection; or SILENCE, to send nothing; or PARKED, to read no more of the connection either, as a
broker whose request waits for others. Requests are kept in order of arrival. By default it is a
cluster of one broker that leads every partition of `topics` and keeps what is produced.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frames import FrameCutter
from protocol.header import RequestHeader, encode_response, read_request, read_request_header
from protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.produce import (
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from protocol.records.batch import Record, decode_records
from protocol.registry import API
from protocol.topic_partition import TopicPartition
from protocol.wire import NO_VERSIONS

SILENCE = object()
HANG_UP = object()
PARKED = object()

Answer = Callable[[Any], Any]


class ScriptedBroker:
    """A broker that serves while its `async with` block runs. `topics`: name -> partitions."""

    def __init__(self, topics: dict[str, int] | None = None, node_id: int = 0) -> None:
        self.node_id = node_id
        self.topics = topics or {}
        self.peers: dict[int, int] = {}
        self.cluster_id: str | None = None
        """Other brokers of the cluster: node id to port."""
        self.leaders: dict[TopicPartition, int] = {}
        """Leaders other than this broker, -1 for none."""
        self.in_sync: dict[TopicPartition, list[int]] = {}
        """In-sync replicas of a partition other than this broker alone."""
        self.leader_epoch = 0
        """Leader epoch of every partition in metadata."""
        self.port = 0
        self.connections = 0
        self.requests: list[tuple[RequestHeader, Any]] = []
        self.log: dict[TopicPartition, list[Record]] = defaultdict(list)
        self.topic_errors: dict[str, ErrorCode] = {}
        """Errors of topics that are not in `topics`, in place of UNKNOWN_TOPIC_OR_PARTITION."""
        self.produce_errors: list[ErrorCode] = []
        """Errors of the next produced batches, which are not appended."""
        self.answers: dict[ApiKey, Answer] = {
            ApiKey.API_VERSIONS: lambda request: all_versions(),
            ApiKey.METADATA: self.metadata,
            ApiKey.PRODUCE: self.produce,
            ApiKey.FIND_COORDINATOR: lambda request: FindCoordinatorResponse(
                error_code=0, node_id=node_id, host="127.0.0.1", port=self.port
            ),
        }

        self.correlation_shift = 0
        """Added to the correlation ids of responses, to lie about them."""
        self._senders: list[_Peer] = []
        self._arrived = asyncio.Event()
        self._transports: list[asyncio.Transport] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def asked(self, api_key: ApiKey) -> list[Any]:
        """Return the requests of one API so far."""
        return [request for header, request in self.requests if header.api_key == api_key]

    def answer_late(self, api_key: ApiKey, answer: Any) -> None:
        """Answer the last request of an API, which has had SILENCE."""
        for (header, _), sender in reversed([*zip(self.requests, self._senders, strict=True)]):
            if header.api_key == api_key:
                sender.reply(header, answer)
                return

    async def received(self, api_key: ApiKey, count: int = 1) -> list[Any]:
        """Return the requests of one API when there are so many."""
        while len(self.asked(api_key)) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.asked(api_key)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.hang_up()
        self._server.close()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Close every connection."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    def metadata(self, request: Any) -> MetadataResponse:
        names = self.topics if request.topics is None else [topic.name for topic in request.topics]
        peers = {self.node_id: self.port, **self.peers}
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in peers.items()
            ],
            controller_id=self.node_id,
            cluster_id=self.cluster_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            code = self.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return MetadataResponseTopic(error_code=code, name=name, partitions=[])

        partitions = []

        for index in range(self.topics[name]):
            partition = TopicPartition(name, index)
            leader = self.leaders.get(partition, self.node_id)
            in_sync = self.in_sync.get(partition, [self.node_id])
            partitions.append(
                MetadataResponsePartition(
                    error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=in_sync,
                    isr_nodes=in_sync,
                )
            )

        return MetadataResponseTopic(error_code=0, name=name, partitions=partitions)

    def produce(self, request: Any) -> Any:
        topics = []
        for topic in request.topic_data:
            answers = [
                self._append(TopicPartition(topic.name, sent.index), sent.records)
                for sent in topic.partition_data
            ]
            topics.append(ProduceResponseTopic(name=topic.name, partition_responses=answers))
        return SILENCE if request.acks == 0 else ProduceResponse(responses=topics)

    def _append(self, partition: TopicPartition, batch: Any) -> ProduceResponsePartition:
        base_offset = len(self.log[partition])
        code = ErrorCode.NONE
        if self.produce_errors:
            base_offset = -1
            code = self.produce_errors.pop(0)
        if code is ErrorCode.NONE:
            self.log[partition] += decode_records(batch)
        return ProduceResponsePartition(
            index=partition.partition, error_code=code, base_offset=base_offset
        )


class _Peer(asyncio.Protocol):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._cutter = FrameCutter(64 * 1024 * 1024)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._broker.connections += 1
        self._broker._transports.append(transport)

    def data_received(self, data: bytes) -> None:
        self._cutter.feed(data)
        while (frame := self._cutter.cut()) is not None:
            header, pos = read_request_header(frame)
            request = read_request(header, frame, pos)
            self._broker.requests.append((header, request))
            self._broker._senders.append(self)
            self._broker._arrived.set()
            answer = self._broker.answers[ApiKey(header.api_key)](request)
            if answer is HANG_UP:
                self._transport.abort()
                return
            if answer is PARKED:
                self._transport.pause_reading()
                return
            if answer is not SILENCE:
                self.reply(header, answer)

    def reply(self, header: RequestHeader, answer: Any) -> None:
        version = header.api_version
        if isinstance(answer, ApiVersionsResponse) and answer.error_code:
            version = 0
        correlation_id = header.correlation_id + self._broker.correlation_shift
        out, holes = encode_response(header.api_key, version, correlation_id, answer)
        assert not holes
        self._transport.write(bytes(out))


def all_versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """Return the APIs that our brokers serve, with other ranges for those named: `FETCH=(0, 3)`."""
    keys = {
        key: ranges.get(key.name, (api.versions.first, api.versions.last))
        for key, api in API.items()
        if api.served != NO_VERSIONS
    }
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersionsResponseKey(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in keys.items()
        ],
    )
