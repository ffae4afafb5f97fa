"""Grow each thing that a request can have, by itself, and see what it costs a real broker.

A thing is grown to its bound and beyond: tagged fields, names that are refused or not, partitions,
members' protocols, bytes that come out of compressed ones, bytes of requests that are refused,
frames and handshakes that are begun and not ended, on many connections at once.
After each, the broker must be as small as before, within GROWTH_BYTES and a minute. Meanwhile a
second client is served, the memory has a peak, and no turn of the loop takes more than
LONGEST_TURN_S of the processor, or LONGEST_WHOLE_TURN_S where one response must be whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence

import attrs
import cramjam
from crc32c import crc32c

from clients.admin import Admin, NewTopic
from protocol.api_key import ApiKey
from protocol.bounds import MAX_CHANGING_ELEMENTS, MAX_HEADER_TAGS, MAX_REQUEST_ELEMENTS
from protocol.header import encode_request
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from protocol.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from protocol.primitives import uvarint
from protocol.records.batch import HEADER_BYTES, encode_batch
from protocol.records.compression import Codec
from protocol.sasl.exchange import PLAIN, SCRAM_SHA_256
from tests.fuzz.fuzzing import GROWTH_BYTES, BrokerHurt, Fuzzing, Line, resident_bytes
from tests.fuzz.login_frames import USER, authenticate, handshake, plain_token
from tests.fuzz.target import Target
from tests.fuzz.tls_bytes import TlsBytes

REQUEST_BYTES = 100_000_000
SETTINGS = {
    # Nobody but the administrator may do anything, and the second listener has strangers.
    "super.users": "User:ANONYMOUS",
    "socket.request.max.bytes": str(REQUEST_BYTES + 1000),
    "sasl.server.max.receive.size": str(512 * 1024),
    "kgroup.event.loop.watchdog.ms": "20",
}

LONGEST_TURN_S = 0.020
LONGEST_WHOLE_TURN_S = 0.200
"""Processor time of a turn of the loop, as the broker's watchdog logs it."""
LOOK_S = 0.020
"""Time from one look of ours, and one question of the second client, to the next."""
WATCHDOG_S = 1.0
"""Time for the watchdog to log the last long turn: it looks every 20 or 80 ms, when it can."""
PEAK_BYTES = 900 * 2**20
"""Most memory beyond that before a growth: a request of 100 MB, read and decompressed, twice."""
QUIET_S = 60.0
PROBE_DEADLINE_S = 20.0
STILL_S = 3.0
"""Time in which a broker would take more of what is begun, if it took any."""
PIECE_BYTES = 256 * 1024

TURN = re.compile(r"a turn of the event loop took ([\d.]+) s, and ([\d.]+) s of the processor")

TOPIC, PARTITIONS = "grown", 30


@attrs.frozen
class Growth:
    """A thing that grows: `frames()` are sent one after the other, each for an answer or a close.

    `way` says who sends them. `is_whole`: one turn may have to make the whole response.
    `is_begun`: each is only the beginning of something, and sent on a connection of its own, all
    of which are open at the same time.
    """

    name: str
    frames: Callable[[], Sequence[bytes]]
    way: str = "stranger"
    is_whole: bool = False
    is_begun: bool = False


@attrs.frozen
class Cost:
    """What a growth cost: the longest turn's processor time, and memory over that before it."""

    turn_s: float
    peak_bytes: int
    kept_bytes: int
    probe_s: float
    answered: int


# ---- frames


def _frame(key: ApiKey, version: int, request: object) -> bytes:
    return encode_request(key, version, 7, "grown", request)


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _tags(count: int) -> bytes:
    return uvarint(count) + b"\x63\x00" * count


def _api_versions(in_header: int, in_body: int, name: bytes = b"x") -> bytes:
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 7, 1) + b"x"
    text = uvarint(len(name) + 1) + name
    return _sized(head + _tags(in_header) + text + b"\x021" + _tags(in_body))


def _tagged_topics(topics: int, tags: int) -> bytes:
    """Metadata v9 that names topics with tagged fields of their own."""
    head = struct.pack(">hhih", ApiKey.METADATA, 9, 7, 1) + b"x\0"
    topic = b"\x02t" + _tags(tags)
    return _sized(head + uvarint(topics + 1) + topic * topics + b"\0\0\0\0")


NAMES = [f"{n:020d}" for n in range(MAX_REQUEST_ELEMENTS - 1000)]


FEWER = NAMES[: MAX_CHANGING_ELEMENTS - 1000]
"""As many as a request may name that changes something."""


def _metadata() -> bytes:
    topics = [MetadataRequestTopic(name=name) for name in NAMES]
    return _frame(
        ApiKey.METADATA, 5, MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    )


def _list_offsets() -> bytes:
    partitions = [
        ListOffsetsRequestPartition(partition_index=index, timestamp=-1)
        for index in range(len(NAMES))
    ]
    topics = [ListOffsetsRequestTopic(name=TOPIC, partitions=partitions)]
    return _frame(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, topics=topics))


def _offset_fetch() -> bytes:
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=range(len(NAMES)))]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    return _frame(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))


def _offset_commit() -> bytes:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=""
        )
        for index in range(len(FEWER))
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    return _frame(ApiKey.OFFSET_COMMIT, 7, OffsetCommitRequest(group_id="g", topics=topics))


def _describe_configs() -> bytes:
    resources = [
        DescribeConfigsRequestResource(resource_type=2, resource_name=name, configuration_keys=())
        for name in NAMES
    ]
    return _frame(ApiKey.DESCRIBE_CONFIGS, 2, DescribeConfigsRequest(resources=resources))


def _join_group() -> bytes:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"") for name in FEWER]
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    return _frame(ApiKey.JOIN_GROUP, 5, request)


def _create_topics() -> bytes:
    topics = [
        CreateTopicsRequestTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in FEWER
    ]
    return _frame(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=1000))


def _delete_topics() -> bytes:
    request = DeleteTopicsRequest(topic_names=FEWER, timeout_ms=1000)
    return _frame(ApiKey.DELETE_TOPICS, 3, request)


def _fetch() -> bytes:
    partitions = [
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        for index in range(len(FEWER))
    ]
    topics = [FetchRequestTopic(topic=TOPIC, partitions=partitions)]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=topics)
    return _frame(ApiKey.FETCH, 11, request)


def _epochs() -> bytes:
    partitions = [
        OffsetForLeaderEpochRequestPartition(partition=index, leader_epoch=0)
        for index in range(len(NAMES))
    ]
    topics = [OffsetForLeaderEpochRequestTopic(topic=TOPIC, partitions=partitions)]
    return _frame(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest(topics=topics))


def _delete_records() -> bytes:
    partitions = [
        DeleteRecordsRequestPartition(partition_index=index, offset=0)
        for index in range(len(FEWER))
    ]
    topics = [DeleteRecordsRequestTopic(name=TOPIC, partitions=partitions)]
    return _frame(ApiKey.DELETE_RECORDS, 1, DeleteRecordsRequest(topics=topics, timeout_ms=1000))


def _nothing_produced() -> bytes:
    data = [ProduceRequestPartition(index=index, records=b"") for index in range(len(FEWER))]
    topics = [ProduceRequestTopic(name=TOPIC, partition_data=data)]
    return _frame(ApiKey.PRODUCE, 7, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))


def _batch(body: bytes, codec: Codec) -> bytes:
    """Make a batch of one record whose records are `body`, with a checksum that is right."""
    whole = bytearray(encode_batch([(0, None, b"x", ())])[:HEADER_BYTES] + body)
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[22] = codec
    whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
    return bytes(whole)


def _produce(records: bytes, topic: str = TOPIC, partitions: int = PARTITIONS) -> bytes:
    data = [ProduceRequestPartition(index=index, records=records) for index in range(partitions)]
    topics = [ProduceRequestTopic(name=topic, partition_data=data)]
    return _frame(ApiKey.PRODUCE, 7, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics))


BOMB = bytes(130 * 2**20)


def _bombs() -> Sequence[bytes]:
    packed = {
        Codec.GZIP: zlib.compress(BOMB, wbits=31),
        Codec.SNAPPY: bytes(cramjam.snappy.compress_raw(BOMB[: 2**24])),
        Codec.LZ4: _lz4_bomb(),
        Codec.ZSTD: bytes(cramjam.zstd.compress(BOMB, 19)),
    }
    return [_produce(_batch(data, codec)) for codec, data in packed.items()]


def _lz4_bomb() -> bytes:
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(BOMB)
    return bytes(compressor.finish())


def _noise(size: int) -> bytes:
    return zlib.compress(bytes(range(256)) * 64, 0)[:16] + bytes(
        (n * 2_654_435_761 >> 13) & 0xFF for n in range(size)
    )


# ---- beginnings


def _half_frame(size: int, sent: int) -> bytes:
    return struct.pack(">i", size) + _NOTHING[:sent]


_NOTHING = bytes(REQUEST_BYTES)


def _half_login(mechanism: str, token: bytes) -> bytes:
    """Return the first two frames of a login whose mechanism wants a third."""
    return handshake(mechanism) + authenticate(token)


def _hello(size: int | None = None) -> Callable[[], Sequence[bytes]]:
    """Return many first messages of TLS handshakes, whole or only so many bytes of them."""
    # The broker's certificate is not looked at: nothing of its answer is.
    context = ssl.create_default_context()
    return lambda: [TlsBytes(context).hello()[:size] for _ in range(MANY_LINES)]


MANY_LINES = 200
"""Connections of a growth that begins something on each. A turn reads of all that have sent, so the
turns of more are longer, however little each is."""


GROWTHS: Sequence[Growth] = (
    Growth(
        "tagged fields of a header before the login",
        lambda: [_api_versions(count, 0) for count in (MAX_HEADER_TAGS, 250_000)],
        "unknown",
    ),
    Growth(
        "tagged fields of a body before the login", lambda: [_api_versions(0, 250_000)], "unknown"
    ),
    Growth(
        "questions for versions before the login",
        lambda: [_api_versions(0, 0, b"_" * 30_000)] * 100,
        "unknown",
    ),
    Growth(
        "tagged fields of a header",
        lambda: [_api_versions(REQUEST_BYTES // 2 - 50, 0)],
    ),
    Growth("tagged fields of a body", lambda: [_api_versions(0, REQUEST_BYTES // 2 - 50)]),
    Growth(
        "tagged fields of elements",
        lambda: [_tagged_topics(1000, 240), _tagged_topics(1000, 10_000)],
    ),
    Growth("names of topics, refused", lambda: [_metadata()]),
    Growth("names of topics", lambda: [_metadata()], "administrator"),
    Growth(
        "names of groups, refused",
        lambda: [_frame(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=NAMES))],
    ),
    Growth(
        "names of groups",
        lambda: [_frame(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=NAMES))],
        "administrator",
    ),
    Growth(
        "keys of coordinators",
        lambda: [
            _frame(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=NAMES))
        ],
    ),
    Growth("partitions of a topic", lambda: [_list_offsets()], "administrator"),
    Growth("offsets of a group", lambda: [_offset_fetch()], "administrator"),
    Growth("resources with settings", lambda: [_describe_configs()], "administrator"),
    Growth("offsets to commit", lambda: [_offset_commit()], "administrator", is_whole=True),
    Growth("protocols of a member", lambda: [_join_group()], "administrator", is_whole=True),
    Growth("partitions to fetch", lambda: [_fetch()], "administrator", is_whole=True),
    Growth("epochs of partitions", lambda: [_epochs()], "administrator"),
    Growth("records to delete", lambda: [_delete_records()], "administrator", is_whole=True),
    Growth(
        "partitions without records", lambda: [_nothing_produced()], "administrator", is_whole=True
    ),
    Growth("new topics, refused", lambda: [_create_topics()], is_whole=True),
    Growth("topics to delete, refused", lambda: [_delete_topics()], is_whole=True),
    Growth("decompressed bytes", _bombs, "administrator"),
    Growth(
        "noise that claims a codec",
        lambda: [_produce(_batch(_noise(900_000), codec)) for codec in list(Codec)[1:]],
        "administrator",
    ),
    Growth(
        "records for a topic that is not there",
        lambda: [_produce(_batch(_noise(900_000), Codec.ZSTD), "nowhere")] * 3,
        "administrator",
    ),
    Growth(
        "records for a topic, refused", lambda: [_produce(_batch(_noise(900_000), Codec.ZSTD))] * 3
    ),
    Growth(
        "requests of an API that nobody has",
        lambda: [_sized(struct.pack(">hhih", 999, 0, 7, 0) + _NOTHING[: REQUEST_BYTES - 100])] * 3,
    ),
    Growth("requests above the bound", lambda: [_half_frame(2**31 - 1, 1_000_000)] * 20),
    Growth(
        "requests above the bound before the login",
        lambda: [_half_frame(512 * 1024 + 1, 500_000)] * 20,
        "unknown",
    ),
    Growth(
        "tokens of logins, refused",
        lambda: [handshake(PLAIN) + authenticate(b"\0x\0" + b"x" * 500_000)] * 20,
        "unknown",
    ),
    Growth(
        "half frames before the login",
        lambda: [_half_frame(512 * 1024, 512 * 1024 - 1)] * MANY_LINES,
        "unknown",
        is_begun=True,
    ),
    Growth(
        "half logins",
        lambda: [_half_login(SCRAM_SHA_256, f"n,,n={USER},r=abc".encode())] * MANY_LINES,
        "unknown",
        is_begun=True,
    ),
    Growth("begun records of TLS", _hello(100), "tls", is_begun=True),
    Growth("half handshakes of TLS", _hello(), "tls", is_begun=True),
    Growth(
        "small half frames",
        lambda: [_half_frame(REQUEST_BYTES, 60_000)] * MANY_LINES,
        is_begun=True,
    ),
    Growth(
        "large half frames",
        lambda: [_half_frame(REQUEST_BYTES, REQUEST_BYTES - 1)] * 12,
        is_begun=True,
    ),
)


# ---- what they cost


@attrs.define(eq=False)
class Growing:
    """Sends growths to the broker of a `Fuzzing`, which has the connections."""

    fuzzing: Fuzzing

    @property
    def target(self) -> Target:
        return self.fuzzing.target

    async def prepare(self) -> None:
        """Create the topic, and have the broker do once what it does only once."""
        async with Admin(self.target.bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
            await admin.list_groups()

    async def measure(self, growth: Growth) -> Cost:
        """Send a growth, and return its cost."""
        before = resident_bytes(self.target.pid)
        log_bytes = self.target.log.stat().st_size
        peak = [before]
        probes: list[float] = []
        watching = [
            asyncio.ensure_future(self._watch_memory(peak)),
            asyncio.ensure_future(self._probe(probes)),
        ]
        try:
            answered = await self._send(growth)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

        kept = await self._wait_until_small(before)
        # What is logged later would be the next growth's.
        await asyncio.sleep(WATCHDOG_S)
        with self.target.log.open("rb") as log:
            log.seek(log_bytes)
            turns = [float(turn[2]) for turn in TURN.finditer(log.read().decode(errors="replace"))]
        return Cost(max(turns, default=0.0), peak[0] - before, kept, max(probes), answered)

    async def _send(self, growth: Growth) -> int:
        answered = 0
        left = list(await asyncio.to_thread(growth.frames))
        if growth.is_begun:
            return await self._begin(growth, left)
        while left:
            async with self._enter(growth) as line:
                answered += await self._send_on(line, left)
        return answered

    @contextlib.asynccontextmanager
    async def _enter(self, growth: Growth) -> AsyncIterator[Line]:
        """Go the way of a growth to its first frame."""
        ports = {"administrator": self.target.plaintext, "tls": self.target.tls}
        async with self.fuzzing._connect(ports.get(growth.way, self.target.login)) as line:
            if growth.way == "stranger":
                await self.fuzzing._log_in(line, PLAIN, plain_token())
            yield line

    async def _begin(self, growth: Growth, frames: Sequence[bytes]) -> int:
        """Send each frame on its own connection, until the broker takes nothing more of any.

        Then all connections end. Return how many the broker had closed.
        """
        async with contextlib.AsyncExitStack() as opened, asyncio.TaskGroup() as feeding:
            lines = [await opened.enter_async_context(self._enter(growth)) for _ in frames]
            taken = [0]
            feeds = [
                feeding.create_task(self._feed(line, frame, taken))
                for line, frame in zip(lines, frames, strict=True)
            ]
            before = -1
            while taken[0] > before:
                before = taken[0]
                await asyncio.sleep(STILL_S)
            for feed in feeds:
                feed.cancel()
            return sum(line.reader.at_eof() for line in lines)

    async def _feed(self, line: Line, frame: bytes, taken: list[int]) -> None:
        with contextlib.suppress(ConnectionError):
            for begin in range(0, len(frame), PIECE_BYTES):
                line.writer.write(frame[begin : begin + PIECE_BYTES])
                await line.writer.drain()
                taken[0] += 1

    async def _send_on(self, line: Line, left: list[bytes]) -> int:
        """Send frames until the broker closes the connection."""
        answered = 0
        while left:
            line.writer.write(left.pop(0))
            try:
                async with asyncio.timeout(120):
                    await line.writer.drain()
                    await line.receive()
                answered += 1
            except (asyncio.IncompleteReadError, ConnectionError):
                return answered
        return answered

    async def _watch_memory(self, peak: list[int]) -> None:
        while True:
            peak[0] = max(peak[0], resident_bytes(self.target.pid))
            await asyncio.sleep(LOOK_S)

    async def _probe(self, probes: list[float]) -> None:
        """Ask as a second client, again and again."""
        async with self.fuzzing._connect(self.target.plaintext) as line:
            while True:
                began = time.monotonic()
                async with asyncio.timeout(PROBE_DEADLINE_S):
                    await self.fuzzing._ask(line)
                probes.append(time.monotonic() - began)
                await asyncio.sleep(LOOK_S)

    async def _wait_until_small(self, before: int) -> int:
        """Wait until the broker is small again, and return how much larger it is than before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                while resident_bytes(self.target.pid) > before + GROWTH_BYTES:
                    await asyncio.sleep(1)
        return resident_bytes(self.target.pid) - before


def check(growth: Growth, cost: Cost) -> None:
    """Raise BrokerHurt where a growth costs more than it may."""
    turn_s = LONGEST_WHOLE_TURN_S if growth.is_whole else LONGEST_TURN_S
    if cost.turn_s > turn_s:
        raise BrokerHurt(f"{growth.name}: a turn took {cost.turn_s:.3f} s of the processor")
    if cost.peak_bytes > PEAK_BYTES:
        raise BrokerHurt(f"{growth.name}: memory grew by {cost.peak_bytes:,} bytes")
    if cost.kept_bytes > GROWTH_BYTES:
        raise BrokerHurt(f"{growth.name}: {cost.kept_bytes:,} bytes stay after {QUIET_S:.0f} s")


async def grow(fuzzing: Fuzzing, growths: Sequence[Growth], report: Callable[[str], None]) -> None:
    """Send growths one after the other, and report their costs. Raises BrokerHurt."""
    growing = Growing(fuzzing)
    await growing.prepare()
    for growth in growths:
        cost = await growing.measure(growth)
        report(
            f"{growth.name} ({growth.way}): a turn took {cost.turn_s * 1000:.0f} ms of the "
            f"processor, memory {cost.peak_bytes / 2**20:.0f} MB more at its peak and "
            f"{cost.kept_bytes / 2**20:.0f} afterwards, another client waited {cost.probe_s:.2f} s"
        )
        check(growth, cost)
