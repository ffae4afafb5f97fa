"""A stage has one broker under measurement, and plays its controller and the leader it follows.

A broker gets its roles from its controller, and truncates as its leader says. Both are played
here, so that a scene happens at once, always in the same way, and alone. The played controller has
a later epoch than the broker's real one, whose requests are refused from then on. The leader is
broker LEADER, has no records, and responds with the same end offset for the epochs of all logs.
"""

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from benchmarks.brokers import Broker, Installation
from benchmarks.load import LoadError, connect, receive_exactly
from broker.kbroker.local_cluster import HOST
from protocol.api_key import ApiKey
from protocol.header import (
    encode_request,
    encode_response,
    read_request,
    read_request_header,
    read_response,
)
from protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestLiveLeader,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrRequestTopicState,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaRequestTopic
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
)
from protocol.registry import API

# One broker id plays both the leader and the controller.
LOCAL, LEADER, CONTROLLER = 0, 1, 1

# Later than the epoch of any real controller here.
CONTROLLER_EPOCH = 1_000_000
PATIENCE_S = 300.0
PATIENCE_MS = round(PATIENCE_S * 1000)
POLL_S = 0.02
VERSIONS = {
    ApiKey.PRODUCE: 5,
    ApiKey.FETCH: 11,
    ApiKey.LIST_OFFSETS: 5,
    ApiKey.METADATA: 5,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 3,
    ApiKey.API_VERSIONS: 0,
    ApiKey.LEADER_AND_ISR: 2,
    ApiKey.UPDATE_METADATA: 5,
    ApiKey.STOP_REPLICA: 1,
    ApiKey.DELETE_RECORDS: 1,
}
"""The versions of requests on the stage."""
_KEYS = {api.request: ApiKey(key) for key, api in API.items()}
_NO_ERROR = 0

Topics = Mapping[str, int]
"""Name of a topic -> its number of partitions."""


@attrs.define(eq=False)
class Stage:
    """The broker, and the connection of the played controller and clients to it."""

    place: Installation
    broker: Broker
    leader: "PlayedLeader"
    _connection: socket.socket
    _epochs: Iterator[int] = attrs.field(factory=itertools.count)

    def call(self, request: Any) -> Any:
        """Send a request and return its response. Raises LoadError, OSError."""
        key = _KEYS[type(request)]
        self._connection.sendall(encode(request))

        # A response, behind its size of four bytes.
        frame = receive_exactly(
            self._connection, int.from_bytes(receive_exactly(self._connection, 4), "big")
        )
        return read_response(key, VERSIONS[key], frame)[1]

    def restart(self) -> None:
        """Stop the broker cleanly, and start it again."""
        self._connection.close()
        self.broker.process.stop(timeout_s=PATIENCE_S)
        self.start()

    def start(self) -> None:
        """Start the stopped broker."""
        self.broker = self.place.start()
        self._connection = connect(self.broker.address)

    # ---- the controller

    def lead(
        self, topics: Topics, replicas: Sequence[int] = (LOCAL,), *, is_new: bool = True
    ) -> None:
        """Make the broker the leader of so many partitions of each topic."""
        self._send_leader_and_isr(topics, LOCAL, replicas, is_new)

    def follow(self, topics: Topics, *, is_new: bool = False) -> None:
        """Make the broker a follower of the played leader."""
        self._send_leader_and_isr(topics, LEADER, (LEADER, LOCAL), is_new)

    def _send_leader_and_isr(
        self, topics: Topics, leader: int, replicas: Sequence[int], is_new: bool
    ) -> None:
        self._check_response(self.call(self._leader_and_isr(topics, leader, replicas, is_new)))

    def _check_response(self, response: Any) -> None:
        # The whole request, or single partitions, may be refused.
        errors = {response.error_code, *(p.error_code for p in response.partition_errors)}
        if errors != {_NO_ERROR}:
            raise LoadError(f"{self.broker.name} responds {type(response).__name__}: {errors}")

    def _leader_and_isr(
        self, topics: Topics, leader: int, replicas: Sequence[int], is_new: bool
    ) -> LeaderAndIsrRequest:
        host, port = self.leader.address

        # Every request has a new leader epoch, so that the broker accepts it.
        epoch = next(self._epochs)

        def state(partition: int) -> LeaderAndIsrRequestPartitionState:
            return LeaderAndIsrRequestPartitionState(
                partition_index=partition,
                controller_epoch=CONTROLLER_EPOCH,
                leader=leader,
                leader_epoch=epoch,
                isr=replicas,
                partition_epoch=epoch,
                replicas=replicas,
                is_new=is_new,
            )

        return LeaderAndIsrRequest(
            controller_id=CONTROLLER,
            controller_epoch=CONTROLLER_EPOCH,
            topic_states=[
                LeaderAndIsrRequestTopicState(
                    topic_name=name, partition_states=list(map(state, range(number)))
                )
                for name, number in topics.items()
            ],
            live_leaders=[
                LeaderAndIsrRequestLiveLeader(broker_id=LEADER, host_name=host, port=port)
            ],
        )

    def delete(self, topics: Topics) -> None:
        """Make the broker delete so many partitions of each topic."""
        stopped = [
            StopReplicaRequestTopic(name=name, partition_indexes=list(range(number)))
            for name, number in topics.items()
        ]
        self._check_response(
            self.call(
                StopReplicaRequest(
                    controller_id=CONTROLLER,
                    controller_epoch=CONTROLLER_EPOCH,
                    delete_partitions=True,
                    topics=stopped,
                )
            )
        )

    def know(self, topics: Topics, leader: int) -> None:
        """Send the broker metadata with this leader for so many partitions of each topic."""

        def state(partition: int) -> UpdateMetadataRequestPartitionState:
            return UpdateMetadataRequestPartitionState(
                partition_index=partition,
                controller_epoch=CONTROLLER_EPOCH,
                leader=leader,
                leader_epoch=0,
                isr=(LEADER, LOCAL),
                zk_version=0,
                replicas=(LEADER, LOCAL),
            )

        def live(broker_id: int, port: int) -> UpdateMetadataRequestLiveBroker:
            endpoint = UpdateMetadataRequestEndpoint(
                port=port, host=HOST, listener="PLAINTEXT", security_protocol=0
            )
            return UpdateMetadataRequestLiveBroker(id=broker_id, endpoints=[endpoint])

        self.call(
            UpdateMetadataRequest(
                controller_id=CONTROLLER,
                controller_epoch=CONTROLLER_EPOCH,
                topic_states=[
                    UpdateMetadataRequestTopicState(
                        topic_name=name, partition_states=list(map(state, range(number)))
                    )
                    for name, number in topics.items()
                ],
                live_brokers=[
                    live(LOCAL, self.broker.address[1]),
                    live(LEADER, self.leader.address[1]),
                ],
            )
        )

    # ---- clients

    def produce(self, topic: str, partitions: int, batch: bytes) -> None:
        """Write a batch to each partition, in one request."""
        data = [ProduceRequestPartition(index=index, records=batch) for index in range(partitions)]
        of_topic = [ProduceRequestTopic(name=topic, partition_data=data)]
        response = self.call(ProduceRequest(acks=1, timeout_ms=PATIENCE_MS, topic_data=of_topic))
        (topic_response,) = response.responses
        if errors := {p.error_code for p in topic_response.partition_responses if p.error_code}:
            raise LoadError(f"{self.broker.name} does not take a batch: {errors}")

    def until(self, holds: Callable[[], bool]) -> None:
        """Return when a condition holds that is seen from outside. Raises RuntimeError."""
        ends = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > ends:
                raise RuntimeError(f"{self.broker.name} does not do what it should")

            # A broker that has ended will never do it.
            self.broker.process.check_alive()
            time.sleep(POLL_S)


@contextlib.contextmanager
def set_stage(place: Installation) -> Iterator[Stage]:
    """Start the broker and the played leader; stop them at the end."""
    with PlayedLeader() as leader:
        broker = place.start()
        stage = Stage(place, broker, leader, connect(broker.address))
        try:
            yield stage
        finally:
            # The scene is over, and its data is deleted next.
            stage.broker.process.stop(at_once=True)


def encode(request: Any) -> bytes:
    """Encode a request, with its size in front."""
    key = _KEYS[type(request)]
    return encode_request(key, VERSIONS[key], 0, "stage", request)


class PlayedLeader:
    """A leader of all partitions that a follower asks for.

    `end_offset`: end of the epochs of all logs, to be set. Of all followers' requests so far,
    `fetched` has the fetch offsets, `topics` the topics, and `connections` counts connections.
    """

    def __init__(self) -> None:
        self.end_offset = 0
        self.fetched: set[int] = set()
        self.topics: set[str] = set()
        self.connections = 0
        self._listening = socket.create_server((HOST, 0))

    @property
    def address(self) -> tuple[str, int]:
        """The address of its listener."""
        host, port = self._listening.getsockname()
        return host, port

    def __enter__(self) -> "PlayedLeader":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, LoadError):
            while True:
                # A request, behind its size too.
                frame = receive_exactly(
                    connection, int.from_bytes(receive_exactly(connection, 4), "big")
                )
                header, position = read_request_header(frame)
                response = self._respond(read_request(header, frame, position))
                out, _ = encode_response(
                    header.api_key, header.api_version, header.correlation_id, response
                )
                connection.sendall(out)

    def _respond(self, request: Any) -> Any:
        # The requests of a follower whose log is in its leader's range.
        if isinstance(request, ApiVersionsRequest):
            return _list_versions()
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._list_ends(request)
        assert isinstance(request, FetchRequest)
        self.fetched |= {p.fetch_offset for topic in request.topics for p in topic.partitions}
        self.topics |= {topic.topic for topic in request.topics}

        # Nothing ever arrives: a fetch waits its full time, as with a real leader.
        time.sleep(request.max_wait_ms / 1000)
        return _fetch_nothing(request)

    def _list_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponseTopic(
                    topic=topic.topic,
                    partitions=[
                        OffsetForLeaderEpochResponsePartition(
                            error_code=_NO_ERROR,
                            partition=p.partition,
                            leader_epoch=p.leader_epoch,
                            end_offset=self.end_offset,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _list_versions() -> ApiVersionsResponse:
    keys = [
        ApiVersionsResponseKey(api_key=key, min_version=0, max_version=version)
        for key, version in VERSIONS.items()
    ]
    return ApiVersionsResponse(error_code=_NO_ERROR, api_keys=keys)


def _fetch_nothing(request: FetchRequest) -> FetchResponse:
    """Respond as a leader that has no more records than the follower."""
    return FetchResponse(
        responses=[
            FetchResponseTopic(
                topic=topic.topic,
                partitions=[
                    FetchResponsePartition(
                        partition_index=p.partition,
                        error_code=_NO_ERROR,
                        # The follower has everything, and so is in sync.
                        high_watermark=p.fetch_offset,
                        log_start_offset=0,
                        records=b"",
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
