"""What a broker does with bytes and settings that are wrong, and that nobody else suffers by it."""

import contextlib
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.header import encode_request
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition
from tests.cluster.raw_client import RawClient, frame, header
from tests.stage.cluster import DevCluster
from tests.stage.topic_contents import contents

MAX_FRAME_BYTES = 4 * 1024 * 1024
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 7, 11, 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    bound = ("--set", f"socket.request.max.bytes={MAX_FRAME_BYTES}")
    with DevCluster(tmp_path_factory.mktemp("bad"), bound) as cluster:
        yield cluster


def serves(cluster: DevCluster) -> bool:
    """Whether somebody else is answered."""
    with RawClient(cluster) as other:
        answer = other.ask(MetadataRequest(topics=[]), METADATA_VERSION)
        return len(answer.brokers) == 1


CLOSED = {
    "a negative size": (b"\xff\xff\xff\xff", r"frame of -1 bytes"),
    "a size above the bound": (b"\x7f\xff\xff\xff", r"frame of 2147483647 bytes"),
    "a size just above the bound": (
        struct.pack(">i", MAX_FRAME_BYTES + 1),
        rf"frame of {MAX_FRAME_BYTES + 1} bytes",
    ),
    "words of another protocol": (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", r"frame of \d+ bytes"),
    "an empty frame": (frame(b""), r".*header"),
    "half a header": (frame(b"\0\3\0"), r".*header"),
    "an unknown API key": (frame(header(999, 0)), r"API key 999 is not served"),
    "a negative API key": (frame(header(-1, 0)), r"API key -1 is not served"),
    "an unknown version": (frame(header(3, 99)), r"METADATA version 99 is not served"),
    "a negative version": (frame(header(3, -1)), r"METADATA version -1 is not served"),
    "a client id longer than the frame": (
        frame(struct.pack(">hhih", 3, 1, 7, 500) + b"me"),
        r"METADATA version 1: ",
    ),
    "an array longer than the frame": (
        frame(header(3, 1) + struct.pack(">i", 2**31 - 1)),
        r"METADATA version 1: topics",
    ),
    "a string that is not UTF-8, and too long with what Kafka puts in its place": (
        frame(header(3, 1) + struct.pack(">ih", 1, 20_000) + b"\xff" * 20_000),
        r"METADATA version 1: .*utf-8",
    ),
    "a body that is cut": (frame(header(0, 7) + b"\0\0"), r"PRODUCE version 7: "),
}


@pytest.mark.parametrize("what", CLOSED)
def test_what_cannot_be_answered_is_closed_with_one_line_that_says_who_and_why(
    cluster: DevCluster, what: str
) -> None:
    sent, why = CLOSED[what]
    with RawClient(cluster) as client:
        client.connection.sendall(sent)
        assert client.is_closed()
        said = [line for line in cluster.log().splitlines() if client.name in line]
        assert len(said) == 1
        assert re.search(rf" WARNING {client.name}: connection closed: {why}", said[0])
    assert serves(cluster)


@pytest.mark.fault("outside-O1", needs_no_remedy="the check that refused them is gone")
def test_a_request_with_more_bytes_than_it_has_is_served(cluster: DevCluster) -> None:
    with RawClient(cluster) as client:
        client.connection.sendall(frame(header(3, 1) + struct.pack(">i", 0) + b"more"))
        assert client.answer(ApiKey.METADATA, 1).brokers
    assert "METADATA version 1 of client " in cluster.log()
    assert "4 bytes behind the request are ignored" in cluster.log()


def test_answers_before_the_bad_request_are_still_sent(cluster: DevCluster) -> None:
    with RawClient(cluster) as client:
        good = encode_request(
            ApiKey.METADATA, METADATA_VERSION, 7, None, MetadataRequest(topics=[])
        )
        client.connection.sendall(good + frame(header(999, 0)))
        assert client.answer(ApiKey.METADATA, METADATA_VERSION).brokers
        assert client.is_closed()


def test_a_frame_that_is_cut_is_the_end_of_that_connection_alone(cluster: DevCluster) -> None:
    with RawClient(cluster) as client:
        name = client.name
        client.connection.sendall(frame(header(3, 1) + b"\0\0\0\0")[:-1])
        client.connection.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    said = [line for line in cluster.log().splitlines() if name in line]
    assert len(said) == 1
    assert said[0].count(f"{name}: the client closed the connection within a request") == 1
    assert serves(cluster)


@pytest.mark.parametrize("version", [4, 99, -1])
def test_api_versions_in_an_unknown_version_says_in_version_0_which_are_known(
    cluster: DevCluster, version: int
) -> None:
    with RawClient(cluster) as client:
        client.connection.sendall(frame(header(18, version) + b"\0\0\0\0"))
        answer = client.answer(ApiKey.API_VERSIONS, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 3)]
        assert client.ask(MetadataRequest(topics=[]), METADATA_VERSION).brokers


# ---- batches


def batch(*values: bytes, key: bytes | None = None) -> bytes:
    return encode_batch([(1000, key, value, ()) for value in values])


def with_byte(data: bytes, position: int, byte: int) -> bytes:
    return data[:position] + bytes([byte]) + data[position + 1 :]


GOOD = batch(b"good")
BAD_BATCHES: dict[str, tuple[bytes, ErrorCode]] = {
    "a flipped bit": (with_byte(GOOD, len(GOOD) - 2, 0xEE), ErrorCode.CORRUPT_MESSAGE),
    "half a batch": (GOOD[:-3], ErrorCode.INVALID_RECORD),
    "no batch": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "an unknown magic": (with_byte(GOOD, 16, 9), ErrorCode.CORRUPT_MESSAGE),
    "too much for the topic": (batch(b"x" * 3000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
async def test_a_bad_batch_fails_its_partition_alone(cluster: DevCluster, what: str) -> None:
    topic, (bad, code) = "of-" + what.replace(" ", "-"), BAD_BATCHES[what]
    async with Admin(cluster.address("bootstrap")) as admin:
        new = NewTopic(topic, 3, 1, {"max.message.bytes": "2000"})
        assert await admin.create_topics([new]) == {topic: None}
    with RawClient(cluster) as client:
        answer = client.ask(produce(topic, {0: GOOD, 1: bad, 2: GOOD, 9: GOOD}), PRODUCE_VERSION)
    (of_topic,) = answer.responses
    assert [(p.index, p.error_code, p.base_offset) for p in of_topic.partition_responses] == [
        (0, ErrorCode.NONE, 0),
        (1, code, -1),
        (2, ErrorCode.NONE, 0),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    values = [
        [r.value for r in await contents(cluster.address("bootstrap"), TopicPartition(topic, p))]
        for p in range(3)
    ]
    assert values == [[b"good"], [], [b"good"]]


def produce(topic: str, batches: dict[int, bytes], acks: int = -1) -> ProduceRequest:
    parts = [ProduceRequestPartition(index=p, records=b) for p, b in batches.items()]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[ProduceRequestTopic(name=topic, partition_data=parts)],
    )


def test_a_failed_request_that_wants_no_answer_is_closed(cluster: DevCluster) -> None:
    with RawClient(cluster) as client:
        request = produce("no-such-topic-of-mine", {0: GOOD}, acks=0)
        client.connection.sendall(
            encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 7, "raw", request)
        )
        assert client.is_closed()
        assert f"{client.name}: connection closed: an acks=0 request" in cluster.log()


def test_acks_of_2_are_refused(cluster: DevCluster) -> None:
    with RawClient(cluster) as client:
        answer = client.ask(produce("any", {0: GOOD}, acks=2), PRODUCE_VERSION)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.INVALID_REQUIRED_ACKS


# ---- clients that do nothing wrong, and are slow


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


async def test_a_reader_that_does_not_read_costs_little_and_disturbs_nobody(
    cluster: DevCluster,
) -> None:
    bootstrap, pid = cluster.address("bootstrap"), cluster.pid("broker-0")
    async with Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for _ in range(100):
            await producer.send("large", b"x" * 100_000)
    before = resident_bytes(pid)
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=2**30)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchRequestTopic(topic="large", partitions=[part])],
    )
    fetch = encode_request(ApiKey.FETCH, FETCH_VERSION, 7, "slow", request)
    with contextlib.ExitStack() as clients:
        for _ in range(10):
            slow = clients.enter_context(RawClient(cluster))
            slow.connection.sendall(fetch * 100)
        for _ in range(100):
            assert serves(cluster)
        assert resident_bytes(pid) - before < 50_000_000
        (answer,) = slow.answer(ApiKey.FETCH, FETCH_VERSION).responses
        assert len(answer.partitions[0].records) > 5_000_000


def test_clients_that_say_nothing_or_stop_halfway_disturb_nobody(cluster: DevCluster) -> None:
    with contextlib.ExitStack() as clients:
        for number in range(100):
            client = clients.enter_context(RawClient(cluster))
            if number % 2:
                client.connection.sendall(struct.pack(">i", MAX_FRAME_BYTES))
        assert serves(cluster)
