"""Headers of requests and responses, and whole frames."""

from __future__ import annotations

import attrs
import pytest

from protocol.api_key import ApiKey
from protocol.bounds import MAX_HEADER_TAGS
from protocol.header import (
    RequestHeader,
    encode_request,
    encode_response,
    read_correlation_id,
    read_request,
    read_request_header,
    read_response,
)
from protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.update_metadata import UpdateMetadataResponse
from protocol.primitives import WireError, uvarint

# Bytes written by Apache Kafka 2.8.2.
KAFKA_HEADER = "000300080000004d0004636cc3a9"
KAFKA_HEADER_WITHOUT_CLIENT = "000300080000004dffff"
KAFKA_HEADER_V2 = "001200030000004d0004636cc3a900"
KAFKA_API_VERSIONS_BODY_V3 = "026e023100"
KAFKA_API_VERSIONS_ANSWER_V3 = "000002001200000003000000000500"

API_VERSIONS = ApiVersionsRequest(client_software_name="n", client_software_version="1")


def framed(data: str) -> bytes:
    body = bytes.fromhex(data)
    return len(body).to_bytes(4, "big") + body


def test_a_header_of_kafka_is_read_and_the_body_begins_behind_it() -> None:
    expected = RequestHeader(3, 8, 77, "clé")
    assert read_request_header(bytes.fromhex(KAFKA_HEADER)) == (expected, 14)


def test_a_client_id_may_be_null() -> None:
    header, end = read_request_header(bytes.fromhex(KAFKA_HEADER_WITHOUT_CLIENT))
    assert (header.client_id, end) == (None, 10)


def test_key_version_and_correlation_id_are_read_of_a_header_nobody_knows() -> None:
    assert read_correlation_id(bytes.fromhex("7fff 0063 ffffffff") + b"whatever") == (32767, 99, -1)


@pytest.mark.parametrize("cut", range(8))
def test_a_frame_too_short_for_a_correlation_id_is_refused(cut: int) -> None:
    with pytest.raises(WireError, match="request header"):
        read_correlation_id(bytes.fromhex(KAFKA_HEADER)[:cut])


@pytest.mark.parametrize("cut", range(14))
def test_a_header_that_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(WireError):
        read_request_header(bytes.fromhex(KAFKA_HEADER)[:cut])


@pytest.mark.parametrize("client", ["fffe", "7fff61"], ids=["negative", "too long"])
def test_a_client_id_that_cannot_be_is_refused(client: str) -> None:
    with pytest.raises(WireError):
        read_request_header(bytes.fromhex("000300080000004d" + client))


def test_a_request_is_framed_as_kafka_frames_it() -> None:
    data = encode_request(ApiKey.API_VERSIONS, 3, 77, "clé", API_VERSIONS)
    assert data == framed(KAFKA_HEADER_V2 + KAFKA_API_VERSIONS_BODY_V3)


def test_a_request_without_a_client_id_says_null() -> None:
    data = encode_request(ApiKey.METADATA, 1, 77, None, MetadataRequest(topics=None))
    assert data == framed("000300010000004dffff" + "ffffffff")


@pytest.mark.fault("strangers-137")
def test_the_oldest_controlled_shutdown_has_no_client_id() -> None:
    """Where one was written, the broker that read it took its length for the broker's id."""
    request = ControlledShutdownRequest(broker_id=5)
    data = encode_request(ApiKey.CONTROLLED_SHUTDOWN, 0, 77, "ours", request)
    assert data == framed("000700000000004d" + "00000005")


def test_tagged_fields_of_the_header_are_passed_over() -> None:
    tags = "02 0501aa 0902bbcc"
    frame = bytes.fromhex(KAFKA_HEADER_V2[:-2] + tags + KAFKA_API_VERSIONS_BODY_V3)
    header, pos = read_request_header(frame)
    assert read_request(header, frame, pos) == API_VERSIONS


@pytest.mark.fault("security-3")
def test_tagged_fields_of_the_header_are_bounded() -> None:
    for count in (MAX_HEADER_TAGS, MAX_HEADER_TAGS + 1):
        tags = (uvarint(count) + b"\x05\x00" * count).hex()
        frame = bytes.fromhex(KAFKA_HEADER_V2[:-2] + tags + KAFKA_API_VERSIONS_BODY_V3)
        header, pos = read_request_header(frame)
        if count <= MAX_HEADER_TAGS:
            assert read_request(header, frame, pos) == API_VERSIONS
            continue
        with pytest.raises(WireError, match="header has 1001 tagged fields"):
            read_request(header, frame, pos)


@pytest.mark.parametrize("tags", ["", "01", "0105", "017fff", "01057f"])
def test_tagged_fields_that_are_cut_are_refused(tags: str) -> None:
    frame = bytes.fromhex(KAFKA_HEADER_V2[:-2] + tags)
    header, pos = read_request_header(frame)
    with pytest.raises(WireError):
        read_request(header, frame, pos)


# librdkafka 2.0: ListGroups 4 with one byte behind it, as its test 0081 sends it.
LIST_GROUPS_OF_LIBRDKAFKA = "00100004000000010007" + b"rdkafka".hex() + "00" + "0100" + "00"
# librdkafka 2.16, its issue 5049: a count of topics that is null in four bytes instead of one.
METADATA_OF_LIBRDKAFKA = "0003000b00000003" + "000772646b61666b61" + "00" + "00000000010000"


@pytest.mark.fault("outside-O1", needs_no_remedy="the check that refused them is gone")
@pytest.mark.parametrize(
    ("sent", "expected", "trailing"),
    [
        (LIST_GROUPS_OF_LIBRDKAFKA, ListGroupsRequest(states_filter=()), 1),
        (METADATA_OF_LIBRDKAFKA, MetadataRequest(topics=None, allow_auto_topic_creation=False), 3),
        ("000300010000004dffff" + "ffffffff" + "00", MetadataRequest(topics=None), 1),
    ],
)
def test_bytes_behind_a_request_are_ignored_and_counted(
    sent: str, expected: object, trailing: int
) -> None:
    counted: list[int] = []
    frame = bytes.fromhex(sent)
    header, pos = read_request_header(frame)
    request = read_request(
        header, frame, pos, note_trailing=lambda of, count: counted.append(count)
    )
    assert (request, counted) == (expected, [trailing])


def test_api_versions_is_answered_under_the_oldest_header_in_every_version() -> None:
    key = ApiVersionsResponseKey(api_key=18, min_version=0, max_version=3)
    answer = ApiVersionsResponse(error_code=0, api_keys=[key], throttle_time_ms=5)
    out, holes = encode_response(ApiKey.API_VERSIONS, 3, 77, answer)
    assert (bytes(out), holes) == (framed("0000004d" + KAFKA_API_VERSIONS_ANSWER_V3), [])


def test_a_correlation_id_comes_back_whatever_its_sign() -> None:
    out, _ = encode_response(ApiKey.UPDATE_METADATA, 5, -2, UpdateMetadataResponse(error_code=11))
    assert bytes(out) == framed("fffffffe000b")
    read = read_response(ApiKey.UPDATE_METADATA, 5, memoryview(out)[4:])
    assert read == (-2, UpdateMetadataResponse(error_code=11))


def test_a_response_without_a_correlation_id_is_refused() -> None:
    with pytest.raises(WireError, match="no correlation id"):
        read_response(ApiKey.UPDATE_METADATA, 5, b"\0\0\0")


@attrs.frozen
class Stored:
    """Bytes in a file, to the writer."""

    size: int


def test_the_size_in_front_counts_what_is_still_in_files() -> None:
    parts = [
        FetchResponsePartition(
            partition_index=index, error_code=0, high_watermark=9, records=Stored(size)
        )
        for index, size in ((0, 100), (1, 7))
    ]
    topics = [FetchResponseTopic(topic="t", partitions=parts)]
    out, holes = encode_response(ApiKey.FETCH, 11, 1, FetchResponse(responses=topics))
    assert int.from_bytes(out[:4], "big") == len(out) - 4 + 107
    assert [(bytes(out[at - 4 : at]), body.size) for at, body in holes] == [
        (b"\0\0\0\x64", 100),
        (b"\0\0\0\x07", 7),
    ]
